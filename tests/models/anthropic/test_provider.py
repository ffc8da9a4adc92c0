"""How the provider is made of what a configuration says."""

import asyncio
from typing import Any

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.messages.items import UserItem
from hibernaut.messages.stream import Finish
from hibernaut.models.anthropic.provider import anthropic, bedrock, vertex, vertex_url
from hibernaut.models.configuration import ProviderSettings
from hibernaut.models.providers import BUILT_IN, BuiltIn, ProviderMaker, Wanted
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.providers.anthropic import AnthropicWire, BedrockWire, VertexWire
from hibernaut.testing.providers.server import FakeProvider
from tests.models.anthropic.setting import BUDGET, MODELS, about
from tests.models.histories import request

HELLO = request(UserItem("hello"))


def wanted(name: str = "anthropic", url: str = "", key: str = "", **options: str) -> Wanted:
    return Wanted(
        name, name, url or BUILT_IN.get(name, BuiltIn("")).url, key, ProviderSettings(options=options), ManualClock()
    )


@pytest.mark.parametrize(
    "maker,wire,model,options",
    [
        (anthropic, AnthropicWire("key"), BUDGET, {}),
        (vertex, VertexWire("key"), BUDGET, {}),
        (bedrock, BedrockWire("key"), f"anthropic.{BUDGET}", {}),
    ],
)
def test_a_provider_asks_with_its_key_at_its_address(
    maker: ProviderMaker, wire: AnthropicWire, model: str, options: dict[str, str]
) -> None:
    async def scenario() -> None:
        async with FakeProvider(wire, ["hi"]) as fake:
            provider = maker(wanted("named", fake.url, "key", **options))
            assert [piece async for piece in provider.model(about(model)).stream(HELLO)][-1] == Finish()
            assert fake.refused == []
            if maker is anthropic:
                assert [found.id for found in await provider.models()] == MODELS
            await provider.close()

    asyncio.run(scenario())


def test_a_key_may_be_a_bearer_token(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setenv("SOME_TOKEN", "token")
        async with FakeProvider(BedrockWire("token"), ["hi"]) as fake:
            provider = anthropic(wanted("lab", fake.url, "env:SOME_TOKEN", auth="bearer"))
            stream = provider.model(about(f"anthropic.{BUDGET}")).stream(HELLO)
            assert [piece async for piece in stream][-1] == Finish()
            await provider.close()

    asyncio.run(scenario())


def test_without_a_key_the_variable_is_named_when_the_model_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        provider = anthropic(wanted(key="env:ANTHROPIC_API_KEY"))
        with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
            await anext(provider.model(about()).stream(HELLO))
        await provider.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "region,host",
    [
        ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us-east5", "us-east5-aiplatform.googleapis.com"),
    ],
)
def test_where_google_cloud_is_follows_from_the_region(region: str, host: str) -> None:
    url = f"https://{host}/v1/projects/p/locations/{region}/publishers/anthropic/models"
    assert vertex_url("p", region) == url
    assert vertex(wanted("vertex", key="k", project="p", region=region)).endpoint.url == url


def test_where_bedrock_is_follows_from_the_region() -> None:
    found = bedrock(wanted("bedrock", region="eu-central-1"))
    assert found.endpoint.url == "https://bedrock-mantle.eu-central-1.api.aws/anthropic"


@pytest.mark.parametrize(
    "maker,options,words",
    [
        (vertex, {"region": "eu"}, "told its project"),
        (vertex, {"project": "p"}, "told its region"),
        (bedrock, {}, "told its region"),
        (anthropic, {"cache_for": "2h"}, "neither 5m nor 1h"),
    ],
)
def test_an_option_that_is_missing_or_wrong_is_named(maker: Any, options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        maker(wanted("named", "http://127.0.0.1:1" if maker is anthropic else "", key="k", **options))


def test_the_reasoning_of_another_server_is_its_own() -> None:
    assert anthropic(wanted()).dialect.name == "anthropic"
    assert anthropic(wanted("lab", "http://127.0.0.1:9")).dialect.name == "lab"
    assert vertex(wanted("v", key="k", project="p", region="eu")).dialect.name == "anthropic"
