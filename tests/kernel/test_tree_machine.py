"""A tree of threads under whatever may happen to it, in any order. See `test_machine` for one thread.

Children are made, told, heard and closed, events get threads of their own, people are asked, histories are compacted,
rounds are worked out and lost. Whatever the order: what was reported and what happened reaches a model exactly once.
"""

import json
from collections import Counter
from random import Random

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.family import stack_of
from hibernaut.kernel.head import living
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.turn import TurnPart
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import Answer, Command, Event, InputContent, Question, Report, Seed, ToolResult, UserText
from hibernaut.messages.items import EventItem, UserItem
from hibernaut.messages.parts import plain_text
from tests.kernel.scenario import HOUR, MINUTE, OVERLOADED, SECOND, Reaction, Thread, call, cut_short, says

TOOLS = ["build", "watch", "watch", "sleep", "rest", "note", "read"]
MOMENTS = [1, SECOND, 5 * SECOND, 20 * SECOND, MINUTE, HOUR]
HAPPENINGS = {
    "text": 2,
    "end": 5,
    "event": 7,
    "question": 2,
    "answer": 1,
    "command": 2,
    "time": 3,
    "redelivery": 1,
    "crash": 1,
    "nothing": 1,
}
"""What may happen, and how often beside the others."""

ROUNDS_TO_REST = 200


def some_options(chance: Random) -> ThreadOptions:
    return ThreadOptions(
        parallel_calls=chance.randint(1, 2),
        on_user_text=chance.choice(["detach", "cancel"]),
        max_attempts=3,
        max_repeats=1_000,
        max_continuations=chance.randint(0, 1),
        max_depth=chance.randint(1, 3),
        max_children=chance.randint(1, 3),
        max_descendants=chance.randint(2, 8),
        max_event_children=chance.randint(1, 2),
        max_events_per_minute=chance.choice([0, 2, 5]),
        max_questions=chance.randint(1, 2),
    )


class TreeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Thread()
        self.handed_in: dict[tuple[str, str], InputContent] = {}
        self.said = 0

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        chance = Random(seed)
        self.root = Thread(some_options(chance))
        self.root.thinking = chance.choice([0, 30 * SECOND])
        self.put(self.root, UserText("Go"))

    @property
    def threads(self) -> list[Thread]:
        return list(self.root.others.values())

    @property
    def living(self) -> list[Thread]:
        return [thread for thread in self.threads if thread.head.status != "closed"]

    @rule(seed=st.integers(0, 2**32))
    def something_happens(self, seed: int) -> None:
        chance = Random(seed)
        (kind,) = chance.choices(list(HAPPENINGS), list(HAPPENINGS.values()))
        thread = chance.choice(self.living or [self.root])
        note(f"{kind} in {thread.name} at {thread.now}")
        getattr(self, f"happens_{kind}")(chance, thread)
        for _ in range(chance.choice([0, 1, 1, 2, 4])):
            if ready := [one for one in self.threads if one.ready()]:
                self.round(chance, chance.choice(ready))

    def round(self, chance: Random, thread: Thread) -> None:
        reaction = self.a_reaction(chance, thread)
        summary = "They talked." if chance.random() < 0.1 else ""
        note(f"a round of {thread.name}: {reaction} {summary}")
        thread.round(reaction, summary=summary)

    def put(self, thread: Thread, content: InputContent) -> None:
        note(f"handed in: {content}")
        self.handed_in[thread.name, thread.put(content)] = content

    def words(self, what: str) -> str:
        self.said += 1
        return f"{what} {self.said}"

    # What the models say

    def a_reaction(self, chance: Random, thread: Thread) -> Reaction:
        kind = chance.random()
        if kind < 0.05:
            return OVERLOADED
        if kind < 0.1:
            return cut_short(self.words("half"))
        parts = [self.a_part(chance, thread) for _ in range(chance.choice([0, 1, 1, 1, 2, 3]))]
        return says(*parts, reason="length" if chance.random() < 0.05 else "end", usage=Usage(1, 1))

    def a_part(self, chance: Random, thread: Thread) -> str | TurnPart:
        kind = chance.random()
        if kind < 0.3:
            return self.words("words")
        if kind < 0.55:
            return call(chance.choice(TOOLS))
        name, arguments = chance.choice(self.family_matters(chance, thread))
        return call(name, json.dumps(arguments))

    def family_matters(self, chance: Random, thread: Thread) -> list[tuple[str, dict[str, object]]]:
        """Return what a thread may want of the others of its tree."""
        head = thread.head
        child, stack = chance.choice([*head.children, "thread_unknown"]), list(stack_of(head))
        subscription = chance.choice([name for name, one in head.calls.items() if one.mode == "subscription"] or ["x"])
        fresh = chance.random() < 0.2
        spawn: tuple[str, dict[str, object]] = (
            "spawn_thread",
            {"instructions": self.words("task"), "child_of": stack, "fresh_context": fresh},
        )
        matters: list[tuple[str, dict[str, object]]] = [
            spawn,
            spawn,
            ("report_to_parent", {"report": self.words("report")}),
            ("send_message_to_child", {"thread_id": child, "message": self.words("message")}),
            ("close_thread", {"thread_id": child}),
            ("cancel_subscription", {"tool_call_id": subscription}),
        ]
        report = {"report_to_parent": self.words("report")} if chance.random() < 0.5 else {}
        return [*matters, ("close_thread", {"thread_id": thread.name, **report})] if head.link else matters

    # What happens

    def happens_text(self, chance: Random, thread: Thread) -> None:
        self.put(chance.choice([thread, self.root]), UserText(self.words("text")))

    def happens_end(self, chance: Random, thread: Thread) -> None:
        for number in chance.sample(thread.running(), min(len(thread.running()), 1)):
            name = thread.calls[number - 1]
            confirms = thread.head.calls[name].mode == "subscription" and chance.random() < 0.9
            self.put(thread, ToolResult(name, self.words("result"), not confirms and chance.random() < 0.2, confirms))

    def happens_event(self, chance: Random, thread: Thread) -> None:
        active = [(one, name) for one in self.living for name in one.head.calls if name in one.owed]
        for one, name in chance.sample(active, min(len(active), 1)):
            associative = int(name.encode().hex(), 16) % 3 == 0
            for _ in range(chance.choice([1, 1, 3])):
                text, final = self.words("event"), chance.random() < 0.1
                self.put(one, Event(name, text, text, associative=associative, final=final))

    def happens_question(self, chance: Random, thread: Thread) -> None:
        for number in chance.sample(thread.running(), min(len(thread.running()), 1)):
            due = chance.choice([0, thread.now + MINUTE])
            self.put(thread, Question(self.words("q"), thread.calls[number - 1], "Which?", ("a", "b"), due=due))

    def happens_answer(self, chance: Random, thread: Thread) -> None:
        self.put(thread, Answer(chance.choice([*thread.head.questions, "q 0"]), chance.randint(0, 2)))

    def happens_command(self, chance: Random, thread: Thread) -> None:
        name = chance.choice([*thread.head.calls, "call_unknown"])
        commands = [Command("cancel", name), *map(Command, ("stop", "park", "resume", "compact", "close"))]  # type: ignore[arg-type]
        self.put(thread, *chance.choices(commands, [4, 2, 1, 6, 3, 0.5 if thread is self.root else 2]))

    def happens_time(self, chance: Random, thread: Thread) -> None:
        self.root.wait(chance.choice(MOMENTS))

    def happens_redelivery(self, chance: Random, thread: Thread) -> None:
        """Something is sent once more, under its id."""
        (name, message_id), content = chance.choice(list(self.handed_in.items()))
        self.root.others[name].put(content, message_id)

    def happens_crash(self, chance: Random, thread: Thread) -> None:
        """A round is worked out, and its process dies before it commits."""
        if thread.ready():
            thread._work_out(thread.due(), self.a_reaction(chance, thread), "")

    def happens_nothing(self, chance: Random, thread: Thread) -> None:
        if thread.head.status != "closed":
            self.round(chance, thread)

    def teardown(self) -> None:
        """Bring the tree to rest: whatever happened, nobody waits for ever and nothing is left over."""
        for thread in self.living:
            thread.put(Command("resume"))
            thread.put(UserText("Finish"))
        for _ in range(ROUNDS_TO_REST):
            if ready := next((thread for thread in self.threads if thread.ready()), None):
                ready.round(says("Done."))
            elif not self.let_time_pass():
                break
        else:
            raise AssertionError("it comes to no rest")
        self.everything_holds()
        for thread in self.threads:
            head = thread.head
            assert thread.inbox == {} or head.status == "closed"
            assert thread.outbox == {}
            if head.status == "closed":
                continue
            assert (head.status, head.turn, head.owes) == ("open", (), False)
            assert head.link is None or (head.reported and not head.link.event)

    def let_time_pass(self) -> bool:
        """End what works, and wait for what is due; tell whether there was anything."""
        anything = False
        for thread in self.living:
            for number in thread.running():
                text = self.words("event")
                self.put(thread, Event(thread.calls[number - 1], text, text, associative=True, final=True))
                thread.result(number, "over", is_error=True)
            rests = thread.head.turn or thread.head.status != "open"
            if rests and not thread.inbox:
                thread.put(Command("resume"))
                thread.put(UserText("Finish"))
            if thread.inbox and thread.family() >= thread.options.max_descendants:  # events wait for room in the tree
                thread.others[list(living(thread.head) or thread.others)[-1]].put(Command("close"))
            anything = anything or bool(thread.inbox)
        self.root.wait(HOUR)
        return anything

    # What holds

    @invariant()
    def everything_holds(self) -> None:
        for thread in self.threads:
            self.check_place(thread)
            self.check_bounds(thread)
            self.check_texts(thread)
            self.check_reports(thread)
        self.check_events()

    def check_place(self, thread: Thread) -> None:
        """Every living child is its living parent's child, and the reverse, but for what is on its way."""
        link = thread.head.link
        if link is None:
            return
        parent = thread.others[link.parent]
        lives = thread.head.status != "closed"
        if parent.head.status == "closed":
            assert not lives or f"close:{thread.name}" in thread.inbox
            return
        known = parent.head.children.get(thread.name)
        assert (known is not None) == (lives or f"closed:{thread.name}" in parent.inbox)
        assert known is None or not known.ending or not lives or f"close:{thread.name}" in thread.inbox

    def check_bounds(self, thread: Thread) -> None:
        options, head = thread.options, thread.head
        assert len(stack_of(head)) <= options.max_depth + 1
        assert sum(not child.event for child in living(head).values()) <= options.max_children
        for_events = Counter(child.call_id for child in head.children.values() if child.event)
        assert max(for_events.values(), default=0) <= options.max_event_children
        assert thread.family() <= options.max_descendants
        assert sum(one.answer < 0 for one in head.questions.values()) <= options.max_questions
        if options.max_events_per_minute:
            assert all(one.taken <= options.max_events_per_minute for one in head.calls.values())

    def check_texts(self, thread: Thread) -> None:
        accepted = [
            content.content
            for (name, message_id), content in self.handed_in.items()
            if name == thread.name and isinstance(content, UserText) and self.is_accepted(thread, message_id)
        ]
        said = [item.content for item in thread.items if isinstance(item, UserItem) and not item.origin]
        assert [text for text in said if text != "Finish"] == accepted

    def is_accepted(self, thread: Thread, message_id: str) -> bool:
        return thread.fates.get(message_id) is Disposition.ACCEPTED

    def check_reports(self, thread: Thread) -> None:
        """Every report is shown exactly once, to the parent that it is for; only one that is closed hears nothing."""
        sent: Counter[tuple[str, str]] = Counter()
        for name, content in thread.received.items():
            if isinstance(content, Report) and name not in thread.inbox and thread.fates.get(name) is not None:
                assert thread.fates[name] in (Disposition.ACCEPTED, Disposition.CLOSED)
                if thread.fates[name] is Disposition.ACCEPTED and content.content:
                    sent[content.child_id, plain_text(content.content)] += 1
            elif isinstance(content, Report):
                assert name in thread.inbox or thread.head.status == "closed"
        shown = Counter(
            (item.thread_id, plain_text(item.content).partition("\n")[2])
            for item in thread.items
            if isinstance(item, EventItem) and item.source == "report" and "\n" in plain_text(item.content)
        )
        assert shown == sent

    def check_events(self) -> None:
        """Every event of an active subscription is shown exactly once: in its thread, or in a thread of its own."""
        shown = Counter(
            item.content
            for thread in self.threads
            for item in thread.items
            if isinstance(item, EventItem) and item.source == "event"
        )
        seeds = Counter(
            item.content
            for thread in self.threads
            for name, content in thread.received.items()
            if isinstance(content, Seed) and thread.fates.get(name) is not Disposition.ACCEPTED
            for item in content.items
            if isinstance(item, EventItem)
        )
        for (name, message_id), content in self.handed_in.items():
            thread = self.root.others[name]
            if not isinstance(content, Event) or message_id not in thread.fates:
                continue
            fate, text = thread.fates[message_id], content.content
            if fate in (Disposition.ACCEPTED, Disposition.ROUTED):
                assert shown[text] + seeds[text] == 1
                continue
            assert shown[text] + seeds[text] == 0
            call = thread.head.calls.get(content.call_id)
            active = call is not None and call.mode == "subscription"
            assert fate is Disposition.CLOSED or call is None or not (active and call.state == "subscribed")


TreeMachine.TestCase.settings = settings(stateful_step_count=40)
TestTree = TreeMachine.TestCase
