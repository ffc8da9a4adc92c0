"""OpenAI's APIs over real HTTP: however streams are cut, given up, or broken, and whatever stands at the address."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import msgspec
import pytest

from hibernaut.auth import Bearer, Headers
from hibernaut.errors import ModelError
from hibernaut.kernel.turn import Turn, TurnCall, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem, ReasoningItem, ResultItem, TextItem
from hibernaut.messages.stream import Finish, ReasoningBlock, TextDelta
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.models.http_model import HttpModel
from hibernaut.models.http_provider import HttpProvider
from hibernaut.models.openai.address import Address
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.responses import ResponsesDialect
from hibernaut.models.openai.servers import server_of
from hibernaut.models.prices import Prices
from hibernaut.models.protocol import About, Memo, ModelInfo
from hibernaut.models.scripted import ScriptedTurn, call, call_raw, cut, fail, say, stall, think, turn
from hibernaut.testing.providers.openai_chat import MANNERS, ChatWire, Manner
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeProvider
from hibernaut.testing.providers.wire import Asked, FakeWire, Raw
from tests.models.openai.setting import HELLO, LOOK, asking, pieces_of, served
from tests.models.openai.streams import chunk, sse, turn_of

WIRES: list[tuple[str, FakeWire, Dialect]] = [
    ("responses", ResponsesWire(), ResponsesDialect()),
    *[(name, ChatWire(name), ChatDialect(server_of(name))) for name in MANNERS],
]
each_wire = pytest.mark.parametrize("wire,dialect", [pair[1:] for pair in WIRES], ids=[pair[0] for pair in WIRES])

SHORT = turn(
    think("Hm…", data=b"block"),
    "Grüße 😀 ",
    call("look", path="ä"),
    call_raw("wait", '{"n"', ":1}"),
    usage=Usage(7, 3, 2),
)


class Cut(httpx2.AsyncByteStream):
    """A body in pieces of a size."""

    def __init__(self, body: bytes, size: int) -> None:
        self._pieces = [body[place : place + size] for place in range(0, len(body), size)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def played(wire: FakeWire, dialect: Dialect, made: ScriptedTurn, size: int) -> Turn:
    """Play a turn in pieces of a size, without a connection."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked = Asked.of(request.method, request.url.raw_path.decode(), dict(request.headers), request.content)
        assert wire.check(asked) is None
        encoder = wire.encoder(asked)
        body = b"".join([event for piece in made.pieces for event in encoder.feed(piece)])
        return httpx2.Response(200, headers={"content-type": wire.stream_type}, stream=Cut(body, size or len(body)))

    async def run() -> Turn:
        endpoint = Endpoint("cut", "http://cut", transport=httpx2.MockTransport(answer))
        return turn_of(await pieces_of(HttpModel(endpoint, dialect, About("gpt-5")), asking(tools=[LOOK])))

    return asyncio.run(run())


def anonymous(found: Turn) -> Turn:
    """Return a turn without what differs each time it is played."""
    parts = [
        msgspec.structs.replace(part, provider_id="", pieces=[part.arguments])
        if isinstance(part, TurnCall)
        else ReasoningBlock(part.provider, b"", part.text)
        if isinstance(part, ReasoningBlock)
        else part
        for part in found.parts
    ]
    return Turn(tuple(parts), found.reason, found.usage)


@each_wire
def test_a_stream_is_the_same_however_it_is_cut(wire: FakeWire, dialect: Dialect) -> None:
    whole = played(wire, dialect, SHORT, 0)
    texts = [part for part in whole.parts if isinstance(part, TurnText)]
    calls = [(part.name, part.arguments) for part in whole.parts if isinstance(part, TurnCall)]
    assert texts == [TurnText("Grüße 😀 ")]
    assert calls == [("look", '{"path":"ä"}'), ("wait", '{"n":1}')]
    assert whole.usage == Usage(7, 3, 2)
    for size in [*range(1, 60), 97, 500, 1_000, 3_000]:
        assert anonymous(played(wire, dialect, SHORT, size)) == anonymous(whole)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1_000])
@pytest.mark.parametrize("name", ["responses", "openai", "openrouter"])
def test_pieces_of_any_size_arrive_over_a_connection(name: str, size: int) -> None:
    wire, dialect = next((wire, dialect) for known, wire, dialect in WIRES if known == name)

    async def run() -> None:
        async with served(wire, dialect, [SHORT], chunks=size) as (model, _):
            assert turn_of(await pieces_of(model, asking(tools=[LOOK]))).usage == Usage(7, 3, 2)

    asyncio.run(run())


ODD: list[dict[str, Any]] = [
    {"ids": "missing"},
    {"ids": "empty"},
    {"ids": "same"},
    {"ids": "repeated", "index": "missing"},
    {"ids": "repeated", "index": "zero"},
    {"ids": "repeated", "names_again": True},
    {"names_again": True},
    {"whole": True, "index": "missing"},
    {"whole": True, "index": "zero"},
    {"whole": True, "index": "missing", "ids": "missing"},
    {"whole": True, "index": "zero", "ids": "same"},
    {"whole": True, "objects": True, "ids": "empty", "index": "zero"},
    {"content_parts": True},
    {"nulls": True, "usage": "last"},
    {"usage": "every"},
    {"usage": "groq"},
    {"done": False},
    {"done": False, "usage": "last"},
    {"call_reason": "stop"},
    {"call_reason": "function_call"},
    {"call_reason": None},
    {"thinking": "parts"},
    {"thinking": "reasoning"},
]


@pytest.mark.parametrize("manner", ODD, ids=str)
def test_every_manner_of_answering_is_understood(manner: dict[str, Any]) -> None:
    found = played(ChatWire(Manner(**manner)), ChatDialect(server_of("elsewhere")), SHORT, 0)
    texts = [part.text for part in found.parts if isinstance(part, TurnText)]
    calls = [(part.name, part.arguments, part.complete) for part in found.parts if isinstance(part, TurnCall)]
    assert texts == ["Grüße 😀 "]
    assert calls == [("look", '{"path":"ä"}', True), ("wait", '{"n":1}', True)]
    assert (found.reason, found.usage) == ("end", Usage(7, 3, 2))


def test_a_function_call_of_old_and_a_missing_usage_are_understood() -> None:
    made = turn("I look. ", call("look", path="a"))
    found = played(ChatWire(Manner(old_calls=True, usage="missing")), ChatDialect(), made, 0)
    assert [part.arguments for part in found.parts if isinstance(part, TurnCall)] == ['{"path":"a"}']
    assert found.usage == Usage()


@each_wire
def test_a_cut_call_is_not_complete(wire: FakeWire, dialect: Dialect) -> None:
    found = played(wire, dialect, cut("I look. ", call_raw("look", '{"pa')), 0)
    (made,) = [part for part in found.parts if isinstance(part, TurnCall)]
    assert (found.reason, made.arguments, made.complete) == ("length", '{"pa', False)


@pytest.mark.parametrize("errors", ["chunk", "event", "object", "choice"])
def test_a_failure_in_the_middle_is_told_in_every_way(errors: Any) -> None:
    async def run() -> ModelError:
        dialect = ChatDialect(server_of("elsewhere"))
        async with served(ChatWire(Manner(errors=errors)), dialect, [fail(RateLimited("slow down"), "one")]) as (
            model,
            _,
        ):
            with pytest.raises(ModelError) as caught:
                await pieces_of(model, asking())
            return caught.value

    assert type(asyncio.run(run())) is RateLimited


# Interruption


@each_wire
def test_a_stream_that_is_closed_closes_its_connection(wire: FakeWire, dialect: Dialect) -> None:
    async def run() -> None:
        async with served(wire, dialect, [stall("one ", "two"), "Hello."]) as (model, fake):
            async with aclosing(model.stream(asking())) as stream:
                async for piece in stream:
                    if isinstance(piece, TextDelta):
                        break
            async with asyncio.timeout(10):
                await fake.left.wait()
            assert turn_of(await pieces_of(model, asking())).parts == (TurnText("Hello."),)

    asyncio.run(run())


# What stands at the address


def failing(dialect: Dialect, *answers: Raw | Exception | str) -> list[ModelError]:
    async def run() -> list[ModelError]:
        wire: FakeWire = ResponsesWire() if dialect.name == "openai" else ChatWire("openai")
        found = []
        async with served(wire, dialect, answers) as (model, _):
            for _ in answers:
                with pytest.raises(ModelError) as caught:
                    await pieces_of(model, asking())
                found.append(caught.value)
        return found

    return asyncio.run(run())


HTML = Raw(200, {"content-type": "text/html"}, b"<html>Welcome to the proxy</html>")
JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream"}


@pytest.mark.parametrize("dialect", [ResponsesDialect(), ChatDialect(server_of("openai"))], ids=["responses", "chat"])
def test_bad_answers_are_told_apart(dialect: Dialect) -> None:
    slow = Raw(429, {**JSON, "retry-after": "3600"}, b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}')
    answers: list[tuple[Raw | Exception, type[ModelError]]] = [
        (HTML, InvalidRequest),
        (Raw(200, JSON, b'{"error":{"message":"upstream is down","code":502}}'), Overloaded),
        (Raw(200, JSON, b'{"error":"no such model"}'), InvalidRequest),
        (Raw(200, JSON, b'{"choices":[]}'), InvalidRequest),
        (Raw(401, JSON, b'{"error":{"message":"no key"}}'), AuthenticationFailed),
        (Raw(404, JSON, b'{"error":{"message":"no model","code":"model_not_found"}}'), InvalidRequest),
        (Raw(413, {"content-type": "text/html"}, b"<h1>too large</h1>"), InvalidRequest),
        (slow, RateLimited),
        (Raw(500, body=b""), Overloaded),
        (Raw(529, body=b"busy"), Overloaded),
        (ContextOverflow("too long"), ContextOverflow),
        (Raw(307, {"location": "https://elsewhere.example/"}), InvalidRequest),
        (Raw(200, SSE, b"data: {\n\n"), ConnectionLost),
        (Raw(200, SSE, b'data: "\xff\xfe"\n\n'), ConnectionLost),
    ]
    found = failing(dialect, *[answer for answer, _ in answers])
    assert [type(error) for error in found] == [kind for _, kind in answers]
    limited = found[7]
    assert isinstance(limited, RateLimited)
    assert limited.retry_after == 3_600_000
    assert "text/html" in str(found[0])


def test_text_that_is_no_utf8_does_not_end_a_stream() -> None:
    body = sse([chunk(content="a?b"), chunk("stop")]).replace(b"?", b"\xff")

    async def run() -> None:
        async with served(ChatWire("openai"), ChatDialect(server_of("openai")), [Raw(200, SSE, body)]) as (model, _):
            assert turn_of(await pieces_of(model, asking())).parts == (TurnText("a\ufffdb"),)

    asyncio.run(run())


def test_comments_keep_a_stream_alive() -> None:
    body = b": OPENROUTER PROCESSING\n\n" + sse([chunk(content="a")]) + b": x\n\n" + sse([chunk("stop"), "[DONE]"])

    async def run() -> None:
        async with served(ChatWire("openai"), ChatDialect(server_of("openai")), [Raw(200, SSE, body)]) as (model, _):
            assert turn_of(await pieces_of(model, asking())).parts == (TurnText("a"),)

    asyncio.run(run())


# Addresses and lists


def test_azure_is_another_address_and_another_header() -> None:
    async def run() -> None:
        dated = Address("2025-04-01-preview")
        for path, address in (("", dated), ("/openai/v1", None)):
            for auth in (Headers({"api-key": "secret"}), Bearer("secret")):
                chat = ChatDialect(server_of("azure"), address=address)
                for wire, dialect in (
                    (ResponsesWire(key="secret"), ResponsesDialect("azure", address)),
                    (ChatWire("openai", key="secret"), chat),
                ):
                    async with FakeProvider(wire, ["Hello."]) as fake:
                        provider = HttpProvider(Endpoint("azure", fake.url + path, auth=auth), dialect)
                        model = provider.model(About("my deployment", ModelInfo(reasoning=True)))
                        assert turn_of(await pieces_of(model, asking())).parts == (TurnText("Hello."),)
                        assert await provider.models()
                        (asked,) = fake.asked
                        await provider.close()
                    assert asked.path.startswith("/openai/")
                    assert ("deployments/my%20deployment" in asked.path) is (dialect is chat and not path)

    asyncio.run(run())


def test_a_wrong_key_is_told() -> None:
    async def run() -> None:
        async with FakeProvider(ResponsesWire(key="secret"), ["Hello."]) as fake:
            provider = HttpProvider(Endpoint("openai", fake.url, auth=Bearer("wrong")), ResponsesDialect())
            with pytest.raises(AuthenticationFailed):
                await pieces_of(provider.model(About("gpt-5")), asking())
            with pytest.raises(AuthenticationFailed):
                await provider.models()
            await provider.close()

    asyncio.run(run())


LISTED: list[dict[str, Any]] = [
    {"id": "plain", "object": "model", "created": 1, "owned_by": "x"},
    {
        "id": "anthropic/claude",
        "name": "Claude",
        "context_length": 200_000,
        "architecture": {"input_modalities": ["text"]},
        "top_provider": {"max_completion_tokens": 64_000},
        "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"},
        "supported_parameters": ["tools", "reasoning"],
    },
    {"id": "qwen", "max_model_len": 32_768, "pricing": {"prompt": "free"}},
    {"id": "groq", "context_window": 131_072, "max_completion_tokens": 8_192},
    {"id": "mistral", "max_context_length": 32_768, "capabilities": {"vision": False}},
    {"name": "without an id"},
]


def test_what_a_server_says_of_its_models_is_used() -> None:
    async def run() -> None:
        async with FakeProvider(ChatWire("openai", models=LISTED)) as fake:
            provider = HttpProvider(Endpoint("x", fake.url + "/v1"), ChatDialect())
            found = {model.id: model for model in await provider.models()}
            await provider.close()
        prices = Prices(3.0, 15.0, 0.3)
        assert found["plain"].info == ModelInfo()
        assert found["anthropic/claude"].name == "Claude"
        claude = found["anthropic/claude"].info
        assert claude == ModelInfo(200_000, 64_000, images=False, reasoning=True, prices=claude.prices)
        assert claude.prices is not None
        assert [claude.prices.input, claude.prices.output, claude.prices.cached] == pytest.approx(
            [prices.input, prices.output, prices.cached]
        )
        assert found["qwen"].info == ModelInfo(32_768)
        assert found["groq"].info == ModelInfo(131_072, 8_192)
        assert found["mistral"].info == ModelInfo(32_768, images=False)
        assert len(found) == 5

    asyncio.run(run())


@pytest.mark.parametrize("body", [b"[]", b'[{"id":"a"}]', b'{"data":[]}', b'{"data":{}}', b"{}", b"<html>", b"null"])
def test_a_list_is_a_list(body: bytes) -> None:
    dialect = ChatDialect()
    if body in (b"[]", b'[{"id":"a"}]', b'{"data":[]}'):
        assert dialect.listed(body)[1] == ""
    else:
        with pytest.raises(ValueError, match=r".+"):
            dialect.listed(body)


# Reasoning, over a conversation


def test_encrypted_reasoning_is_replayed_and_survives_another_account() -> None:
    async def run() -> None:
        memo, dialect = Memo(), ResponsesDialect()
        first = turn(think("Hm.", data=b"block"), call("look", path="a"))
        async with served(ResponsesWire(account="one"), dialect, [first, "Done."]) as (model, fake):
            block, made = turn_of(await pieces_of(model, asking(memo=memo, tools=[LOOK]))).parts
            assert isinstance(block, ReasoningBlock)
            assert isinstance(made, TurnCall)
            said = (
                ReasoningItem(block.provider, block.data, block.text),
                CallItem("c1", made.name, made.arguments, made.provider_id),
                ResultItem("c1", "x"),
            )
            await pieces_of(model, asking(HELLO, *said, memo=memo, tools=[LOOK]))
            assert msgspec.json.encode(fake.asked[1].body["input"][1]) == block.data
        history = (HELLO, *said, TextItem("Done."), HELLO)
        async with served(ResponsesWire(account="two"), dialect, ["Hello."]) as (model, fake):
            asked = asking(*history, memo=memo, tools=[LOOK])
            assert turn_of(await pieces_of(model, asked)).parts == (TurnText("Hello."),)
            assert len(fake.refused) == 1
            kinds = [item.get("type") for item in fake.asked[0].body["input"]]
            assert kinds == [None, "function_call", "function_call_output", None, None]

    asyncio.run(run())


def test_a_thread_moves_between_all_dialects() -> None:
    async def run() -> None:
        history: list[Any] = [HELLO]
        for number, (_, wire, dialect) in enumerate([*WIRES, *reversed(WIRES)]):
            one = turn(think("Hm.", data=b"block"), "I look. ", call("look", path="a"))
            async with served(wire, dialect, [one, say("Done.")], model_id="gpt-5-mistral") as (model, _):
                for _ in range(2):
                    found = turn_of(await pieces_of(model, asking(*history, tools=[LOOK])))
                    history += _items(found, number)
            history.append(HELLO)

    asyncio.run(run())


def _items(found: Turn, number: int) -> Sequence[Any]:
    items: list[Any] = []
    for part in found.parts:
        if isinstance(part, ReasoningBlock):
            items.append(ReasoningItem(part.provider, part.data, part.text))
        elif isinstance(part, TurnCall):
            items.append(CallItem(f"c{number}", part.name, part.arguments, part.provider_id))
            items.append(ResultItem(f"c{number}", "hello"))
        else:
            items.append(TextItem(part.text))
    return items


def test_usage_counts_what_was_put_into_the_cache() -> None:
    counted = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cache_write_tokens": 7}}
    body = sse([chunk(content="a"), chunk("stop") | {"usage": counted}])

    async def run() -> None:
        async with served(ChatWire("openai"), ChatDialect(server_of("openai")), [Raw(200, SSE, body)]) as (model, _):
            assert (await pieces_of(model, asking()))[-1] == Finish("end", Usage(9, 1), 7)

    asyncio.run(run())
