"""A course of random events in threads that programs ask for answers.

Programs ask, go away and ask again, of two systems, too; people speak; questions are edited and dropped; operators
stop, park, freeze, resume, retry, compact and close; calls are answered in time or late; the model fails, is cut, gives
what does not fit; processes end and begin anew. In the end everything is let go on, and every program has the answer to
its own question, or was told why there is none.

What happens follows from the number of the course. In memory it is the same every time, but for who hears of it first.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from hibernaut.errors import InputRefused, NoAnswer, StoreError, ThreadClosed
from hibernaut.handle import ThreadHandle
from hibernaut.kernel.head import decode_head
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.items import OutputItem
from hibernaut.state import ThreadState
from hibernaut.stores.memory import MemoryStore
from hibernaut.system import AgentSystem
from hibernaut.testing.clock import ManualClock, SequentialIds
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import AnyTool, tool
from tests.asking_model import FORMS, NOT_SURE, TEXT, Form, Speaker, text_of

EVENTS: Final = {
    "ask": 35,
    "ask_again": 10,
    "leave": 4,
    "say": 12,
    "drop": 8,
    "edit": 4,
    "deliver": 7,
    "cancel": 2,
    "stop": 4,
    "park": 3,
    "freeze": 1,
    "resume": 6,
    "retry": 3,
    "compact": 2,
    "close": 0.3,
}
"""What may happen, and how often beside the others."""

STEPS: Final = 15
"""How often a step is taken beside all that, where no engine runs."""

MOMENT, LOOK = 10, 20
"""Milliseconds that pass at once while models speak and tools work, and when nothing is left but to wait."""

CLOSED: Final = "the system was closed"
STANDS: Final = tuple([f"it is {how}" for how in ("stopped", "parked", "frozen")])
DROPPED: Final = ("it was dropped", "nothing waits for one")


@dataclass
class Question:
    """A question, and what came of it."""

    id: str
    thread: str
    kind: str
    words: str
    numbers: list[int]
    """Its own, and those that it had when it was edited."""
    dropped: bool = False
    outcome: str = ""
    """What it has come to: "answered", or why there is no answer. "" while it may have one."""
    answers: list[Any] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        came = f"answers {self.answers}" if self.answers else f"no answer {self.problems[-1:]}"
        return f"{self.id} of {self.thread}, {self.words!r}: {came}{', dropped' if self.dropped else ''}"


class Course:
    """One course. `run` plays it to its end.

    Args:
        number: what all of it follows from.
        file: where the threads are stored; None: in memory.
        forms: what is asked for beside text.
    """

    def __init__(self, number: int, file: Path | None, forms: Mapping[str, Form] = FORMS) -> None:
        chance = Random(number)
        self._number = number
        self._file = file
        self._forms = forms
        self._clock = ManualClock()
        self._ids = SequentialIds()
        self._store = MemoryStore() if file is None else file
        self._threads = chance.choice([["a"], ["a"], ["a", "b"]])
        self._closed: set[str] = set()
        most, lives = (30, [1, 1, 2, 3]) if file is None else (14, [1, 1, 1, 2])  # a disk takes its time
        self._lives = [chance.randrange(4, most) for _ in range(chance.choice(lives))]
        """Events in each process before the last one."""
        self._options = ThreadOptions(
            event_grace=20,
            parallel_calls=chance.choice([1, 3]),
            max_rounds=chance.choice([1, 2, 16]),
            on_user_text=chance.choice(["detach", "cancel"]),
            context_window=chance.choice([0, 0, 6_000]),
            max_continuations=chance.choice([1, 3]),
            max_repeats=50,
        )
        self._speaker = Speaker(
            number,
            forms,
            self._clock,
            structured=chance.random() < 0.5,
            oddities=chance.choice([0, 10, 30, 90]),
            continuations=self._options.max_continuations,
        )
        self._questions: dict[str, Question] = {}
        self._waits: list[asyncio.Task[None]] = []
        self._tokens: list[str] = []
        self._named = 0
        self._process = 0
        self._closing = False
        self._calm = False
        """Everything has been let go on, and the models do as they are told."""
        self._systems: list[AgentSystem] = []

    @property
    def seen(self) -> Counter[str]:
        """What there was, by kind."""
        return self._speaker.seen

    @property
    def story(self) -> str:
        """What has happened, and what became of each question."""
        return "\n".join([*self._speaker.story, "", *map(str, self._questions.values())])

    async def run(self) -> None:
        """Play the course.

        Raises:
            AssertionError: something does not hold.
        """
        for events in self._lives:
            chance = Random(f"{self._number} {self._process}")
            async with self._living(chance, steps=chance.random() < 0.35) as steps:
                await self._live(chance, events, steps=steps)
            await self._all_heard()
        async with self._living(Random(f"{self._number} {self._process}"), steps=False):
            await self._come_to_rest()
            await self._ask_all_again()
            for name in self._threads:
                await self._check_thread(name)
        self._check()

    # Processes

    @asynccontextmanager
    async def _living(self, chance: Random, *, steps: bool) -> AsyncIterator[bool]:
        """Run the next process, and beside it perhaps another one on the same file."""
        self._process += 1
        self._closing = False
        stack = AsyncExitStack()
        try:
            await self._open(stack, run=not steps)
            if self._file is not None and not steps and chance.random() < 0.6:
                await self._open(stack, run=chance.random() < 0.5)
            self._tell(f"process {self._process} with {len(self._systems)} systems{', in steps' if steps else ''}")
            for name in self._threads if self._process == 1 else ():
                await self._systems[0].launch(thread_id=name)
            yield steps
        finally:
            self._tell(f"process {self._process} ends")
            self._closing = True
            async with self._time_passing():
                await stack.aclose()
            self._systems.clear()

    async def _open(self, stack: AsyncExitStack, *, run: bool) -> None:
        system = AgentSystem(
            model=self._speaker.model(),
            tools=self._tools(),
            store=self._store,
            options=self._options,
            run=run,
            clock=self._clock,
            ids=self._ids,
        )
        self._systems.append(await stack.enter_async_context(system))

    @asynccontextmanager
    async def _time_passing(self) -> AsyncIterator[None]:
        """Let time pass by itself, for what waits for it and is waited for."""

        async def passing() -> None:
            while True:
                await self._tick(1)

        task = asyncio.create_task(passing())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _pass(self, milliseconds: int, step: int = MOMENT) -> None:
        """Let time pass, and everybody do what there is to do then."""
        for _ in range(0, milliseconds, step):
            await self._tick(step)

    async def _tick(self, milliseconds: int) -> None:
        self._clock.advance(milliseconds)
        with suppress(StoreError):  # it is closed
            # Nothing is written, but it takes its turn behind what is: no time passes while a disk is waited for.
            await self._systems[0].store.put([], self._clock.now())
        for _ in range(3):
            await asyncio.sleep(0)

    def _tools(self) -> list[AnyTool]:
        """Return tools for the next system."""
        clock, seen, tokens = self._clock, self.seen, self._tokens

        @tool
        async def beside(number: int) -> str:
            """Work beside the conversation."""
            await clock.sleep(number % 20 * MOMENT)
            seen["beside"] += 1
            return "done"

        @tool(inline=True)
        async def inline(number: int) -> str:
            """Work at once."""
            await clock.sleep(number % 3 * MOMENT)
            return "z" * (number % 2 * 3_000) or "done"

        @tool
        async def later(number: int, context: ToolContext) -> Deferred:
            """Be answered by somebody else."""
            deferred = context.defer()
            tokens.append(deferred.token)
            return deferred

        @tool
        async def fails(number: int) -> str:
            """Fail."""
            raise RuntimeError("it failed")

        @tool(events="associative")
        async def follows(number: int) -> AsyncGenerator[str, None]:
            """Tell of two events."""
            yield "subscribed"
            for event in range(2):
                await clock.sleep(number % 10 * MOMENT)
                seen["event"] += 1
                yield f"event {event}"

        return [beside, inline, later, fails, follows]

    # What happens

    async def _live(self, chance: Random, events: int, *, steps: bool) -> None:
        among = {**EVENTS, "step": STEPS} if steps else EVENTS
        for _ in range(events):
            (kind,) = chance.choices([*among], [*among.values()])
            agent = await chance.choice(self._systems).thread(chance.choice(self._threads))
            self._tell(f"{kind} ({agent.thread_id})")
            with suppress(InputRefused):  # what it is about is over, or the thread has ended
                await getattr(self, f"_happens_{kind}")(chance, agent)
                self.seen[kind] += 1
            await self._pass(chance.choice([0, 0, MOMENT, 3 * MOMENT, 10 * MOMENT]))
            self._check()

    async def _happens_step(self, chance: Random, agent: ThreadHandle) -> None:
        async with self._time_passing():
            await self._systems[0].step([])

    async def _happens_ask(self, chance: Random, agent: ThreadHandle) -> None:
        kind = chance.choice([TEXT, TEXT, *self._forms])
        self._named += 1
        name = f"question-{self._named}"
        words = f"Please, Q{self._named}:{kind} now"
        question = Question(name, agent.thread_id, kind, words, [self._named])
        self._questions[name] = question
        self._wait(agent._system, question)

    async def _happens_ask_again(self, chance: Random, agent: ThreadHandle) -> None:
        if question := self._some_question(chance):
            self._wait(agent._system, question)

    async def _happens_leave(self, chance: Random, agent: ThreadHandle) -> None:
        if self._waits:
            chance.choice(self._waits).cancel()

    async def _happens_say(self, chance: Random, agent: ThreadHandle) -> None:
        await agent.send(f"Person {chance.randrange(1000)} says hello.")

    async def _happens_drop(self, chance: Random, agent: ThreadHandle) -> None:
        if question := self._some_question(chance):
            before, question.dropped = question.dropped, True
            try:
                await (await agent._system.thread(question.thread)).drop(question.id)
            except InputRefused:
                question.dropped = before
                raise

    async def _happens_edit(self, chance: Random, agent: ThreadHandle) -> None:
        if question := self._some_question(chance):
            self._named += 1
            question.numbers.append(self._named)
            words = f"Edited, Q{self._named}:{question.kind} now"
            try:
                await (await agent._system.thread(question.thread)).edit(question.id, words)
            except InputRefused:
                question.numbers.pop()
                raise

    async def _happens_deliver(self, chance: Random, agent: ThreadHandle) -> None:
        if self._tokens:
            token = self._tokens.pop(chance.randrange(len(self._tokens)))
            await agent._system.deliver(token, "delivered")

    async def _happens_cancel(self, chance: Random, agent: ThreadHandle) -> None:
        if calls := (await agent.state()).calls:
            await agent.cancel(chance.choice(calls).call_id)

    async def _happens_stop(self, chance: Random, agent: ThreadHandle) -> None:
        await agent.stop("for a while")

    async def _happens_park(self, chance: Random, agent: ThreadHandle) -> None:
        await agent.park("for a while")

    async def _happens_freeze(self, chance: Random, agent: ThreadHandle) -> None:
        await agent.freeze()

    async def _happens_resume(self, chance: Random, agent: ThreadHandle) -> None:
        await agent.resume()

    async def _happens_retry(self, chance: Random, agent: ThreadHandle) -> None:
        await agent.retry()

    async def _happens_compact(self, chance: Random, agent: ThreadHandle) -> None:
        await agent.compact()

    async def _happens_close(self, chance: Random, agent: ThreadHandle) -> None:
        self._closed.add(agent.thread_id)
        await agent.close("it is over")

    def _some_question(self, chance: Random) -> Question | None:
        return chance.choice([*self._questions.values()]) if self._questions else None

    # Who asks

    def _wait(self, system: AgentSystem, question: Question) -> None:
        self._waits.append(asyncio.create_task(self._ask(system, question)))

    async def _ask(self, system: AgentSystem, question: Question) -> None:
        """Ask a question, again perhaps, and judge what comes."""
        process = self._process
        kind = self._forms[question.kind].type if question.kind in self._forms else str
        try:
            agent = await system.thread(question.thread)
            answer = await agent.ask(question.words, output=kind, message_id=question.id)
        except NoAnswer as error:
            self._no_answer(question, error.problem, ends=self._closing or process != self._process)
        except ThreadClosed:
            self._no_answer(question, "the thread was closed", ends=False)
        except StoreError as error:  # what is asked cannot be stored any more
            self._no_answer(question, f"{CLOSED}: {error}", ends=self._closing or process != self._process)
        else:
            self._answered(question, answer)

    def _answered(self, question: Question, answer: Any) -> None:
        self._tell(f"{question.id} has the answer {answer!r}")
        self.seen["answered"] += 1
        good = [self._answer_to(question.kind, number) for number in question.numbers]
        if answer not in good:
            self._fault(f"{question.id}, {question.words!r}, has the answer of another question: {answer!r}")
        if question.answers and question.answers[0] != answer:
            self._fault(f"{question.id} has two answers: {question.answers[0]!r} and {answer!r}")
        if question.outcome not in ("", "answered"):
            self._fault(f"{question.id} has the answer {answer!r}, and had none before: {question.outcome}")
        question.answers.append(answer)
        question.outcome = "answered"

    def _answer_to(self, kind: str, number: int) -> Any:
        return text_of(number) if kind == TEXT else self._forms[kind].answer(number)

    def _no_answer(self, question: Question, problem: str, *, ends: bool) -> None:
        self._tell(f"{question.id} has no answer: {problem}")
        question.problems.append(problem)
        if problem.startswith(CLOSED):
            self.seen["closed"] += 1
            fits = ends
        elif problem.startswith(STANDS):
            self.seen["stands"] += 1
            fits = not self._calm
        else:
            fits = self._is_final(question, problem)
            if question.outcome == "answered" and question.thread not in self._closed:
                self._fault(f"{question.id} has no answer, and had one before: {problem}")
            question.outcome = question.outcome or problem
        if not fits:
            self._fault(f"{question.id}, {question.words!r}, has no answer without a reason: {problem}")

    def _is_final(self, question: Question, problem: str) -> bool:
        """Tell whether a question may have no answer for ever, for this reason."""
        if problem.startswith("the thread was closed"):
            return question.thread in self._closed
        if problem.startswith(DROPPED):
            return question.dropped
        self.seen["unfit"] += 1
        if question.kind == "checked" and NOT_SURE in problem:
            return True
        return any(self._speaker.misfits[number] > 1 for number in question.numbers)

    async def _all_heard(self) -> None:
        """Return when all who waited for the last process were told that it has ended."""
        for ended in await asyncio.gather(*self._waits, return_exceptions=True):
            if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
                raise ended
        self._waits.clear()

    # In the end

    async def _come_to_rest(self) -> None:
        """Ask everything again, and let all go on until there is nothing left to do."""
        for name in self._threads:
            with suppress(ThreadClosed):
                await (await self._systems[0].thread(name)).resume()
        for question in self._questions.values():
            self._wait(self._systems[question.numbers[0] % len(self._systems)], question)
        while not await self._rests():
            await self._pass(LOOK, LOOK)
            self._check()
        await self._all_heard()

    async def _rests(self) -> bool:
        """Let go on what stands still; return whether nothing does, and nobody waits."""
        while self._tokens:
            with suppress(InputRefused):
                await self._systems[0].deliver(self._tokens.pop(), "delivered at last")
        rest = True
        for name in self._threads:
            agent = await self._systems[0].thread(name)
            with suppress(ThreadClosed):
                rest &= await self._goes_on(agent, await agent.state())
        return rest and all(task.done() for task in self._waits)

    async def _goes_on(self, agent: ThreadHandle, state: ThreadState) -> bool:
        """Let a thread go on that stands still; return whether it has nothing to do."""
        if state.frozen or state.status in ("stopped", "parked"):
            await agent.resume()
        elif state.activity == "resting":
            await agent.send("Wake up.")
        elif state.activity == "retrying":
            await agent.retry()
        return state.status == "closed" or (state.status == "open" and state.activity == "idle" and not state.frozen)

    async def _ask_all_again(self) -> None:
        """Ask everything again, which has come to its end by now and is answered at once."""
        self._calm, self._speaker.oddities = True, 0
        for question in self._questions.values():
            self._wait(self._systems[-1], question)
        while not await self._rests():
            await self._pass(LOOK, LOOK)
        await self._all_heard()
        for question in self._questions.values():
            if not question.outcome:
                self._fault(f"nothing has become of {question}")

    async def _check_thread(self, name: str) -> None:
        system = self._systems[0]
        agent = await system.thread(name)
        await system.verify(name)
        row = await system.row(name)
        head = decode_head(row.head).head
        assert (head.status == "closed") == (name in self._closed)
        if head.status == "open" and head.asks:
            self._fault(f"{name} has nothing to do, and programs wait: {head.asks}")
        outputs = Counter(item.ask_id for item in await agent.history() if isinstance(item, OutputItem))
        for asked, times in outputs.items():
            if times > 1:
                self._fault(f"{name} has given {times} answers to {asked}")
        for question in self._questions.values():
            if question.thread == name and not (question.dropped or name in self._closed or outputs[question.id]):
                self._fault(f"{name} has given no answer to {question.id}")

    def _check(self) -> None:
        if faults := self._speaker.faults:
            raise AssertionError("; ".join(faults))

    def _fault(self, what: str) -> None:
        self._tell(f"FAULT: {what}")
        self._speaker.faults.append(what)

    def _tell(self, what: str) -> None:
        self._speaker.story.append(what)
