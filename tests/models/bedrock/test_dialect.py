"""Failures, lists of models, signatures, and whole agents before a Bedrock that is a fake."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from hibernaut.auth import Bearer, SigV4
from hibernaut.errors import ConfigurationError, ModelError
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.stream import ReasoningBlock, TextDelta
from hibernaut.models.bedrock.dialect import ConverseDialect
from hibernaut.models.bedrock.provider import SERVICE
from hibernaut.models.bedrock.provider import bedrock as made
from hibernaut.models.configuration import ProviderSettings
from hibernaut.models.dialect import Refusal
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import (
    AuthenticationFailed,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.models.http_provider import HttpProvider
from hibernaut.models.protocol import ListedModel, Memo, ModelInfo
from hibernaut.models.providers import Wanted
from hibernaut.models.scripted import stall, think, turn
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.providers.bedrock import ACCESS_KEY, SECRET_KEY, TOKEN, ConverseWire
from hibernaut.testing.providers.server import FakeProvider
from tests.models.bedrock.converse import CLAUDE, LLAMA, THOUGHT, about, bedrock
from tests.models.histories import request
from tests.models.sleeping import SCRIPT, sleeps_and_goes_on

HELLO = UserItem("Hello.")


def meant(status: int, kind: str, message: str = "words", **body: Any) -> ModelError:
    headers = {"x-amzn-errortype": kind} if kind else {}
    raw = msgspec.json.encode({"message": message, **body})
    return ConverseDialect().failure(Refusal(status, headers, raw, 0))


@pytest.mark.parametrize(
    "status,kind,error",
    [
        (429, "ThrottlingException", RateLimited),
        (429, "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/", RateLimited),
        (400, "ServiceQuotaExceededException", RateLimited),
        (429, "ModelNotReadyException", Overloaded),
        (408, "ModelTimeoutException", Overloaded),
        (424, "ModelErrorException", Overloaded),
        (500, "InternalServerException", Overloaded),
        (503, "ServiceUnavailableException", Overloaded),
        (403, "AccessDeniedException", AuthenticationFailed),
        (403, "UnrecognizedClientException", AuthenticationFailed),
        (403, "InvalidSignatureException", AuthenticationFailed),
        (403, "ExpiredTokenException", AuthenticationFailed),
        (404, "ResourceNotFoundException", InvalidRequest),
        (400, "ValidationException", InvalidRequest),
        (403, "", AuthenticationFailed),
        (502, "SomethingNew", Overloaded),
    ],
)
def test_c52_a_refusal_has_its_kind(status: int, kind: str, error: type[ModelError]) -> None:
    assert type(meant(status, kind)) is error


@pytest.mark.parametrize(
    "words",
    [
        "Input is too long for requested model.",
        "The model returned the following errors: prompt is too long: 204857 tokens > 200000 maximum",
        "The model returned the following errors: input length and `max_tokens` exceed context limit: 1 + 2 > 3",
    ],
)
def test_c53_a_prompt_that_is_too_long_is_told_by_the_words(words: str) -> None:
    assert type(meant(400, "ValidationException", words)) is ContextOverflow
    assert type(meant(429, "ThrottlingException", "Too many tokens, please wait before trying again.")) is RateLimited


def test_the_name_of_an_exception_may_stand_in_the_body() -> None:
    body = {"__type": "com.amazon.coral.service#UnrecognizedClientException"}
    assert type(meant(400, "", "The security token is invalid", **body)) is AuthenticationFailed
    html = ConverseDialect().failure(Refusal(502, {}, b"<html>Bad Gateway</html>", 0))
    assert type(html) is Overloaded


def test_models_are_listed_with_the_profiles_that_lead_to_others() -> None:
    async def scenario() -> None:
        async with FakeProvider(ConverseWire()) as fake:
            endpoint = Endpoint("bedrock", "http://nowhere.invalid", auth=Bearer(TOKEN))
            provider = HttpProvider(endpoint, ConverseDialect(control=fake.url))
            found = await provider.models()
            await provider.close()
        assert list(found) == [
            ListedModel("anthropic.claude-3-haiku-20240307-v1:0", "Anthropic Claude 3 Haiku", ModelInfo()),
            ListedModel("openai.gpt-oss-120b-1:0", "OpenAI gpt-oss-120b", ModelInfo(images=False)),
            ListedModel("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "US Sonnet 4.5"),
            ListedModel("us.amazon.nova-pro-v1:0", "US Nova Pro"),
        ]

    asyncio.run(scenario())
    assert ConverseDialect().listing == ""
    with pytest.raises(ValueError, match="neither"):
        ConverseDialect(control="x").listed(b"{}")


def wanted(address: str = "", key: str = "", **options: str) -> Wanted:
    return Wanted("mine", "bedrock", address, key, ProviderSettings(options=options), ManualClock())


def test_both_halves_of_the_service_are_in_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigurationError, match="has to be told its region"):
        made(wanted())
    with pytest.raises(ConfigurationError, match="has to be told its region"):
        made(wanted("https://gateway.example"))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    for provider, region in ((made(wanted(region="eu-central-1")), "eu-central-1"), (made(wanted()), "us-east-1")):
        assert provider.endpoint.url == f"https://bedrock-runtime.{region}.amazonaws.com"
        assert provider.dialect.listing == f"https://bedrock.{region}.amazonaws.com/foundation-models"


@pytest.mark.parametrize("key", ["", TOKEN])
def test_a_provider_asks_at_its_address_with_a_key_or_signs(keys: pytest.MonkeyPatch, key: str) -> None:
    async def scenario() -> None:
        async with FakeProvider(ConverseWire(), [turn(think("Hm.", data=b"1"), "Hi.")]) as fake:
            provider = made(wanted(fake.url, key, region="eu-central-1", control=fake.url))
            pieces = [piece async for piece in provider.model(about()).stream(request(HELLO))]
            assert len(await provider.models()) == 4
            await provider.close()
        assert [piece.provider for piece in pieces if isinstance(piece, ReasoningBlock)] == ["mine"]

    asyncio.run(scenario())


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def _first(auth: httpx2.Auth | None, model_id: str = CLAUDE) -> Any:
    async with FakeProvider(ConverseWire(), ["Hi."]) as fake:
        endpoint = Endpoint("bedrock", fake.url, auth=auth)
        model = HttpProvider(endpoint, ConverseDialect()).model(about(model_id))
        try:
            async with aclosing(model.stream(request(HELLO))) as stream:
                return await anext(stream)
        finally:
            await endpoint.close()


def test_whoever_signs_is_let_in(keys: pytest.MonkeyPatch) -> None:
    """The id of the model is in the path, encoded there once and twice in what is signed."""
    assert asyncio.run(_first(SigV4("eu-central-1", SERVICE))) == TextDelta("Hi.")
    profile = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
    assert asyncio.run(_first(SigV4("eu-central-1", SERVICE), profile)) == TextDelta("Hi.")
    keys.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(AuthenticationFailed, match="signature"):
        asyncio.run(_first(SigV4("eu-central-1", SERVICE)))


def test_whoever_does_not_is_not_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", TOKEN)
    assert asyncio.run(_first(Bearer("env:AWS_BEARER_TOKEN_BEDROCK"))) == TextDelta("Hi.")
    for auth in (None, Bearer("wrong")):
        with pytest.raises(AuthenticationFailed):
            asyncio.run(_first(auth))


@pytest.mark.parametrize(
    "model_id,words",
    [
        ("anthropic.claude-9", "identifier is invalid"),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "inference profile"),
    ],
)
def test_an_id_that_is_none_is_refused_in_the_words_of_the_api(model_id: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        asyncio.run(_first(Bearer(TOKEN), model_id))


def test_the_tokens_of_a_prompt_are_counted() -> None:
    async def scenario() -> None:
        async with bedrock([]) as model:
            asked = request(HELLO, CallItem("c1", "look", "{}"), ResultItem("c1", "x"))
            assert await model.count_tokens(asked) == 42

    asyncio.run(scenario())


def test_closing_the_stream_closes_the_connection() -> None:
    async def scenario() -> None:
        async with FakeProvider(ConverseWire(), [stall("one")]) as fake:
            endpoint = Endpoint("bedrock", fake.url, auth=Bearer(TOKEN))
            model = HttpProvider(endpoint, ConverseDialect()).model(about())
            async with aclosing(model.stream(request(HELLO))) as stream:
                assert await anext(stream) == TextDelta("one")
            await fake.left.wait()
            await endpoint.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("model_id", [CLAUDE, LLAMA])
def test_a_thread_goes_on_from_other_dialects(model_id: str) -> None:
    """What they thought stays behind, their signatures, too."""
    foreign: list[Item] = [
        HELLO,
        ReasoningItem("anthropic", b'{"type":"thinking","thinking":"hm","signature":"x"}', "hm"),
        TextItem("I look."),
        CallItem("c1", "look", '{"path":"a"}', "toolu_01", b""),
        ResultItem("c1", "there"),
        ReasoningItem("google", b"c2ln"),
        CallItem("c2", "look", '{"path":"b"}', "", b"google:c2ln"),
        ResultItem("c2", "here"),
    ]

    async def scenario() -> None:
        async with FakeProvider(ConverseWire(), ["Done."]) as fake:
            endpoint = Endpoint("bedrock", fake.url, auth=Bearer(TOKEN))
            model = HttpProvider(endpoint, ConverseDialect()).model(about(model_id))
            pieces = [piece async for piece in model.stream(request(*foreign))]
            assert pieces[0] == TextDelta("Done.")
            await endpoint.close()
        assert not [word for word in (b"hm", b"signature", b"c2ln") if word in fake.asked[0].raw]

    asyncio.run(scenario())


def test_reasoning_that_is_refused_is_left_out_from_then_on_and_new_one_is_not() -> None:
    stale = b'{"reasoningText":{"text":"hm","signature":"of.another"}}'
    items: list[Item] = [HELLO, ReasoningItem("bedrock", stale), CallItem("c1", "look", "{}"), ResultItem("c1", "x")]

    async def scenario() -> None:
        async with FakeProvider(ConverseWire(), ["One.", "Two."]) as fake:
            endpoint = Endpoint("bedrock", fake.url, auth=Bearer(TOKEN))
            model, memo = HttpProvider(endpoint, ConverseDialect()).model(about(effort="low")), Memo()
            pieces = [piece async for piece in model.stream(request(*items, memo=memo))]
            assert pieces[0] == TextDelta("One.")
            assert len(fake.refused) == 1
            later = [*items, UserItem("Again."), ReasoningItem("bedrock", THOUGHT), CallItem("c2", "look", "{}")]
            assert [piece async for piece in model.stream(request(*later, ResultItem("c2", "x"), memo=memo))]
            assert len(fake.refused) == 1
            await endpoint.close()
        assert b"reasoningContent" not in fake.asked[0].raw
        assert THOUGHT in fake.asked[1].raw

    asyncio.run(scenario())


def test_a23_an_agent_works_sleeps_and_goes_on_in_another_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeProvider(ConverseWire(), SCRIPT) as fake:
            endpoint = Endpoint("bedrock", fake.url, auth=Bearer(TOKEN))
            model = HttpProvider(endpoint, ConverseDialect()).model(about(effort="low"))
            await sleeps_and_goes_on(model, tmp_path)
            await endpoint.close()
            assert not fake.refused
        thoughts = [
            block["reasoningContent"]["reasoningText"]["text"]
            for message in fake.asked[-1].body["messages"]
            for block in message["content"]
            if "reasoningContent" in block
        ]
        assert thoughts == ["I look.", "Now I rest."]

    asyncio.run(scenario())
