"""The story that `hibernaut demo tree` tells. Whatever it says was looked at before: what does not hold ends it."""

import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hibernaut.cli.demo.failure import DemoFailed, check
from hibernaut.cli.demo.play import E, Play, perform
from hibernaut.cli.demo.processes import OwnProcess, Resident, is_gone
from hibernaut.cli.demo.tree import release
from hibernaut.cli.demo.tree.agent import (
    HOLD,
    INSTRUCTIONS,
    ROLL_BACK,
    TOOLS,
    Around,
    Watch,
    pack_logs,
    roll_back,
    watch_log,
    watches,
)
from hibernaut.cli.demo.tree.canary import written
from hibernaut.cli.demo.tree.log import LOG, Line, lines_after
from hibernaut.cli.demo.tree.proof import Reached, prove_reached, prove_receipts
from hibernaut.cli.demo.tree.terminal import Terminal
from hibernaut.cli.demo.voice import Voice
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.messages.events import (
    QuestionAsked,
    QuestionEnded,
    SubscriptionEvent,
    Summarized,
    TextChunk,
    ToolCall,
)
from hibernaut.messages.inputs import Report
from hibernaut.state import ThreadState

AGENT = "ops"
"""The id of the agent's thread."""

WHO = "anna"
"""Who is on call."""

PACE, FAST_PACE = 0.7, 0.05
"""Seconds that the canary takes for a line;"""

PACKING, FAST_PACKING = 2.0, 0.3
"""and those that packing takes."""

GRACE = 60_000
"""Milliseconds that a report waits for an open call: longer than the call is open on the slowest machine."""

SEEN, MISSED, MEANWHILE, AFTER = 1, 2, 2, 1
"""Lines that are written while the agent sleeps, while nobody runs, while it is at work, and after the roll-back."""

BAD = SEEN + MISSED + MEANWHILE - 1
"""The place of the line that matters."""

REFUSED = 1
"""The exit code of a command that was not heeded."""


class Stage(msgspec.Struct, frozen=True):
    """What there was at one stage: the processes, the log, and the whole tree in the store."""

    name: str
    processes: list[Resident]
    lines: int
    threads: int
    ended: int
    commits: int
    bytes: int
    waiting: int
    """Messages in the agent's inbox, without the timer that will end its subscription."""


class Question(msgspec.Struct, frozen=True):
    """The question, and how it was answered."""

    question_id: str
    prompt: str
    answer: str
    user: str
    answers: int


class Facts(msgspec.Struct):
    """What the story found."""

    thread: str
    stages: list[Stage]
    watched: list[Watch]
    lines: list[Reached]
    reports: list[str]
    """Threads that reported something."""
    tokens: tuple[int, int]
    """What the model was shown before and after the compaction, as estimated."""
    question: Question
    rollbacks: int
    receipts_verified: dict[str, int]
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
    pace, packing = (FAST_PACE, FAST_PACKING) if fast else (PACE, PACKING)
    return perform(lambda *around: _Story(pace, packing, *around), voice, store=store, keep=keep)


class _Story(Play[Facts]):
    agent = "hibernaut.cli.demo.tree.agent"
    tools = TOOLS

    def __init__(self, pace: float, packing: float, voice: Voice, store: Path, folder: Path) -> None:
        super().__init__(voice, store, folder)
        self._watched = folder / "canary"
        self._pace = pace
        self._packing = packing
        self._terminal = Terminal(voice, store)
        self._stages: list[Stage] = []
        self._shown = 0
        """Lines whose threads were shown."""

    def _begin(self) -> None:
        release.write_release(self._watched)
        self._voice.title(
            "Hibernaut: an agent that listens is asleep, and every event gets a thread.",
            "Real processes, a real SQLite file, a real kill -9. Only the model is a script,",
            "so no key is needed. This process runs no agent: it starts and ends others, and",
            "reads what they store. What follows a $ is typed in another terminal.",
        )

    async def _tell(self) -> Facts:
        await self._subscribe()
        await self._hear_one()
        await self._miss_two()
        await self._go_on()
        await self._be_at_work()
        await self._ask()
        return await self._prove()

    # The stages

    async def _subscribe(self) -> None:
        self._voice.stage(1, "An agent subscribes to a log, and goes to sleep")
        self._canary = OwnProcess(
            self._folder,
            "canary",
            "hibernaut.cli.demo.tree.canary",
            *[str(self._path), str(self._watched), str(self._pace)],
        )
        self._processes.append(self._canary)
        await self._start_engine()
        self._thread = await self._system.launch(
            INSTRUCTIONS,
            thread_id=AGENT,
            message=release.TASK,
            options=ThreadOptions(event_grace=GRACE),
            metadata=msgspec.to_builtins(Around(str(self._watched), self._packing)),
        )

        async def listens() -> bool:
            await self._listen()
            state = await self._thread.state()
            return state.activity == "idle" and [one.tool for one in state.subscriptions] == [watch_log.name]

        await self._until("the agent to subscribe", listens)
        await self._listen()
        (call,) = self._calls(watch_log.name)
        self._subscription = call.call_id
        await self._measure("asleep", "engine", "canary")
        self._voice.good("now", "The agent sleeps, and is subscribed: both are rows in a file.")

    async def _hear_one(self) -> None:
        self._voice.stage(2, "A line is written, and gets a thread of its own")
        before = await self._thread.state()
        await self._write(SEEN)
        await self._until_dealt_with()
        receipts = (await self._thread.receipts())[before.version :]
        asked = [receipt.version for receipt in receipts if receipt.turn is not TurnCommit.NONE]
        check(bool(receipts) and not asked, "the agent itself was asked about the line")
        await self._measure("heard", "engine", "canary")
        self._voice.good("now", "The thread has ended. The agent was not disturbed: its model was not asked.")

    async def _miss_two(self) -> None:
        self._voice.stage(3, "The engine is killed, and more lines are written")
        engine = await self._end_engine(OwnProcess.kill, -signal.SIGKILL)
        check(is_gone(engine.pid), f"process {engine.pid} is still there after kill -9")
        self._voice.say("kill -9", f"{engine.pid} ... it is gone.")
        await self._write(MISSED)
        now = await self._measure("killed", "canary")
        check(now.commits == self._stages[-2].commits, "something was written to the threads while nobody ran")
        check(now.waiting == 0, "something was put into the inbox while nobody ran")
        self._voice.good("now", f"{now.lines} lines are in the log. Of {MISSED} of them nobody knows.")

    async def _go_on(self) -> None:
        self._voice.stage(4, "A new engine starts, and the subscription goes on by itself")
        engine, seen = await self._start_engine(), self._lines()[SEEN - 1].end

        async def goes_on() -> bool:
            return len(watches(self._watched)) > 1

        await self._until("the subscription to go on", goes_on)
        begun = watches(self._watched)
        check(
            [one.place for one in begun] == [0, seen] and begun[1].pid == engine.pid,
            f"the log was not watched from byte 0 and then from byte {seen} on, but: {begun}",
        )
        self._voice.say("watches", f"process {engine.pid}, from byte {seen} on: the id of the last event")
        await self._until_dealt_with()
        await self._measure("resumed", "engine", "canary")
        self._voice.good("now", "What nobody saw has reached a thread, each line its own.")

    async def _be_at_work(self) -> None:
        self._voice.stage(5, "The agent is at work, is compacted, and a line matters")
        (self._watched / HOLD).touch()
        await self._thread.send(release.PACKING)

        async def works() -> bool:
            await self._listen()
            open_calls = [call.tool for call in (await self._thread.state()).calls if call.state == "open"]
            return open_calls == [pack_logs.name] and (self._watched / release.ARCHIVE).exists()

        await self._until("the agent to be at work", works)
        await self._compact()
        await self._write(MEANWHILE)
        await self._until_dealt_with()
        check(all(one.summarized for one in self._reached[-MEANWHILE:]), "a thread has not inherited the summary")
        now = await self._measure("at_work", "engine", "canary")
        check(now.waiting == 1, f"{now.waiting} messages wait for the agent, not just one report")
        self._voice.good("now", "One thread has reported. That waits: the agent is not interrupted at work.")

    async def _compact(self) -> None:
        await self._terminal.done("threads", "compact", AGENT)

        async def compacted() -> bool:
            await self._listen()
            return any(isinstance(event, Summarized) for event in self._heard)

        await self._until("the summary", compacted)
        done = self._found(Summarized)
        check(done.after < done.before, f"the summary is no shorter: {done.before} tokens, then {done.after}")

    async def _ask(self) -> None:
        self._voice.stage(6, "The work is done, the agent reads the report and asks a person")
        (self._watched / HOLD).unlink()

        async def asks() -> bool:
            await self._listen()
            return any(isinstance(event, QuestionAsked) for event in self._heard)

        with self._voice.dots("packing") as dots:
            await self._until("the agent's question", asks, dots)
        packed = release.packed(self._watched)
        check(f"{packed.before:,} -> {packed.after:,} bytes" in self._words(), "the agent did not say what it packed")
        await self._measure("asking", "engine", "canary")
        state = await self._thread.state()
        check((state.activity, state.questions) == ("waiting", 1), "the agent does not wait for a person")
        self._voice.good("now", "It waits for a person. That, too, is a row in a file.")
        await self._answer()
        live, done = release.read_live(self._watched), release.rollbacks(self._watched)
        check(live == release.OLD, f"release {live} is live, not {release.OLD}")
        check(done == [call.call_id for call in self._calls(roll_back.name)], f"it was rolled back {len(done)} times")
        await self._write(AFTER)
        await self._until_dealt_with()
        check(f"release {release.OLD}:" in self._lines()[-1].text, "the canary does not see the roll-back")
        await self._measure("answered", "engine", "canary")

    async def _answer(self) -> None:
        asked = self._found(QuestionAsked)
        shown = await self._terminal.done("inbox")
        for line in filter(None, shown):
            self._voice.printed(line)
        check(any(asked.question_id in line for line in shown), "`hibernaut inbox` does not show the question")
        number = f"{asked.choices.index(ROLL_BACK) + 1}"
        for line in await self._terminal.done("answer", asked.question_id, number, "--user", WHO):
            self._voice.printed(line)

        async def answered() -> bool:
            await self._listen()
            return (await self._thread.state()).activity == "idle"

        await self._until("the agent's last word", answered)
        await self._listen()
        again = await self._terminal.run("answer", asked.question_id, "2", "--user", "bert")
        self._voice.printed(again.errors)
        check(again.code == REFUSED and "has its answer already" in again.errors, "a second answer was taken")

    async def _prove(self) -> Facts:
        self._voice.stage(7, "All processes end, and this is on record")
        await self._end_engine(OwnProcess.let_go, 0)
        await self._end_process("canary", self._canary, OwnProcess.let_go, 0)
        stage = await self._measure("over")
        for line in await self._terminal.done("threads", "tree", AGENT, "--all"):
            self._voice.row(line)
        self._voice.gap()
        lines = self._lines()
        check(lines == lines_after(self._watched / LOG), "the log is not what the canary has written")
        check(len(lines) == SEEN + MISSED + MEANWHILE + AFTER, f"the canary has written {len(lines)} lines")
        reached = await prove_reached(self._system, self._thread, self._subscription, lines)
        reports = [event.origin for event in self._heard if isinstance(event, SubscriptionEvent)]
        check(reports == [reached[BAD].thread], f"{len(reports)} reports have reached the agent, not one")
        question = self._prove_question()
        verified = await prove_receipts(self._system, self._thread)
        check(sum(verified.values()) == stage.commits, "there is not one receipt for every commit")
        calls = await self._prove_calls()
        self._voice.good("lines", f"{len(lines)} written, {len(reached)} threads: each line reached exactly one")
        self._voice.good("calls", f"{calls} made by the agent, each sent exactly once, over two engines")
        self._voice.good("question", f"1 asked, answered once, by {question.user}; one roll-back")
        self._voice.good("receipts", f"{stage.commits} in {len(verified)} threads, chained: every one verified")
        summary = self._found(Summarized)
        return Facts(
            AGENT,
            self._stages,
            watches(self._watched),
            reached,
            reports,
            (summary.before, summary.after),
            question,
            len(release.rollbacks(self._watched)),
            verified,
        )

    def _prove_question(self) -> Question:
        asked = [event for event in self._heard if isinstance(event, QuestionAsked)]
        ended = [event for event in self._heard if isinstance(event, QuestionEnded)]
        check(len(asked) == len(ended) == 1, f"{len(asked)} questions were asked and {len(ended)} ended")
        (end,) = ended
        check(
            (end.question_id, end.outcome, end.text, end.user) == (asked[0].question_id, "answered", ROLL_BACK, WHO),
            f"the question ended otherwise: {end.outcome}, {end.text} ({end.user})",
        )
        return Question(end.question_id, asked[0].prompt, end.text, end.user, len(ended))

    async def _prove_calls(self) -> int:
        sent = Counter(request for receipt in await self._thread.receipts() for request in receipt.dispatched)
        wanted = Counter(event.call_id for event in self._heard if isinstance(event, ToolCall))
        check(sent == wanted, "the receipts do not say that every call was sent exactly once")
        return len(wanted)

    # What happens in them

    def _lines(self) -> list[Line]:
        """Return what the canary says that it has written."""
        return written(self._canary.output())

    async def _write(self, number: int) -> None:
        """Let the canary write so many lines, and show them."""
        before = len(self._lines())
        for _ in range(number):
            self._canary.tell("write")

        async def wrote() -> bool:
            check(self._canary.ended is None, f"the canary ended by itself{self._canary.last_words()}")
            return len(self._lines()) == before + number

        await self._until("the canary", wrote)
        for line in self._lines()[before:]:
            self._voice.say("line", line.text)

    async def _until_dealt_with(self) -> None:
        """Return when every line has a thread that has ended, and show what has become of those that are new."""
        lines = self._lines()
        at_work = (self._watched / HOLD).exists()
        held = 1 if at_work else 0
        """Reports that the agent will read when it has done its work."""

        async def over() -> bool:
            state = await self._thread.state()
            heard = [one.last_event for one in state.subscriptions] == [f"{lines[-1].end}"]
            children = [one for one in await self._thread.tree() if one.parent]
            ended = all(one.status == "closed" for one in children)
            done = heard and ended and state.children == _waiting(state) == held
            return done and state.activity == ("waiting" if at_work else "idle")

        await self._until("every line to be dealt with", over)
        await self._listen()
        self._reached = await prove_reached(self._system, self._thread, self._subscription, lines)
        told = await self._reporters()
        matters = [one.thread for one in self._reached[BAD : BAD + 1]]
        check(told == matters, f"these threads have reported something: {', '.join(told) or 'none'}")
        for one in self._reached[self._shown :]:
            self._voice.say("thread", f"{one.thread} {'reports it' if one.thread in told else 'ends without a word'}")
        self._shown = len(self._reached)

    async def _reporters(self) -> list[str]:
        """Return the threads that have reported something, whether the agent has read it or not."""
        read = [event.origin for event in self._heard if isinstance(event, SubscriptionEvent)]
        inbox = [one.message for one in await self._system.store.read_inbox(AGENT) if one.message]
        return read + [one.content.child_id for one in inbox if isinstance(one.content, Report)]

    async def _measure(self, name: str, *roles: str) -> Stage:
        """Say what there is, once there are just these processes."""
        processes, tree = await self._settled(*roles), list(await self._thread.tree())
        state, size = await self._thread.state(), 0
        for one in tree:
            rows = await self._system.store.read_log(one.thread_id)
            size += one.head_bytes + sum(len(row.page) + len(row.receipt) for row in rows)
        ended, commits = sum(one.status == "closed" for one in tree), sum(one.version for one in tree)
        stage = Stage(name, processes, len(self._lines()), len(tree), ended, commits, size, _waiting(state))
        self._stages.append(stage)
        have = f", {ended} have ended" if ended > 1 else ", 1 has ended" if ended else ""
        self._voice.say("threads", f"{len(tree)}{have}: {size:,} bytes in {commits} commits")
        if stage.waiting:
            self._voice.say("inbox", "1 message" if stage.waiting == 1 else f"{stage.waiting} messages")
        return stage

    def _check_processes(self, roles: Sequence[str]) -> None:
        if "canary" in roles:
            check(self._canary.ended is None, f"the canary ended by itself{self._canary.last_words()}")

    def _words(self) -> str:
        return "\n".join(event.text for event in self._heard if isinstance(event, TextChunk))

    def _found(self, kind: type[E]) -> E:
        event = self._heard_last(kind)
        if event is None:
            raise DemoFailed(f"the agent's conversation has no {kind.__name__}")
        return event


def _waiting(state: ThreadState) -> int:
    return state.waiting - len(state.subscriptions)
