"""What all parts of a check share: the server, the receiver, what is looked for, and how calls are made."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.clock import Clock
from hibernaut.ids import Ids
from hibernaut.rap.answers import fate_of_call
from hibernaut.rap.check.arguments import fitting
from hibernaut.rap.check.findings import Findings
from hibernaut.rap.check.peer import Answered, Call, Peer
from hibernaut.rap.check.receiver import Delivery, Inbox, Receiver
from hibernaut.rap.listening import LOOPBACK
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.rap.requests import Invocation
from hibernaut.tools.arguments import JSON

UNKNOWN: Final = "hibernaut_check_no_such_tool"
"""An operation that no server has."""

MOST_GUESSED: Final = 5
"""Read-only tools that are called without anybody having named them."""

Named = tuple[str, dict[str, JSON]]
"""A tool and the arguments that it may be called with."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a check may do, and how long. Times are in milliseconds unless they say otherwise.

    Tools that change things are called only if they are named here; `slow` takes its time, `subscribe` subscribes and
    `choose` asks a person.
    """

    tools: tuple[Named, ...] = ()
    slow: tuple[Named, ...] = ()
    subscribe: tuple[Named, ...] = ()
    choose: tuple[Named, ...] = ()
    only: tuple[str, ...] = ()
    """The ids of the rules that are asked for, all if it is empty."""
    headers: Mapping[str, str] = {}
    """Sent to the server's own origin, and nowhere else."""
    host: str = LOOPBACK
    port: int = 0
    public_url: str = ""
    """Where the server reaches what listens at `host` and `port`; left out, that is where it listens."""
    acknowledged_within: int = 5_000
    called_back_within: int = 15_000
    quiet: int = 3_000
    """How long nothing must have come until it is believed that nothing comes."""
    retry_after: int = 1
    """Seconds that the receiver asks a server to wait."""
    deadline: int = 120_000
    """For the whole check."""


class Session:
    """One check of one server. `endpoint` and `toolset` are known when its manifest was read."""

    def __init__(
        self, peer: Peer, receiver: Receiver, findings: Findings, settings: Settings, clock: Clock, ids: Ids
    ) -> None:
        self.peer = peer
        self.receiver = receiver
        self.findings = findings
        self.settings = settings
        self.clock = clock
        self.ids = ids
        self.toolset: Toolset | None = None
        self.sample: Named | None = None
        """A call that is known to be answered by a callback, and does no harm."""
        self.sent: list[Invocation] = []
        """Calls that may have arrived, acknowledged or not."""
        self.calls: list[Call] = []
        self.manifest: Answered | None = None

    def tool(self, name: str) -> RemoteTool | None:
        """Return a tool of the server."""
        tools = self.toolset.tools if self.toolset else ()
        return next((tool for tool in tools if tool.name == name), None)

    def callable_tools(self) -> list[Named]:
        """Return what may be called: the tools that are named, then read-only ones that need no more than a guess."""
        named = list(self.settings.tools)
        special = {name for name, _ in (*named, *self.settings.slow, *self.settings.subscribe, *self.settings.choose)}
        guessed: list[Named] = []
        for tool in self.toolset.tools if self.toolset else ():
            plain = tool.read_only and not tool.destructive and not tool.requires_auth and tool.name not in special
            if plain and not tool.long_running and (arguments := fitting(tool)) is not None:
                guessed.append((tool.name, arguments))
        return named + guessed[:MOST_GUESSED]

    def invocation(self, operation: str, arguments: dict[str, JSON], inbox: Inbox) -> Invocation:
        """Return a call of a thread of its own."""
        return Invocation(
            operation, arguments, self.ids.new("check"), self.ids.new("call"), inbox.url, self.ids.new("thread"), None
        )

    async def make(
        self, call: Invocation, inbox: Inbox, *, plain: bool = False, extra: Mapping[str, Any] | None = None
    ) -> Call:
        """Send a call (a plain one without headers) and return what the server said at once.

        What comes for it is looked at in the end.
        """
        self.sent.append(call)
        self.receiver.expect(inbox, call)
        answered = await self.peer.invoke(call, "" if plain else call.id, extra)
        made = Call(call, answered, inbox)
        self.calls.append(made)
        return made

    async def call(self, named: Named) -> Call:
        """Make an ordinary call."""
        inbox = self.receiver.inbox()
        return await self.make(self.invocation(*named, inbox), inbox)

    async def result_of(self, call: Call, kind: str = "tool_result", after: int = 0) -> Delivery | None:
        """Wait until the call brings something of a kind."""
        return await call.inbox.next(self.settings.called_back_within, lambda one: one.kind == kind, after)

    async def anything_of(self, call: Call) -> Delivery | None:
        """Wait until the call brings anything at all."""
        return await call.inbox.next(self.settings.called_back_within)

    async def expect(self, rule: str, call: Call, what: str) -> bool:
        """Judge a rule by whether a call is acknowledged and then answered by a callback."""
        seen, fine = await self.outcome(call)
        self.findings.judge(rule, fine, f"{what}: {seen}")
        return fine

    async def outcome(self, call: Call) -> tuple[str, bool]:
        """Wait for what becomes of a call; tell it in words, and whether it was acknowledged and answered."""
        if not is_taken(call.answered):
            return call.answered.words, False
        came = await self.anything_of(call)
        if came is None:
            return f"acknowledged, and then nothing for {seconds(self.settings.called_back_within)}", False
        return f"answered by {came.words}", True


def is_taken(answered: Answered) -> bool:
    """Tell whether a request was acknowledged."""
    return answered.status is not None and fate_of_call(answered.status) == "taken"


def seconds(milliseconds: int) -> str:
    """Write a time for people."""
    return f"{milliseconds / 1_000:g} s"


async def together(*probes: Any) -> None:
    """Run parts of a check that do not disturb one another."""
    async with asyncio.TaskGroup() as group:
        for probe in probes:
            group.create_task(probe)
