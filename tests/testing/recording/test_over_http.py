"""Recording over real HTTP from strict fakes of every provider, and going on where a recording ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hibernaut import AgentSystem, tool
from hibernaut.messages.events import Usage
from hibernaut.messages.items import TextItem
from hibernaut.models.configuration import Configuration, ModelSettings, ProviderSettings
from hibernaut.models.providers import Providers
from hibernaut.models.scripted import call, say, think, turn
from hibernaut.testing.providers.anthropic import AnthropicWire, BedrockWire, VertexWire
from hibernaut.testing.providers.bedrock import TOKEN, ConverseWire
from hibernaut.testing.providers.google import GeminiWire
from hibernaut.testing.providers.openai_chat import ChatWire
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeProvider, Played
from hibernaut.testing.providers.wire import FakeWire
from hibernaut.testing.recording import RecordedModel

KEY = "a-key-of-a-test"
OPTIONS = {
    "bedrock": {"region": "eu-central-1"},
}

MODELS: list[tuple[str, Callable[[], FakeWire], str]] = [
    ("anthropic:claude-sonnet-4-6", lambda: AnthropicWire(KEY), ""),
    ("anthropic:claude-3-7-sonnet-20250219", lambda: AnthropicWire(KEY), ""),
    ("anthropic-vertex:claude-sonnet-4-6", lambda: VertexWire(KEY), ""),
    ("anthropic-bedrock:anthropic.claude-sonnet-4-6", lambda: BedrockWire(KEY), ""),
    ("openai:gpt-5", lambda: ResponsesWire(key=KEY), "/v1"),
    ("openai-chat:gpt-4o", lambda: ChatWire(key=KEY), "/v1"),
    ("deepseek:deepseek-reasoner", lambda: ChatWire("deepseek", key=KEY), ""),
    ("mistral:mistral-large-latest", lambda: ChatWire("mistral", key=KEY), "/v1"),
    ("google:gemini-2.5-flash", lambda: GeminiWire(key=KEY), ""),
    ("google:gemini-3-pro-preview", lambda: GeminiWire(key=KEY), ""),
    ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", ConverseWire, ""),
]


def first() -> Played:
    return turn(think("Where?", data=b"signed"), say("I look. ", chunks=3), call("look"), usage=Usage(10, 5))


async def talk(path: Path, name: str, wire: FakeWire, where: str, there: str, *script: Played) -> tuple[str, int]:
    """Talk with an agent whose tool finds what is `there`; return its last words and how often a provider was asked."""

    @tool
    async def look() -> str:
        """Look."""
        return there

    provider, _, _ = name.partition(":")
    key = TOKEN if provider == "bedrock" else KEY
    async with FakeProvider(wire, script, chunks=9) as fake:
        settings = {provider: ProviderSettings(url=fake.url + where, key=key, options=OPTIONS.get(provider, {}))}
        effort = {name: ModelSettings(effort="low", context_window=100_000)}
        providers = Providers(Configuration(settings, effort))
        model = RecordedModel(path, providers.resolve(name) if script else None)
        async with AgentSystem(model=model, tools=[look]) as system:
            agent = await system.launch(message="Look")
            await agent.wait_idle()
            assert (await agent.state()).reason == ""
            said = [item for item in await agent.history() if isinstance(item, TextItem)]
        await providers.close()
        assert fake.refused == []
        return said[-1].text, len(fake.asked)


@pytest.mark.parametrize("name,wire,where", MODELS, ids=[row[0] for row in MODELS])
def test_a_talk_is_recorded_played_back_and_gone_on_with_by_the_same_provider(
    name: str, wire: Callable[[], FakeWire], where: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        path = tmp_path / "a.json"
        assert await talk(path, name, wire(), where, "a cat", first(), "A cat.") == ("A cat.", 2)
        before = path.read_bytes()
        assert await talk(path, name, wire(), where, "a cat") == ("A cat.", 0)
        assert path.read_bytes() == before
        assert await talk(path, name, wire(), where, "a dog", "A dog.") == ("A dog.", 1)
        for there, said in (("a cat", "A cat."), ("a dog", "A dog.")):
            assert await talk(path, name, wire(), where, there) == (said, 0)

    asyncio.run(scenario())
