"""The command with models of providers: real processes, real HTTP, one provider after another in one thread."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hibernaut.errors import ModelError
from hibernaut.messages.events import Usage
from hibernaut.models.errors import AuthenticationFailed, InvalidRequest
from hibernaut.models.scripted import call, say, think, turn
from hibernaut.testing.providers.anthropic import AnthropicWire
from hibernaut.testing.providers.google import GeminiWire
from hibernaut.testing.providers.openai_chat import ChatWire
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeProvider, Played
from hibernaut.testing.providers.wire import FakeWire
from tests.e2e.commands import KEY, hibernaut

TOOLS = '''
from hibernaut import tool

@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"nothing at {place}"
'''


def configure(folder: Path, **urls: str) -> None:
    tables = [f'[providers.{name}]\nurl = "{url}"\nkey = "env:TEST_KEY"\n' for name, url in urls.items()]
    (folder / "hibernaut.toml").write_text("\n".join(tables), encoding="utf-8")
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")


def played() -> list[Played]:
    return [
        turn(think("Where to look?"), "Let me see. ", call("look", place="bed"), usage=Usage(1_000, 50)),
        turn(say("Nothing there.", chunks=3), usage=Usage(1_100, 10)),
    ]


@pytest.mark.parametrize(
    "provider,model,wire,path",
    [
        ("anthropic", "claude-sonnet-4-6", lambda: AnthropicWire(KEY), ""),
        ("openai", "gpt-5", lambda: ResponsesWire(key=KEY), "/v1"),
        ("openai-chat", "gpt-4o", lambda: ChatWire(key=KEY), "/v1"),
        ("google", "gemini-2.5-flash", lambda: GeminiWire(key=KEY), ""),
    ],
)
def test_an_agent_works_with_a_tool_and_a_model_of_a_provider_and_what_it_cost_is_shown(
    provider: str, model: str, wire: Callable[[], FakeWire], path: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with FakeProvider(wire(), played(), chunks=7) as fake:
            configure(tmp_path, **{provider: fake.url + path})
            name = f"{provider}:{model}"
            words = ("run", "Look under the bed", "--thread", "a", "--model", name, "--tools", "tools.py")
            said = await hibernaut(tmp_path, *words, TEST_KEY=KEY)
            assert (said.code, fake.refused) == (0, [])
            assert "nothing at bed" in said.out
            assert said.out.rstrip().endswith("Nothing there.")
            assert KEY not in said.out + said.err
            used = await hibernaut(tmp_path, "usage", "a")
            assert "$0.0" in used.out
            assert used.err == ""
            assert KEY.encode() not in (tmp_path / "agents.db").read_bytes()

    asyncio.run(scenario())


def test_a_thread_goes_on_with_another_provider_where_the_first_one_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        claude, gemini = AnthropicWire(KEY), GeminiWire(key=KEY)
        async with FakeProvider(claude, played()) as first, FakeProvider(gemini, ["It was the bed."]) as second:
            configure(tmp_path, anthropic=first.url, google=second.url)
            named = '[models.mine]\nis = "anthropic:claude-sonnet-4-6"\n'
            text = (tmp_path / "hibernaut.toml").read_text(encoding="utf-8") + named
            (tmp_path / "hibernaut.toml").write_text(text, encoding="utf-8")
            words = ("--thread", "a", "--tools", "tools.py", "--model", "mine")
            assert (await hibernaut(tmp_path, "run", "Look", *words, TEST_KEY=KEY)).code == 0
            text = text.replace("anthropic:claude-sonnet-4-6", "google:gemini-2.5-flash")
            (tmp_path / "hibernaut.toml").write_text(text, encoding="utf-8")
            said = await hibernaut(tmp_path, "run", "Where was that?", *words, TEST_KEY=KEY)
            assert (said.code, first.refused, second.refused) == (0, [], [])
            assert said.out.rstrip().endswith("It was the bed.")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "error,words",
    [
        (AuthenticationFailed("invalid x-api-key"), "authentication_failed"),
        (InvalidRequest("messages: too many"), "invalid_request: anthropic answers 400: messages: too many"),
    ],
)
def test_c52_a_failure_of_the_provider_is_told_in_its_words(error: ModelError, words: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeProvider(AnthropicWire(KEY), [error]) as fake:
            configure(tmp_path, anthropic=fake.url)
            task = ("run", "Hi", "--model", "anthropic:claude-sonnet-4-6", "--no-wait")
            said = await hibernaut(tmp_path, *task, TEST_KEY=KEY)
            assert words in said.out + said.err
            assert "Traceback" not in said.err

    asyncio.run(scenario())


def test_a_key_that_is_not_set_is_named_and_nobody_is_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeProvider(AnthropicWire(KEY), ["Hi."]) as fake:
            configure(tmp_path, anthropic=fake.url)
            said = await hibernaut(tmp_path, "run", "Hi", "--model", "anthropic:claude-sonnet-4-6")
            assert said.code != 0
            assert "TEST_KEY" in said.err
            assert "Traceback" not in said.err
            assert (fake.asked, fake.refused) == ([], [])

    asyncio.run(scenario())


def test_the_models_of_a_provider_are_listed_with_what_is_known_of_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeProvider(AnthropicWire(KEY)) as fake:
            configure(tmp_path, anthropic=fake.url)
            listed = await hibernaut(tmp_path, "models", "list", "anthropic", TEST_KEY=KEY)
            assert (listed.code, listed.err) == (0, "")
            assert any(
                line.split()[:2] == ["anthropic:claude-sonnet-4-6", "1,000,000"] for line in listed.out.splitlines()
            )
            providers = await hibernaut(tmp_path, "models", TEST_KEY=KEY)
            assert ["anthropic:…", fake.url, "TEST_KEY"] in [line.split() for line in providers.out.splitlines()]
            shown = await hibernaut(tmp_path, "models", "show", "anthropic:claude-sonnet-4-6", TEST_KEY=KEY)
            assert "1,000,000 tokens" in shown.out
            assert KEY not in shown.out + listed.out

    asyncio.run(scenario())
