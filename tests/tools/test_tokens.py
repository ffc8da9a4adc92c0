import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.codec import pack
from hibernaut.errors import ConfigurationError, TokenRefused, TooLarge
from hibernaut.tools import tokens

SECRET = b"a secret of the first kind"
OTHER = b"another one, newer than it"
NOW = 1_700_000_000_000


def refusal(token: str, *, now: int = NOW) -> str:
    with pytest.raises(TokenRefused) as refused:
        tokens.read([SECRET], token, now)
    return str(refused.value)


@given(st.text(max_size=40), st.text(max_size=40), st.integers(min_value=0, max_value=2**60))
def test_a_token_brings_back_what_was_signed(thread_id: str, call_id: str, expires: int) -> None:
    token = tokens.sign(SECRET, thread_id, call_id, expires)
    assert tokens.read([SECRET], token, 0 if not expires else expires - 1) == tokens.Grant(thread_id, call_id, expires)


def test_the_same_call_gets_the_same_token_and_another_call_another() -> None:
    assert tokens.sign(SECRET, "t", "c") == tokens.sign(SECRET, "t", "c")
    others = [("t", "d", 0), ("u", "c", 0), ("t", "c", 1), ("tc", "", 0), ("", "tc", 0)]
    assert len({tokens.sign(SECRET, *grant) for grant in [("t", "c", 0), *others]}) == 1 + len(others)


def test_a_token_may_stand_in_a_url() -> None:
    token = tokens.sign(SECRET, "thread ü/?&=%", "call", NOW)
    assert set(token) <= set(string.ascii_letters + string.digits + "-_.")


def test_a27_a_token_changed_in_any_place_is_refused() -> None:
    token = tokens.sign(SECRET, "thread", "call", NOW + 1)
    assert tokens.read([SECRET], token, NOW).thread_id == "thread"
    for place, char in enumerate(token):
        for other in {"A", "B", ".", "_", "=", "\x00", "ü"} - {char}:
            assert refusal(token[:place] + other + token[place + 1 :]) == "this callback token is not valid"
        assert refusal(token[:place]) == "this callback token is not valid"
        assert refusal(token[:place] + "A" + token[place:]) == "this callback token is not valid"


def test_a27_a_token_with_something_added_is_refused() -> None:
    token = tokens.sign(SECRET, "thread", "call")
    for added in (" ", "\n", "=", ".", "A", "\x00"):
        refusal(token + added)
        refusal(added + token)


@given(st.text(max_size=200))
def test_a22_any_text_that_is_no_token_is_refused_in_the_same_words(text: str) -> None:
    assert refusal(text) == "this callback token is not valid"


def test_a27_a_token_signed_with_a_secret_of_somebody_else_is_refused() -> None:
    assert refusal(tokens.sign(OTHER, "thread", "call")) == "this callback token is not valid"


def test_a_grant_cannot_be_moved_under_the_signature_of_another() -> None:
    mine, theirs = tokens.sign(SECRET, "mine", "call"), tokens.sign(SECRET, "theirs", "call")
    refusal(".".join([*theirs.split(".")[:2], mine.split(".")[2]]))


def test_a27_a_token_is_void_from_the_moment_it_expires() -> None:
    token = tokens.sign(SECRET, "thread", "call", NOW)
    assert tokens.read([SECRET], token, NOW - 1).expires == NOW
    assert refusal(token, now=NOW) == "this callback token has expired"


def test_only_a_genuine_token_is_told_that_it_expired() -> None:
    assert refusal(tokens.sign(OTHER, "thread", "call", 1)) == "this callback token is not valid"


def test_a_token_of_an_older_secret_is_read_while_that_is_still_known() -> None:
    old = tokens.sign(SECRET, "thread", "call")
    assert tokens.read([OTHER, SECRET], old, NOW) == tokens.read([SECRET, OTHER], old, NOW)
    with pytest.raises(TokenRefused):
        tokens.read([OTHER], old, NOW)


def test_a_genuine_token_that_says_more_than_this_version_knows_is_refused() -> None:
    grant = base64.urlsafe_b64encode(pack(["thread", "call", 0, "only on Sundays"])).decode().rstrip("=")
    refusal(f"h1.{grant}.{tokens._signature(SECRET, f'h1.{grant}')}")


def test_a_genuine_token_of_another_version_is_refused() -> None:
    grant = tokens.sign(SECRET, "thread", "call").split(".")[1]
    refusal(f"h2.{grant}.{tokens._signature(SECRET, f'h2.{grant}')}")


def test_a_token_that_would_be_too_long_is_not_made() -> None:
    with pytest.raises(TooLarge):
        tokens.sign(SECRET, "t" * 1_000, "call")


def test_what_is_longer_than_a_token_is_refused_without_being_looked_at() -> None:
    signed = "h1." + "A" * 2_000
    refusal(f"{signed}.{tokens._signature(SECRET, signed)}")


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="16 bytes"):
        tokens.sign(b"short", "thread", "call")
    with pytest.raises(ConfigurationError, match="16 bytes"):
        tokens.read([SECRET, b""], tokens.sign(SECRET, "thread", "call"), NOW)


def test_without_a_secret_no_token_is_read() -> None:
    with pytest.raises(ConfigurationError, match="without a secret"):
        tokens.read([], tokens.sign(SECRET, "thread", "call"), NOW)
