import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.codec import pack
from hibernaut.errors import ConfigurationError, TokenRefused, TooLarge
from hibernaut.tools import tokens
from hibernaut.tools.tokens import Grant, KeyRing

SECRET = b"a secret of the first kind"
OTHER = b"another one, newer than it"
KEYS = KeyRing([SECRET])
NOW = 1_700_000_000_000
GARBLED = "this callback token is not valid"

OF_THE_FIRST_FORM = "h1.k6Z0aHJlYWSkY2FsbM8AAAGLz-VoAQ.ZkC3vrGcQHHYzbic589I6aVB_NExpuka-8KhcoHpcc8"


def old(*grant: object, secret: bytes = SECRET, version: str = "h1") -> str:
    signed = f"{version}.{tokens._written(pack(list(grant)))}"
    return f"{signed}.{tokens._signature(secret, signed)}"


def refusal(token: str, *, now: int = NOW, keys: KeyRing = KEYS) -> str:
    with pytest.raises(TokenRefused) as refused:
        tokens.read(keys, token, now)
    return str(refused.value)


@given(
    st.builds(
        Grant,
        st.text(max_size=40),
        st.text(max_size=40),
        st.integers(min_value=0, max_value=2**60),
        st.sets(st.sampled_from(tokens.KINDS)).map(lambda kinds: tuple(k for k in tokens.KINDS if k in kinds)),
        st.text(max_size=40),
    )
)
def test_a_token_brings_back_what_was_signed(grant: Grant) -> None:
    token = tokens.sign(KEYS, grant)
    assert tokens.read(KEYS, token, 0 if not grant.expires else grant.expires - 1) == grant


def test_the_same_grant_gets_the_same_token_and_another_grant_another() -> None:
    assert tokens.sign(KEYS, Grant("t", "c")) == tokens.sign(KEYS, Grant("t", "c"))
    others = [
        Grant("t", "d"),
        Grant("u", "c"),
        Grant("t", "c", 1),
        Grant("tc", ""),
        Grant("", "tc"),
        Grant("t", "c", 0, ()),
        Grant("t", "c", 0, ("oauth",)),
        Grant("t", "c", root="r"),
    ]
    assert len({tokens.sign(KEYS, grant) for grant in [Grant("t", "c"), *others]}) == 1 + len(others)


def test_a_token_may_stand_in_a_url() -> None:
    token = tokens.sign(KEYS, Grant("thread ü/?&=%", "call", NOW, tokens.KINDS))
    assert set(token) <= set(string.ascii_letters + string.digits + "-_.")


def test_a27_a_token_changed_in_any_place_is_refused() -> None:
    for token in (tokens.sign(KEYS, Grant("thread", "call", NOW + 1)), OF_THE_FIRST_FORM):
        assert tokens.read(KEYS, token, NOW).thread_id == "thread"
        for place, char in enumerate(token):
            for other in {"A", "B", ".", "_", "=", "\x00", "ü"} - {char}:
                assert refusal(token[:place] + other + token[place + 1 :]) == GARBLED
            assert refusal(token[:place]) == GARBLED
            assert refusal(token[:place] + "A" + token[place:]) == GARBLED


def test_a27_a_token_with_something_added_is_refused() -> None:
    token = tokens.sign(KEYS, Grant("thread", "call"))
    for added in (" ", "\n", "=", ".", "A", "\x00"):
        refusal(token + added)
        refusal(added + token)


@given(st.text(max_size=200))
def test_a22_any_text_that_is_no_token_is_refused_in_the_same_words(text: str) -> None:
    assert refusal(text) == GARBLED
    assert refusal(f"h2.{KEYS.newest}.{text}") == GARBLED


def test_a27_a_token_signed_with_a_secret_of_somebody_else_is_refused() -> None:
    assert refusal(tokens.sign(KeyRing([OTHER]), Grant("thread", "call"))) == GARBLED
    assert refusal(old("thread", "call", 0, secret=OTHER)) == GARBLED


def test_a27_a_token_under_the_key_id_of_another_secret_is_refused() -> None:
    both, other = KeyRing([SECRET, OTHER]), KeyRing([OTHER])
    body = tokens.sign(KEYS, Grant("thread", "call")).split(".")[2]
    genuine, forged = f"h2.{other.newest}.{body}", f"h2.{KEYS.newest}.{body}"
    assert tokens.read(both, f"{genuine}.{other.signature(genuine)}", NOW) == Grant("thread", "call")
    assert refusal(f"{forged}.{other.signature(forged)}", keys=both) == GARBLED


def test_a_grant_cannot_be_moved_under_the_signature_of_another() -> None:
    mine, theirs = tokens.sign(KEYS, Grant("mine", "call")), tokens.sign(KEYS, Grant("theirs", "call"))
    refusal(".".join([*theirs.split(".")[:3], mine.split(".")[3]]))


def test_a27_a_token_is_void_from_the_moment_it_expires() -> None:
    for token in (tokens.sign(KEYS, Grant("thread", "call", NOW)), old("thread", "call", NOW)):
        assert tokens.read(KEYS, token, NOW - 1).expires == NOW
        assert refusal(token, now=NOW) == "this callback token has expired"


def test_only_a_genuine_token_is_told_that_it_expired() -> None:
    assert refusal(tokens.sign(KeyRing([OTHER]), Grant("thread", "call", 1))) == GARBLED


def test_a_token_of_the_first_form_allows_a_result_for_ever() -> None:
    assert old("thread", "call", NOW + 1) == OF_THE_FIRST_FORM
    assert tokens.read(KEYS, OF_THE_FIRST_FORM, NOW) == Grant("thread", "call", NOW + 1, ("tool_result",))
    assert tokens.read(KeyRing([OTHER, SECRET]), OF_THE_FIRST_FORM, NOW).call_id == "call"


def test_a_ring_signs_with_its_newest_key_and_reads_the_older_ones_until_they_are_taken_out() -> None:
    before, rotated, after = KEYS, KeyRing([OTHER, SECRET]), KeyRing([OTHER])
    grant = Grant("thread", "call")
    for token in (tokens.sign(before, grant), old("thread", "call", 0)):
        assert tokens.read(rotated, token, NOW) == grant
        assert refusal(token, keys=after) == GARBLED
    assert rotated.newest == after.newest
    assert tokens.sign(rotated, grant) == tokens.sign(after, grant)


@pytest.mark.parametrize("kind", tokens.KINDS)
def test_a27_a_token_allows_the_kinds_it_names_for_its_own_call_and_no_other(kind: tokens.Kind) -> None:
    grant = Grant("thread", "call", kinds=(kind,))
    grant.check(kind, "thread", "call")
    grant.check(kind, "thread", None)
    for other in {*tokens.KINDS, "", "close_thread"} - {kind}:
        with pytest.raises(TokenRefused, match="does not allow"):
            grant.check(other, "thread", "call")
    for thread, call in (("other", "call"), ("thread", "other"), ("other", None), ("thread", "")):
        with pytest.raises(TokenRefused, match="another call"):
            grant.check(kind, thread, call)


@pytest.mark.parametrize(
    "grant",
    [
        ["thread", "call", 0, "r", "", "only on Sundays"],
        ["thread", "call", 0, "rx", ""],
        ["thread", "call", 0, "rr", ""],
        ["thread", "call", 0],
        ["thread", "call", -1.5, "r", ""],
        [b"\xff", "call", 0, "r", ""],
        {},
    ],
)
def test_a_genuine_token_that_says_what_this_version_does_not_know_is_refused(grant: object) -> None:
    signed = f"h2.{KEYS.newest}.{tokens._written(pack(grant))}"
    assert refusal(f"{signed}.{KEYS.signature(signed)}") == GARBLED


def test_a_genuine_token_of_the_first_form_that_says_more_is_refused() -> None:
    refusal(old("thread", "call", 0, "only on Sundays"))


def test_a_genuine_token_of_another_version_is_refused() -> None:
    refusal(old("thread", "call", 0, version="h3"))
    refusal(old("thread", "call", 0, version="h2"))
    signed = f"h1.{KEYS.newest}.{base64.urlsafe_b64encode(pack(['thread', 'call', 0])).decode()}"
    refusal(f"{signed}.{KEYS.signature(signed)}")


def test_a_token_that_would_be_too_long_is_not_made() -> None:
    with pytest.raises(TooLarge):
        tokens.sign(KEYS, Grant("t" * 2_000, "call"))


def test_the_longest_names_that_a_system_takes_fit_into_a_token() -> None:
    tokens.sign(KEYS, Grant("ü" * 200, "call_" + "0" * 16, NOW, tokens.KINDS, "ü" * 200))


def test_what_is_longer_than_a_token_is_refused_without_being_looked_at() -> None:
    signed = "h1." + "A" * 3_000
    refusal(f"{signed}.{tokens._signature(SECRET, signed)}")


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    for secrets in ([b"short"], [SECRET, b""]):
        with pytest.raises(ConfigurationError, match="16 bytes"):
            KeyRing(secrets)


def test_a_ring_without_a_secret_or_with_one_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="need a secret"):
        KeyRing([])
    with pytest.raises(ConfigurationError, match="twice"):
        KeyRing([SECRET, OTHER, SECRET])


def test_a_ring_does_not_print_its_secrets() -> None:
    assert repr(KEYS) == f"<KeyRing {KEYS.newest}>"
    assert "secret" not in repr(KEYS)


def test_a_deployment_s_secrets_sign_and_the_store_s_own_is_read_beside_them() -> None:
    grant = Grant("thread", "call")
    both = tokens.ring_of(SECRET, [OTHER])
    assert tokens.sign(both, grant) == tokens.sign(KeyRing([OTHER]), grant)
    assert tokens.read(both, tokens.sign(KEYS, grant), NOW) == grant
    assert tokens.sign(tokens.ring_of(SECRET), grant) == tokens.sign(KEYS, grant)
    assert tokens.ring_of(SECRET, [SECRET]).newest == KEYS.newest
