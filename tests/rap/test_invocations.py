"""Effects as what is sent to a tool server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.kernel.commit import Effect
from hibernaut.rap.invocations import callback_url, cancellation, headers, invocation
from hibernaut.rap.requests import CancelToolCall, Invocation
from hibernaut.rap.wire import decode, encode
from hibernaut.tools.arguments import canonical, parse_arguments
from hibernaut.tools.tokens import KINDS, Grant, KeyRing, read, sign
from tests.rap.made import IDS, OBJECTS, TEXTS

URL = "https://h.example/rap/callback/x"


def test_an_invocation_says_who_calls_what_for_whom() -> None:
    effect = Effect("call_a", "invoke", "call_a", "build", '{"commit":"abc"}', local=False)
    full = invocation(effect, "t", URL, provider_id="toolu_1", ancestors=["r", "p"], user="ada")
    assert full == Invocation("build", {"commit": "abc"}, "call_a", "toolu_1", URL, "t", ("r", "p"), "ada")
    assert invocation(effect, "t", URL) == Invocation("build", {"commit": "abc"}, "call_a", None, URL, "t", None)


def test_a_repeat_has_the_same_bytes_and_the_same_key() -> None:
    effect = Effect("call_a", "invoke", "call_a", "build", '{"b":1,"a":[2]}', local=False)
    assert encode(invocation(effect, "t", URL)) == encode(invocation(effect, "t", URL))
    assert headers(effect) == {
        "Content-Type": "application/json",
        "Idempotency-Key": "call_a",
        "RAP-Version": "1",
    }


def test_a_cancellation_names_the_call_and_not_the_effect() -> None:
    assert cancellation(Effect("call_a:cancel", "cancel", "call_a", "build"), "t") == CancelToolCall("t", "call_a")


@given(OBJECTS, IDS, IDS, st.lists(IDS, max_size=3), TEXTS, TEXTS)
def test_what_the_model_wrote_reaches_the_server_as_it_was_written(
    arguments: dict[str, Any], call: str, thread: str, ancestors: list[str], provider_id: str, user: str
) -> None:
    stored = canonical(parse_arguments(json.dumps(arguments)))
    effect = Effect(call, "invoke", call, "build", stored, local=False)
    sent = invocation(effect, thread, URL, provider_id=provider_id, ancestors=ancestors, user=user)
    received = decode(Invocation, encode(sent))
    assert received == sent
    assert received.arguments == arguments
    assert (received.id, received.group_id) == (call, thread)
    assert received.thread_ancestors == (tuple(ancestors) or None)
    assert (received.call_id or "", received.user_id or "") == (provider_id, user)


@pytest.mark.parametrize("public", ["https://h.example/base", "https://h.example/base/"])
def test_a_callback_url_holds_the_token_and_fits_into_an_invocation(public: str) -> None:
    keys = KeyRing([b"a secret of the first kind"])
    grant = Grant("ü" * 200, "call_" + "0" * 16, 1_700_000_000_000, KINDS, "ü" * 200)
    url = callback_url(public, sign(keys, grant))
    base, _, token = url.rpartition("/")
    assert base == "https://h.example/base/rap/callback"
    assert read(keys, token, 0) == grant
    effect = Effect("call_a", "invoke", "call_a", "build", local=False)
    assert decode(Invocation, encode(invocation(effect, "t", url))).callback_url == url
