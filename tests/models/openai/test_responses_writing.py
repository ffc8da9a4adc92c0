"""What the Responses API is sent."""

from typing import Any

import msgspec
import pytest
from hypothesis import given

from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Excerpt, Image, Text
from hibernaut.models.dialect import Refusal
from hibernaut.models.http_model import HttpModel
from hibernaut.models.openai.responses import ResponsesDialect
from hibernaut.models.protocol import About, Memo, ModelInfo, ModelRequest
from hibernaut.testing.providers.openai_responses import ResponsesWire
from tests.models.histories import transcripts
from tests.models.openai.setting import HELLO, LOOK, PICTURE, asking, body_of, model_of, verdict

WIRE = ResponsesWire()


def block(number: int = 1, wire: ResponsesWire = WIRE, provider: str = "openai") -> ReasoningItem:
    value = {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": wire.seal(b"hm")}
    return ReasoningItem(provider, msgspec.json.encode(value))


def written(*transcript: Item, model: str = "gpt-5", **more: Any) -> list[dict[str, Any]]:
    """Return the input, which a strict fake takes."""
    asked = asking(*transcript, tools=[LOOK])
    made = model_of(ResponsesDialect(), model, **more)
    assert verdict(WIRE, made, asked) is None
    found: list[dict[str, Any]] = body_of(made, asked)["input"]
    return found


def test_a_conversation_becomes_a_list_of_items() -> None:
    call = CallItem("c1", "look", '{"path":"a"}', "call_abc")
    found = written(HELLO, block(), TextItem("I look."), call, ResultItem("c1", "hello"), TextItem("Hi."), HELLO)
    assert found == [
        {"role": "user", "content": "Say hello."},
        msgspec.json.decode(block().data),
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "call_abc", "name": "look", "arguments": '{"path":"a"}'},
        {"type": "function_call_output", "call_id": "call_abc", "output": "hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Say hello."},
    ]


def test_parts_become_parts_in_messages_and_in_results() -> None:
    content = (
        Text("see"),
        Image("image/png", PICTURE),
        Excerpt("head … tail", b"\x01" * 32, 9),
        Image("image/png", b"no"),
    )
    found = written(UserItem(content), CallItem("c1", "look"), ResultItem("c1", content))
    url = found[0]["content"][1]["image_url"]
    assert url.startswith("data:image/png;base64,iVBOR")
    assert found[0]["content"] == found[2]["output"]
    assert found[0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": url},
        {"type": "input_text", "text": "head … tail"},
        {"type": "input_text", "text": "[an image (image/png), of a kind that cannot be shown]"},
    ]


def test_a_result_says_that_its_call_failed() -> None:
    calls = [CallItem(f"c{number}", "look") for number in range(3)]
    picture = Image("image/png", PICTURE)
    results: list[Item] = [
        ResultItem("c0", "no such file", is_error=True),
        ResultItem("c1", (Text("no such file"), picture), is_error=True),
        ResultItem("c2", (picture,), is_error=True),
    ]
    outputs = [item["output"] for item in written(HELLO, *calls, *results)[-3:]]
    assert outputs[0] == "Error: no such file"
    assert outputs[1][0]["text"] == "Error: no such file"
    assert outputs[2][0]["text"] == "Error:"


def test_reasoning_goes_back_byte_for_byte_and_only_to_where_it_came_from() -> None:
    odd = block().data.replace(b'"summary"', b' "n":1.0,"summary"')
    body = model_of(ResponsesDialect()).sent(asking(HELLO, ReasoningItem("openai", odd), TextItem("x"), HELLO)).body
    assert b"," + odd + b"," in body
    foreign: list[Item] = [ReasoningItem("anthropic", odd), ReasoningItem("openai-chat/vllm", b'{"reasoning":"x"}')]
    assert len(written(HELLO, *foreign, TextItem("x"), HELLO)) == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b'{"type":"thinking","encrypted_content":"x"}',
        b'{"type":"reasoning","id":"rs_1","summary":[]}',
        b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null}',
    ],
)
def test_reasoning_that_would_not_be_found_is_left_out(data: bytes) -> None:
    assert len(written(HELLO, ReasoningItem("openai", data), TextItem("x"), HELLO)) == 3


def test_what_was_written_for_a_model_is_not_used_for_the_same_one_asked_in_another_way() -> None:
    """Two names of one deployment, of which only one says that it reasons."""
    knows, other = (model_of(ResponsesDialect(), "my-deployment", info) for info in (ModelInfo(reasoning=True), None))
    asked = asking(HELLO, block(), TextItem("x"), HELLO, memo=Memo())
    assert [len(body_of(model, asked)["input"]) for model in (knows, other, knows)] == [4, 3, 4]


def test_a_model_that_does_not_reason_is_shown_no_reasoning_and_asked_for_none() -> None:
    asked = asking(HELLO, block(), TextItem("x"), HELLO)
    plain = model_of(ResponsesDialect(), "gpt-4.1", effort="high")
    assert verdict(WIRE, plain, asked) is None
    body = body_of(plain, asked)
    assert not body.keys() & {"include", "reasoning"}
    deployment = model_of(ResponsesDialect(), "my-deployment", ModelInfo(reasoning=True))
    assert body_of(deployment, asked)["include"] == ["reasoning.encrypted_content"]


def test_ids_of_calls_are_fit_and_all_different() -> None:
    ids = ["call_1", "call_1", "", "x" * 65, "id with spaces", "toolu_01"]
    calls = [CallItem(f"c{number}", "look", "{}", each) for number, each in enumerate(ids)]
    found = written(HELLO, *calls, *[ResultItem(call.id, "x") for call in calls])
    made = [item["call_id"] for item in found[1:7]]
    assert made == [item["call_id"] for item in found[7:]]
    assert len(set(made)) == 6
    assert (made[0], made[5]) == ("call_1", "toolu_01")


def test_names_and_arguments_of_old_histories_are_taken() -> None:
    found = written(HELLO, CallItem("c1", "fs.read", "a.txt"), ResultItem("c1", "x"))
    assert found[1]["name"].startswith("fs_read_")
    assert found[1]["arguments"] == '{"arguments":"a.txt"}'


# The rest of the request


def test_nothing_is_stored_and_everything_is_streamed() -> None:
    body = body_of(model_of(ResponsesDialect()), asking(tools=[LOOK]))
    assert (body["store"], body["stream"], body["instructions"]) == (False, True, "Be kind.")
    assert body["include"] == ["reasoning.encrypted_content"]
    assert list(body)[-3:] == ["tools", "instructions", "input"]


def test_what_is_empty_is_left_out() -> None:
    asked = msgspec.structs.replace(asking(), instructions="")
    assert not body_of(model_of(ResponsesDialect()), asked).keys() & {"tools", "instructions", "reasoning"}


def test_settings_are_said_as_the_api_takes_them() -> None:
    model = model_of(
        ResponsesDialect(),
        max_output=5,
        effort="low",
        parameters={"reasoning": {"summary": "auto"}, "top_p": 0.5, "store": True},
    )
    body = body_of(model, asking())
    assert body["max_output_tokens"] == 16
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert (body["top_p"], body["store"]) == (0.5, True)
    given = body_of(model_of(ResponsesDialect(), parameters={"tools": [{"type": "web_search"}]}), asking(tools=[LOOK]))
    assert given["tools"] == [{"type": "web_search"}]


def test_a_tree_shares_its_key_of_the_cache() -> None:
    model = model_of(ResponsesDialect())
    assert body_of(model, asking(thread_id="t1"))["prompt_cache_key"] == "root"
    assert body_of(model, asking(thread_id="t2", tree_id=""))["prompt_cache_key"] == "t2"
    assert "prompt_cache_key" not in body_of(model_of(ResponsesDialect(), cache=False), asking())


HISTORY = (
    HELLO,
    block(),
    CallItem("c1", "look", "{}", "call_1"),
    ResultItem("c1", (Image("image/png", PICTURE),)),
    TextItem("It is black."),
    UserItem("And now?"),
    UserItem("Well?"),
)


def test_what_was_sent_is_the_beginning_of_what_is_sent_next() -> None:
    memo, model, before = Memo(), model_of(ResponsesDialect()), b""
    for count in (1, 4, 6, 7):
        body = model.sent(asking(*HISTORY[:count], tools=[LOOK], memo=memo)).body
        assert body.startswith(before)
        assert body == model.sent(asking(*HISTORY[:count], tools=[LOOK])).body, "written at once it is the same"
        before = body.removesuffix(b"]}")
    child = model.sent(asking(*HISTORY, UserItem("You are a child."), tools=[LOOK], thread_id="child")).body
    assert child.startswith(before)


def test_of_a_transcript_that_grows_only_what_is_new_is_written() -> None:
    writer = ResponsesDialect().writer(About("gpt-5"))
    writer.feed(HISTORY[:6])
    size = writer.size
    assert size > 300
    writer.feed(HISTORY[6:])
    assert (writer.items, writer.size - size) == (7, len(b',{"role":"user","content":"Well?"}'))


def test_pictures_beyond_what_a_request_may_hold_give_way() -> None:
    memo, model = Memo(), model_of(ResponsesDialect())
    picture = Image("image/png", PICTURE)
    first: list[Item] = [UserItem((picture,)) for _ in range(500)]
    assert sum("input_image" in str(item) for item in body_of(model, asking(*first, memo=memo))["input"]) == 500
    more = body_of(model, asking(*first, UserItem((picture,)), memo=memo))["input"]
    shown = ["input_image" in str(item) for item in more]
    assert (sum(shown), shown[-1], shown[0]) == (250, True, False)


# Reasoning that is refused


def instead(model: HttpModel, request: ModelRequest, status: int, message: str) -> Any:
    """Return the input of what is sent where a request is refused so; None: nothing is."""
    sent = model.sent(request)
    assert sent.instead is not None
    body = msgspec.json.encode({"error": {"message": message, "code": "invalid_encrypted_content"}})
    other = sent.instead(Refusal(status, {}, body))
    return other and msgspec.json.decode(other.body)["input"]


NOT_VERIFIED = "The encrypted content gAAA...wXBV could not be verified."


def test_reasoning_of_another_account_is_left_out_once_it_is_refused() -> None:
    memo, mine = Memo(), ResponsesWire(account="mine")
    model = model_of(ResponsesDialect())
    old: list[Item] = [HELLO, block(1), TextItem("a"), HELLO, block(2), TextItem("b"), HELLO]
    assert verdict(mine, model, asking(*old, memo=memo)) is not None
    said = instead(model, asking(*old, memo=memo), 400, NOT_VERIFIED)
    assert [item.get("role") for item in said] == ["user", "assistant", "user", "assistant", "user"]
    new: list[Item] = [*old, block(3, mine), TextItem("c"), HELLO]
    for known in (memo, None):
        assert verdict(mine, model, asking(*new, memo=known)) is None
        kinds = [item.get("id") for item in body_of(model, asking(*new, memo=known))["input"] if item.get("type")]
        assert kinds == ["rs_3"], "what comes later is kept"


@pytest.mark.parametrize(
    "message",
    [
        NOT_VERIFIED,
        "The encrypted content for item rs_12ab could not be verified.",
        "Item 'rs_12ab' of type 'reasoning' was provided without its required following item.",
        "Reasoning input items can only be provided to a reasoning or computer use model.",
        "Item with id 'rs_12ab' not found.",
    ],
)
def test_whatever_is_wrong_with_reasoning_does_not_end_a_thread(message: str) -> None:
    for status in (400, 404):
        request = asking(HELLO, block(), TextItem("a"), HELLO)
        assert len(instead(model_of(ResponsesDialect()), request, status, message)) == 3


def test_what_is_refused_for_another_reason_is_not_sent_again() -> None:
    model, request = model_of(ResponsesDialect()), asking(HELLO, block(), TextItem("a"), HELLO)
    assert instead(model, request, 400, "The model does not exist.") is None
    assert instead(model, request, 500, NOT_VERIFIED) is None
    assert instead(model, asking(), 400, NOT_VERIFIED) is None, "there is no reasoning in it"


@given(transcripts((block(),)))
def test_every_valid_transcript_is_taken(transcript: list[Item]) -> None:
    assert verdict(WIRE, model_of(ResponsesDialect()), asking(*transcript, tools=[LOOK])) is None
    assert verdict(WIRE, model_of(ResponsesDialect(), "gpt-4.1"), asking(*transcript)) is None
