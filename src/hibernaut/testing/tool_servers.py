"""Tool servers in the memory of a test: what they have is given, what they are told is kept."""

from collections.abc import Callable, Mapping

import msgspec

from hibernaut.rap.answers import Liveness, liveness
from hibernaut.rap.manifest import Toolset, write_manifest
from hibernaut.rap.replies import NoAnswer, Reply
from hibernaut.rap.requests import Alive, AskStatus, CancelToolCall, CloseThread, Invocation, Migrate, Request, Selected
from hibernaut.rap.tool_servers import Discovered, DiscoveryFailed, UnknownServer
from hibernaut.rap.wire import encode


class Received(msgspec.Struct, frozen=True):
    """What reached a server."""

    server: str
    message: Request
    headers: Mapping[str, str] = {}
    url: str = ""
    """The endpoint of a call, and where the answer to a choice went."""
    status: int | None = None
    """What was answered; None while that is not decided, or if no answer came back."""

    @property
    def key(self) -> str:
        """The idempotency key of a call."""
        return self.headers.get("Idempotency-Key", "")

    @property
    def taken(self) -> bool:
        """Whether the server has acted upon it, even if nobody heard of it."""
        return self.status is None or self.status in range(200, 300)


Answering = Callable[[Received], "int | NoAnswer"]
"""Says with which status a server answers, or that it does not."""


def _taken(_received: Received) -> int:
    return 200


class MemoryToolServers:
    """A `ToolServers` that is nowhere. It outlives the engines that talk to it, as real servers do.

    Whatever arrives is in `received`, also what was refused and what there was no answer to (`NoAnswer.reached`). A
    call that a server has taken is alive until it is cancelled or a test says that it is over.

    Args:
        toolsets: what each server has, by its name. A test may change it.
        answering: decides the answer to each message; by default everything is taken.
    """

    def __init__(self, toolsets: Mapping[str, Toolset], answering: Answering = _taken) -> None:
        self.toolsets = dict(toolsets)
        self.answering = answering
        self.unreachable: set[str] = set()
        """Servers that answer nothing at all."""
        self.discoveries: list[str] = []
        """The servers that were asked for their tools, in order."""
        self.received: list[Received] = []
        self.alive: set[str] = set()
        """The ids of calls at work."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.toolsets)

    @property
    def calls(self) -> list[Invocation]:
        """The calls that arrived, repeats included."""
        return [each.message for each in self.received if isinstance(each.message, Invocation)]

    @property
    def work(self) -> dict[str, Invocation]:
        """The calls that were taken, by their idempotency keys: what a server that looks at them has done."""
        done: dict[str, Invocation] = {}
        for each in self.received:
            if isinstance(each.message, Invocation) and each.taken:
                done.setdefault(each.key, each.message)
        return done

    def finish(self, call_id: str) -> None:
        """Say that a call is over."""
        self.alive.discard(call_id)

    async def discover(self, name: str) -> Discovered:
        self._check(name)
        self.discoveries.append(name)
        if name in self.unreachable:
            raise DiscoveryFailed(name, "it is switched off", unreachable=True, again_at=0, left=0)
        toolset = self.toolsets[name]
        return Discovered(write_manifest(toolset), toolset)

    async def invoke(self, name: str, invocation: Invocation, headers: Mapping[str, str], endpoint: str) -> Reply:
        return self._receive(Received(name, invocation, dict(headers), endpoint))

    async def cancel(self, name: str, notice: CancelToolCall) -> Reply:
        return self._receive(Received(name, notice))

    async def close_thread(self, name: str, notice: CloseThread) -> Reply:
        return self._receive(Received(name, notice))

    async def status(self, name: str, question: AskStatus) -> Liveness:
        try:
            reply = self._receive(Received(name, question))
        except NoAnswer:
            return liveness(None, b"")
        return liveness(reply.status, encode(Alive(question.tool_call_id in self.alive)))

    async def select(self, name: str, url: str, answer: Selected) -> Reply:
        return self._receive(Received(name, answer, url=url))

    async def migrate(self, name: str, order: Migrate) -> Reply:
        return self._receive(Received(name, order))

    def _receive(self, received: Received) -> Reply:
        self._check(received.server)
        encode(received.message)
        if received.server in self.unreachable:
            raise NoAnswer(received.server, "it is switched off", reached=False)
        answer = self.answering(received)
        if isinstance(answer, NoAnswer):
            if answer.reached:
                self._keep(received)
            raise answer
        self._keep(msgspec.structs.replace(received, status=answer))
        return Reply(answer, {}, b"{}")

    def _keep(self, received: Received) -> None:
        self.received.append(received)
        match received.message:
            case Invocation(id=call) if received.taken:
                self.alive.add(call)
            case CancelToolCall(tool_call_id=call) if received.taken:
                self.alive.discard(call)
            case _:
                pass

    def _check(self, name: str) -> None:
        if name not in self.toolsets:
            raise UnknownServer(f"no tool server is called {name!r}")
