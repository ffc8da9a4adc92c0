"""Every message in its bytes, and everything that is none."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.errors import MalformedInput, TooLarge
from hibernaut.rap import limits
from hibernaut.rap.callbacks import (
    Callback,
    Diff,
    DiffSegment,
    ImagePart,
    ImageSegment,
    OAuth,
    Picture,
    Result,
    SubscriptionEvent,
    TextPart,
    TextSegment,
    UserChoice,
    ViewUpdate,
    segments,
    written_segments,
)
from hibernaut.rap.limits import WireLimits
from hibernaut.rap.requests import (
    Alive,
    AskStatus,
    CancelToolCall,
    CloseThread,
    Invocation,
    Migrate,
    Request,
    Selected,
)
from hibernaut.rap.wire import decode, decode_callback, encode
from tests.rap.made import CALLBACKS, JSON_VALUES, REQUESTS

GOLDEN_CALLBACKS: list[tuple[Callback, bytes]] = [
    (
        Result(group_id="t", id="c", text="fine"),
        b'{"type":"tool_result","group_id":"t","id":"c","text":"fine"}',
    ),
    (
        Result(
            group_id="t",
            id="c",
            call_id="toolu_1",
            content=(TextPart("Look"), ImagePart("aGk=", "image/png")),
            display_as=written_segments(
                DiffSegment(Diff("a.py", "+x")),
                ImageSegment(Picture("aGk=", "image/png")),
                TextSegment("a picture"),
            ),
            subscription=True,
            is_error=True,
        ),
        (
            b'{"type":"tool_result","group_id":"t","id":"c","call_id":"toolu_1","content":['
            b'{"type":"text","text":"Look"},{"type":"image","data":"aGk=","mediaType":"image/png"}],"display_as":['
            b'{"type":"diff","content":{"path":"a.py","patch":"+x"}},'
            b'{"type":"image","content":{"data":"aGk=","mediaType":"image/png"}},'
            b'{"type":"text","content":"a picture"}],"subscription":true,"is_error":true}'
        ),
    ),
    (
        SubscriptionEvent(group_id="t", tool_call_id="c", text="a push"),
        b'{"type":"subscription_event","group_id":"t","tool_call_id":"c","text":"a push"}',
    ),
    (
        SubscriptionEvent(
            group_id="t", tool_call_id="c", text="ü", associative=True, final=True, event_id="e1", sequence=7
        ),
        (
            b'{"type":"subscription_event","group_id":"t","tool_call_id":"c","text":"\xc3\xbc","associative":true,'
            b'"final":true,"event_id":"e1","sequence":7}'
        ),
    ),
    (
        OAuth(group_id="t", id="c", call_id="x", auth_url="https://a.example/o?s=1"),
        b'{"type":"oauth","group_id":"t","id":"c","call_id":"x","auth_url":"https://a.example/o?s=1"}',
    ),
    (
        UserChoice(
            group_id="t",
            id="c",
            prompt="Which?",
            choices=("a", "b"),
            default=1,
            response_url="http://127.0.0.1:8/r",
            choice_id="q1",
        ),
        (
            b'{"type":"user_choice","group_id":"t","id":"c","prompt":"Which?","choices":["a","b"],"default":1,'
            b'"response_url":"http://127.0.0.1:8/r","choice_id":"q1"}'
        ),
    ),
    (
        ViewUpdate(group_id="t", view_type="plan", content=[1, 2.5, None, {"a": "\x00"}]),
        b'{"type":"view_update","group_id":"t","view_type":"plan","content":[1,2.5,null,{"a":"\\u0000"}]}',
    ),
    (
        ViewUpdate(group_id="t", view_type="plan", content=None),
        b'{"type":"view_update","group_id":"t","view_type":"plan","content":null}',
    ),
]

GOLDEN_REQUESTS: list[tuple[Request, bytes]] = [
    (
        Invocation("build", {"commit": "abc", "n": 1}, "c", None, "https://h.example/rap/callback/x", "t", None),
        (
            b'{"operation":"build","arguments":{"commit":"abc","n":1},"id":"c","call_id":null,'
            b'"callback_url":"https://h.example/rap/callback/x","group_id":"t","thread_ancestors":null}'
        ),
    ),
    (
        Invocation("build", {}, "c", "toolu_1", "http://localhost:1/x", "t", ("r", "p"), "ada"),
        (
            b'{"operation":"build","arguments":{},"id":"c","call_id":"toolu_1","callback_url":"http://localhost:1/x",'
            b'"group_id":"t","thread_ancestors":["r","p"],"user_id":"ada"}'
        ),
    ),
    (CancelToolCall("t", "c"), b'{"thread_id":"t","tool_call_id":"c"}'),
    (CloseThread("t"), b'{"thread_id":"t"}'),
    (AskStatus("t", "c"), b'{"thread_id":"t","tool_call_id":"c"}'),
    (Alive(alive=True), b'{"alive":true}'),
    (Migrate("s", "https://b.example"), b'{"session_id":"s","destination_url":"https://b.example"}'),
    (Migrate("s", ""), b'{"session_id":"s","destination_url":""}'),
    (Selected("c", 2), b'{"id":"c","selected":2}'),
]


def refused(body: bytes, **bounds: int) -> str:
    with pytest.raises(MalformedInput) as refusal:
        decode_callback(body, WireLimits(**bounds))
    return str(refusal.value)


def changed(callback: Callback, **fields: Any) -> bytes:
    return json.dumps(json.loads(encode(callback)) | fields).encode()


EVENT = SubscriptionEvent(group_id="t", tool_call_id="c", text="a push")
RESULT = Result(group_id="t", id="c", text="fine")
CHOICE = UserChoice(group_id="t", id="c", prompt="Which?", choices=("a", "b"), response_url="https://s.example/r")


@pytest.mark.parametrize("callback, written", GOLDEN_CALLBACKS)
def test_a_callback_has_these_bytes_for_ever(callback: Callback, written: bytes) -> None:
    assert encode(callback) == written
    assert decode_callback(written) == callback


@pytest.mark.parametrize("request_, written", GOLDEN_REQUESTS)
def test_a_request_has_these_bytes_for_ever(request_: Request, written: bytes) -> None:
    assert encode(request_) == written
    assert decode(type(request_), written) == request_


def test_there_is_a_golden_form_of_every_message() -> None:
    assert {type(callback) for callback, _ in GOLDEN_CALLBACKS} == set(Callback.__args__)
    assert {type(request) for request, _ in GOLDEN_REQUESTS} == set(Request.__args__)


@given(CALLBACKS)
def test_a_callback_comes_back_as_it_was_sent(callback: Callback) -> None:
    assert decode_callback(encode(callback)) == callback
    assert encode(decode_callback(encode(callback))) == encode(callback)


@given(REQUESTS)
def test_a_request_comes_back_as_it_was_sent(request_: Request) -> None:
    assert decode(type(request_), encode(request_)) == request_


@given(CALLBACKS, st.dictionaries(st.text(min_size=1, max_size=8).map("new_{}".format), JSON_VALUES, max_size=3))
def test_fields_that_this_version_does_not_know_are_ignored(callback: Callback, more: dict[str, Any]) -> None:
    assert decode_callback(changed(callback, **more)) == callback


@given(CALLBACKS)
def test_an_optional_field_that_is_null_counts_as_left_out(callback: Callback) -> None:
    nulls = {
        field.encode_name: None
        for field in msgspec.structs.fields(callback)
        if not field.required and getattr(callback, field.name) == field.default
    }
    assert decode_callback(changed(callback, **nulls)) == callback


def test_an_invocation_of_another_runtime_may_leave_out_what_it_does_not_have() -> None:
    least = {"operation": "build", "id": "c", "callback_url": "http://localhost:1/x", "group_id": "t"}
    expected = Invocation("build", {}, "c", None, "http://localhost:1/x", "t", None)
    assert decode(Invocation, json.dumps(least).encode()) == expected
    nulls = {"arguments": None, "call_id": None, "thread_ancestors": None, "user_id": None}
    assert decode(Invocation, json.dumps(least | nulls).encode()) == expected


@pytest.mark.parametrize("kind", ["telepathy", "", None, 7, ["tool_result"], {"a": 1}, "tool_result\x00", "x" * 9_999])
def test_a22_a_callback_of_an_unknown_kind_is_refused_and_the_known_ones_are_named(kind: object) -> None:
    text = refused(changed(RESULT, type=kind))
    assert "is not taken here; tool_result, subscription_event, oauth, user_choice, view_update are" in text
    assert len(text) < 200


@pytest.mark.parametrize(
    "body, reason",
    [
        (b"", "the callback is not JSON: Expecting value, at line 1 column 1"),
        (b"\xef\xbb\xbf{}", "the callback is not JSON"),
        (b'{"type":"tool_result"', "the callback is not JSON"),
        (b'{"type":"tool_result"} x', "the callback is not JSON: Extra data"),
        (b'{"text":"a\nb"}', "the callback is not JSON: Invalid control character"),
        (b'{"text":"\xff"}', "the callback is not UTF-8: byte 0xff at offset 9"),
        (b'{"text":"\xed\xa0\x80"}', "the callback is not UTF-8: byte 0xed at offset 9"),
        (b"[]", "the callback must be a JSON object"),
        (b"null", "the callback must be a JSON object"),
        (b'"tool_result"', "the callback must be a JSON object"),
        (b'{"a":1,"a":1}', "the key 'a' is there twice in one object"),
        (b'{"a":{"b":1,"\\u0062":2}}', "the key 'b' is there twice in one object"),
        (b'{"\\ud800":1,"\\udc00":2}', "is there twice in one object"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":-Infinity}', "-Infinity is not JSON"),
        (b'{"a":1e999}', "the number 1e999 is too large"),
        (b'{"a":9223372036854775808}', "the integer 9223372036854775808 is beyond 64 bits"),
        (b'{"a":' + b"9" * 5_000 + b"}", "is beyond 64 bits"),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", "the callback is nested deeper than 64 levels"),
        (b"[" * 100_000, "the callback is nested deeper than 64 levels"),
        (b'{"a":' * 100_000, "the callback is nested deeper than 64 levels"),
    ],
)
def test_a22_what_is_no_strict_json_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    assert reason in refused(body)


def test_brackets_in_a_text_are_not_depth() -> None:
    text = '[{"' * 1_000
    assert decode_callback(encode(Result(group_id="t", id="c", text=text))) == Result(group_id="t", id="c", text=text)


def test_as_many_levels_as_are_allowed_are_taken() -> None:
    content: Any = 1
    for _ in range(63):
        content = [content]
    deepest = ViewUpdate(group_id="t", view_type="v", content=content)
    assert decode_callback(encode(deepest)) == deepest
    refused(encode(ViewUpdate(group_id="t", view_type="v", content=[content])))


@pytest.mark.parametrize(
    "body",
    [
        changed(RESULT, id=""),
        changed(RESULT, id=7),
        changed(RESULT, id=None),
        changed(RESULT, id="c" * (limits.LONGEST_ID + 1)),
        changed(RESULT, group_id=""),
        changed(RESULT, text=["fine"]),
        changed(RESULT, content={"type": "text", "text": "fine"}),
        changed(RESULT, content=[{"type": "video", "data": ""}]),
        changed(RESULT, content=[{"text": "fine"}]),
        changed(RESULT, content=[{"type": "text"}]),
        changed(RESULT, content=["fine"]),
        changed(RESULT, content=[{"type": "text", "text": ""}] * (limits.MOST_PARTS + 1)),
        changed(RESULT, display_as="fine"),
        changed(RESULT, display_as=["fine"]),
        changed(RESULT, subscription="yes"),
        changed(RESULT, is_error=1),
        changed(EVENT, tool_call_id=None),
        changed(EVENT, text=None),
        changed(EVENT, associative="no"),
        changed(EVENT, event_id="e" * (limits.LONGEST_EVENT_ID + 1)),
        changed(EVENT, event_id=4),
        changed(EVENT, sequence=-1),
        changed(EVENT, sequence=1.5),
        changed(EVENT, sequence=True),
        changed(CHOICE, choices=[]),
        changed(CHOICE, choices="ab"),
        changed(CHOICE, choices=["a"] * (limits.MOST_CHOICES + 1)),
        changed(CHOICE, choices=["a" * (limits.LONGEST_CHOICE + 1)]),
        changed(CHOICE, prompt=""),
        changed(CHOICE, prompt=" \n"),
        changed(CHOICE, prompt="?" * (limits.LONGEST_QUESTION + 1)),
        changed(CHOICE, default=2),
        changed(CHOICE, default=-1),
        changed(CHOICE, default="a"),
        changed(CHOICE, response_url=None),
        changed(ViewUpdate(group_id="t", view_type="plan", content=1), view_type=""),
        b'{"type":"view_update","group_id":"t","view_type":"plan"}',
    ],
)
def test_a22_a_callback_with_a_field_that_does_not_fit_is_refused_in_few_words(body: bytes) -> None:
    assert len(refused(body)) < 400


def test_the_words_of_a_refusal_are_short_and_clean_whatever_was_sent() -> None:
    text = refused(changed(RESULT, content=[{"type": "\x00\ud800" + "v" * 9_999}]))
    assert len(text) < 400
    assert text.encode()
    assert "\x00" not in text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "tools.example/r",
        "ftp://tools.example/r",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https:///r",
        "https://user:word@tools.example/r",
        "https://tools.example/a b",
        "https://tools.example/\x00",
        "https://tools.example\\@evil.example",
        "https://[::1/r",
        "https://tools.example:99999/r",
        "https://tools.example:0/r",
        "https://tools.example/" + "r" * limits.LONGEST_ADDRESS,
    ],
)
def test_a22_an_address_that_nothing_could_be_posted_to_is_refused(url: str) -> None:
    assert "url" in refused(changed(CHOICE, response_url=url))
    assert "url" in refused(changed(OAuth(group_id="t", id="c", auth_url="https://a"), auth_url=url))
    invocation = GOLDEN_REQUESTS[0][1].replace(b"https://h.example/rap/callback/x", json.dumps(url)[1:-1].encode())
    if len(url) < limits.LONGEST_ADDRESS:
        with pytest.raises(MalformedInput, match="url"):
            decode(Invocation, invocation)


def test_a27_a_body_above_the_bound_is_refused_before_it_is_parsed() -> None:
    for body in (encode(RESULT), b"\xff" * 100):
        with pytest.raises(TooLarge) as refusal:
            decode_callback(body, WireLimits(callback_bytes=len(body) - 1))
        assert (refusal.value.size, refusal.value.setting) == (len(body), "callback_bytes")
    assert decode_callback(encode(RESULT), WireLimits(callback_bytes=len(encode(RESULT)))) == RESULT


@pytest.mark.parametrize("kind", [type(message) for message, _ in GOLDEN_REQUESTS])
def test_a22_a_request_above_its_bound_or_without_its_fields_is_refused(kind: type[Request]) -> None:
    with pytest.raises(TooLarge):
        decode(kind, b" " * 11, WireLimits(invocation_bytes=10, notice_bytes=10))
    for body in (b"{}", b"[]", b"", b'{"id":1}'):
        with pytest.raises(MalformedInput):
            decode(kind, body)


def test_surrogates_become_the_characters_they_mean_and_lone_ones_a_replacement() -> None:
    body = b'{"type":"tool_result","group_id":"t","id":"c","text":"\\ud83d\\ude00 \\ud83d \\u0000"}'
    assert decode_callback(body) == Result(group_id="t", id="c", text="\U0001f600 \ufffd \x00")
    body = b'{"type":"view_update","group_id":"t","view_type":"v","content":[{"\\ud800":["\\udc00"]}]}'
    assert decode_callback(body) == ViewUpdate(group_id="t", view_type="v", content=[{"\ufffd": ["\ufffd"]}])


@pytest.mark.parametrize("content", ["\ud800", float("nan"), float("inf"), object(), {"a": {1, object()}}])
def test_what_cannot_be_written_is_refused_and_not_changed(content: object) -> None:
    with pytest.raises(MalformedInput, match="cannot be written"):
        encode(ViewUpdate(group_id="t", view_type="v", content=content))


def test_a_segment_of_a_kind_that_is_not_known_is_passed_on_and_not_shown() -> None:
    known = TextSegment("a chart")
    result = Result(group_id="t", id="c", display_as=({"type": "chart", "content": [1]}, *written_segments(known)))
    assert decode_callback(encode(result)) == result
    assert segments(result) == [known]
    broken = Result(group_id="t", id="c", display_as=({"type": "diff", "content": "no"}, {}))
    assert segments(broken) == []


FRAGMENTS = st.sampled_from(
    ["type", '"tool_result"', '"type":"tool_result"', '"group_id":"t"', '"id":"c"', '"content":']
)
TOKENS = st.sampled_from([*'{}[]":,- \x00\U0001f600', "\\", "\\u", "\\ud800", "NaN", "1e9", "null"])
NEARLY_JSON = st.lists(FRAGMENTS | TOKENS, max_size=40).map(lambda pieces: "".join(pieces).encode())


def words_of_refusal(read: Callable[[bytes], object], body: bytes) -> str:
    try:
        read(body)
    except (MalformedInput, TooLarge) as refusal:
        return str(refusal)
    return ""


def written_again(body: bytes) -> bytes:
    return encode(decode_callback(body))


@given(st.binary(max_size=300) | NEARLY_JSON)
def test_a22_any_bytes_are_taken_or_refused_by_name(body: bytes) -> None:
    assert len(words_of_refusal(written_again, body).encode()) < 1_000
    for kind, _ in GOLDEN_REQUESTS:
        assert len(words_of_refusal(partial(decode, type(kind)), body).encode()) < 1_000


@given(CALLBACKS, st.data())
def test_a22_a_callback_that_was_changed_anywhere_is_taken_or_refused_by_name(
    callback: Callback, data: st.DataObject
) -> None:
    body = bytearray(encode(callback))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body)))
        body[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    assert len(words_of_refusal(written_again, bytes(body)).encode()) < 1_000


@given(st.sampled_from([callback for callback, _ in GOLDEN_CALLBACKS]), st.data())
def test_a22_a_callback_with_any_value_in_any_field_is_taken_or_refused_by_name(
    callback: Callback, data: st.DataObject
) -> None:
    names = [field.encode_name for field in msgspec.structs.fields(callback)]
    fields = data.draw(st.dictionaries(st.sampled_from(names), JSON_VALUES, min_size=1, max_size=4))
    assert len(words_of_refusal(written_again, changed(callback, **fields)).encode()) < 1_000
