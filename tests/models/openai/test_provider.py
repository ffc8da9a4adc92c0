"""How OpenAI's providers are made of what a configuration says."""

import asyncio

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.models.configuration import ProviderSettings
from hibernaut.models.openai.provider import azure, azure_chat, compatible, openai
from hibernaut.models.openai.servers import SERVERS
from hibernaut.models.protocol import About
from hibernaut.models.providers import BUILT_IN, BuiltIn, ProviderMaker, Wanted
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.providers.openai_chat import ChatWire
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeProvider
from hibernaut.testing.providers.wire import FakeWire
from tests.models.openai.setting import asking, pieces_of
from tests.models.openai.streams import turn_of


def wanted(kind: str, url: str = "", key: str = "", name: str = "", **options: str) -> Wanted:
    return Wanted(
        name or kind,
        kind,
        url or BUILT_IN.get(kind, BuiltIn("")).url,
        key,
        ProviderSettings(options=options),
        ManualClock(),
    )


@pytest.mark.parametrize(
    "maker,kind,wire,path,options",
    [
        (openai, "openai", ResponsesWire(key="key"), "/v1", {}),
        (azure, "azure", ResponsesWire(key="key"), "/openai/v1", {}),
        (azure, "azure", ResponsesWire(key="key"), "", {"api_version": "2025-04-01-preview", "auth": "bearer"}),
        (azure_chat, "azure-chat", ChatWire(key="key"), "", {"api_version": "2024-10-21"}),
        (compatible, "openai-chat", ChatWire(key="key"), "/v1", {}),
        (compatible, "mistral", ChatWire("mistral", key="key"), "/v1", {}),
        (compatible, "lab", ChatWire("mistral", key="key"), "/v1", {"server": "vllm", "usage": "false"}),
    ],
)
def test_a_provider_asks_with_its_key_at_its_address(
    maker: ProviderMaker, kind: str, wire: FakeWire, path: str, options: dict[str, str]
) -> None:
    async def scenario() -> None:
        async with FakeProvider(wire, ["Hello."]) as fake:
            provider = maker(wanted(kind, fake.url + path, "key", **options))
            found = turn_of(await pieces_of(provider.model(About("gpt-5")), asking()))
            assert found.parts
            assert await provider.models()
            assert fake.refused == []
            await provider.close()

    asyncio.run(scenario())


def test_a_server_of_ones_own_needs_no_key() -> None:
    async def scenario() -> None:
        async with FakeProvider(ChatWire("vllm"), ["Hello."]) as fake:
            provider = compatible(wanted("vllm", fake.url))
            await pieces_of(provider.model(About("qwen")), asking())
            assert "authorization" not in fake.asked[0].headers
            await provider.close()

    asyncio.run(scenario())


def test_each_server_that_is_known_can_be_named() -> None:
    for kind in SERVERS:
        assert kind in BUILT_IN


def test_azure_is_found_by_its_resource() -> None:
    assert azure(wanted("azure", resource="mine")).endpoint.url == "https://mine.openai.azure.com/openai/v1"
    dated = azure_chat(wanted("azure-chat", resource="mine", api_version="2024-10-21"))
    assert dated.endpoint.url == "https://mine.openai.azure.com"
    with pytest.raises(ConfigurationError, match="resource"):
        azure(wanted("azure"))


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="lab"):
        compatible(wanted("vllm", "http://lab", name="lab", server="lab", usages="false"))
    with pytest.raises(ConfigurationError, match="where"):
        compatible(wanted("unheard-of"))


def test_reasoning_is_marked_with_the_name_of_the_provider() -> None:
    assert openai(wanted("openai", name="work")).dialect.name == "work"
    assert compatible(wanted("vllm", name="lab")).dialect.name == "lab"
