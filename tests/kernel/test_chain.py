"""What is found when a thread's outbox is not what its receipts say."""

import pytest

from hibernaut.codec import sha256
from hibernaut.errors import VerificationFailed
from hibernaut.kernel.chain import ChainCheck
from hibernaut.kernel.receipt import Receipt, TurnCommit, encode_receipt


def checked(*rounds: tuple[tuple[str, ...], tuple[str, ...]]) -> ChainCheck:
    """Return a check that has taken receipts which owe and settle this."""
    check, previous = ChainCheck(), b""
    for version, (owes, settled) in enumerate(rounds, 1):
        stored = encode_receipt(Receipt(version, previous, b"", (), TurnCommit.NONE, owes=owes, settled=settled))
        check.take(b"", stored)
        previous = sha256(stored)
    return check


def difference(check: ChainCheck, *outbox: str) -> tuple[str, int, str]:
    with pytest.raises(VerificationFailed) as caught:
        check.compare_effects(outbox)
    return caught.value.kind, caught.value.version, str(caught.value)


def test_what_is_owed_is_in_the_outbox_and_nothing_else() -> None:
    check = checked((("call_a", "call_b"), ()), ((), ("call_a",)))
    check.compare_effects(["call_b"])
    assert check.owed == 2


def test_an_effect_that_no_receipt_owes_is_found() -> None:
    check = checked((("call_a",), ()))
    assert difference(check, "call_a", "call_x") == (
        "effect",
        0,
        "effect call_x is in the outbox, and no receipt owes it",
    )


def test_an_effect_that_was_settled_and_is_there_is_found() -> None:
    check = checked((("call_a",), ()), ((), ("call_a",)))
    assert difference(check, "call_a") == (
        "effect",
        2,
        "effect call_a is in the outbox, and was settled at version 2",
    )


def test_an_effect_that_is_gone_without_a_receipt_is_found() -> None:
    check = checked(((), ()), (("call_a",), ()))
    assert difference(check) == (
        "effect",
        2,
        "effect call_a, owed at version 2, is neither in the outbox nor settled",
    )


def test_notices_and_what_was_cancelled_may_be_over_without_a_receipt() -> None:
    check = checked((("call_a",), ()), (("call_a:cancel", "answer:q1", "close:t:ci"), ()))
    check.compare_effects([])
    check.compare_effects(["call_a", "call_a:cancel", "answer:q1"])
