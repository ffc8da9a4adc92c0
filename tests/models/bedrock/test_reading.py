"""Answers of the Converse API, as it sends them and as it should not."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import botocore.config
import botocore.session
import msgspec
import pytest

from hibernaut.errors import ModelError
from hibernaut.kernel.turn import Turn, TurnCall, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.items import UserItem
from hibernaut.messages.stream import Finish, ReasoningBlock, StreamPiece, TextDelta, ThinkingDelta
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.models.event_stream import ERROR, MEDIA_TYPE, write_message
from hibernaut.models.protocol import Model
from hibernaut.models.scripted import call, think, turn
from hibernaut.testing.providers.bedrock import ACCESS_KEY, SECRET_KEY, ConverseWire, event, exception
from hibernaut.testing.providers.server import FakeProvider
from hibernaut.testing.providers.wire import Raw
from tests.models.bedrock.converse import CLAUDE, bedrock, body_of, read, whole
from tests.models.histories import request

HELLO = UserItem("Hello.")


def start(index: int, name: str = "look", name_id: str = "t1", **more: Any) -> tuple[str, Any]:
    call = {"toolUseId": name_id, "name": name, **more}
    return "contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": call}}


def delta(index: int, **what: Any) -> tuple[str, Any]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": what, "p": "abc"}


def stop(index: int) -> tuple[str, Any]:
    return "contentBlockStop", {"contentBlockIndex": index}


def ended(reason: str = "end_turn") -> tuple[str, Any]:
    return "messageStop", {"stopReason": reason}


async def asked(model: Model) -> list[StreamPiece]:
    return [piece async for piece in model.stream(request(HELLO))]


def test_a_turn_is_read_with_its_thoughts_calls_and_counts() -> None:
    counts = {
        "inputTokens": 10,
        "outputTokens": 7,
        "totalTokens": 117,
        "cacheReadInputTokens": 80,
        "cacheWriteInputTokens": 20,
    }
    pieces = read(
        ("messageStart", {"role": "assistant"}),
        delta(0, reasoningContent={"text": "Let me "}),
        delta(0, reasoningContent={"text": "see."}),
        delta(0, reasoningContent={"signature": "a"}),
        delta(0, reasoningContent={"signature": "b"}),
        stop(0),
        delta(1, reasoningContent={"redactedContent": "c2Vj"}),
        delta(1, reasoningContent={"redactedContent": "cg=="}),
        delta(1, reasoningContent={"redactedContent": "ZXQ="}),
        stop(1),
        delta(2, text="I "),
        delta(2, text="look."),
        stop(2),
        start(3),
        delta(3, toolUse={"input": ""}),
        delta(3, toolUse={"input": '{"pa'}),
        delta(3, toolUse={"input": 'th":"a"}'}),
        stop(3),
        start(4, "wait", "t2"),
        stop(4),
        ended("tool_use"),
        ("metadata", {"usage": counts, "metrics": {"latencyMs": 3}}),
    )
    assert pieces[:2] == [ThinkingDelta("Let me "), ThinkingDelta("see.")]
    found = whole(pieces)
    assert found.parts == (
        ReasoningBlock("bedrock", b'{"reasoningText":{"text":"Let me see.","signature":"ab"}}', "Let me see."),
        ReasoningBlock("bedrock", b'{"redactedContent":"c2VjcmV0"}'),
        TurnText("I look."),
        TurnCall("look", "t1", ['{"pa', 'th":"a"}'], complete=True),
        TurnCall("wait", "t2", [], complete=True),
    )
    assert pieces[-1] == Finish("end", Usage(110, 7, 80), 20)


def test_calls_whose_pieces_come_in_turns_are_told_apart() -> None:
    found = whole(
        read(
            start(0),
            start(1, "wait", "t2"),
            delta(1, toolUse={"input": "{"}),
            delta(0, toolUse={"input": '{"path":1}'}),
            delta(1, toolUse={"input": "}"}),
            stop(1),
            stop(0),
            ended("tool_use"),
        )
    )
    assert found.parts == (
        TurnCall("look", "t1", ['{"path":1}'], complete=True),
        TurnCall("wait", "t2", ["{", "}"], complete=True),
    )


@pytest.mark.parametrize(
    "arguments,complete", [([], False), (['{"pa'], False), (['{"path":"a"}'], True), (["{}"], True), (["7"], False)]
)
def test_c53_a_call_that_the_output_limit_cut_off_has_not_ended(arguments: list[str], complete: bool) -> None:
    """The API says of it that it has."""
    deltas = [delta(1, toolUse={"input": text}) for text in arguments]
    found = whole(read(start(0), stop(0), start(1), *deltas, stop(1), ended("max_tokens")))
    assert found.reason == "length"
    assert [part.complete for part in found.parts if isinstance(part, TurnCall)] == [True, complete]


@pytest.mark.parametrize(
    "reason,meant",
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("guardrail_intervened", "refused"),
        ("content_filtered", "refused"),
        ("something_new", "end"),
    ],
)
def test_a_turn_ends_for_a_reason(reason: str, meant: str) -> None:
    assert whole(read(delta(0, text="Hi."), stop(0), ended(reason))).reason == meant


@pytest.mark.parametrize(
    "reason,kind",
    [
        ("malformed_tool_use", Overloaded),
        ("malformed_model_output", Overloaded),
        ("model_context_window_exceeded", ContextOverflow),
    ],
)
def test_a_turn_that_went_wrong_is_a_failure(reason: str, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        read(delta(0, text="Hi."), ended(reason))


def test_a_stream_without_an_end_has_none_and_one_without_counts_has() -> None:
    assert read(delta(0, text="Hi."), stop(0)) == [TextDelta("Hi.")]
    assert read(delta(0, text="Hi."), ended()) == [TextDelta("Hi."), Finish()]


def test_a_character_that_was_escaped_in_two_halves_is_one_again() -> None:
    def half(escape: str, **path: Any) -> tuple[str, str]:
        what = msgspec.json.encode({"contentBlockIndex": 0, "delta": path}).decode().replace("HALF", escape)
        return "contentBlockDelta", what

    for path in ({"text": "HALF"}, {"reasoningContent": {"text": "HALF"}}):
        found = whole(read(half("\\ud83d", **path), half("\\ude00", **path), stop(0), ended()))
        (part,) = found.parts
        assert isinstance(part, TurnText | ReasoningBlock)
        assert part.text == "😀"


def test_what_is_not_known_is_not_looked_at() -> None:
    pieces = read(
        ("somethingNew", {"a": 1}),
        start(0, type="server_tool_use"),
        delta(0, toolUse={"input": '{"query":"x"}'}),
        stop(0),
        delta(1, citation={"title": "x"}),
        delta(2, text="Hi.", new=1),
        ("contentBlockDelta", {"contentBlockIndex": 2}),
        ("contentBlockStart", {"contentBlockIndex": 3, "start": {"image": {"format": "png"}}}),
        stop(9),
        ended(),
    )
    assert pieces == [TextDelta("Hi."), Finish()]


def test_thoughts_that_are_not_ended_are_kept() -> None:
    pieces = read(delta(0, reasoningContent={"text": "hm"}), ended())
    assert pieces[1] == ReasoningBlock("bedrock", b'{"reasoningText":{"text":"hm"}}', "hm")


@pytest.mark.parametrize(
    "kind,body,error",
    [
        ("throttlingException", {"message": "Too many tokens, please wait"}, RateLimited),
        ("serviceUnavailableException", {"message": "busy"}, Overloaded),
        ("internalServerException", {"message": "oops"}, Overloaded),
        ("modelStreamErrorException", {"message": "oops", "originalStatusCode": 500}, Overloaded),
        ("modelTimeoutException", {}, Overloaded),
        ("validationException", {"message": "no"}, InvalidRequest),
        ("validationException", {"message": "Input is too long for requested model."}, ContextOverflow),
        ("accessDeniedException", {"message": "no"}, AuthenticationFailed),
        ("somethingNewException", "no JSON", Overloaded),
        (ERROR, {"code": "InternalFailure", "message": "oops"}, Overloaded),
        (ERROR, {"code": "Odd", "message": "oops"}, Overloaded),
    ],
)
def test_an_exception_in_the_stream_has_its_kind(kind: str, body: Any, error: type[ModelError]) -> None:
    with pytest.raises(error):
        read(delta(0, text="Hi."), (kind, body))


SHORT = turn(think("Hm 😀", data=b"1"), "Göod. ", call("look", path="ä"), call("wait"), usage=Usage(5, 4, 3), chunks=9)


def test_a_stream_is_read_the_same_wherever_it_is_cut() -> None:
    async def scenario() -> None:
        async with bedrock([SHORT]) as model:
            wanted = whole(await asked(model))
        for chunks in (*range(1, 30), 64, 100, 1_000):
            async with bedrock([SHORT], chunks=chunks) as model:
                assert whole(await asked(model)) == wanted

    asyncio.run(scenario())


def stream(*events: bytes) -> Raw:
    return Raw(200, {"content-type": MEDIA_TYPE}, b"".join(events))


HI = event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hi."}})


@pytest.mark.parametrize(
    "answer,kind,words",
    [
        (Raw(200, {"content-type": "text/html"}, b"<h1>It works!</h1>"), InvalidRequest, "It works"),
        (Raw(200, {"content-type": "text/event-stream"}, b"data: {}\n\n"), InvalidRequest, "text/event-stream"),
        (stream(b"data: this is no binary stream"), ConnectionLost, "checksum"),
        (stream(HI, HI[:-1] + b"x"), ConnectionLost, "checksum"),
        (stream(HI[:-5]), ConnectionLost, "ends inside"),
        (stream(write_message([(":event-type", "messageStop")], b"{oops")), ConnectionLost, "cannot be read"),
        (stream(HI, exception("throttlingException", "slow")), RateLimited, "slow"),
        (Raw(500, {"content-type": "text/html"}, b"<h1>500</h1>"), Overloaded, "500"),
    ],
)
def test_a_server_that_is_no_bedrock_is_told_from_one(answer: Raw, kind: type[ModelError], words: str) -> None:
    async def scenario() -> None:
        async with bedrock([answer]) as model:
            with pytest.raises(kind, match=words):
                await asked(model)

    asyncio.run(scenario())


# What Amazon's own library makes of the same


def by_botocore(url: str, body: Mapping[str, Any]) -> Turn:
    """Return the turn that Amazon's own client reads."""
    session = botocore.session.Session()
    session.set_credentials(ACCESS_KEY, SECRET_KEY)
    config = botocore.config.Config(retries={"total_max_attempts": 1})
    client = session.create_client("bedrock-runtime", region_name="eu-central-1", endpoint_url=url, config=config)
    events = list(client.converse_stream(modelId=CLAUDE, **body)["stream"])
    client.close()
    parts: dict[int, Any] = {}
    usage, reason = Usage(), ""
    for each in events:
        ((kind, value),) = each.items()
        if kind == "contentBlockStart":
            made = value["start"]["toolUse"]
            parts[value["contentBlockIndex"]] = TurnCall(made["name"], made["toolUseId"], [])
        elif kind == "contentBlockDelta":
            _take(parts, value["contentBlockIndex"], value["delta"])
        elif kind == "messageStop":
            reason = value["stopReason"]
        elif kind == "metadata":
            counted = value["usage"]
            cached = counted["cacheReadInputTokens"]
            read_in = counted["inputTokens"] + cached + counted["cacheWriteInputTokens"]
            usage = Usage(read_in, counted["outputTokens"], cached)
    assert reason == "tool_use"
    return Turn(tuple(map(_finished, parts.values())), "end", usage)


def _take(parts: dict[int, Any], index: int, change: Mapping[str, Any]) -> None:
    if "text" in change:
        parts[index] = parts.get(index, "") + change["text"]
    elif "toolUse" in change:
        parts[index].pieces.append(change["toolUse"]["input"])
    else:
        thought = parts.setdefault(index, {})
        for name, value in change["reasoningContent"].items():
            thought[name] = thought.get(name, type(value)()) + value


def _finished(part: Any) -> Any:
    if isinstance(part, str):
        return TurnText(part)
    if isinstance(part, TurnCall):
        return TurnCall(part.name, part.provider_id, ["".join(part.pieces)], complete=True)
    if "redactedContent" in part:
        encoded = base64.b64encode(part["redactedContent"]).decode()
        return ReasoningBlock("bedrock", msgspec.json.encode({"redactedContent": encoded}))
    return ReasoningBlock("bedrock", msgspec.json.encode({"reasoningText": part}), part["text"])


def joined(found: Turn) -> Turn:
    parts = [
        TurnCall(part.name, part.provider_id, [part.arguments], complete=part.complete)
        if isinstance(part, TurnCall)
        else part
        for part in found.parts
    ]
    return Turn(tuple(parts), found.reason, found.usage)


def test_amazons_own_client_reads_the_same_turn_and_is_let_in_by_its_signature() -> None:
    made = turn(think(data=b"secret"), SHORT)

    async def scenario() -> None:
        async with FakeProvider(ConverseWire(), [made]) as fake:
            body = body_of(request(HELLO))
            theirs = await asyncio.to_thread(by_botocore, fake.url, body)
            assert fake.asked[0].headers["authorization"].startswith("AWS4-HMAC-SHA256")
            assert fake.asked[0].body == body
            assert fake.asked[0].path == f"/model/{CLAUDE.replace(':', '%3A')}/converse-stream"
        async with bedrock([made]) as model:
            assert joined(whole(await asked(model))) == theirs

    asyncio.run(scenario())
