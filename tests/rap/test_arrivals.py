"""Callbacks as inputs: cleaned once, named by what they are, and let in only under a token that is for them."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.codec import sha256
from hibernaut.errors import MalformedInput, TokenRefused, TooLarge
from hibernaut.ids import asking_thread
from hibernaut.kernel.limits import LARGEST_CONTENT
from hibernaut.messages.inputs import Event, InputMessage, Question, ToolResult, decode_input, encode_input
from hibernaut.messages.parts import Excerpt, Image, Text
from hibernaut.messages.text import clean, restore
from hibernaut.rap.arrivals import SIGNED, UNSIGNED, Arrival, View, arrive, scope_of
from hibernaut.rap.callbacks import (
    Callback,
    ImagePart,
    OAuth,
    Result,
    SubscriptionEvent,
    TextPart,
    TextSegment,
    UserChoice,
    ViewUpdate,
    written_segments,
)
from hibernaut.rap.wire import decode_callback, encode
from hibernaut.tools.tokens import KINDS, Grant
from tests.rap.made import CALLBACKS, CHOICES, EVENTS, OAUTHS, RESULTS, VIEWS

CHOICE = UserChoice(
    group_id="t",
    id="call_a",
    prompt="Which?",
    choices=("a", "b"),
    default=1,
    response_url="https://s.example/r",
)
EVENT = SubscriptionEvent(group_id="t", tool_call_id="call_a", text="a push")


def grant_for(callback: Callback) -> Grant:
    kind, thread, call = scope_of(callback)
    return Grant(thread, call or "any", kinds=(kind,))


def arrived(callback: Callback, delivery: str = "") -> InputMessage:
    arrival = arrive(callback, None, "build", delivery)
    assert isinstance(arrival, Arrival)
    return arrival.message


def question(callback: Callback) -> Question:
    content = arrived(callback).content
    assert isinstance(content, Question)
    return content


def test_a_result_answers_its_call() -> None:
    result = Result(group_id="t", id="call_a", text="fine", subscription=True, is_error=True)
    expected = ToolResult("call_a", "fine", is_error=True, subscription=True)
    assert arrived(result) == InputMessage("result:call_a", "t", expected, UNSIGNED)


def test_a_content_that_is_not_empty_counts_instead_of_the_text() -> None:
    picture = ImagePart(base64.b64encode(b"\x89PNG").decode(), "image/png")
    content = (TextPart("Look"), picture, ImagePart("", ""))
    result = Result(group_id="t", id="c", text="ignored", content=content)
    parts = (Text("Look"), Image("image/png", b"\x89PNG"), Image("application/octet-stream", b""))
    assert arrived(result).content == ToolResult("c", parts)
    assert arrived(Result(group_id="t", id="c", content=(TextPart("Look"),))).content == ToolResult("c", "Look")
    assert arrived(Result(group_id="t", id="c")).content == ToolResult("c", "")


def test_segments_for_people_come_along_as_json() -> None:
    result = Result(group_id="t", id="c", text="x", display_as=written_segments(TextSegment("a\x00b")))
    content = arrived(result).content
    assert isinstance(content, ToolResult)
    assert content.display == '[{"type":"text","content":"a\\u0000b"}]'


def test_a_large_result_goes_to_a_blob_and_an_excerpt_stays() -> None:
    text = "x" * 100_000
    arrival = arrive(Result(group_id="t", id="c", text=text), None)
    assert isinstance(arrival, Arrival)
    (blob,) = arrival.blobs
    assert (blob.digest, blob.data) == (sha256(text.encode()), text.encode())
    assert isinstance(arrival.message.content, ToolResult)
    assert isinstance(arrival.message.content.content, tuple)
    (part,) = arrival.message.content.content
    assert isinstance(part, Excerpt)


def test_a27_a_result_that_is_too_large_is_refused() -> None:
    with pytest.raises(TooLarge, match="LARGEST_CONTENT"):
        arrive(Result(group_id="t", id="c", text="x" * (LARGEST_CONTENT + 1)), None)


@pytest.mark.parametrize("data", ["a", "a===", "aGk=\n", "ü", "a-_=", "\x00"])
def test_a22_a_picture_that_is_not_base64_is_refused(data: str) -> None:
    with pytest.raises(MalformedInput, match="is not base64"):
        arrived(Result(group_id="t", id="c", content=(ImagePart(data, "image/png"),)))


def test_an_event_is_the_same_one_however_often_it_is_sent() -> None:
    event = SubscriptionEvent(
        group_id="t", tool_call_id="c", text="a push", associative=True, final=True, event_id="e1", sequence=7
    )
    expected = Event("c", "a push", "e1", associative=True, final=True, sequence=7)
    assert arrived(event, "one") == InputMessage("event:c:e1", "t", expected, UNSIGNED)
    assert arrived(event, "one") == arrived(event, "two") == arrived(event)


def test_an_event_without_an_id_goes_by_its_delivery() -> None:
    first, second = arrived(EVENT, "one"), arrived(EVENT, "two")
    assert first == arrived(EVENT, "one")
    assert first.message_id != second.message_id
    assert isinstance(first.content, Event)
    assert first.content.event_id == "delivery:one"
    with pytest.raises(MalformedInput, match="no event_id"):
        arrived(EVENT)


def test_an_authorization_is_a_question_with_an_address() -> None:
    asked = OAuth(group_id="t", id="call_a", auth_url="https://login.example/o")
    content = question(asked)
    assert content == Question(
        content.question_id,
        "call_a",
        "build needs your authorization",
        ("Done", "Cancel"),
        1,
        url="https://login.example/o",
    )
    assert content.question_id == "q_a.522rxx42teg0as94@t"
    assert asking_thread(content.question_id) == "t"
    assert arrived(asked) == InputMessage(f"ask:{content.question_id}", "t", content, UNSIGNED)


@pytest.mark.parametrize("url", ["http://login.example/o", "javascript:alert(1)", "https://a:b@login.example"])
def test_a_person_is_sent_to_safe_addresses_only(url: str) -> None:
    with pytest.raises(MalformedInput, match="url"):
        arrived(OAuth(group_id="t", id="c", auth_url=url))


def test_a_choice_is_a_question_that_knows_where_its_answer_goes() -> None:
    content = question(CHOICE)
    assert content == Question(content.question_id, "call_a", "Which?", ("a", "b"), 1, reply_url="https://s.example/r")
    assert content.question_id == "q_a.y89rbv3djj5myqkh@t"
    assert arrived(CHOICE).message_id == f"ask:{content.question_id}"


def test_a_choice_goes_by_its_id_and_without_one_by_what_it_says() -> None:
    def name(**changes: Any) -> str:
        return question(msgspec.structs.replace(CHOICE, **changes)).question_id

    plain = [
        name(),
        name(prompt="What?"),
        name(choices=("a", "c")),
        name(default=0),
        name(response_url="https://s.example/q"),
        name(id="call_b"),
        name(group_id="u"),
        name(choice_id="q1"),
        name(choice_id="q2"),
    ]
    assert len(set(plain)) == len(plain)
    assert name() == name(call_id="toolu_1")
    assert name(choice_id="q1") == "q_a.0da9jmhphjasqekv@t"
    assert name(choice_id="q1") == name(choice_id="q1", prompt="What?", default=0)


def test_an_authorization_goes_by_its_call_and_address() -> None:
    one = OAuth(group_id="t", id="call_a", auth_url="https://login.example/o")
    others = [
        msgspec.structs.replace(one, auth_url="https://login.example/p"),
        msgspec.structs.replace(one, id="call_b"),
    ]
    assert len({question(each).question_id for each in (one, *others)}) == 3
    assert question(one) == question(msgspec.structs.replace(one, call_id="x"))


def test_a_view_is_no_input() -> None:
    assert arrive(ViewUpdate(group_id="t", view_type="plan", content={"a": [1, "\x00"]}), None) == View(
        "t", "plan", '{"a":[1,"\\u0000"]}'
    )


def test_provenance_says_whether_it_came_under_a_token() -> None:
    result = Result(group_id="t", id="c", text="fine")
    for grant, sender in ((grant_for(result), SIGNED), (None, UNSIGNED)):
        arrival = arrive(result, grant)
        assert isinstance(arrival, Arrival)
        assert arrival.message.sender == sender


@given(CALLBACKS)
def test_a27_a_callback_comes_in_under_its_own_token_and_under_no_other(callback: Callback) -> None:
    grant = grant_for(callback)
    assert isinstance(arrive(callback, grant, delivery="d"), View if isinstance(callback, ViewUpdate) else Arrival)
    others = [
        msgspec.structs.replace(grant, thread_id=grant.thread_id + "x"),
        msgspec.structs.replace(grant, kinds=tuple(kind for kind in KINDS if kind not in grant.kinds)),
    ]
    if not isinstance(callback, ViewUpdate):
        others.append(msgspec.structs.replace(grant, call_id=grant.call_id + "x"))
    for other in others:
        with pytest.raises(TokenRefused):
            arrive(callback, other, delivery="d")


@given(RESULTS | EVENTS | OAUTHS | CHOICES)
def test_what_was_sent_arrives_over_the_wire_and_through_the_inbox_as_it_would_at_once(callback: Callback) -> None:
    message = arrived(callback, "d")
    assert arrived(decode_callback(encode(callback)), "d") == message
    assert decode_input(encode_input(message)) == message


@given(RESULTS)
def test_a_result_keeps_what_it_says(result: Result) -> None:
    message = arrived(result)
    content = message.content
    assert isinstance(content, ToolResult)
    assert restore(content.call_id) == result.id
    assert restore(message.thread_id) == result.group_id
    assert (content.is_error, content.subscription) == (result.is_error, result.subscription)
    parts = (Text(content.content),) if isinstance(content.content, str) else content.content
    sent = result.content or (TextPart(result.text),)
    for part, one in zip(parts, sent, strict=True):
        if isinstance(part, Text) and isinstance(one, TextPart):
            assert restore(part.text) == one.text
        else:
            assert isinstance(part, Image)
            assert isinstance(one, ImagePart)
            assert base64.b64encode(part.data).decode() == one.data
    assert json.loads(restore(content.display) or "[]") == list(result.display_as)


@given(EVENTS, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9))
def test_an_event_keeps_what_it_says(event: SubscriptionEvent, delivery: str) -> None:
    content = arrived(event, delivery).content
    assert isinstance(content, Event)
    assert isinstance(content.content, str)
    assert (restore(content.content), restore(content.call_id)) == (event.text, event.tool_call_id)
    assert restore(content.event_id) == (event.event_id or f"delivery:{delivery}")
    assert (content.associative, content.final, content.sequence) == (event.associative, event.final, event.sequence)


@given(CHOICES)
def test_a_choice_keeps_what_it_says(choice: UserChoice) -> None:
    content = question(choice)
    assert restore(content.prompt) == choice.prompt
    assert tuple(map(restore, content.choices)) == choice.choices
    assert (content.default, content.reply_url, content.due) == (choice.default, choice.response_url, 0)
    if "@" not in choice.id:  # no call of ours has one
        assert asking_thread(content.question_id) == clean(choice.group_id)


@given(VIEWS)
def test_a_view_keeps_what_it_shows(view: ViewUpdate) -> None:
    shown = arrive(view, None)
    assert isinstance(shown, View)
    assert json.loads(restore(shown.content)) == view.content
