"""A thread under whatever may happen to it, in any order. What must hold after every commit stands in `invariants`.

Here more is checked than one commit can show: what became of every text, result and event that was handed in.

Every step draws a seed and what happens follows from it: few examples come further this way than with a strategy for
each choice, and a failure still shrinks to the few steps that it needs.
"""

from random import Random

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hibernaut.kernel.authority import OPEN, Authority, Judge, Rule
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.fold import Failure
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.kernel.turn import TurnPart
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import (
    Answer,
    Ask,
    Command,
    Drop,
    Edit,
    Event,
    InputContent,
    Orphaned,
    Question,
    Settlement,
    Timer,
    ToolResult,
    UserText,
)
from hibernaut.messages.items import EventItem, OutputItem, QuestionEndItem, QuestionItem, ResultItem, UserItem
from hibernaut.messages.parts import Content
from hibernaut.messages.tools import ANSWER_TOOL
from tests.kernel.scenario import (
    GOOD,
    HOUR,
    MINUTE,
    OVERLOADED,
    REASONING,
    SECOND,
    Reaction,
    Thread,
    call,
    cut_short,
    says,
)

TOOLS = [
    "build",
    "check",
    "order",
    "wipe",
    "read",
    "deploy",
    "watch",
    "follow",
    "linger",
    "sleep",
    "rest",
    "note",
    "broken",
]
AUTHORITIES = [
    OPEN,
    OPEN,
    Judge(Authority(rules=(Rule(decision="ask", annotations=("destructive",)),), calls=9)),
    Judge(Authority(default="ask", rules=(Rule(decision="deny", tools=("check",)),))),
]
MOMENTS = [1, SECOND, 5 * SECOND, 10 * SECOND, MINUTE, HOUR]
FAILURES = [
    OVERLOADED,
    Failure("rate_limited", "slow down", retryable=True, retry_after=MINUTE),
    Failure("invalid_request", "no", retryable=False),
]
HAPPENINGS = {
    "text": 3,
    "ask": 2,
    "end": 5,
    "result": 3,
    "event": 4,
    "question": 3,
    "answer": 3,
    "time": 4,
    "command": 3,
    "queue": 1,
    "noise": 1,
    "nothing": 1,
}
"""What may happen, and how often beside the others."""


def some_options(chance: Random) -> ThreadOptions:
    return ThreadOptions(
        parallel_calls=chance.randint(1, 3),
        on_user_text=chance.choice(["detach", "detach", "cancel"]),
        max_attempts=chance.randint(1, 3),
        max_repeats=chance.randint(2, 3),
        max_continuations=chance.randint(0, 2),
        max_calls_per_turn=chance.randint(2, 3),
        call_deadline=chance.choice([0, 20 * SECOND]),
        token_budget=chance.choice([0, 0, 0, 60]),
    )


def a_part(chance: Random) -> str | TurnPart:
    kind = chance.random()
    if kind < 0.3:
        return REASONING if kind < 0.1 else chance.choice(["I see.", "\n", GOOD])
    if kind < 0.4:
        return call(ANSWER_TOOL, chance.choice([GOOD, "{}"]), complete=chance.random() < 0.9)
    return call(chance.choice(TOOLS), complete=chance.random() < 0.9)


def a_reaction(chance: Random) -> Reaction:
    kind = chance.random()
    if kind < 0.1:
        return chance.choice(FAILURES)
    if kind < 0.2:
        return cut_short(REASONING, *chance.choice([["I se"], [], [" ", "I"]]))
    parts = [a_part(chance) for _ in range(chance.randint(0, 4))]
    return says(*parts, reason="length" if chance.random() < 0.1 else "end", usage=Usage(1, 1))


class ThreadMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.thread = Thread()
        self.handed_in: dict[str, InputContent] = {}

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        chance = Random(seed)
        self.thread = Thread(some_options(chance))
        self.thread.authority = chance.choice(AUTHORITIES)
        self.thread.thinking = chance.choice([0, 30 * SECOND])
        self.put(UserText("Go"))

    @rule(seed=st.integers(0, 2**32))
    def something_happens(self, seed: int) -> None:
        chance = Random(seed)
        (kind,) = chance.choices(list(HAPPENINGS), list(HAPPENINGS.values()))
        note(f"{kind} at {self.thread.now}")
        getattr(self, f"happens_{kind}")(chance)
        for _ in range(chance.choice([0, 1, 1, 2, 4])):
            if self.thread.ready():
                reaction = a_reaction(chance)
                note(f"a round: {reaction}")
                self.thread.round(reaction)

    def put(self, content: InputContent) -> None:
        note(f"handed in: {content}")
        self.handed_in[self.thread.put(content)] = content

    def happens_text(self, chance: Random) -> None:
        self.put(UserText(f"text {len(self.handed_in)}"))

    def happens_ask(self, chance: Random) -> None:
        """A program asks, for any text or for an answer of a form."""
        self.put(Ask(f"text {len(self.handed_in)}", form=chance.choice(["", "{}"])))

    def happens_end(self, chance: Random) -> None:
        """A call that runs, beside the conversation or not, is answered."""
        thread = self.thread
        for number in chance.sample(thread.running(), min(len(thread.running()), chance.randint(1, 2))):
            name = thread.calls[number - 1]
            one = thread.head.calls[name]
            confirms = one.mode == "subscription" or (bool(one.server) and chance.random() < 0.5)
            self.put(ToolResult(name, f"result {len(self.handed_in)}", chance.random() < 0.2, confirms))

    def happens_result(self, chance: Random) -> None:
        """A result of a call that may be over, long answered, or never was."""
        begun = [name for name in self.thread.calls if name in self.thread.owed]
        text = chance.choice(["the same", f"result {len(self.handed_in)}"])
        name = chance.choice([*begun[-8:], "call_unknown"])
        self.put(ToolResult(name, text, chance.random() < 0.3, chance.random() < 0.3))

    def happens_event(self, chance: Random) -> None:
        calls = self.thread.head.calls
        active = [name for name, one in calls.items() if one.mode == "subscription" or one.server]
        name = chance.choice(active or [*self.thread.calls[-8:], "call_unknown"])
        self.put(Event(name, f"event {len(self.handed_in)}", associative=True, final=chance.random() < 0.2))

    def happens_question(self, chance: Random) -> None:
        """A call that runs asks a person, or its process ends while it does; sometimes one that cannot ask."""
        running = [self.thread.calls[number - 1] for number in self.thread.running()]
        name = chance.choice([*running, "call_unknown"])
        due = self.thread.now + chance.choice(MOMENTS) if chance.random() < 0.5 else 0
        far = name in self.thread.head.calls and bool(self.thread.head.calls[name].server)
        url, reply = chance.choice([("https://a.test", ""), ("", "http://forge.test/1")]) if far else ("", "")
        question = Question(f"q{len(self.handed_in)}", name, "?", ("yes", "no"), chance.randint(0, 2), due, url, reply)
        self.put(question)
        if chance.random() < 0.3:
            self.put(Orphaned(name))

    def happens_answer(self, chance: Random) -> None:
        asked = [item.id for item in self.thread.items if isinstance(item, QuestionItem)]
        self.put(Answer(chance.choice([*self.thread.head.questions, *asked[-4:], "q_unknown"]), chance.randint(0, 2)))

    def happens_time(self, chance: Random) -> None:
        self.thread.wait(chance.choice(MOMENTS))

    def happens_command(self, chance: Random) -> None:
        name = chance.choice([*self.thread.head.calls, "call_unknown"])
        commands: list[InputContent] = [
            Command("cancel", name),
            Command("stop"),
            Command("park"),
            Command("retry"),
            Command("resume"),
            Command("close"),
        ]
        by_hand = Settlement(name, "By hand.", is_error=chance.random() < 0.5)
        self.put(*chance.choices([*commands, by_hand], [4, 2, 2, 2, 3, 0.3, 3]))

    def happens_queue(self, chance: Random) -> None:
        """An operator drops or edits something that waits, whether that can be or not."""
        waiting = [*self.thread.inbox, "m_unknown"]
        name = chance.choice(waiting)
        said = getattr(self.handed_in.get(name), "content", "nothing")
        self.put(Drop(name) if chance.random() < 0.5 else Edit(name, f"{said} edited"))

    def happens_noise(self, chance: Random) -> None:
        now = self.thread.now
        foreign = [Timer("sleep", now, "call_unknown"), Timer("deadline", now, "call_unknown"), Timer("retry", now)]
        noise = chance.choice([UserText(" "), None, *foreign])
        if noise is None:
            self.thread.put_unreadable()
        else:
            self.put(noise)

    def happens_nothing(self, chance: Random) -> None:
        if self.thread.head.status != "closed":
            self.thread.round(a_reaction(chance))

    def teardown(self) -> None:
        """Bring the thread to rest: whatever happened, it is not stuck and nothing is left over."""
        thread = self.thread
        if thread.head.status == "closed" or thread.options.token_budget:
            return
        self.put(UserText("Finish"))
        while thread.ready() or thread.running() or thread.alarms():
            if thread.ready():
                thread.round(says("Done."))
                continue
            for number in thread.running():
                self.put(Event(thread.calls[number - 1], "over", associative=True, final=True))
                thread.result(number, "over", is_error=True)
            thread.wait(HOUR)
        head = thread.head
        if head.status == "closed":  # that was on its way already
            return
        assert (head.status, head.turn, head.owes, thread.inbox, thread.outbox) == ("open", (), False, {}, {})
        # What waits for a person's leave may still be for the answer.
        assert not head.asks or any(call.state == "detached" for call in head.calls.values())

    # What became of it all

    def accepted(self, *kinds: type) -> list[Content]:
        """Return the texts of the accepted inputs of these kinds, in the order they were handed in."""
        edits = [one for name, one in self.handed_in.items() if isinstance(one, Edit) and self.is_accepted(name)]
        edited = {edit.message_id: edit.content for edit in edits}
        return [
            edited.get(name, getattr(content, "content", ""))
            for name, content in self.handed_in.items()
            if isinstance(content, kinds) and self.is_accepted(name)
        ]

    def is_accepted(self, name: str) -> bool:
        return self.thread.fates.get(name) == Disposition.ACCEPTED

    @invariant()
    def every_accepted_text_is_in_the_history_once_and_in_order(self) -> None:
        said = [item.content for item in self.thread.items if isinstance(item, UserItem) and not item.origin]
        assert said == self.accepted(UserText)

    @invariant()
    def every_program_that_asked_waits_or_has_its_answer_once_and_in_order(self) -> None:
        asked = [name for name, one in self.handed_in.items() if isinstance(one, Ask) and self.is_accepted(name)]
        answered = [item for item in self.thread.items if isinstance(item, OutputItem)]
        assert [*[item.ask_id for item in answered], *[one.id for one in self.thread.head.asks]] == asked
        forms = {name: one.form for name, one in self.handed_in.items() if isinstance(one, Ask)}
        for item in answered:
            assert bool(item.value) is not bool(item.problem)
            assert not (forms[item.ask_id] and item.value) or item.value == GOOD

    @invariant()
    def whoever_waits_for_an_answer_is_not_forgotten(self) -> None:
        head = self.thread.head
        if head.asks and head.status == "open" and self.thread.receipt.turn is not TurnCommit.INTERRUPTED:
            beside = any(call.state == "detached" for call in head.calls.values())
            assert head.owes or head.turn or beside or self.thread.ready()

    @invariant()
    def every_accepted_event_and_result_is_in_the_history_once(self) -> None:
        held = [one.held for one in self.thread.head.calls.values() if one.held is not None]
        arrived = [item.content for item in self.thread.items if isinstance(item, EventItem | ResultItem)]
        arrived += [result.content for result in held]
        for text in (found for found in self.accepted(Event, ToolResult) if found != "the same"):
            assert arrived.count(text) == 1

    @invariant()
    def every_question_waits_or_has_ended_once_and_its_call_may_still_hear_the_answer(self) -> None:
        head = self.thread.head
        asked = [item.id for item in self.thread.items if isinstance(item, QuestionItem)]
        over = [item.id for item in self.thread.items if isinstance(item, QuestionEndItem)]
        waiting = [name for name, one in head.questions.items() if one.answer < 0]
        assert sorted(over + waiting) == sorted(asked)
        assert len(set(asked)) == len(asked)
        assert all(head.calls[one.call_id].state in ("open", "detached") for one in head.questions.values())

    @invariant()
    def an_orphaned_call_has_a_question_that_waits_or_its_answer_is_on_its_way(self) -> None:
        for one in self.thread.head.questions.values():
            if one.orphaned:
                others = [other.answer for other in self.thread.head.questions.values() if other.call_id == one.call_id]
                assert min(others) < 0 or f"asked:{one.call_id}" in self.thread.inbox

    @invariant()
    def a_server_hears_of_every_choice_once_and_of_the_default_when_nobody_will_choose(self) -> None:
        thread = self.thread
        asked = {one.question_id: one for one in self.handed_in.values() if isinstance(one, Question)}
        ends = [
            item
            for item in thread.items
            if isinstance(item, QuestionEndItem) and item.id in asked and asked[item.id].reply_url
        ]
        chosen = {item.id for item in ends if item.outcome != "dismissed"}
        told = [effect.request_id.removeprefix("answer:") for effect in thread.told if effect.kind == "answer"]
        assert len(set(told)) == len(told)
        assert chosen <= set(told) <= {item.id for item in ends}

    @invariant()
    def events_and_late_results_keep_their_order(self) -> None:
        shown = [str(item.content) for item in self.thread.items if isinstance(item, EventItem)]
        numbers = [int(text.split()[1]) for text in shown if text.startswith(("event", "result"))]
        assert numbers == sorted(numbers)

    @invariant()
    def the_first_end_of_a_dispatched_call_is_never_lost(self) -> None:
        thread = self.thread
        ended = {item.call_id for item in thread.items if isinstance(item, EventItem) and item.final}
        told: set[str] = set()
        for name, fate in thread.fates.items():
            content = self.handed_in.get(name)
            if isinstance(content, ToolResult) and content.call_id in thread.owed and content.call_id not in told:
                assert fate in (Disposition.ACCEPTED, Disposition.CLOSED) or content.call_id in ended
                told.add(content.call_id)


ThreadMachine.TestCase.settings = settings(stateful_step_count=30)
TestThread = ThreadMachine.TestCase
