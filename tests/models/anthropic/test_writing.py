"""What is sent: a prefix that stays the same, marks for the cache, pictures, and turns of other providers."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Excerpt, Image, Text
from hibernaut.models.anthropic.dialect import AnthropicDialect
from hibernaut.models.anthropic.platforms import Platform
from hibernaut.models.anthropic.writing import FAILED
from hibernaut.models.pictures import PictureLimits
from hibernaut.models.protocol import Memo
from hibernaut.testing.model_transcripts import png
from hibernaut.testing.providers.anthropic import AnthropicWire
from tests.models.anthropic.setting import BUDGET, HEADERS, about, model_at, own_reasoning
from tests.models.histories import posted, request, transcripts, verdict

HELLO = UserItem("hello")
MARK = {"cache_control": {"type": "ephemeral"}}
WIRE = AnthropicWire()
OWN = own_reasoning(WIRE)


def messages(*transcript: Item, **settings: Any) -> Any:
    return posted(model_at(of=about(cache=False, **settings)), request(*transcript), HEADERS).body["messages"]


def steps(transcript: list[Item]) -> list[list[Item]]:
    """The beginnings of a transcript with which a model may be asked."""
    found: list[list[Item]] = []
    owed = 0
    for place, item in enumerate(transcript, 1):
        owed += isinstance(item, CallItem) - isinstance(item, ResultItem)
        if not owed and isinstance(item, UserItem | ResultItem):
            found.append(transcript[:place])
    return found


# Messages


def test_items_of_one_side_are_one_message_and_results_come_first_in_it() -> None:
    found = messages(
        *(
            HELLO,
            UserItem((Text("one"), Excerpt("two", b"", 9))),
            TextItem("I look."),
            CallItem("c1", "look", '{"a":1}'),
        ),
        *(
            CallItem("c2", "look", "{}", "toolu_X"),
            ResultItem("c1", "first"),
            ResultItem("c2", "second", is_error=True),
        ),
        UserItem("and?"),
    )
    assert [message["role"] for message in found] == ["user", "assistant", "user"]
    assert [block["text"] for block in found[0]["content"]] == ["hello", "one", "two"]
    text, first, second = found[1]["content"]
    assert text == {"type": "text", "text": "I look."}
    assert first == {"type": "tool_use", "id": first["id"], "name": "look", "input": {"a": 1}}
    assert second["id"] == "toolu_X"
    assert found[2]["content"] == [
        {"type": "tool_result", "tool_use_id": first["id"], "content": "first"},
        {"type": "tool_result", "tool_use_id": "toolu_X", "content": "second", "is_error": True},
        {"type": "text", "text": "and?"},
    ]


@pytest.mark.parametrize("arguments", ["", "[]", "{", "nonsense", "NaN"])
def test_arguments_that_are_no_object_do_not_break_the_body(arguments: str) -> None:
    found = messages(HELLO, CallItem("c1", "look", arguments), ResultItem("c1", "x"))
    assert found[1]["content"][0]["input"] == {"arguments": arguments}


def test_an_error_with_a_picture_says_in_words_that_it_is_one() -> None:
    picture = Image("image/jpeg", png())
    found = messages(HELLO, CallItem("c1", "look"), ResultItem("c1", (Text("broken"), picture), is_error=True))
    (result,) = found[2]["content"]
    assert "is_error" not in result
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(png()).decode()}
    assert result["content"] == [
        {"type": "text", "text": FAILED},
        {"type": "text", "text": "broken"},
        {"type": "image", "source": source},
    ]


# Other providers


def test_reasoning_goes_back_as_it_came_and_only_to_where_it_came_from() -> None:
    odd = b'{"type":"thinking",  "thinking":"a\\u00e9","signature":"s"}'
    kept = [ReasoningItem("anthropic", odd), ReasoningItem("anthropic", b'{"type":"redacted_thinking","data":"x"}')]
    dropped = [
        ReasoningItem("openai", odd),
        ReasoningItem("anthropic", b'{"type":"thinking","thinking":"cut off","signature":""}'),
        ReasoningItem("anthropic", b'{"type":"text","text":"no thought"}'),
        ReasoningItem("anthropic", b"\xff\x00"),
        ReasoningItem("anthropic", b" " + odd),
    ]
    writer = AnthropicDialect().writer(about())
    transcript: list[Item] = [HELLO, *kept, *dropped, TextItem("hi"), HELLO]
    writer.feed(transcript)
    text = b"".join(writer.pieces(writer._manner, transcript))
    assert b"".join((b"[", kept[0].data, b",", kept[1].data, b',{"type":"text","text":"hi"}]')) in text
    other = AnthropicDialect(name="elsewhere").writer(about())
    other.feed(transcript)
    assert b"thinking" not in b"".join(other.pieces(other._manner, transcript))


@given(transcripts(OWN, images=False), st.booleans())
def test_in_the_middle_of_a_thread_the_provider_may_change(transcript: list[Item], from_here: bool) -> None:
    names = {"anthropic": "openai", "elsewhere": "anthropic"} if from_here else {}
    changed = [
        ReasoningItem(names.get(item.provider, item.provider), b"x", item.text)
        if isinstance(item, ReasoningItem)
        else item
        for item in transcript
    ]
    assert verdict(WIRE, model_at(), request(*changed), HEADERS) is None


def test_ids_of_calls_are_those_of_the_provider_where_they_are_fit_and_new() -> None:
    calls = [CallItem(f"c{number}", "look", "{}", name) for number, name in enumerate(["a", "a", "b c", "", "x" * 65])]
    found = messages(HELLO, *calls, *[ResultItem(call.id, "x") for call in calls])
    ids = [block["id"] for block in found[1]["content"]]
    assert ids[0] == "a"
    assert len(set(ids)) == 5
    assert all(name.startswith("toolu_") for name in ids[1:])
    assert [block["tool_use_id"] for block in found[2]["content"]] == ids


# The prefix


@given(transcripts(OWN))
def test_a18_what_was_sent_stays_the_same_as_a_transcript_grows(transcript: list[Item]) -> None:
    model = model_at(of=about(cache=False))
    memo = Memo()
    before = b""
    for step in steps(transcript):
        body = model.sent(request(*step, memo=memo)).body
        assert body == model.sent(request(*step)).body, "with a memory the same is sent as without one"
        start = body.index(b'"messages":')
        assert body[:start] == before[:start] or not before
        before_text = before[start:].rsplit(b"}]}]", 1)[0]
        assert body[start:].startswith(before_text)
        before = body


def marked(value: Any) -> int:
    text = msgspec.json.encode(value)
    return text.count(b'"cache_control"')


def test_the_cache_is_marked_after_tools_after_instructions_at_the_end_and_where_the_end_was() -> None:
    model = model_at(of=about())
    first = posted(model, request(HELLO), HEADERS).body
    assert (marked(first["tools"]), marked(first["system"]), marked(first["messages"])) == (1, 1, 1)
    assert first["messages"][0]["content"][-1] == {"type": "text", "text": "hello", **MARK}
    grown = (HELLO, TextItem("hi"), UserItem("look"), CallItem("c1", "look"), CallItem("c2", "look"))
    second = posted(model, request(*grown, ResultItem("c1", "a"), ResultItem("c2", "b")), HEADERS).body
    places = [
        (number, place)
        for number, message in enumerate(second["messages"])
        for place, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    assert places == [(2, 0), (4, 1)]
    assert marked(second) == 4


@given(transcripts(OWN), st.booleans())
def test_no_request_has_more_than_four_marks(transcript: list[Item], cache: bool) -> None:
    asked = posted(model_at(of=about(cache=cache)), request(*transcript), HEADERS)
    assert marked(asked.body) <= (4 if cache else 0)
    assert WIRE.check(asked) is None


def test_a_summary_is_not_marked_and_how_long_prompts_are_kept_can_be_said() -> None:
    assert not marked(posted(model_at(), request(HELLO, purpose="summary"), HEADERS).body)
    body = posted(model_at(cache_for="1h"), request(HELLO), HEADERS).body
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_a23_a_child_sends_what_its_parent_sent_byte_for_byte() -> None:
    shared = (HELLO, TextItem("hi"), UserItem("spawn"), CallItem("c1", "spawn_thread"), ResultItem("c1", "a child"))
    parent = model_at().sent(request(*shared, memo=Memo())).body
    child = model_at().sent(request(*shared, UserItem("you are the child"), memo=Memo())).body
    end = parent.rindex(b',"cache_control"')
    assert child.startswith(parent[:end])


# Pictures


PLATFORM = Platform(pictures=PictureLimits(count=3))


def test_c25_a_picture_of_another_kind_than_it_says_is_sent_as_what_it_is() -> None:
    (message,) = messages(UserItem((Image("image/jpeg", png()), Image("image/png", b"GIF"))))
    assert message["content"][0]["source"]["media_type"] == "image/png"
    assert message["content"][1] == {
        "type": "text",
        "text": "[an image (image/png), of a kind that cannot be shown]",
    }


@pytest.mark.parametrize("size,shown", [(7_499_999, True), (7_500_001, False)])
def test_c25_the_size_of_the_encoded_picture_is_checked(size: int, shown: bool) -> None:
    data = png() + b"\0" * (size - len(png()))
    transcript = (UserItem((Image("image/png", data),)),)
    assert (messages(*transcript)[0]["content"][0]["type"] == "image") is shown
    assert verdict(WIRE, model_at(), request(*transcript), HEADERS) is None


def test_c25_the_twenty_first_picture_poisons_nothing() -> None:
    photo, small = Image("image/png", png(4_000)), Image("image/png", png())
    memo = Memo()
    model = model_at()
    transcript: list[Item] = [UserItem((photo,))]
    for _ in range(25):
        assert WIRE.check(posted(model, request(*transcript, memo=memo), HEADERS)) is None
        transcript += [TextItem("I see."), UserItem((small,))]
    body = posted(model, request(*transcript, memo=memo), HEADERS).body
    assert body["messages"][0]["content"][0]["text"] == "[an image (image/png), no longer shown]"
    assert body["messages"][-1]["content"][0]["type"] == "image"
    assert model.sent(request(*transcript)).body == model.sent(request(*transcript, memo=memo)).body


def test_where_there_is_no_room_for_more_pictures_the_newest_is_seen() -> None:
    transcript: list[Item] = []
    memo = Memo()
    model = model_at(platform=PLATFORM)
    for _ in range(10):
        transcript += [UserItem((Image("image/png", png()),)), TextItem("I see.")]
        asked = request(*transcript[:-1], memo=memo)
        found = posted(model, asked, HEADERS).body["messages"]
        kinds = [message["content"][0]["type"] for message in found if message["role"] == "user"]
        assert kinds[-1] == "image"
        assert kinds.count("image") <= 3


def test_a_memory_of_another_manner_is_not_used() -> None:
    writer = AnthropicDialect().writer(about())
    transcript = (HELLO, OWN[0], TextItem("hi"), HELLO)
    writer.feed(transcript)
    silent = about("claude-haiku-5-5", effort="none")
    body = AnthropicDialect().request(silent, request(*transcript), writer).body
    assert b'"thinking":"' not in body
    assert writer.items == len(transcript)


# How it grows


def test_what_a_writer_holds_is_about_the_size_of_what_it_writes() -> None:
    writer = AnthropicDialect().writer(about(BUDGET))
    transcript: list[Item] = []
    for number in range(200):
        new: list[Item] = [UserItem(f"{number} " + "x" * 100), TextItem("y" * 100)]
        writer.feed(new)
        transcript += new
    text = b"".join(writer.pieces(writer._manner, transcript))
    assert writer.items == 400
    assert abs(writer.size - len(text)) < 10
    held = sum(len(chunk) for chunk in writer._messages._chunks)
    assert held == writer.size
