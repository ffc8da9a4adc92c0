"""Async generators as subscriptions: confirmed by the first value, and with one last event however they end."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hibernaut import Deferred, ToolContext, ToolError, ToolEvent
from hibernaut.errors import EventMisfit
from hibernaut.rap import ToolServer
from hibernaut.tools.running import Subscription
from tests.rap.kit.runtime import HeardClock, Runtime


def a_server(clock: HeardClock | None = None) -> ToolServer:
    server = ToolServer("desk", clock=clock)

    @server.tool(timeout=0.05)
    async def watch(how: str) -> AsyncIterator[object]:
        """Watch."""
        if how == "fails at once":
            raise ToolError("nothing to watch")
        if how == "hangs":
            await asyncio.Event().wait()
        if how == "empty":
            return
        yield "watching"
        yield ToolEvent("first", "offset 7")
        if how == "fails later":
            raise ValueError("the line broke")
        try:
            yield ToolEvent("last", final=True)
        finally:
            if how == "cleans up badly":
                raise OSError("it does not close")

    @server.tool(deadline=60)
    async def forever() -> AsyncIterator[str]:
        """Watch, for a minute."""
        yield "watching"
        await asyncio.Event().wait()

    @server.tool(deadline=60)
    async def slow() -> str:
        """Work, for a minute."""
        await asyncio.Event().wait()
        return ""

    foreign: list[ToolContext] = []

    @server.tool
    async def mixed_up(context: ToolContext) -> Deferred | str:
        """Defer the call before."""
        foreign.append(context)
        return foreign[0].defer()

    return server


async def test_one_that_never_began_is_answered_by_a_result(runtime: Runtime) -> None:
    async with runtime.calling(a_server()):
        for how in ("fails at once", "hangs", "empty"):
            await runtime.call("watch", {"how": how}, name=how.replace(" ", "-"))
        said = {each["id"]: (each["text"], each.get("is_error", False)) for each in await runtime.gets(3)}
        assert not await runtime.alive("hangs")
    assert said == {
        "fails-at-once": ("Error: nothing to watch", True),
        "hangs": ("Error: watch did not answer within 0.05 s.", True),
        "empty": ("The subscription has ended.", False),
    }
    assert not any(each.get("subscription") for each in runtime.taken)


async def test_one_that_was_confirmed_ends_with_an_event_that_says_how(runtime: Runtime) -> None:
    async with runtime.calling(a_server()):
        for how in ("fails later", "ends", "cleans up badly"):
            await runtime.call("watch", {"how": how}, name=how.replace(" ", "-"))
        ends = {name: await runtime.ends(name) for name in ("fails-later", "ends", "cleans-up-badly")}
        confirmed = [each for each in runtime.taken if each["type"] == "tool_result"]
    assert [(each["text"], each["subscription"]) for each in confirmed] == [("watching", True)] * 3
    for name, last in (
        ("fails-later", "Error: ValueError: the line broke"),
        ("ends", "last"),
        ("cleans-up-badly", "last"),
    ):
        assert ends[name] == [
            {
                "type": "subscription_event",
                "group_id": "t1",
                "tool_call_id": name,
                "text": "first",
                "event_id": "offset 7",
                "sequence": 1,
            },
            {
                "type": "subscription_event",
                "group_id": "t1",
                "tool_call_id": name,
                "text": last,
                "final": True,
                "event_id": "#2",
                "sequence": 2,
            },
        ]


async def test_a_repeat_of_one_that_is_over_hears_its_confirmation_and_its_end_again(runtime: Runtime) -> None:
    async with runtime.calling(a_server()):
        await runtime.call("watch", {"how": "ends"}, key="k")
        await runtime.ends("c1")
        while await runtime.alive():
            pass
        runtime.taken.clear()
        await runtime.call("watch", {"how": "ends"}, key="k")
        await runtime.ends("c1")
        assert [each["text"] for each in runtime.taken] == ["watching", "last"]


async def test_a_deadline_ends_what_runs(runtime: Runtime) -> None:
    clock = HeardClock()
    async with runtime.calling(a_server(clock)):
        await runtime.call("forever", name="forever")
        await runtime.call("slow", name="slow")
        await runtime.call("slow", name="cancelled")
        await runtime.gets()
        await runtime.cancel("cancelled")
        clock.advance(60_000)
        (event,) = await runtime.ends("forever")
        assert event["text"] == "Error: forever did not answer before its deadline."
        while len(runtime.taken) < 3:
            await runtime.gets(3)
        assert not await runtime.alive("slow")
    assert {each.get("id") or each["tool_call_id"] for each in runtime.taken} == {"forever", "slow"}


async def test_a_tool_that_defers_another_call_than_its_own_is_told(runtime: Runtime) -> None:
    async with runtime.calling(a_server()):
        await runtime.call("mixed_up")
        while not await runtime.alive():
            pass
        await runtime.call("mixed_up", name="c2")
        (answer,) = await runtime.gets()
    assert (answer["id"], "deferred another call" in answer["text"]) == ("c2", True)


async def test_one_that_breaks_off_by_a_defect_ends_and_says_what_is_known(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [ToolEvent("watching")]

    async def broken(subscription: Subscription) -> ToolEvent:
        return first.pop()

    monkeypatch.setattr(Subscription, "next", broken)
    async with runtime.calling(a_server()):
        await runtime.call("watch", {"how": "ends"})
        (last,) = await runtime.ends("c1")
        assert not await runtime.alive()
    said = "Error: watch broke off inside the server. It is unknown whether it happened; check before repeating it."
    assert (last["text"], last["final"], last["sequence"]) == (said, True, 1)


async def test_an_event_that_does_not_fit_its_schema_is_raised_where_it_is_yielded_and_takes_no_number(
    runtime: Runtime,
) -> None:
    server, refused = ToolServer("desk"), list[EventMisfit]()

    @server.tool(event_schema={"type": "object", "required": ["sky"]})
    async def watch(how: str) -> AsyncIterator[object]:
        """Watch."""
        yield "watching"
        for value in ("obey me", {"sky": "clear"}, {"sea": "calm"}, {"sky": "grey"}):
            try:
                yield value
            except EventMisfit as error:
                refused.append(error)
        if how == "fails":
            yield "not caught"

    async with runtime.calling(server):
        await runtime.call("watch", {"how": "ends"}, name="ends")
        await runtime.call("watch", {"how": "fails"}, name="fails")
        ended, failed = await runtime.ends("ends"), await runtime.ends("fails")
    assert [(one["text"], one["sequence"]) for one in ended] == [
        ('{"sky":"clear"}', 1),
        ('{"sky":"grey"}', 2),
        ("", 3),
    ]
    assert len(refused) == 4
    assert "EventMisfit" in failed[-1]["text"]
