"""Calls on tool servers that are run and killed. The servers are in the world: they go on when a process dies.

A server delivers what it has to say until it is stored, and asks nothing twice that was answered. The client plays it:
what it delivers in one life is not delivered again in the next, unless the process died before it could say so.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from hibernaut.kernel.limits import ThreadOptions
from hibernaut.messages.inputs import Command, Settlement
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, last_user_text, say, turn
from hibernaut.rap.callbacks import OAuth, Result, SubscriptionEvent, UserChoice
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.rap.requests import Invocation, Selected
from hibernaut.testing.life import Life, Scenario
from hibernaut.testing.play import Play
from hibernaut.testing.tool_servers import Received
from tests.crash.trees import close, family, have_it_done, hiring, own_calls

MINUTE = 60_000

BYE = "That is all"
"""What ends scenarios whose course depends on what is known of a call."""

Script = Callable[[ModelRequest], ScriptedTurn]


def server(name: str = "ci", tools: Sequence[str] = ("work",), *, safe: str = "") -> Toolset:
    """Return what a server has. It is safe to repeat its calls if it knows "keys", or if its tools are "idempotent"."""
    flags = '{"idempotent":true}' if safe == "idempotent" else "{}"
    made = [RemoteTool(one, f"Do {one}.", '{"type":"object"}', flags, idempotent=safe == "idempotent") for one in tools]
    return Toolset(name, f"http://{name}.test/call", tuple(made), idempotency_keys=safe == "keys")


def result(taken: Invocation, text: str = "worked", *, subscription: bool = False) -> Result:
    return Result(group_id=taken.group_id, id=taken.id, text=text, subscription=subscription)


def event(taken: Invocation, number: int, *, final: bool = False, associative: bool = True) -> SubscriptionEvent:
    return SubscriptionEvent(
        group_id=taken.group_id,
        tool_call_id=taken.id,
        text=f"event {number}",
        associative=associative,
        final=final,
        event_id=str(number),
    )


def calling(*names: str) -> Script:
    """Return a model that calls tools at once, and says what it hears."""

    def answer(request: ModelRequest) -> ScriptedTurn:
        if last_user_text(request) == BYE:
            return say("As you wish.")
        heard = last_result(request)
        return (
            say(f"I heard: {heard.splitlines()[-1]}") if heard else turn(*[call(name) for name in names or ("work",)])
        )

    return answer


def finishing(*names: str) -> Script:
    """Return a model that says the same whatever it hears."""

    def answer(request: ModelRequest) -> ScriptedTurn:
        if last_user_text(request) == BYE:
            return say("As you wish.")
        return say("It is done.") if last_result(request) else turn(*[call(name) for name in names or ("work",)])

    return answer


def server_call(life: Life, *, safe: str = "") -> Play:
    async def drive() -> None:
        await life.say("m1", "Work")
        if (taken := await life.taken()) is not None:
            await life.bring(result(taken), taken)
        await life.settle()

    return Play(finishing(), drive, servers=[server(safe=safe)])


def refused_call(life: Life, *, safe: str = "") -> Play:
    async def drive() -> None:
        await life.say("m1", "Work")
        await life.settle()

    def answering(received: Received) -> int:
        return 422 if isinstance(received.message, Invocation) else 200

    return Play(finishing(), drive, servers=[server(safe=safe)], answering=answering)


def retried_call(life: Life, *, safe: str = "") -> Play:
    """The server is in trouble when it is called first."""

    async def drive() -> None:
        await life.say("m1", "Work")
        await life.wait_out(lambda seen: bool(life.servers.work) or seen.answered("work"))
        if (taken := await life.taken()) is not None:
            await life.bring(result(taken), taken)
        await life.settle()

    def answering(received: Received) -> int:
        return 200 if life.servers.calls or not isinstance(received.message, Invocation) else 503

    return Play(finishing(), drive, servers=[server(safe=safe)], answering=answering)


def early_answer(life: Life, *, safe: str = "") -> Play:
    """The answer comes before the acknowledgement."""

    async def drive() -> None:
        await life.say("m1", "Work")
        await life.until(lambda seen: bool(life.servers.work) or seen.answered("work"))
        for taken in life.servers.work.values():
            await life.bring(result(taken), taken)
        life.gate("acknowledge").set()
        await life.settle()

    async def hold_back() -> None:
        life.faulty.moved.set()  # that it was called shows nowhere else yet
        await life.gate("acknowledge").wait()

    return Play(finishing(), drive, servers=[server(safe=safe)], before_acknowledging=hold_back)


def repeated_answer(life: Life, *, safe: str = "") -> Play:
    """The server delivers its answer three times: at once, and when the thread has gone on."""

    async def drive() -> None:
        await life.say("m1", "Work")
        if (taken := await life.taken()) is not None:
            await life.bring(result(taken), taken)
            await life.bring_again(result(taken), taken)
        await life.settle()
        if taken is not None:
            await life.bring_again(result(taken), taken)
        await life.say("m2", BYE)
        await life.settle()

    return Play(finishing(), drive, servers=[server(safe=safe)])


def server_subscription(life: Life, *, safe: str = "") -> Play:
    """A subscription with three events, one of them delivered twice, the last one final."""

    async def drive() -> None:
        await life.say("m1", "Watch")
        if (taken := await life.taken("watch")) is not None:
            await life.bring(result(taken, "subscribed", subscription=True), taken, final=False)
            await life.until(lambda seen: seen.says("I heard: subscribed"))
            for number in (1, 2, 3):
                await life.bring(event(taken, number, final=number == 3), taken, final=number == 3)
                if number == 2:
                    await life.bring_again(event(taken, number), taken)
                await life.until(lambda seen, number=number: seen.says(f"I heard: event {number}"))  # type: ignore[misc]
        await life.settle()
        await life.say("m2", BYE)
        await life.settle()

    return Play(calling("watch"), drive, servers=[server(tools=["watch"], safe=safe)], untimely=True)


def unsubscribing(life: Life) -> Play:
    """A subscription that the model ends."""

    def answer(request: ModelRequest) -> ScriptedTurn:
        if last_user_text(request) == BYE:
            return say("As you wish.")
        heard = last_result(request)
        if heard == "event 1":
            (taken,) = life.servers.work.values()
            return call("cancel_subscription", tool_call_id=taken.id)
        return say("I see.") if heard else call("watch")

    async def drive() -> None:
        await life.say("m1", "Watch")
        if (taken := await life.taken("watch")) is not None:
            await life.bring(result(taken, "subscribed", subscription=True), taken, final=False)
            await life.until(lambda seen: seen.says("I see."))
            await life.bring(event(taken, 1), taken, final=False)
        await life.settle()
        await life.say("m2", BYE)
        await life.settle()

    return Play(answer, drive, servers=[server(tools=["watch"], safe="keys")])


def choice(life: Life, *, safe: str = "") -> Play:
    """The server asks a person, is told the answer and goes on."""

    async def drive() -> None:
        await life.say("m1", "Work")
        if (taken := await life.taken()) is not None:
            await life.bring(_asked(taken), taken, final=False)
            await life.answer("Where?", "there")
            await life.until(lambda _: _chosen(life) == {1})
            await life.bring(result(taken, "worked there"), taken)
        await life.settle()

    return Play(finishing(), drive, servers=[server(safe=safe)], untimely=True)


def dismissed_choice(life: Life, *, safe: str = "") -> Play:
    """The server asks a person, and an operator cancels the call."""

    async def drive() -> None:
        await life.say("m1", "Work")
        if (taken := await life.taken()) is not None:
            await life.bring(_asked(taken), taken, final=False)
            await life.until(lambda seen: seen.question("Where?") != "")
            await life.order("cancel", Command("cancel", taken.id))
        await life.settle()

    return Play(finishing(), drive, servers=[server(safe=safe)], untimely=True)


def _asked(taken: Invocation) -> UserChoice:
    return UserChoice(
        group_id=taken.group_id,
        id=taken.id,
        prompt="Where?",
        choices=("here", "there"),
        response_url="http://ci.test/choices/1",
        choice_id="1",
    )


def _chosen(life: Life) -> set[int]:
    messages = [received.message for received in life.servers.received]
    return {message.selected for message in messages if isinstance(message, Selected)}


def unauthorized(life: Life, *, safe: str = "") -> Play:
    """The server wants an authorization, and the person cancels it."""

    async def drive() -> None:
        await life.say("m1", "Work")
        if (taken := await life.taken()) is not None:
            asked = OAuth(group_id=taken.group_id, id=taken.id, auth_url="https://login.test/o?state=1")
            await life.bring(asked, taken, final=False)
            await life.answer("the tool needs your authorization", "Cancel")
        await life.settle()

    return Play(finishing(), drive, servers=[server(safe=safe)], untimely=True)


def cancelled_server_call(life: Life, *, safe: str = "") -> Play:
    """An operator cancels a call."""

    async def drive() -> None:
        await life.say("m1", "Work")
        if (taken := await life.taken()) is not None:
            await life.order("cancel", Command("cancel", taken.id))
        await life.settle()

    return Play(finishing(), drive, servers=[server(safe=safe)], untimely=True)


def in_trouble(life: Life, over: Callable[[Invocation], Awaitable[object]], *, safe: str) -> Play:
    """The server takes nothing as long as the call is wanted, and everything when it is not wanted any more."""

    async def drive() -> None:
        await life.say("m1", "Work")
        await life.wait_out(lambda seen: bool(life.servers.calls) or seen.answered("work"))
        if life.servers.calls:
            await over(life.servers.calls[0])
        await life.until(lambda seen: seen.answered("work"))
        life.world.note("well again")
        await life.pass_slowly(2 * MINUTE)
        await life.settle()

    def answering(received: Received) -> int:
        return 200 if life.world.of("well again") or not isinstance(received.message, Invocation) else 503

    return Play(finishing(), drive, servers=[server(safe=safe)], answering=answering, untimely=True)


def cancelled_in_trouble(life: Life, *, safe: str = "") -> Play:
    """An operator cancels a call that its server has not taken yet."""
    return in_trouble(life, lambda call: life.order("cancel", Command("cancel", call.id)), safe=safe)


def stopped_in_trouble(life: Life, *, safe: str = "") -> Play:
    """A thread is stopped whose call its server has not taken yet, and goes on."""

    async def stop(_: Invocation) -> None:
        await life.order("stop", Command("stop"))
        await life.until(lambda seen: seen.notices("stopped"))
        await life.order("resume", Command("resume"))

    return in_trouble(life, stop, safe=safe)


def closed_in_trouble(life: Life, *, safe: str = "") -> Play:
    """A thread is closed whose call its server has not taken yet."""
    play = in_trouble(life, lambda _: life.order("close", Command("close")), safe=safe)
    work = play.drive

    async def drive() -> None:
        await life.say("m0", "Hello")
        await life.until(lambda seen: seen.says("Well."))
        await (work or life.settle)()

    def answer(request: ModelRequest) -> ScriptedTurn:
        return say("Well.") if last_result(request) or last_user_text(request) == "Hello" else call("work")

    play.drive, play.model = drive, answer
    return play


def settled_in_trouble(life: Life, *, safe: str = "") -> Play:
    """An operator answers a call by hand that its server has not taken yet."""

    def settle(call: Invocation) -> Awaitable[object]:
        return life.hand_in("settled", Settlement(call.id, "worked by hand", reason="it takes too long"))

    return in_trouble(life, settle, safe=safe)


def closed_thread(life: Life, *, safe: str = "") -> Play:
    """A thread that is closed while one server works for it, another watches for it, and a third does nothing."""

    async def drive() -> None:
        await life.say("m0", "Hello")
        await life.until(lambda seen: seen.says("Well."))
        await life.say("m1", "Watch and work")
        if (watching := await life.taken("watch")) is not None:
            await life.bring(result(watching, "subscribed", subscription=True), watching, final=False)
            await life.taken()
        await life.until(lambda seen: seen.answered("watch"))
        await life.order("close", Command("close", reason="enough"))
        await life.settle()

    def answer(request: ModelRequest) -> ScriptedTurn:
        if last_result(request) == "subscribed":
            return call("work")
        return say("Well.") if last_result(request) or last_user_text(request) == "Hello" else call("watch")

    servers = [
        server(safe=safe),
        server("weather", ["watch"], safe=safe),
        server("forge", ["search"], safe=safe),
    ]
    return Play(answer, drive, servers=servers, untimely=True)


def servers_child(life: Life, *, safe: str = "") -> Play:
    """A child whose work is done by a server."""

    def child(request: ModelRequest) -> ScriptedTurn:
        return close(request, "It is done.") if own_calls(request) else call("work")

    async def drive() -> None:
        await have_it_done(life)
        if (taken := await life.taken()) is not None:
            await life.bring(result(taken), taken)
        await life.settle()

    return Play(family(life, hiring, child), drive, servers=[server(safe=safe)])


def discovery(life: Life) -> Play:
    """A thread that finds the tools of two servers, and makes a child that has them from it."""

    async def drive() -> None:
        await have_it_done(life)
        await life.settle()

    servers = [server(), server("forge", ["search"])]
    return Play(family(life, hiring, partial(close, report="It is done.")), drive, servers=servers)


def clash(life: Life) -> Play:
    """Two servers that use one name: nobody gets that tool, and the others work."""

    async def drive() -> None:
        await life.say("m1", "Work")
        if (taken := await life.taken("search")) is not None:
            await life.bring(result(taken, "found"), taken)
        await life.settle()

    servers = [server(safe="keys"), server("forge", ["work", "search"], safe="keys")]
    return Play(finishing("work", "search"), drive, servers=servers)


def two_servers(life: Life, *, safe: str = "") -> Play:
    """Calls on two servers at once, of which the second is answered first."""

    async def drive() -> None:
        await life.say("m1", "Do both")
        first, second = await life.taken(), await life.taken("search")
        if second is not None:
            await life.bring(result(second, "found"), second)
        if first is not None:
            await life.until(lambda seen: not seen.inbox)
            await life.bring(result(first), first)
        await life.settle()

    servers = [server(safe=safe), server("forge", ["search"], safe=safe)]
    return Play(finishing("work", "search"), drive, options=ThreadOptions(parallel_calls=2), servers=servers)


# With a real server: `tests.rap.foreign_server`, whose URL the world knows


def real_server(life: Life, tool: str) -> Play:
    """A tool of a real server: one that answers later, one that brings three events, or one that asks a person."""

    def root(request: ModelRequest) -> ScriptedTurn:
        return say("It is in hand.") if last_result(request) else call(tool)

    async def drive() -> None:
        life.gate("children").set()
        await life.say("m1", "Do it")
        if tool == "choose":
            await life.answer("Which colour?", "blue", tool=tool)
        await life.settle()

    return Play(family(life, root, close), drive, url=life.world.of("server")[-1][0])


def _kinds(name: str, scenario: Callable[..., Play], *kinds: str) -> dict[str, Scenario]:
    return {f"{name}-{kind}" if kind else name: partial(scenario, safe=kind) for kind in kinds}


_EVERY_KIND = ("", "keys", "idempotent")

SERVERS: dict[str, Scenario] = {
    **_kinds("server-call", server_call, *_EVERY_KIND),
    **_kinds("refused-call", refused_call, *_EVERY_KIND),
    **_kinds("retried-call", retried_call, *_EVERY_KIND),
    **_kinds("early-answer", early_answer, *_EVERY_KIND),
    **_kinds("repeated-answer", repeated_answer, "", "keys"),
    **_kinds("server-subscription", server_subscription, "", "keys"),
    "unsubscribing": unsubscribing,
    **_kinds("choice", choice, "", "keys"),
    **_kinds("dismissed-choice", dismissed_choice, "", "keys"),
    **_kinds("unauthorized", unauthorized, "", "keys"),
    **_kinds("cancelled-server-call", cancelled_server_call, "", "keys"),
    **_kinds("cancelled-in-trouble", cancelled_in_trouble, *_EVERY_KIND),
    **_kinds("stopped-in-trouble", stopped_in_trouble, *_EVERY_KIND),
    **_kinds("closed-in-trouble", closed_in_trouble, *_EVERY_KIND),
    **_kinds("settled-in-trouble", settled_in_trouble, *_EVERY_KIND),
    **_kinds("closed-thread", closed_thread, "", "keys"),
    **_kinds("servers-child", servers_child, "", "keys"),
    **_kinds("two-servers", two_servers, *_EVERY_KIND),
    "discovery": discovery,
    "clash": clash,
}

REAL: dict[str, Scenario] = {f"real-{tool}": partial(real_server, tool=tool) for tool in ("later", "tick", "choose")}
