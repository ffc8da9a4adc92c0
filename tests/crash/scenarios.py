"""What is run and killed: small programs that use everything a thread can wait for.

The model of each is a function of what it is asked, and says the same whether a result is the tool's own or says that
it is unknown. So the only thing that a crash may change is such a result.
"""

from functools import partial

import msgspec

from hibernaut.kernel.authority import Authority, Rule
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Command, Drop, Edit, InputMessage, Report, UserText
from hibernaut.messages.items import CallItem
from hibernaut.models.errors import RateLimited
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_user_text, say, turn
from hibernaut.testing.life import Life, Scenario
from hibernaut.testing.play import Play
from hibernaut.testing.seen import THREAD
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import AnyTool, tool
from tests.crash.servers import REAL
from tests.crash.trees import TREES

ASKS = Authority(rules=(Rule(decision="ask", annotations=("destructive",), reason="It cannot be undone."),))


def plain_answer(life: Life) -> Play:
    async def drive() -> None:
        await life.say("m1", "Good morning")
        await life.settle()
        await life.say("m2", "Good night")
        await life.settle()

    return Play(lambda request: f"You said: {last_user_text(request)}", drive)


def runtime_answers(life: Life) -> Play:
    """Calls that the runtime answers itself, within the slice: the model is asked again at once."""

    def answer(request: ModelRequest) -> ScriptedTurn:
        turns = [
            call("no_such_tool"),
            call("set_title", title="About nothing"),
            call("receive_event__injected", original_tool_name="build"),
            say("That is all."),
        ]
        return turns[len(_calls(request))]

    async def drive() -> None:
        await life.say("m1", "Try this and that")
        await life.settle()

    return Play(answer, drive)


def inline_tool(life: Life, *, idempotent: bool = False) -> Play:
    return _one_call(life, _worker(life, idempotent=idempotent, inline=True))


def async_tool(life: Life, *, idempotent: bool = False) -> Play:
    return _one_call(life, _worker(life, idempotent=idempotent))


def sync_tool(life: Life) -> Play:
    """A function that is not async, in a thread of its own."""

    @tool(idempotent=True)
    def work(context: ToolContext) -> str:
        """Work."""
        return f"done: {context.call_id}"

    return _one_call(life, work)


def _one_call(life: Life, work: AnyTool) -> Play:
    async def drive() -> None:
        await life.say("m1", "Work")
        await life.settle()

    return Play(_finishing, drive, [work])


def two_calls_one_by_one(life: Life, *, idempotent: bool = False) -> Play:
    return _two_calls(life, 1, idempotent=idempotent)


def two_calls_at_once(life: Life, *, idempotent: bool = False) -> Play:
    return _two_calls(life, 2, idempotent=idempotent)


def _two_calls(life: Life, at_once: int, *, idempotent: bool) -> Play:
    first = _worker(life, "first", idempotent=idempotent)
    second = _worker(life, "second", idempotent=idempotent, gate="second")

    async def drive() -> None:
        await life.say("m1", "Do both")
        await life.until(lambda seen: seen.answered("first"))
        life.gate("second").set()
        await life.settle()

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Both are done.") if _calls(request) else turn("I will do both.", call("first"), call("second"))

    return Play(answer, drive, [first, second], ThreadOptions(parallel_calls=at_once))


def deferred_call(life: Life, *, idempotent: bool = False) -> Play:
    @tool(idempotent=idempotent)
    async def work(context: ToolContext) -> Deferred:
        """Work elsewhere."""
        deferred = context.defer()
        life.did(context)
        life.handed_out(context, deferred.token)
        return deferred

    async def drive() -> None:
        await life.say("m1", "Work")
        await life.until(lambda seen: bool(life.world.of("token")) or seen.answered("work"))
        for _, token in life.world.of("token")[:1]:
            await life.deliver(token, "done elsewhere")
        await life.settle()

    return Play(_finishing, drive, [work], untimely=True)


def detached_call(life: Life, *, idempotent: bool = False) -> Play:
    return _interrupted(life, "detach", idempotent=idempotent)


def cancelled_call(life: Life, *, idempotent: bool = False) -> Play:
    return _interrupted(life, "cancel", idempotent=idempotent)


def _interrupted(life: Life, how: str, *, idempotent: bool) -> Play:
    options = ThreadOptions(on_user_text="cancel" if how == "cancel" else "detach")

    async def drive() -> None:
        await life.say("m1", "Work")
        await life.until(lambda seen: life.has_begun("work") or seen.answered("work"))
        await life.say("m2", "How far are you?")
        await life.until(lambda seen: seen.said("How far are you?"))
        if how == "detach":
            life.gate("work").set()
        await life.settle()

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say(f"Now: {last_user_text(request)}") if _calls(request) else call("work")

    return Play(answer, drive, [_worker(life, idempotent=idempotent, gate="work")], options, untimely=True)


def stopped_and_resumed(life: Life, *, idempotent: bool = False) -> Play:
    async def drive() -> None:
        await life.say("m1", "Work")
        await life.until(lambda seen: life.has_begun("work") or seen.answered("work"))
        await life.order("stop", Command("stop", reason="enough"))
        await life.until(lambda seen: seen.notices("stopped"))
        await life.order("resume", Command("resume"))
        await life.until(lambda seen: seen.notices("resumed"))
        await life.settle()

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("As you wish.") if _calls(request) else call("work")

    return Play(answer, drive, [_worker(life, idempotent=idempotent, gate="never")], untimely=True)


def sleeping(life: Life) -> Play:
    async def drive() -> None:
        await life.say("m1", "Sleep for a minute")
        await life.settle()

    return Play(lambda request: say("I am awake.") if _calls(request) else call("sleep", seconds=60), drive)


def rate_limited(life: Life) -> Play:
    """The provider takes nothing until it was waited for once."""

    async def answer(request: ModelRequest) -> ScriptedTurn | RateLimited:
        seen = await life.look()
        return say("Now it works.") if seen.notices("retry") else RateLimited("slow down", 30_000)

    async def drive() -> None:
        await life.say("m1", "Hello")
        await life.settle()

    return Play(answer, drive)


def queue_changed(life: Life) -> Play:
    """What waits for a stopped thread is dropped and edited; then it reads what is left."""

    async def drive() -> None:
        await life.say("m1", "Good morning")
        await life.until(lambda seen: seen.says("You said: Good morning"))
        await life.order("stop", Command("stop"))
        await life.until(lambda seen: seen.notices("stopped"))
        for name in ("r1", "r2"):
            await life.hand_in(name, Report("nobody", "Nine."))
        await life.hand_in("drop", Drop("r1", "said in error"))
        await life.until(lambda seen: seen.notices("dropped"))
        await life.hand_in("edit", Edit("r2", "Ten.", "a slip"))
        await life.until(lambda seen: seen.notices("edited"))
        await life.order("resume", Command("resume"))
        await life.until(lambda seen: seen.notices("resumed"))
        await life.say("m2", "Good night")
        await life.settle()

    return Play(lambda request: f"You said: {last_user_text(request)}", drive)


def asking(life: Life, *, idempotent: bool = False) -> Play:
    """A tool that works, asks a person two things, and works on."""

    @tool(idempotent=idempotent)
    async def work(context: ToolContext) -> str:
        """Work."""
        life.did(context)
        where = await context.ask("Where?", ["here", "there"])
        when = await context.ask("When?", ["now", "then"])
        life.world.note("followed", where, when)
        return f"{where} and {when}"

    async def drive() -> None:
        await life.say("m1", "Work")
        await life.answer("Where?", "there")
        await life.answer("When?", "now")
        await life.settle()

    return Play(_finishing, drive, [work])


def leave(life: Life, *, idempotent: bool = False) -> Play:
    """Two calls of one turn, of which one needs leave."""

    @tool(destructive=True, idempotent=idempotent)
    async def wipe(context: ToolContext) -> str:
        """Wipe."""
        life.did(context)
        return "it is empty"

    async def drive() -> None:
        await life.say("m1", "Work, and wipe")
        await life.until(lambda seen: seen.answered("work") or any(call.held for call in seen.head.calls.values()))
        await life.answer("May wipe run with {}?\nIt cannot be undone.", "Allow", tool="wipe")
        await life.settle()

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("All is done.") if _calls(request) else turn("I do both.", call("work"), call("wipe"))

    tools, options = [_worker(life, idempotent=True), wipe], ThreadOptions(parallel_calls=2)
    return Play(answer, drive, tools, options, authority=ASKS)


def step_by_step(life: Life, *, idempotent: bool = False) -> Play:
    """No engine: the client drives the thread itself."""
    play = async_tool(life, idempotent=idempotent)

    async def drive() -> None:
        for name in ("m1", "m2"):
            await life.step(InputMessage(name, THREAD, UserText(f"Work ({name})"), "api"))

    return msgspec.structs.replace(play, drive=drive, resident=False)


def _worker(life: Life, name: str = "work", *, idempotent: bool, inline: bool = False, gate: str = "") -> AnyTool:
    async def work(context: ToolContext) -> str:
        """Work."""
        if gate:
            await life.gate(gate).wait()
        life.did(context)
        return f"done: {name}"

    return tool(work, name=name, idempotent=idempotent, inline=inline)


def _finishing(request: ModelRequest) -> ScriptedTurn:
    return say("It is done.") if _calls(request) else call("work")


def _calls(request: ModelRequest) -> list[CallItem]:
    return [item for item in request.transcript if isinstance(item, CallItem)]


def compacted(life: Life) -> Play:
    """A history that grows until it is compacted, with a call and without."""

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.purpose == "summary":
            return say("They talked.")
        text = last_user_text(request)
        if text == "Work" and not _calls(request):
            return call("work")
        return say(f"You said: {text}. ", "word " * 400)

    async def drive() -> None:
        for number, text in enumerate(["One", "Two", "Work", "Three", "Four"], 1):
            await life.say(f"m{number}", text)
            await life.settle()

    return Play(answer, drive, [_worker(life, idempotent=True)], ThreadOptions(context_window=3_200))


def compacted_by_command(life: Life) -> Play:
    """A history that an operator has compacted, and that goes on after it."""

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.purpose == "summary":
            return say("They talked.")
        return say(f"You said: {last_user_text(request)}. ", "word " * 100)

    async def drive() -> None:
        for number in (1, 2):
            await life.say(f"m{number}", f"Talk ({number})")
            await life.settle()
        await life.order("compact", Command("compact"))
        await life.settle()
        await life.say("m3", "Go on")
        await life.settle()

    return Play(answer, drive)


SCENARIOS: dict[str, Scenario] = {
    "plain-answer": plain_answer,
    "runtime-answers": runtime_answers,
    "inline-tool": inline_tool,
    "inline-tool-idempotent": partial(inline_tool, idempotent=True),
    "async-tool": async_tool,
    "async-tool-idempotent": partial(async_tool, idempotent=True),
    "sync-tool-idempotent": sync_tool,
    "two-calls-one-by-one": two_calls_one_by_one,
    "two-calls-one-by-one-idempotent": partial(two_calls_one_by_one, idempotent=True),
    "two-calls-at-once": two_calls_at_once,
    "two-calls-at-once-idempotent": partial(two_calls_at_once, idempotent=True),
    "deferred-call": deferred_call,
    "deferred-call-idempotent": partial(deferred_call, idempotent=True),
    "detached-call": detached_call,
    "detached-call-idempotent": partial(detached_call, idempotent=True),
    "cancelled-call": cancelled_call,
    "cancelled-call-idempotent": partial(cancelled_call, idempotent=True),
    "stopped-and-resumed": stopped_and_resumed,
    "stopped-and-resumed-idempotent": partial(stopped_and_resumed, idempotent=True),
    "asking-idempotent": partial(asking, idempotent=True),
    "leave": leave,
    "leave-idempotent": partial(leave, idempotent=True),
    "sleeping": sleeping,
    "queue-changed": queue_changed,
    "rate-limited": rate_limited,
    "compacted": compacted,
    "step-by-step": step_by_step,
    "compacted-by-command": compacted_by_command,
    "step-by-step-idempotent": partial(step_by_step, idempotent=True),
    **TREES,
}

ALL: dict[str, Scenario] = SCENARIOS | {"asking": asking} | REAL
"""With those that end in more than one way when they are killed, which have tests of their own."""
