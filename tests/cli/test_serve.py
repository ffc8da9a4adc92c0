"""What an engine that serves a store says of its work."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hibernaut import AgentSystem, ScriptedModel, tool
from hibernaut.cli.serve import LINES_A_SECOND, Journal, WatchedStore
from hibernaut.messages.events import Usage
from hibernaut.models.scripted import call, say, turn
from tests.cli.conftest import Invoke


@tool
async def build(commit: str) -> str:
    """Build a commit."""
    raise ValueError(f"{commit} is broken")


def told(
    model: ScriptedModel,
    scenario: Callable[[AgentSystem], Awaitable[object]],
    folder: Path,
    journal: Journal | None = None,
) -> None:
    async def run() -> None:
        store = await WatchedStore.open(folder / "agents.db")
        store.journal = journal or Journal(quiet=False)
        async with AgentSystem(model=model, tools=[build], store=store) as system:
            await scenario(system)
        await store.close()

    asyncio.run(run())


async def one_thread(system: AgentSystem) -> None:
    handle = await system.launch(thread_id="t", message="Build abc")
    await handle.wait_idle()


def test_it_tells_of_every_thing_in_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = turn("It is\nbroken.", usage=Usage(1_000, 200))
    told(ScriptedModel([call("build", commit="abc"), answer]), one_thread, folder)
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d  t  ", line) for line in lines)
    assert [line[13:] for line in lines] == [
        "> Build abc",
        '→ build {"commit":"abc"}',
        "✗ build: Error: ValueError: abc is broken",
        "said (1,200 tokens): It is broken.",
    ]


def test_a_result_is_told_by_its_tool_although_its_call_was_made_before_a_restart(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def restarted(system: AgentSystem) -> None:
        journal._tools = Forgetful()  # as after a restart
        await one_thread(system)

    journal = Journal(quiet=False)
    told(ScriptedModel([call("build", commit="abc"), say("Broken.")]), restarted, folder, journal)
    assert "✗ build: Error" in capsys.readouterr().out


class Forgetful(dict[str, str]):
    def __setitem__(self, key: str, value: str) -> None:
        """Remember nothing."""


@pytest.mark.parametrize(
    "rest, last",
    [
        (call("sleep", seconds=3_600), r"sleeps until \d{4}-"),
        (call("sleep_until_event_or_input"), "sleeps until something comes"),
    ],
)
def test_it_tells_of_a_thread_that_goes_to_sleep(
    rest: object, last: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(ScriptedModel([rest]), one_thread, folder)  # type: ignore[list-item]
    assert re.search(last, capsys.readouterr().out.splitlines()[-1])


def test_it_tells_nothing_when_it_shall_be_quiet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(ScriptedModel([say("Hello")]), one_thread, folder, Journal(quiet=True))
    assert capsys.readouterr().out == ""


def test_of_very_much_work_it_tells_a_part_and_counts_the_rest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0

    async def burst(system: AgentSystem) -> None:
        nonlocal now
        for _ in range(LINES_A_SECOND):
            await system.launch(message="hello")
        await system.wait_idle()
        now += 2
        await one_thread(system)

    told(ScriptedModel(lambda _: say("Hello")), burst, folder, Journal(quiet=False, seconds=lambda: now))
    lines = capsys.readouterr().out.splitlines()
    left_out = LINES_A_SECOND - LINES_A_SECOND // 2
    assert [line[10:] for line in lines[-3:]] == [
        f"… {left_out} more commits, too many to be told one by one",
        "t  > Build abc",
        "t  said: Hello",
    ]
    assert len(lines) == LINES_A_SECOND + 3


@pytest.mark.parametrize(
    "words, problem",
    [
        (("--store", "agents.db"), "say what runs here: an engine (--local), or only the front door (--inbox-only)"),
        (("--local", "--inbox-only", "--store", "agents.db"), "say what runs here"),
        (("--inbox-only",), "--store"),
        (("--inbox-only", "--store", ":memory:"), "serve needs a file"),
        (("--inbox-only", "--store", "agents.db", "--model", "echo"), "it takes no --model"),
        (("--inbox-only", "--store", "agents.db", "--tools", "agent.py"), "it takes no --model"),
        (("--inbox-only", "--store", "agents.db", "--server", "https://a.example"), "it takes no --model"),
        (("--inbox-only", "--store", "agents.db", "--listen", "nowhere"), "'nowhere' is no address to listen at"),
        (("--inbox-only", "--store", "agents.db", "--public", "agents.example"), "not an http or https address"),
        (("--local", "--store", "agents.db", "--server", "https://a.example", "--listen", "0.0.0.0:0"), "`public`"),
        (("--local", "--store", "agents.db", "--metrics", "99999"), "99999 is no port"),
        (("--local", "--store", "agents.db", "--metrics", "here"), "'here' is no address to listen at"),
        (("--local", "--store", ":memory:"), "serve needs a file"),
        (("--local",), "--store"),
        (("--local", "--store", "agents.db", "--max-slices", "0"), "--max-slices"),
    ],
)
def test_what_cannot_be_served_is_a_usage_error(words: tuple[str, ...], problem: str, invoke: Invoke) -> None:
    result = invoke("serve", *words)
    assert result.exit_code == 2
    assert problem in result.stderr
