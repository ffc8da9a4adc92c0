"""Which deliveries are one: by what their senders said, or by what became of the one before."""

import pytest

from hibernaut.rap import deliveries
from hibernaut.rap.deliveries import RETRY_WINDOW, Deliveries
from hibernaut.testing.clock import SequentialIds

NOW = 1_700_000_000_000


def test_equal_bodies_are_two_deliveries_unless_the_first_is_in_doubt() -> None:
    known = Deliveries(SequentialIds())
    first, second = (known.begin("t|call", b"{}", NOW) for _ in range(2))
    assert first.identity != second.identity
    known.doubt(first, NOW)
    assert known.begin("t|call", b"{}", NOW + 1).identity == first.identity
    assert known.begin("t|call", b"{}", NOW + 1).identity not in (first.identity, second.identity)


def test_a_doubt_is_about_one_body_for_one_call_and_for_a_while() -> None:
    known = Deliveries(SequentialIds())
    first = known.begin("t|call", b"{}", NOW)
    known.doubt(first, NOW)
    others = [known.begin("t|other", b"{}", NOW), known.begin("t|call", b"{ }", NOW)]
    assert first.identity not in [other.identity for other in others]
    assert known.begin("t|call", b"{}", NOW + RETRY_WINDOW).identity != first.identity


def test_several_in_doubt_are_repeated_one_by_one() -> None:
    known = Deliveries(SequentialIds())
    lost = [known.begin("t|call", b"{}", NOW) for _ in range(3)]
    for delivery in lost:
        known.doubt(delivery, NOW)
        known.doubt(delivery, NOW)
    again = [known.begin("t|call", b"{}", NOW + 1).identity for _ in range(4)]
    assert again[:3] == [delivery.identity for delivery in lost]
    assert again[3] not in again[:3]


def test_a_repeat_that_is_lost_too_stays_the_same_event() -> None:
    known = Deliveries(SequentialIds())
    first = known.begin("t|call", b"{}", NOW)
    for _ in range(3):
        known.doubt(first, NOW)
        again = known.begin("t|call", b"{}", NOW)
        assert again.identity == first.identity
        first = again


def test_a_key_names_a_delivery_of_one_call() -> None:
    known = Deliveries(SequentialIds())
    one, same, other = (known.begin(scope, b"{}", NOW, "k") for scope in ("t|call", "t|call", "t|other"))
    assert one.identity == same.identity != other.identity
    known.doubt(one, NOW)
    assert known.begin("t|call", b"{}", NOW).identity != one.identity


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "MOST_DOUBTFUL", 2)
    monkeypatch.setattr(deliveries, "MOST_RESULTS", 2)
    known = Deliveries(SequentialIds())
    lost = [known.begin(f"t|{number}", b"{}", NOW) for number in range(3)]
    for number, delivery in enumerate(lost):
        known.doubt(delivery, NOW)
        known.note_result(f"t|{number}", b"{}")
    again = [known.begin(f"t|{number}", b"{}", NOW).identity for number in range(3)]
    assert [identity == delivery.identity for identity, delivery in zip(again, lost, strict=True)] == [
        False,
        True,
        True,
    ]
    assert [known.is_repeat(f"t|{number}", b"{}") for number in range(3)] == [False, True, True]
    assert not known.is_repeat("t|2", b"{ }")
