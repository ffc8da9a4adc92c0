"""Failures, lists of models, and whole agents before a Gemini that is a fake."""

import asyncio
import base64
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hibernaut.auth import Headers
from hibernaut.errors import ConfigurationError, ModelError
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.stream import ReasoningBlock, TextDelta
from hibernaut.models.configuration import ProviderSettings
from hibernaut.models.dialect import Refusal
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.models.google.dialect import GeminiDialect
from hibernaut.models.google.provider import KEY_HEADER, google, vertex, vertex_url
from hibernaut.models.google.rules import GEMINI_API, VERTEX, Platform
from hibernaut.models.google.writing import call_data
from hibernaut.models.http_provider import HttpProvider
from hibernaut.models.protocol import ListedModel, Memo, ModelInfo
from hibernaut.models.providers import BUILT_IN, BuiltIn, ProviderMaker, Wanted
from hibernaut.models.scripted import call, stall, think, turn
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.providers.google import KEY, MODELS, GeminiWire, signed
from hibernaut.testing.providers.server import FakeProvider
from tests.models.google.gemini import about, gemini
from tests.models.histories import request
from tests.models.sleeping import SCRIPT, sleeps_and_goes_on

HELLO = UserItem("Hello.")


def meant(status: int, body: Any, headers: dict[str, str] | None = None) -> ModelError:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return GeminiDialect().failure(Refusal(status, headers or {}, raw, 0))


def status(name: str, message: str = "words", *details: Any) -> dict[str, Any]:
    return {"error": {"code": 0, "message": message, "status": name, "details": list(details)}}


def detail(kind: str, **fields: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **fields}


TOO_LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    "code,body,kind",
    [
        (400, status("INVALID_ARGUMENT"), InvalidRequest),
        (400, status("INVALID_ARGUMENT", TOO_LONG), ContextOverflow),
        (
            400,
            status("INVALID_ARGUMENT", "bad key", detail("ErrorInfo", reason="API_KEY_INVALID")),
            AuthenticationFailed,
        ),
        (400, status("FAILED_PRECONDITION", "User location is not supported"), InvalidRequest),
        (401, status("UNAUTHENTICATED"), AuthenticationFailed),
        (403, status("PERMISSION_DENIED"), AuthenticationFailed),
        (404, status("NOT_FOUND"), InvalidRequest),
        (429, status("RESOURCE_EXHAUSTED"), RateLimited),
        (429, [status("RESOURCE_EXHAUSTED")], RateLimited),
        (499, status("CANCELLED"), ConnectionLost),
        (500, status("INTERNAL"), Overloaded),
        (503, status("UNAVAILABLE"), Overloaded),
        (504, status("DEADLINE_EXCEEDED"), Overloaded),
        (418, status("SOMETHING_NEW"), InvalidRequest),
        (502, b"<html>Bad Gateway</html>", Overloaded),
        (429, b"", RateLimited),
        (403, [], AuthenticationFailed),
        (400, {"error": "words"}, InvalidRequest),
    ],
)
def test_c52_a_refusal_has_its_kind(code: int, body: Any, kind: type[ModelError]) -> None:
    assert type(meant(code, body)) is kind


@pytest.mark.parametrize(
    "details,headers,wait",
    [
        ([detail("RetryInfo", retryDelay="34.5s")], {}, 34_500),
        ([detail("RetryInfo", retryDelay="7s")], {"retry-after": "3600"}, 3_600_000),
        ([detail("RetryInfo", retryDelay="soon")], {}, 0),
        ([detail("RetryInfo")], {}, 0),
        (
            [
                detail("QuotaFailure", violations=[{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]),
                detail("RetryInfo", retryDelay="2s"),
            ],
            {},
            3_600_000,
        ),
        ([detail("QuotaFailure", violations=[{"quotaId": "GenerateContentInputTokensPerMinute"}, 1])], {}, 0),
        ([detail("QuotaFailure", violations="none"), "text"], {}, 0),
    ],
)
def test_c52_how_long_to_leave_it_alone_is_read_from_the_details(
    details: list[Any], headers: dict[str, str], wait: int
) -> None:
    error = meant(429, status("RESOURCE_EXHAUSTED", "slow", *details), headers)
    assert isinstance(error, RateLimited)
    assert error.retry_after == wait


def test_models_are_listed_page_by_page() -> None:
    async def scenario() -> None:
        async with FakeProvider(GeminiWire()) as fake:
            endpoint = Endpoint("gemini", fake.url, auth=Headers({KEY_HEADER: KEY}))
            provider = HttpProvider(endpoint, GeminiDialect())
            found = await provider.models()
            await provider.close()
        assert [model.id for model in found] == [name for name in MODELS if "embedding" not in name]
        info = ModelInfo(1_048_576, 65_536, reasoning=True)
        assert found[0] == ListedModel("gemini-3-pro-preview", "Gemini 3 Pro Preview", info)

    asyncio.run(scenario())


def wanted(name: str, url: str = "", key: str = "", **options: str) -> Wanted:
    return Wanted(
        name, name, url or BUILT_IN.get(name, BuiltIn("")).url, key, ProviderSettings(options=options), ManualClock()
    )


def test_vertex_lists_no_models_and_is_where_the_project_is() -> None:
    assert GeminiDialect(VERTEX).listing == ""
    made = vertex(wanted("v", "", "token", project="p", region="europe-west4"))
    where = "https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/europe-west4/publishers/google"
    assert made.endpoint.url == where
    assert vertex_url("p", "global").startswith("https://aiplatform.googleapis.com/v1/projects/p/locations/global/")
    with pytest.raises(ConfigurationError, match="has to be told its project"):
        vertex(wanted("v"))


@pytest.mark.parametrize("maker,wire", [(google, GeminiWire()), (vertex, GeminiWire(vertex=True))])
def test_a_provider_asks_with_its_key_at_its_address(maker: ProviderMaker, wire: GeminiWire) -> None:
    async def scenario() -> None:
        async with FakeProvider(wire, [turn(think("Hm.", data=b"1"), "Hi.", call("look", path="a"))]) as fake:
            provider = maker(wanted("mine", fake.url, "env:SOME_KEY"))
            pieces = [piece async for piece in provider.model(about()).stream(request(HELLO))]
            await provider.close()
        assert ReasoningBlock("mine", b"", "Hm.") in pieces

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_KEY", KEY)
        asyncio.run(scenario())


def test_nobody_is_asked_before_a_provider_is() -> None:
    assert google(wanted("google")).endpoint.url == "https://generativelanguage.googleapis.com/v1beta"


@pytest.mark.parametrize("headers", [{}, {KEY_HEADER: "wrong"}])
def test_without_its_key_nobody_is_let_in(headers: dict[str, str]) -> None:
    async def scenario() -> None:
        async with FakeProvider(GeminiWire(), ["no"]) as fake:
            endpoint = Endpoint("gemini", fake.url, headers=headers)
            model = HttpProvider(endpoint, GeminiDialect()).model(about())
            with pytest.raises(AuthenticationFailed):
                async for _ in model.stream(request(HELLO)):
                    pass
            await endpoint.close()

    asyncio.run(scenario())


def test_an_unknown_model_is_refused_in_the_words_of_the_api() -> None:
    async def scenario() -> None:
        async with FakeProvider(GeminiWire(), ["no"]) as fake:
            endpoint = Endpoint("gemini", fake.url, auth=Headers({KEY_HEADER: KEY}))
            model = HttpProvider(endpoint, GeminiDialect()).model(about("gemini-9"))
            with pytest.raises(InvalidRequest, match="gemini-9 is not found"):
                await anext(model.stream(request(HELLO)))
            await endpoint.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("platform", [GEMINI_API, VERTEX])
def test_the_tokens_of_a_prompt_are_counted(platform: Platform) -> None:
    async def scenario() -> None:
        async with gemini([], platform) as model:
            asked = request(HELLO, CallItem("c1", "look", "{}"), ResultItem("c1", "x"))
            assert await model.count_tokens(asked) == 42

    asyncio.run(scenario())


def test_closing_the_stream_closes_the_connection() -> None:
    async def scenario() -> None:
        async with FakeProvider(GeminiWire(), [stall("one")]) as fake:
            endpoint = Endpoint("gemini", fake.url, auth=Headers({KEY_HEADER: KEY}))
            model = HttpProvider(endpoint, GeminiDialect()).model(about())
            async with aclosing(model.stream(request(HELLO))) as stream:
                assert await anext(stream) == TextDelta("one")
            await fake.left.wait()
            await endpoint.close()

    asyncio.run(scenario())


def test_a_thread_goes_on_from_other_dialects() -> None:
    """What they thought stays behind, their ids and signatures, too."""
    foreign: list[Item] = [
        HELLO,
        ReasoningItem("anthropic", b'{"type":"thinking","thinking":"hm","signature":"x"}', "hm"),
        TextItem("I look."),
        CallItem("c1", "look", '{"path":"a"}', "toolu_01", b""),
        ResultItem("c1", "there"),
        ReasoningItem("openai", b'{"type":"reasoning","encrypted_content":"x"}'),
        CallItem("c2", "look", '{"path":"b"}', "call_1", b"fc_123"),
        ResultItem("c2", "here"),
    ]

    async def scenario() -> None:
        async with FakeProvider(GeminiWire(), ["Done."]) as fake:
            endpoint = Endpoint("gemini", fake.url, auth=Headers({KEY_HEADER: KEY}))
            model = HttpProvider(endpoint, GeminiDialect()).model(about())
            pieces = [piece async for piece in model.stream(request(*foreign))]
            assert pieces[0] == TextDelta("Done.")
            await endpoint.close()
        raw = fake.asked[0].raw
        assert not [word for word in (b"hm", b"toolu", b"encrypted", b"call_1", b"fc_123") if word in raw]

    asyncio.run(scenario())


@pytest.mark.parametrize("stale", [base64.b64encode(b"of another key").decode(), signed(b"1", vertex=True)])
def test_a_signature_that_is_refused_is_left_out_from_then_on_and_new_ones_are_not(stale: str) -> None:
    """Another key or platform, or weeks of sleep: the history must not be refused for ever."""
    items: list[Item] = [HELLO, TextItem("I look."), ReasoningItem("google", stale.encode())]
    items += [CallItem("c1", "look", "{}", "f1", call_data("google", stale)), ResultItem("c1", "x")]
    fresh = signed(b"fresh")

    async def scenario() -> None:
        async with FakeProvider(GeminiWire(), ["One.", "Two."]) as fake:
            endpoint = Endpoint("gemini", fake.url, auth=Headers({KEY_HEADER: KEY}))
            model, memo = HttpProvider(endpoint, GeminiDialect()).model(about()), Memo()
            pieces = [piece async for piece in model.stream(request(*items, memo=memo))]
            assert pieces[0] == TextDelta("One.")
            assert len(fake.refused) == 1
            later = [*items, CallItem("c2", "look", "{}", "f2", call_data("google", fresh)), ResultItem("c2", "x")]
            assert [piece async for piece in model.stream(request(*later, memo=memo))]
            assert len(fake.refused) == 1
            await endpoint.close()
        assert stale.encode() not in fake.asked[0].raw
        assert fresh.encode() in fake.asked[1].raw

    asyncio.run(scenario())


def test_a23_an_agent_works_sleeps_and_goes_on_in_another_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeProvider(GeminiWire(), SCRIPT) as fake:
            endpoint = Endpoint("gemini", fake.url, auth=Headers({KEY_HEADER: KEY}))
            model = HttpProvider(endpoint, GeminiDialect()).model(about())
            await sleeps_and_goes_on(model, tmp_path)
            await endpoint.close()
            assert not fake.refused
        signatures = [
            part.get("thoughtSignature")
            for content in fake.asked[-1].body["contents"]
            for part in content["parts"]
            if "functionCall" in part
        ]
        assert signatures == [signed(b"1"), None, signed(b"2")]

    asyncio.run(scenario())
