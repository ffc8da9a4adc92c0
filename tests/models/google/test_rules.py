"""The rules of the Gemini API: what is written, and that a strict fake refuses what breaks them."""

import base64
from typing import Any

import msgspec
import pytest

from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Excerpt, Image, Text
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.google.rules import GEMINI_API, UNSIGNED, VERTEX, Platform, own_schema
from hibernaut.models.google.writing import call_data
from hibernaut.models.protocol import Memo
from hibernaut.testing.model_transcripts import GIF, png
from hibernaut.testing.providers.google import GeminiWire, signed
from hibernaut.testing.providers.wire import Asked
from tests.models.google.gemini import BEARER, HEADERS, NEWEST, OLDER, OLDEST, body_of, kinds, offline
from tests.models.histories import request

HELLO = UserItem("Hello.")
SIGNATURE = signed(b"1")
OWN = call_data("google", SIGNATURE)


def contents(*items: Item, platform: Platform = GEMINI_API, model_id: str = NEWEST) -> Any:
    return body_of(request(*items), platform, model_id)["contents"]


def called(number: int, *, data: bytes = b"", provider_id: str = "", name: str = "look") -> CallItem:
    return CallItem(f"c{number}", name, '{"path":"a"}', provider_id, data)


def refusal(body: Any, platform: Platform = GEMINI_API, model_id: str = NEWEST) -> str:
    headers = BEARER if platform is VERTEX else HEADERS
    raw = msgspec.json.encode(body)
    path = f"/models/{model_id}:streamGenerateContent?alt=sse"
    answer = GeminiWire(vertex=platform is VERTEX).check(Asked.of("POST", path, headers, raw))
    return "" if answer is None else msgspec.json.decode(answer.body)["error"]["message"]


def said(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def asks(*given: Any, **more: Any) -> dict[str, Any]:
    return {"contents": list(given), **more}


ASK = said("user", {"text": "Hello."})
CALL = {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": UNSIGNED}
RESULT = {"functionResponse": {"name": "look", "response": {"output": "x"}}}


# Roles, pairs, names and ids


def test_sides_take_turns_and_what_one_side_says_is_one_content() -> None:
    written = contents(HELLO, UserItem("Are you there?"), TextItem("Yes."), TextItem("Well?"), UserItem("Good."))
    assert [content["role"] for content in written] == ["user", "model", "user"]
    assert kinds(written) == [["text", "text"], ["text", "text"], ["text"]]


def test_results_follow_their_calls_by_name_in_order_and_come_before_what_the_user_says() -> None:
    items: list[Item] = [
        HELLO,
        called(1),
        called(2, name="wait"),
        ResultItem("c1", "one"),
        ResultItem("c2", "two"),
        UserItem("So?"),
    ]
    written = contents(*items)
    assert kinds(written) == [["text"], ["functionCall"] * 2, ["functionResponse", "functionResponse", "text"]]
    assert [part["functionResponse"]["name"] for part in written[2]["parts"][:2]] == ["look", "wait"]


def test_a_result_says_whether_it_is_one_or_an_error() -> None:
    items: list[Item] = [
        HELLO,
        called(1),
        called(2),
        ResultItem("c1", "fine"),
        ResultItem("c2", "broken", is_error=True),
    ]
    answers = [part["functionResponse"]["response"] for part in contents(*items)[-1]["parts"]]
    assert answers == [{"output": "fine"}, {"error": "broken"}]


def test_a_result_is_text_so_that_no_reference_in_it_is_followed() -> None:
    written = contents(HELLO, called(1), ResultItem("c1", '{"$ref":"#/$defs/x"}'))
    assert written[-1]["parts"][0]["functionResponse"]["response"] == {"output": '{"$ref":"#/$defs/x"}'}
    broken = {"functionResponse": {"name": "look", "response": {"$ref": "#/$defs/x"}}}
    assert "display_name" in refusal(asks(ASK, said("model", CALL), said("user", broken)))


def test_only_ids_that_the_model_gave_itself_are_sent_back() -> None:
    items: list[Item] = [
        HELLO,
        called(1, data=OWN, provider_id="abc"),
        called(2, data=b"", provider_id="toolu_1"),
        ResultItem("c1", "x"),
        ResultItem("c2", "y"),
    ]
    written = contents(*items)
    assert [part["functionCall"].get("id") for part in written[1]["parts"]] == ["abc", None]
    assert [part["functionResponse"].get("id") for part in written[2]["parts"]] == ["abc", None]


def test_an_id_that_the_model_repeats_is_made_anew() -> None:
    items: list[Item] = [HELLO, *(called(number, data=OWN, provider_id="same") for number in (1, 2))]
    written = contents(*items, ResultItem("c1", "x"), ResultItem("c2", "y"))
    ids = [part["functionCall"]["id"] for part in written[1]["parts"]]
    assert ids[0] == "same"
    assert ids[1] != "same"
    assert [part["functionResponse"]["id"] for part in written[2]["parts"]] == ids


def test_vertex_is_sent_no_ids() -> None:
    data = call_data("vertex", SIGNATURE)
    items = (HELLO, called(1, data=data, provider_id="abc"), ResultItem("c1", "x"))
    written = contents(*items, platform=VERTEX)
    assert "id" not in written[1]["parts"][0]["functionCall"]
    assert written[1]["parts"][0]["thoughtSignature"] == SIGNATURE
    with_ids = asks(ASK, said("model", {"functionCall": {"name": "look", "id": "a"}}), ASK)
    assert 'Unknown name "id"' in refusal(with_ids, VERTEX)


@pytest.mark.parametrize(
    "name", ["fs.read", "größe", "y" * 128, "1st", "-x", "x" * 64], ids=["dot", "umlaut", "long", "1", "-", "64"]
)
def test_a_name_that_is_not_taken_gets_another_which_is_known_again(name: str) -> None:
    model = offline()
    tool = ToolSpec(name, "", '{"type":"object"}')
    body = msgspec.json.decode(
        model.sent(request(HELLO, called(1, name=name), ResultItem("c1", "x"), tools=[tool])).body
    )
    wire = body["tools"][0]["functionDeclarations"][0]["name"]
    assert wire != name
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == wire
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == wire
    assert not refusal(body)
    assert model._dialect._names.of(wire) == name  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "body,words",
    [
        (asks(), "not specified"),
        (asks(said("user")), "at least one parts"),
        (asks(said("assistant", {"text": "x"})), "valid role"),
        (asks(said("user", {"text": ""})), "empty text"),
        (asks(said("user", {})), "one initialized field"),
        (asks(said("user", {"text": "a", "inlineData": {}})), "one initialized field"),
        (asks(ASK, said("model", {"text": "x"})), "ends with a user role"),
        (asks(ASK, said("model", CALL), ASK), "number of function response parts"),
        (asks(ASK, said("model", CALL), said("user", RESULT, RESULT)), "number of function response parts"),
        (asks(said("user", RESULT)), "number of function response parts"),
        (asks(said("model", CALL), said("user", RESULT)), "immediately after a user turn"),
        (asks(ASK, said("model", {"functionCall": {"name": "a b"}}), said("user", RESULT)), "must start with"),
        (asks(ASK, tools=[{"functionDeclarations": [{"name": "a", "description": ""}]}]), "missing field"),
        (asks(ASK, tools=[{"functionDeclarations": [{"name": "a", "description": "b"}] * 2}]), "Duplicate"),
        (asks(ASK, model="x"), 'Unknown name "model"'),
        (asks(ASK, generationConfig={"maxOutputTokens": 0}), "positive"),
        (asks(ASK, generationConfig={"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "low"}}), "only one"),
    ],
)
def test_the_fake_refuses_what_breaks_a_rule(body: Any, words: str) -> None:
    assert words in refusal(body)


# Signatures


def test_the_fake_takes_what_the_api_takes_in_other_spellings() -> None:
    other = SIGNATURE.replace("+", "-").replace("/", "_")
    call = {"function_call": {"name": "look", "args": {"some_path": 1}}, "thought_signature": other}
    result = {"function_response": {"name": "look", "response": {"some_output": "x"}}}
    schema = {"type": "object", "properties": {"some_path": {"type": "string"}}}
    declared = {"name": "look", "description": "Looks.", "parameters_json_schema": schema}
    body = asks(
        ASK,
        said("model", call),
        said("user", result),
        tools=[{"function_declarations": [declared]}],
        generation_config={"thinking_config": {"include_thoughts": True, "thinking_level": "LOW"}},
    )
    assert refusal(body) == ""
    assert 'Unknown name "someThing"' in refusal({**body, "some_thing": 1})


def test_a23_a_signature_goes_back_with_its_call() -> None:
    written = contents(HELLO, called(1, data=OWN), called(2, data=call_data("google", "")), *answers(2))
    assert [part.get("thoughtSignature") for part in written[1]["parts"]] == [SIGNATURE, None]


def answers(count: int) -> list[ResultItem]:
    return [ResultItem(f"c{number}", "x") for number in range(1, count + 1)]


def test_the_first_call_of_each_step_that_another_model_made_is_signed_as_such() -> None:
    items: list[Item] = [
        HELLO,
        called(1, data=b"fc_1"),
        called(2),
        *answers(2),
        TextItem("So."),
        called(3),
        ResultItem("c3", "x"),
    ]
    written = contents(*items)
    signatures = [[part.get("thoughtSignature") for part in content["parts"]] for content in written]
    assert signatures == [[None], [UNSIGNED, None], [None, None], [None, UNSIGNED], [None]]


def test_older_models_need_no_signature() -> None:
    written = contents(HELLO, called(1), *answers(1), model_id=OLDER)
    assert "thoughtSignature" not in written[1]["parts"][0]


def test_a_signature_of_the_other_platform_is_not_sent() -> None:
    written = contents(HELLO, called(1, data=OWN), *answers(1), platform=VERTEX)
    assert written[1]["parts"][0]["thoughtSignature"] == UNSIGNED


def test_a23_the_signature_of_a_text_goes_back_beside_it() -> None:
    signature = ReasoningItem("google", SIGNATURE.encode())
    written = contents(HELLO, TextItem("I look."), signature, called(1, data=OWN), *answers(1))
    assert written[1]["parts"][0] == {"text": "I look.", "thoughtSignature": SIGNATURE}


@pytest.mark.parametrize(
    "reasoning",
    [
        ReasoningItem("google", b"", "for people"),
        ReasoningItem("vertex", SIGNATURE.encode()),
        ReasoningItem("anthropic", b'{"type":"thinking"}', "hm"),
        ReasoningItem("google", "ü".encode()),
    ],
)
def test_other_reasoning_is_left_out(reasoning: ReasoningItem) -> None:
    written = contents(HELLO, TextItem("I look."), reasoning, called(1, data=OWN), *answers(1))
    assert written[1]["parts"][0] == {"text": "I look."}


@pytest.mark.parametrize("part", [{**CALL, "thoughtSignature": "bm90IG91cnM="}, {**CALL, "thoughtSignature": "ü"}])
def test_the_fake_refuses_a_signature_that_it_did_not_give(part: Any) -> None:
    assert "thought" in refusal(asks(ASK, said("model", part), said("user", RESULT)))


def test_the_fake_misses_a_signature_in_the_current_turn_only() -> None:
    bare = said("model", {"functionCall": {"name": "look"}})
    assert "`1.` content block" in refusal(asks(ASK, bare, said("user", RESULT)))
    assert not refusal(asks(ASK, bare, said("user", RESULT), said("model", {"text": "x"}), ASK))
    assert not refusal(asks(ASK, bare, said("user", RESULT)), model_id=OLDER)


# Images


PICTURE = Image("image/png", png())
INLINE = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(png()).decode()}}


def test_c25_an_image_is_sent_as_what_its_bytes_are() -> None:
    (content,) = contents(UserItem((Text("Look:"), Image("image/jpeg", png()))))
    assert content["parts"] == [{"text": "Look:"}, INLINE]


@pytest.mark.parametrize(
    "image",
    [
        Image("image/gif", GIF),
        Image("image/png", b"no picture"),
        Image("image/png", url="https://pictures.example/a.png"),
        Image("image/png", png() + bytes(6_000_000)),
    ],
    ids=["gif", "nothing", "address", "large"],
)
def test_c25_an_image_that_would_be_refused_is_a_word(image: Image) -> None:
    (content,) = contents(UserItem((image,)))
    assert content["parts"][0]["text"].startswith("[an image")


def test_a_result_has_its_images_where_the_model_takes_them() -> None:
    written = contents(HELLO, called(1), ResultItem("c1", (Text("Here:"), PICTURE)))
    answer = written[-1]["parts"][0]["functionResponse"]
    assert answer["response"] == {"output": "Here:\n[image 1]"}
    assert answer["parts"] == [INLINE]


def test_otherwise_they_follow_the_last_result() -> None:
    items: list[Item] = [
        HELLO,
        called(1),
        called(2),
        ResultItem("c1", (Text("Here:"), PICTURE)),
        ResultItem("c2", "none"),
    ]
    written = contents(*items, UserItem("So?"), model_id=OLDER)
    assert kinds(written)[-1] == ["functionResponse", "functionResponse", "text", "inlineData", "text"]
    assert written[-1]["parts"][0]["functionResponse"]["response"] == {"output": "Here:\n[image 1]"}
    broken = {"functionResponse": {**RESULT["functionResponse"], "parts": [INLINE]}}
    assert "Multimodal" in refusal(asks(ASK, said("model", CALL), said("user", broken)), model_id=OLDER)


def test_c25_when_there_are_too_many_images_the_oldest_give_way_however_they_came() -> None:
    large = png() + bytes(4_000_000)
    items = [UserItem((Text(str(number)), Image("image/png", large))) for number in range(6)]
    whole = contents(*items)
    memo, model, grown = Memo(), offline(), b""
    for count in range(1, 7):
        grown = model.sent(request(*items[:count], memo=memo)).body
    assert msgspec.json.decode(grown)["contents"] == whole
    assert 0 < str(whole).count("inlineData") < 6
    assert "inlineData" in whole[0]["parts"][-1]


# Tools, instructions and settings


def test_tools_and_instructions_come_first_and_are_left_out_where_there_are_none() -> None:
    assert list(body_of(request(HELLO))) == ["systemInstruction", "tools", "generationConfig", "contents"]
    bare = msgspec.structs.replace(request(HELLO, tools=()), instructions=" ")
    assert list(body_of(bare)) == ["generationConfig", "contents"]


def test_parameters_are_a_json_schema_without_references() -> None:
    schema = {
        "$defs": {"P": {"type": "object", "properties": {"next": {"$ref": "#/$defs/P"}, "n": {"type": "integer"}}}},
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/P", "description": "a place"}, "any": {"anyOf": [{"$ref": "#/$defs/P"}]}},
    }
    tool = ToolSpec("go", "Goes.", msgspec.json.encode(schema).decode())
    body = body_of(request(HELLO, tools=[tool]))
    (declared,) = body["tools"][0]["functionDeclarations"]
    place = {"type": "object", "properties": {"next": {"type": "object"}, "n": {"type": "integer"}}}
    assert declared["parametersJsonSchema"] == {
        "type": "object",
        "properties": {"p": {**place, "description": "a place"}, "any": {"anyOf": [place]}},
    }
    assert not refusal(body)


def test_older_models_get_the_schema_in_their_own_language() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "kind": {"enum": ["a", "b"], "default": "a"},
            "one": {"const": "x"},
            "maybe": {"type": ["string", "null"], "format": "uri"},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "opt": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}], "title": "Opt"},
            "list": {"type": "array"},
            "both": {"allOf": [{"type": "object", "properties": {"x": {"type": "string"}}}]},
            "level": {"type": "integer", "enum": [1, 2], "exclusiveMinimum": 0},
        },
        "required": ["kind", "gone"],
    }
    tool = ToolSpec("go", "", msgspec.json.encode(schema).decode())
    body = body_of(request(HELLO, tools=[tool, ToolSpec("wait", "", '{"type":"object"}')]), model_id=OLDEST)
    go, wait = body["tools"][0]["functionDeclarations"]
    assert go["parameters"] == {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "one": {"type": "string", "enum": ["x"]},
            "maybe": {"type": "string", "nullable": True},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "opt": {"type": "array", "items": {"type": "number"}, "title": "Opt", "nullable": True},
            "list": {"type": "array", "items": {"type": "string"}},
            "both": {"type": "object", "properties": {"x": {"type": "string"}}},
            "level": {"type": "integer"},
        },
        "required": ["kind"],
    }
    assert wait == {"name": "wait", "description": "wait"}
    assert not refusal(body, model_id=OLDEST)


def test_the_fake_refuses_a_schema_that_is_not_in_the_language() -> None:
    for broken in (
        {"type": "object", "properties": {"a": {"type": "string", "const": "x"}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}], "title": "A"}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
    ):
        declared = {"name": "a", "description": "b", "parameters": broken}
        assert refusal(asks(ASK, tools=[{"functionDeclarations": [declared]}])), broken


def test_a_schema_of_anything_is_an_object() -> None:
    assert own_schema({}) == {"type": "object"}


@pytest.mark.parametrize(
    "model_id,effort,thinking",
    [
        (NEWEST, "", {"includeThoughts": True}),
        (NEWEST, "none", {"thinkingLevel": "minimal"}),
        (NEWEST, "high", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-3-pro-preview", "none", {"thinkingLevel": "low"}),
        ("gemini-4-argon", "none", {"thinkingLevel": "low"}),
        ("gemini-flash-latest", "none", {"thinkingLevel": "minimal"}),
        (OLDER, "none", {"thinkingBudget": 0}),
        (OLDER, "low", {"thinkingBudget": 1_024, "includeThoughts": True}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        (OLDEST, "high", None),
        ("models/gemini-2.0-flash", "high", None),
        ("gemma-3-27b-it", "high", None),
    ],
)
def test_how_much_a_model_thinks_is_said_as_its_generation_takes_it(model_id: str, effort: str, thinking: Any) -> None:
    body = body_of(request(HELLO), model_id=model_id, effort=effort)
    assert body.get("generationConfig", {}).get("thinkingConfig") == thinking


def test_settings_win_member_by_member() -> None:
    given = {"generationConfig": {"temperature": 0, "thinkingConfig": {"thinkingLevel": "low"}}, "safetySettings": []}
    body = body_of(request(HELLO), max_output=100, parameters=given)
    assert body["generationConfig"] == {
        "maxOutputTokens": 100,
        "temperature": 0,
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
    }
    assert body["safetySettings"] == []


def test_excerpts_are_sent_as_their_text() -> None:
    (content,) = contents(UserItem((Excerpt("head … tail", b"\x01" * 32, 70_000),)))
    assert content["parts"] == [{"text": "head … tail"}]


@pytest.mark.parametrize(
    "model_id,path",
    [
        ("gemini-3.5-flash", "/models/gemini-3.5-flash:streamGenerateContent?alt=sse"),
        ("tunedModels/my model", "/tunedModels/my%20model:streamGenerateContent?alt=sse"),
    ],
)
def test_a_model_has_a_path_of_its_own(model_id: str, path: str) -> None:
    assert offline(model_id=model_id).sent(request(HELLO)).path == path


# What is new


def test_a18_what_was_sent_once_stays_as_it_is_byte_for_byte() -> None:
    items: list[Item] = [HELLO]
    for number in range(1, 9):
        items += [
            TextItem(f"step {number}"),
            ReasoningItem("google", SIGNATURE.encode()),
            called(number, data=OWN),
            ResultItem(f"c{number}", (Text("x"), PICTURE)),
        ]
    for model_id in (NEWEST, OLDER):
        model, memo = offline(model_id=model_id), Memo()
        before = b""
        for place, item in enumerate(items, 1):
            if isinstance(item, UserItem | ResultItem):
                sent = model.sent(request(*items[:place], memo=memo)).body
                assert sent == offline(model_id=model_id).sent(request(*items[:place])).body
                assert sent.startswith(before)
                before = sent.removesuffix(b"}]}]}")
