"""Trees that are run and killed: children that work, events that get threads, and what ends them.

Two threads of a tree run at the same time, and a crash may let either be first. So that a course can be compared with
the undisturbed one, a model waits at a gate of the client wherever the order would show in a history.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Command, Event
from hibernaut.messages.items import CallItem, ResultItem, TextItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, last_user_text, results, say, turn
from hibernaut.testing.life import Life, Scenario
from hibernaut.testing.play import Play
from hibernaut.testing.seen import THREAD, Seen
from hibernaut.tools.context import ToolContext, ToolEvent
from hibernaut.tools.tool import AnyTool, tool

HOUR = 3_600_000

Answer = Callable[[ModelRequest], ScriptedTurn | Awaitable[ScriptedTurn]]


def spawn(instructions: str, *stack: str) -> ScriptedTurn:
    return call("spawn_thread", instructions=instructions, child_of=list(stack))


def close(request: ModelRequest, report: str = "") -> ScriptedTurn:
    return call("close_thread", thread_id=request.thread_id, **({"report_to_parent": report} if report else {}))


def worker(life: Life, *, idempotent: bool, gate: str = "") -> AnyTool:
    @tool(idempotent=idempotent)
    async def work(context: ToolContext) -> str:
        """Work."""
        if gate:
            await life.gate(gate).wait()
        life.did(context)
        return "worked"

    return work


def task(request: ModelRequest) -> str:
    """Return what a child was made for; "" in the root."""
    told = [text for text in results(request) if "You are now in a thread of your own" in text]
    return told[-1].split("\n\n")[-2] if told else ""


def own_calls(request: ModelRequest) -> list[str]:
    """Return the tools that a child's model has called since the child began."""
    items = request.transcript
    began = [place for place, item in enumerate(items) if isinstance(item, ResultItem) and "of your own" in str(item)]
    return [item.name for item in items[began[-1] if began else 0 :] if isinstance(item, CallItem)]


def family(life: Life, root: Answer, child: Answer) -> Callable[[ModelRequest], Awaitable[ScriptedTurn]]:
    """Return a model whose children begin when the client lets them: when the root has had its say."""

    async def answer(request: ModelRequest) -> ScriptedTurn:
        if request.purpose == "summary":
            return say("They worked.")
        if request.thread_id != THREAD:
            await life.gate("children").wait()
        found = (root if request.thread_id == THREAD else child)(request)
        return found if isinstance(found, ScriptedTurn) else await found

    return answer


def hiring(request: ModelRequest) -> ScriptedTurn:
    """Have a child do the work, and say what is heard of it."""
    heard = last_result(request)
    if not heard:
        return spawn("Work")
    return say("It is in hand." if "works on that now" in heard else f"I heard: {heard.splitlines()[-1]}")


async def have_it_done(life: Life) -> None:
    await life.say("m1", "Have it done")
    await life.until(lambda seen: seen.says("It is in hand."))
    life.gate("children").set()


def silent_child(life: Life, *, idempotent: bool = False) -> Play:
    """A child that works and ends its turn in plain text: the runtime reports it."""

    def child(request: ModelRequest) -> ScriptedTurn:
        return say("I worked.") if own_calls(request) else call("work")

    async def drive() -> None:
        await have_it_done(life)
        await life.settle()

    return Play(family(life, hiring, child), drive, [worker(life, idempotent=idempotent)])


def closing_child(life: Life, *, idempotent: bool = False) -> Play:
    """A child that works and closes itself with a report."""

    def child(request: ModelRequest) -> ScriptedTurn:
        return close(request, "It is done.") if own_calls(request) else call("work")

    async def drive() -> None:
        await have_it_done(life)
        await life.settle()

    return Play(family(life, hiring, child), drive, [worker(life, idempotent=idempotent)])


def talking(life: Life) -> Play:
    """A child that reports, is told to go on, and reports once more."""

    async def root(request: ModelRequest) -> ScriptedTurn:
        heard = last_result(request)
        if "Told to thread" in heard:
            return say("I told it.")
        if (half := re.match(r"Thread (\S+) reports:", heard)) is not None:
            await life.gate("waits").wait()
            return call("send_message_to_child", thread_id=half[1], message="Go on")
        return hiring(request)

    async def child(request: ModelRequest) -> ScriptedTurn:
        heard = last_result(request)
        if "says:" in heard:
            await life.gate("told").wait()
            return close(request, "whole")
        return say("I wait.") if own_calls(request) else call("report_to_parent", report="half")

    async def drive() -> None:
        await have_it_done(life)
        await life.until(lambda seen: any(one.says("I wait.") for one in seen.children))
        life.gate("waits").set()
        await life.until(lambda seen: seen.says("I told it."))
        life.gate("told").set()
        await life.settle()

    return Play(family(life, root, child), drive)


def asking_child(life: Life) -> Play:
    """A child whose tool asks a person."""

    @tool(idempotent=True)
    async def work(context: ToolContext) -> str:
        """Work."""
        life.did(context)
        return await context.ask("Where?", ["here", "there"])

    def child(request: ModelRequest) -> ScriptedTurn:
        return close(request, f"I was told: {last_result(request)}.") if own_calls(request) else call("work")

    async def drive() -> None:
        await have_it_done(life)
        await life.answer("Where?", "there")
        await life.settle()

    return Play(family(life, hiring, child), drive, [work])


def _has_spoken(times: int, seen: Seen) -> bool:
    return sum(isinstance(item, TextItem) for item in seen.items) >= times


def compacting_child(life: Life) -> Play:
    """A child that inherits much and says much, so that its history is compacted while it works."""

    def root(request: ModelRequest) -> ScriptedTurn:
        if last_user_text(request) != "Have it done":
            return say("Well. ", "word " * 500)
        return hiring(request)

    def child(request: ModelRequest) -> ScriptedTurn:
        if last_result(request) != "worked":
            return turn("I begin. ", "word " * 500, call("work"))
        return close(request, "It is done.")

    async def drive() -> None:
        for number in (1, 2):
            await life.say(f"before {number}", f"Talk ({number})")
            await life.until(partial(_has_spoken, number))
        await have_it_done(life)
        await life.settle()

    return Play(family(life, root, child), drive, [worker(life, idempotent=True)], ThreadOptions(context_window=4_000))


def closed_tree(life: Life, *, idempotent: bool = False) -> Play:
    """A root that is closed while its children and their child work."""

    def root(request: ModelRequest) -> ScriptedTurn:
        return say("It is in hand.") if last_result(request) else turn(spawn("Hire"), spawn("Work"))

    def child(request: ModelRequest) -> ScriptedTurn:
        if "work" in own_calls(request):
            return say("Well.")
        if task(request) == "Hire" and not own_calls(request):
            return spawn("Work", THREAD, request.thread_id)
        return call("work")

    def all_work(seen: Seen) -> bool:
        return len({call_id for _, call_id in life.world.of("began")}) == 3 or seen.notices("closed")

    async def drive() -> None:
        await have_it_done(life)
        await life.until(lambda seen: all_work(seen) or any(one.answered("work") for one in seen.children))
        await life.order("close", Command("close", reason="enough"))
        await life.settle()

    return Play(family(life, root, child), drive, [worker(life, idempotent=idempotent, gate="never")], untimely=True)


# Events


def watcher(life: Life, events: int, *, associative: bool = False) -> AnyTool:
    """Return a resumable subscription that brings so many events, each when the client lets it; the last is final."""

    @tool(resumable=True, events="associative" if associative else "threaded")
    async def watch(context: ToolContext) -> AsyncGenerator[object, None]:
        """Watch."""
        yield "subscribed"
        for number in range(int(context.last_event_id or "0") + 1, events + 1):
            await life.gate(f"event {number}").wait()
            yield ToolEvent(f"event {number}", str(number), final=number == events)

    return watch


def listening(request: ModelRequest) -> ScriptedTurn:
    heard = last_result(request)
    if not heard:
        return call("watch")
    return say("I listen." if heard == "subscribed" else f"I heard: {heard.splitlines()[-1]}")


def reporting_what_matters(request: ModelRequest) -> ScriptedTurn:
    return close(request, "It matters." if "event 2" in last_result(request) else "")


def threaded_events(life: Life) -> Play:
    """Events that get threads of their own; one of them is reported."""

    async def drive() -> None:
        life.gate("children").set()
        await life.say("m1", "Watch")
        await life.until(lambda seen: seen.says("I listen."))
        life.gate("event 1").set()
        await life.until(partial(_dealt_with, 1))
        life.gate("event 2").set()
        await life.until(lambda seen: seen.says("I heard: It matters."))
        life.gate("event 3").set()
        await life.settle()

    return Play(family(life, listening, reporting_what_matters), drive, [watcher(life, 3)])


def associative_events(life: Life) -> Play:
    """A subscription whose events come into the thread itself, one after the other."""

    async def drive() -> None:
        await life.say("m1", "Watch")
        await life.until(lambda seen: seen.says("I listen."))
        for number in (1, 2, 3):
            life.gate(f"event {number}").set()
            await life.until(partial(Seen.says, text=f"I heard: event {number}"))
        await life.settle()

    return Play(listening, drive, [watcher(life, 3, associative=True)])


def _dealt_with(events: int, seen: Seen) -> bool:
    return len(seen.children) >= events and not seen.head.children


def sleeping_parent(life: Life) -> Play:
    """A thread that sleeps, is not woken by its events, and wakes when it is time."""

    def root(request: ModelRequest) -> ScriptedTurn:
        heard = last_result(request)
        if heard == "subscribed":
            return call("sleep", seconds=HOUR / 1000)
        return say("I am awake.") if "Slept" in heard else call("watch")

    async def drive() -> None:
        life.gate("children").set()
        await life.say("m1", "Watch and sleep")
        await life.until(lambda seen: bool(seen.timers("sleep")) or seen.answered("sleep"))
        for number in (1, 2, 3):
            life.gate(f"event {number}").set()
            await life.until(partial(_dealt_with, number))
        await life.settle()

    return Play(family(life, root, close), drive, [watcher(life, 3)])


def event_during_a_call(life: Life, *, idempotent: bool = True) -> Play:
    """An event that waits for a call as long as it has patience, and then lets it go on beside the thread."""

    def answer(request: ModelRequest) -> ScriptedTurn:
        heard = last_result(request)
        if heard == "subscribed":
            return call("work")
        return say("I see.") if heard else call("watch")

    def patience(seen: Seen) -> list[int]:
        arrived = [one for one in seen.inbox if one.message and isinstance(one.message.content, Event)]
        return [one.due for one in arrived if one.due > life.clock.now()]

    async def drive() -> None:
        await life.say("m1", "Watch and work")
        await life.until(lambda seen: life.has_begun("work") or seen.answered("work"))
        life.gate("event 1").set()
        seen = await life.until(lambda seen: bool(patience(seen)) or _has_spoken(1, seen))
        if until := patience(seen):
            life.pass_to(min(until))
        await life.until(partial(_has_spoken, 1))
        life.gate("work").set()
        await life.settle()

    tools = [watcher(life, 1, associative=True), worker(life, idempotent=idempotent, gate="work")]
    # An hour, since the time that passes between two lives must not be what ends the patience.
    return Play(answer, drive, tools, ThreadOptions(event_grace=HOUR), untimely=True)


TREES: dict[str, Scenario] = {
    "silent-child": silent_child,
    "silent-child-idempotent": partial(silent_child, idempotent=True),
    "closing-child": closing_child,
    "closing-child-idempotent": partial(closing_child, idempotent=True),
    "talking": talking,
    "asking-child-idempotent": asking_child,
    "compacting-child": compacting_child,
    "closed-tree": closed_tree,
    "closed-tree-idempotent": partial(closed_tree, idempotent=True),
    "threaded-events": threaded_events,
    "associative-events": associative_events,
    "sleeping-parent": sleeping_parent,
    "event-during-a-call-idempotent": event_during_a_call,
    "event-during-a-call": partial(event_during_a_call, idempotent=False),
}
