"""The story that the demo tells. Whatever it says was looked at before: a claim that does not hold ends it."""

import re
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hibernaut.cli.demo.agent import INSTRUCTIONS, TOOLS, Surroundings, edit_requirements, start_build
from hibernaut.cli.demo.build import FAILED, HOLD, OUTPUT, PASSED, begun
from hibernaut.cli.demo.failure import check
from hibernaut.cli.demo.play import Play, perform
from hibernaut.cli.demo.processes import EngineProcess, Resident, is_gone, last_line, residents
from hibernaut.cli.demo.project import PACKAGE, TASK, read_pins, write_project
from hibernaut.cli.demo.voice import Voice
from hibernaut.messages.events import AgentEvent, Cursor, TextChunk, ToolCall, ToolResult
from hibernaut.messages.inputs import ToolResult as Answer
from hibernaut.messages.parts import plain_text

BUILD_SECONDS, FAST_BUILD_SECONDS = 2.5, 0.5
"""How long a build takes."""

BUILDS = 2


class Stage(msgspec.Struct, frozen=True):
    """What there was at one stage: the processes, and the thread in the store, in bytes."""

    name: str
    processes: list[Resident]
    commits: int
    head: int
    history: int
    receipts: int
    waiting: int
    """Messages in the thread's inbox."""


class Build(msgspec.Struct, frozen=True):
    """A build: the id of the call that asked for it, and how often it was begun."""

    request: str
    performed: int
    passed: bool


class Facts(msgspec.Struct):
    """What the demo found."""

    thread: str
    stages: list[Stage] = []
    builds: list[Build] = []
    receipts_verified: int = 0
    seconds: float = 0
    store: str = ""
    """Where the store is, if it was kept."""


def tell(voice: Voice, *, store: Path | None, fast: bool, keep: bool) -> Facts:
    """Tell the story, in a temporary folder, and leave nothing behind but what is to be kept.

    Raises:
        DemoFailed: something is off.
        DemoInterrupted: a signal came.
        HibernautError: the store cannot be used, or its receipts do not match what is stored.
    """
    seconds = FAST_BUILD_SECONDS if fast else BUILD_SECONDS
    return perform(lambda *around: _Story(seconds, *around), voice, store=store, keep=keep)


class _Story(Play[Facts]):
    agent = "hibernaut.cli.demo.agent"
    tools = TOOLS

    def __init__(self, seconds: float, voice: Voice, store: Path, folder: Path) -> None:
        super().__init__(voice, store, folder)
        self._project = folder / "project"
        self._seconds = seconds
        self._stages: list[Stage] = []

    def _begin(self) -> None:
        write_project(self._project)
        self._voice.title(
            "Hibernaut: between two messages, an agent is nothing but its conversation.",
            "Real processes, a real SQLite file, a real kill -9. Only the model is a script,",
            "so no key is needed. This process runs no agent: it starts and ends others, and",
            "reads what they store.",
        )

    async def _tell(self) -> Facts:
        await self._fall_asleep()
        await self._be_killed()
        await self._miss_the_result()
        await self._wake()
        await self._answer()
        return await self._prove()

    # The stages

    async def _fall_asleep(self) -> None:
        self._voice.stage(1, "An agent gets a task, starts a build, and goes to sleep")
        self._hold()
        await self._start_engine()
        around = Surroundings(str(self._path), str(self._project), self._seconds)
        self._thread = await self._system.launch(INSTRUCTIONS, message=TASK, metadata=msgspec.to_builtins(around))
        await self._until_build_runs(1)
        await self._measure("asleep", "engine", "build")
        self._voice.good("now", "The agent waits: it is a few rows in a file, and nothing else.")

    async def _be_killed(self) -> None:
        self._voice.stage(2, "The engine is killed")
        engine = await self._end_engine(EngineProcess.kill, -signal.SIGKILL)
        check(is_gone(engine.pid), f"process {engine.pid} is still there after kill -9")
        self._voice.say("kill -9", f"{engine.pid} ... it is gone.")
        now = await self._measure("killed", "build")
        check(now.commits == self._stages[0].commits, "something was written to the thread while nobody ran")
        self._voice.good("now", "Nothing of the agent runs, and nothing of it is lost.")

    async def _miss_the_result(self) -> None:
        self._voice.stage(3, "The build ends, and nobody is there")
        await self._let_build_end()
        now = await self._measure("delivered")
        check(now.commits == self._stages[0].commits, "something was written to the thread while nobody ran")
        report = await self._waiting_report()
        check(report.startswith(FAILED), f"the first build should have failed, but: {_first_line(report)}")
        self._voice.good("now", "The build failed. Its report waits in the inbox; nothing runs.")

    async def _wake(self) -> None:
        self._voice.stage(4, "A new engine starts, the agent wakes and thinks again")
        self._hold()
        await self._start_engine()
        await self._until_build_runs(2)
        tried = self._pinned()
        check(len(set(tried)) == len(tried) == BUILDS, f"the agent pinned {', '.join(tried)}, not two versions")
        failing = re.findall(r"^FAIL: (\w+)", self._reports()[0], re.MULTILINE)
        words = "".join(event.text for event in self._heard if isinstance(event, TextChunk))
        check(bool(failing) and all(name in words for name in failing), "the agent did not see which test failed")
        await self._measure("asleep_again", "engine", "build")
        self._voice.good("now", "It remembered what it had tried, and sleeps again.")

    async def _answer(self) -> None:
        self._voice.stage(5, "The second build ends, and the agent answers")
        await self._let_build_end()
        await self._until("the agent's answer", self._has_answered)
        reports = self._reports()
        check(
            len(reports) == BUILDS and reports[1].startswith(PASSED),
            f"the second build should have passed, but: {_first_line(reports[-1])}",
        )
        tried, pins = self._pinned(), read_pins(self._project)
        check(pins[PACKAGE] == tried[1], f"{PACKAGE} is pinned to {pins[PACKAGE]}, not to {tried[1]}")
        last = self._heard_last(TextChunk)
        check(last is not None and tried[1] in last.text, "the agent did not say what it had done")
        await self._measure("answered", "engine")

    async def _prove(self) -> Facts:
        self._voice.stage(6, "The engine stops, and this is on record")
        await self._end_engine(EngineProcess.let_go, 0)
        before = self._stages[0].commits
        for number, event in enumerate(self._heard):
            if number and _commit(event) > before >= _commit(self._heard[number - 1]):
                self._voice.rule("the first engine was killed here")
            self._voice.brief(event)
        self._voice.gap()
        stage = await self._measure("over")
        facts = Facts(self._thread.thread_id, self._stages, self._check_builds())
        facts.receipts_verified = await self._system.verify(self._thread.thread_id)
        check(facts.receipts_verified == stage.commits, "there is not one receipt for every commit")
        receipts = await self._thread.receipts()
        sent = Counter(request for receipt in receipts for request in receipt.dispatched)
        wanted = Counter(event.call_id for event in self._heard if isinstance(event, ToolCall))
        check(sent == wanted, "the receipts do not say that every call was sent exactly once")
        self._voice.good("receipts", f"{facts.receipts_verified}, one for each commit, chained: every one verified")
        self._voice.good("builds", f"{len(facts.builds)} asked for, {len(facts.builds)} performed: each exactly once")
        return facts

    def _check_builds(self) -> list[Build]:
        asked = [event.call_id for event in self._calls(start_build.name)]
        performed = Counter(build.request for build in begun(self._project))
        check(
            len(asked) == BUILDS and performed == Counter(asked),
            f"{len(asked)} builds were asked for, but these were performed: {dict(performed)}",
        )
        reports = self._reports()
        return [Build(asked[n], performed[asked[n]], reports[n].startswith(PASSED)) for n in range(BUILDS)]

    # What happens in them

    def _hold(self) -> None:
        (self._project / HOLD).touch()

    async def _until_build_runs(self, number: int) -> None:
        """Return when the agent sleeps and its build runs, so that neither needs the engine any more."""

        async def runs() -> bool:
            await self._listen()
            asked = [call.call_id for call in self._calls(start_build.name)]
            effects = await self._system.store.read_effects(self._thread.thread_id)
            if len(asked) < number or [(row.effect.call_id, row.state) for row in effects] != [(asked[-1], "accepted")]:
                return False
            self._check_build_runs()
            return [build.request for build in begun(self._project)] == asked

        await self._until(f"build {number} to run", runs)
        await self._listen()
        state = await self._thread.state()
        check(state.activity == "waiting", f"the agent should wait for its build, but it is {state.activity}")

    def _check_processes(self, roles: Sequence[str]) -> None:
        if "build" in roles:
            self._check_build_runs()

    def _check_build_runs(self) -> None:
        roles = [one.role for one in residents(self._path)]
        check("build" in roles, f"the build ended too early{last_line(self._project / OUTPUT)}")

    async def _let_build_end(self) -> None:
        before = self._stages[-1]
        (self._project / HOLD).unlink()

        async def ended() -> bool:
            return all(one.role != "build" for one in residents(self._path))

        with self._voice.dots("building") as dots:
            await self._until("the build to end", ended, dots)
        inbox = await self._system.store.read_inbox(self._thread.thread_id)
        state = await self._thread.state()
        delivered = bool(inbox) or state.version > before.commits
        check(delivered, f"the build ended without a report{last_line(self._project / OUTPUT)}")

    async def _waiting_report(self) -> str:
        inbox = await self._system.store.read_inbox(self._thread.thread_id)
        check(len(inbox) == 1, f"{len(inbox)} messages wait for the agent, not one")
        content = inbox[0].message.content if inbox[0].message else None
        return plain_text(content.content) if isinstance(content, Answer) else ""

    async def _has_answered(self) -> bool:
        state = await self._thread.state()
        await self._listen()
        return state.activity == "idle"

    async def _measure(self, name: str, *roles: str) -> Stage:
        """Say what there is, once there are just these processes."""
        processes, state = await self._settled(*roles), await self._thread.state()
        rows = await self._system.store.read_log(self._thread.thread_id)
        history, receipts = sum(len(row.page) for row in rows), sum(len(row.receipt) for row in rows)
        stage = Stage(name, processes, state.version, state.head_bytes, history, receipts, state.waiting)
        self._stages.append(stage)
        sizes = f"head {stage.head:,}, history {history:,}, receipts {receipts:,}"
        self._voice.say("thread", f"{stage.head + history + receipts:,} bytes in {stage.commits} commits: {sizes}")
        if stage.waiting:
            self._voice.say("inbox", "1 message" if stage.waiting == 1 else f"{stage.waiting} messages")
        return stage

    # The conversation

    def _reports(self) -> list[str]:
        """Return the reports of the builds that the agent has read."""
        texts = [plain_text(event.content) for event in self._heard if isinstance(event, ToolResult)]
        return [text for text in texts if text.startswith((FAILED, PASSED))] or [""]

    def _pinned(self) -> list[str]:
        """Return the versions that the agent has pinned."""
        return [msgspec.json.decode(event.arguments)["version"] for event in self._calls(edit_requirements.name)]


def _commit(event: AgentEvent) -> int:
    return Cursor.parse(event.cursor).version


def _first_line(text: str) -> str:
    return text.partition("\n")[0] or "it has no report"
