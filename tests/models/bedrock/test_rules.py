"""The rules of the Converse API: what is written, and that a strict fake refuses what breaks them."""

import base64
from typing import Any

import msgspec
import pytest

from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Image, Text
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.bedrock.requests import path_of
from hibernaut.models.bedrock.rules import family_of
from hibernaut.models.bedrock.writing import FAILED
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.protocol import Memo
from hibernaut.testing.model_transcripts import GIF, png
from hibernaut.testing.providers.bedrock import ConverseWire
from hibernaut.testing.providers.wire import Asked
from tests.models.bedrock.converse import (
    ADAPTIVE,
    BEARER,
    CLAUDE,
    LLAMA,
    NOVA,
    OLD_CLAUDE,
    REDACTED,
    THOUGHT,
    body_of,
    kinds,
    offline,
)
from tests.models.histories import request

HELLO = UserItem("Hello.")
POINT = {"cachePoint": {"type": "default"}}
MARK = b',{"cachePoint":{"type":"default"}}'
GPT = "openai.gpt-oss-120b-1:0"
NOVA_2 = "global.amazon.nova-2-lite-v1:0"


def messages(*items: Item, model_id: str = LLAMA, **settings: Any) -> Any:
    return body_of(request(*items), model_id, **settings)["messages"]


def called(number: int, *, provider_id: str = "", name: str = "look") -> CallItem:
    return CallItem(f"c{number}", name, '{"path":"a"}', provider_id)


def answers(*numbers: int) -> list[ResultItem]:
    return [ResultItem(f"c{number}", "x") for number in numbers]


def refusal(body: Any, model_id: str = CLAUDE) -> str:
    answer = ConverseWire().check(
        Asked.of("POST", path_of(model_id, "converse-stream"), BEARER, msgspec.json.encode(body))
    )
    return "" if answer is None else msgspec.json.decode(answer.body)["message"]


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def asks(*given: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(given), **more}


ASK = said("user", {"text": "Hello."})
CALL = {"toolUse": {"toolUseId": "a", "name": "look", "input": {}}}
RESULT = {"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}
TOOLS = {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}]}


# Roles, pairs, names and ids


def test_sides_take_turns_and_what_one_side_says_is_one_message() -> None:
    written = messages(HELLO, UserItem("Are you there?"), TextItem("Yes."), TextItem("Well?"), UserItem("Good."))
    assert [message["role"] for message in written] == ["user", "assistant", "user"]
    assert kinds(written) == [["text", "text"], ["text", "text"], ["text"]]


def test_results_follow_their_calls_and_come_before_what_the_user_says() -> None:
    items: list[Item] = [HELLO, called(1, provider_id="a"), called(2, provider_id="b"), *answers(1, 2), UserItem("So?")]
    written = messages(*items)
    assert kinds(written) == [["text"], ["toolUse", "toolUse"], ["toolResult", "toolResult", "text"]]
    assert [block["toolResult"]["toolUseId"] for block in written[2]["content"][:2]] == ["a", "b"]


@pytest.mark.parametrize("provider_id", ["", "id with spaces/ü", "z" * 100, "a.b:c"])
def test_an_id_that_is_not_taken_by_all_is_made_anew(provider_id: str) -> None:
    written = messages(HELLO, called(1, provider_id=provider_id), *answers(1))
    name = written[1]["content"][0]["toolUse"]["toolUseId"]
    assert name.startswith("tooluse_")
    assert written[2]["content"][0]["toolResult"]["toolUseId"] == name


@pytest.mark.parametrize("name", ["fs.read", "größe", "y" * 128])
def test_a_name_that_is_not_taken_gets_another_which_is_known_again(name: str) -> None:
    model = offline(LLAMA)
    tool = ToolSpec(name, "", '{"type":"object"}')
    asked = request(HELLO, called(1, name=name), *answers(1), tools=[tool])
    body = msgspec.json.decode(model.sent(asked).body)
    wire = body["toolConfig"]["tools"][0]["toolSpec"]["name"]
    assert body["messages"][1]["content"][0]["toolUse"]["name"] == wire != name
    assert not refusal(body, LLAMA)
    assert model._dialect._names.of(wire) == name  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "body,words",
    [
        (asks(), "empty"),
        (asks(said("assistant", {"text": "x"})), "start with a user"),
        (asks(ASK, ASK), "alternate"),
        (asks(ASK, said("assistant", {"text": "x"})), "end with a user"),
        (asks(said("system", {"text": "x"})), "role"),
        (asks(said("user")), "is empty"),
        (asks(said("user", {"text": " "})), "blank"),
        (asks(said("user", {"text": "a", "image": {}})), "exactly one"),
        (asks(said("user", CALL)), "assistant messages"),
        (asks(said("user", RESULT)), "exceeds the number"),
        (asks(ASK, said("assistant", CALL), ASK, toolConfig=TOOLS), "Expected toolResult"),
        (asks(ASK, said("assistant", CALL, CALL), said("user", RESULT), toolConfig=TOOLS), "unique"),
        (asks(ASK, said("assistant", CALL), said("user", RESULT)), "toolConfig field must be defined"),
        (asks(ASK, said("assistant", CALL), said("user", {"text": "x"}, RESULT), toolConfig=TOOLS), "before all"),
        (asks(ASK, toolConfig={"tools": []}), "greater than or equal to 1"),
        (asks(ASK, toolConfig={"tools": TOOLS["tools"] * 2}), "duplicate"),
        (asks(ASK, system=[{"text": ""}]), "blank"),
        (asks(said("user", POINT)), "needs content"),
        (asks(said("user", {"text": "x"}, *[POINT] * 5)), "cache points"),
        (asks(ASK, inferenceConfig={"maxTokens": 0}), "maxTokens"),
        (asks(ASK, additionalModelRequestFields={"thinking": {"type": "adaptive"}}), "adaptive"),
        (asks(ASK, stream=True), "extraneous"),
    ],
)
def test_the_fake_refuses_what_breaks_a_rule(body: Any, words: str) -> None:
    assert words in refusal(body)


def test_the_fake_refuses_what_other_families_do_not_take() -> None:
    failed = {"toolResult": {**RESULT["toolResult"], "status": "error"}}
    body = asks(ASK, said("assistant", CALL), said("user", failed), toolConfig=TOOLS)
    assert "status" in refusal(body, LLAMA)
    assert not refusal(body, NOVA)
    assert "unsupported" in refusal(asks(said("user", {"text": "x"}, POINT)), OLD_CLAUDE)
    thought = {"reasoningContent": {"reasoningText": {"text": "x"}}}
    assert "reasoningContent" in refusal(asks(ASK, said("assistant", thought, {"text": "x"}), ASK), NOVA)


# Calls without tools


def test_c05_a_history_with_calls_has_a_tool_even_where_there_is_none() -> None:
    asked = request(HELLO, called(1), *answers(1), tools=(), purpose="summary")
    (tool,) = body_of(asked)["toolConfig"]["tools"]
    assert tool["toolSpec"]["description"] == "Never call this."
    assert "toolConfig" not in body_of(request(HELLO, tools=()))


# Results


def test_a_result_says_whether_it_is_an_error_as_the_family_takes_it() -> None:
    items: list[Item] = [HELLO, called(1), ResultItem("c1", "broken", is_error=True)]
    result = messages(*items, model_id=CLAUDE)[2]["content"][0]["toolResult"]
    assert (result["content"], result["status"]) == ([{"text": "broken"}], "error")
    result = messages(*items, model_id=LLAMA)[2]["content"][0]["toolResult"]
    assert result["content"] == [{"text": FAILED}, {"text": "broken"}]
    assert "status" not in result


PICTURE = Image("image/png", png())
BLOCK = {"image": {"format": "png", "source": {"bytes": base64.b64encode(png()).decode()}}}


def test_a_result_has_its_images_where_the_family_takes_them() -> None:
    items: list[Item] = [HELLO, called(1), ResultItem("c1", (Text("Here:"), PICTURE))]
    result = messages(*items, model_id=CLAUDE)[2]["content"][0]["toolResult"]
    assert result["content"] == [{"text": "Here:"}, BLOCK]


def test_otherwise_they_follow_the_last_result() -> None:
    items: list[Item] = [HELLO, called(1, provider_id="a"), called(2), ResultItem("c1", (PICTURE,)), *answers(2)]
    written = messages(*items, UserItem("So?"), model_id=LLAMA)
    assert kinds(written)[2] == ["toolResult", "toolResult", "text", "image", "text"]
    assert written[2]["content"][0]["toolResult"]["content"] == [{"text": "[images follow]"}]
    assert "call a has returned" in written[2]["content"][2]["text"]
    assert not refusal(body_of(request(*items), LLAMA), LLAMA)


def test_a_failed_result_with_an_image_says_so_in_words() -> None:
    items: list[Item] = [HELLO, called(1), ResultItem("c1", (PICTURE,), is_error=True)]
    result = messages(*items, model_id=CLAUDE)[2]["content"][0]["toolResult"]
    assert result == {**result, "content": [{"text": FAILED}, BLOCK]}
    assert "status" not in result


@pytest.mark.parametrize(
    "image",
    [
        Image("image/svg+xml", b"<svg/>"),
        Image("image/png", url="https://pictures.example/a.png"),
        Image("image/png", png() + bytes(4_000_000)),
        Image("image/png", png(9_000, 1)),
    ],
    ids=["svg", "address", "large", "wide"],
)
def test_c25_an_image_that_would_be_refused_is_a_word(image: Image) -> None:
    (message,) = messages(UserItem((image,)))
    assert message["content"][0]["text"].startswith("[an image")


def test_c25_an_image_is_sent_as_what_its_bytes_are() -> None:
    (message,) = messages(UserItem((Image("image/png", GIF), Image("image/webp", png()))))
    assert [block["image"]["format"] for block in message["content"]] == ["gif", "png"]


def test_c25_when_there_are_too_many_images_the_oldest_give_way_however_they_came() -> None:
    items = [UserItem((Text(str(number)), PICTURE)) for number in range(25)]
    memo, model, grown = Memo(), offline(LLAMA), b""
    for count in range(1, 26):
        grown = model.sent(request(*items[:count], memo=memo)).body
    assert grown == offline(LLAMA).sent(request(*items)).body
    assert 10 <= grown.count(b'"image"') <= 20


# Reasoning


@pytest.mark.parametrize("data", [THOUGHT, REDACTED])
def test_a23_reasoning_that_is_signed_goes_back_byte_for_byte(data: bytes) -> None:
    sent = offline(CLAUDE).sent(request(HELLO, ReasoningItem("bedrock", data), called(1), *answers(1))).body
    assert b'{"reasoningContent":' + data + b"}" in sent
    assert not refusal(msgspec.json.decode(sent))


@pytest.mark.parametrize(
    "model_id,provider,data",
    [
        (CLAUDE, "anthropic", THOUGHT),
        (CLAUDE, "bedrock", b""),
        (CLAUDE, "bedrock", b"\xff"),
        (CLAUDE, "bedrock", b'{"reasoningText":{"text":"of another family"}}'),
        (NOVA_2, "bedrock", THOUGHT),
        (GPT, "bedrock", THOUGHT),
    ],
)
def test_other_reasoning_is_left_out(model_id: str, provider: str, data: bytes) -> None:
    written = messages(HELLO, ReasoningItem(provider, data), called(1), *answers(1), model_id=model_id)
    assert kinds(written)[1] == ["toolUse"]


@pytest.mark.parametrize(
    "model_id,effort,fields",
    [
        (CLAUDE, "", None),
        (CLAUDE, "none", None),
        (CLAUDE, "low", {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        (ADAPTIVE, "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        (OLD_CLAUDE, "high", None),
        (NOVA, "high", None),
        (NOVA_2, "low", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}),
        (NOVA_2, "none", {"reasoningConfig": {"type": "disabled"}}),
        (GPT, "high", {"reasoning_effort": "high"}),
        (GPT, "none", {"reasoning_effort": "low"}),
        (LLAMA, "high", None),
    ],
)
def test_how_much_a_model_thinks_is_said_as_its_family_takes_it(model_id: str, effort: str, fields: Any) -> None:
    body = body_of(request(HELLO), model_id, effort=effort)
    assert body.get("additionalModelRequestFields") == fields
    assert not refusal(body, model_id)


def test_a_turn_that_began_without_thinking_goes_on_without() -> None:
    began: list[Item] = [HELLO, called(1), *answers(1)]
    body = body_of(request(*began), effort="high")
    assert "additionalModelRequestFields" not in body
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 8_192}}
    assert "Expected `thinking`" in refusal({**body, "additionalModelRequestFields": thinking})
    thought = ReasoningItem("bedrock", THOUGHT)
    assert "additionalModelRequestFields" in body_of(request(HELLO, thought, called(1), *answers(1)), effort="high")
    assert "additionalModelRequestFields" in body_of(request(*began, UserItem("So?")), effort="high")


# Tools, instructions, cache points and settings


def test_what_stays_the_same_comes_first_with_cache_points_behind_it() -> None:
    body = body_of(request(HELLO))
    assert list(body) == ["toolConfig", "system", "inferenceConfig", "messages"]
    assert body["toolConfig"]["tools"][-1] == POINT
    assert body["system"] == [{"text": "Be kind."}, POINT]
    assert body["messages"] == [said("user", {"text": "Hello."}, POINT)]


def test_there_are_cache_points_at_the_end_and_where_the_end_was() -> None:
    written = messages(HELLO, called(1), *answers(1), TextItem("So."), UserItem("Yes?"), model_id=CLAUDE)
    assert [[POINT in message["content"]] for message in written] == [[False], [False], [True], [False], [True]]
    assert written[2]["content"][-1] == written[4]["content"][-1] == POINT


@pytest.mark.parametrize(
    "model_id,settings,count",
    [
        (CLAUDE, {}, 3),
        (CLAUDE, {"cache": False}, 0),
        (OLD_CLAUDE, {}, 0),
        (NOVA, {}, 1),
        (LLAMA, {}, 0),
        ("arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-5-v1:0", {}, 3),
        ("arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc", {}, 0),
    ],
)
def test_cache_points_stand_where_the_family_takes_them(model_id: str, settings: Any, count: int) -> None:
    assert str(body_of(request(HELLO), model_id, **settings)).count("cachePoint") == count


def test_a_summary_is_not_kept() -> None:
    assert "cachePoint" not in str(body_of(request(HELLO, purpose="summary")))


def test_the_top_of_a_schema_is_as_the_family_takes_it() -> None:
    schema = {
        "$defs": {"P": {"type": "string"}},
        "additionalProperties": False,
        "properties": {"p": {"$ref": "#/$defs/P"}},
        "required": ["p"],
        "anyOf": [{"properties": {"q": {"type": "string"}}}],
    }
    tool = ToolSpec("go", "Goes.", msgspec.json.encode(schema).decode())

    def top(model_id: str) -> Any:
        body = body_of(request(HELLO, tools=[tool]), model_id)
        assert not refusal(body, model_id)
        return body["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"]

    assert top(NOVA) == {"type": "object", "properties": {"p": {"type": "string"}}, "required": ["p"]}
    assert top(LLAMA).keys() == {"type", "properties", "required", "additionalProperties", "anyOf"}
    assert top(CLAUDE)["properties"].keys() == {"p", "q"}
    with pytest.raises(InvalidRequest, match="a parameter 'ü'"):
        body_of(request(HELLO, tools=[ToolSpec("go", "", '{"type":"object","properties":{"ü":{}}}')]))


def test_settings_win_member_by_member() -> None:
    given = {
        "inferenceConfig": {"temperature": 0},
        "additionalModelRequestFields": {"top_k": 5},
        "performanceConfig": {"latency": "optimized"},
    }
    body = body_of(request(HELLO), ADAPTIVE, max_output=100, effort="low", parameters=given)
    assert body["inferenceConfig"] == {"maxTokens": 100, "temperature": 0}
    assert body["additionalModelRequestFields"]["top_k"] == 5
    assert body["additionalModelRequestFields"]["output_config"] == {"effort": "low"}
    assert body["performanceConfig"] == {"latency": "optimized"}


@pytest.mark.parametrize(
    "model_id,path",
    [
        (CLAUDE, "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"),
        ("arn:aws:bedrock:::a/b.c", "/model/arn%3Aaws%3Abedrock%3A%3A%3Aa%2Fb.c/converse-stream"),
    ],
)
def test_the_id_of_a_model_is_one_step_of_the_path(model_id: str, path: str) -> None:
    assert offline(model_id).sent(request(HELLO)).path == path


@pytest.mark.parametrize("prefix", ["", "us.", "eu.", "apac.", "global.", "us-gov.", "jp.", "au."])
def test_a_family_is_known_in_every_region(prefix: str) -> None:
    assert family_of(f"{prefix}anthropic.claude-opus-4-6-v1").thinking == "claude"


def test_a18_what_was_sent_once_stays_as_it_is_byte_for_byte() -> None:
    items: list[Item] = [HELLO]
    for number in range(1, 9):
        thought, text = ReasoningItem("bedrock", THOUGHT), TextItem(f"step {number}")
        items += [thought, text, called(number), ResultItem(f"c{number}", (Text("x"), PICTURE))]
    for model_id in (CLAUDE, LLAMA):
        model, memo = offline(model_id, cache=False), Memo()
        before = b""
        for place, item in enumerate(items, 1):
            if isinstance(item, UserItem | ResultItem):
                sent = model.sent(request(*items[:place], memo=memo)).body
                assert sent == offline(model_id, cache=False).sent(request(*items[:place])).body
                assert sent.startswith(before)
                before = sent.removesuffix(b"}]}]}")


def test_what_was_kept_behind_a_cache_point_is_asked_for_by_the_next_request() -> None:
    items: list[Item] = [HELLO]
    model, memo, kept = offline(CLAUDE), Memo(), b""
    for number in range(1, 9):
        items += [called(number), *answers(number)]
        before_point, _, rest = model.sent(request(*items, memo=memo)).body.partition(b'"messages":')[2].partition(MARK)
        assert before_point == kept or number == 1
        kept = before_point + rest.partition(MARK)[0]
