"""Tool servers that are nowhere, and what they deliver: everything of a remote call but the wire."""

from typing import Any

from hibernaut.messages.text import clean
from hibernaut.rap.arrivals import Arrival, arrive
from hibernaut.rap.callbacks import Callback, OAuth, Result, SubscriptionEvent, UserChoice
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.requests import CancelToolCall, CloseThread, Invocation, Selected
from hibernaut.rap.wire import CALLBACK_PATH
from hibernaut.reach import Callbacks
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Outcome, Store
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.tool_servers import MemoryToolServers, Received
from hibernaut.tools.tokens import KeyRing, read
from tests.engine.scenario import system

SCHEMA = '{"type":"object","properties":{"commit":{"type":"string"}}}'

CI = Toolset(
    "ci",
    "http://ci.test/rap/call",
    (
        RemoteTool("build", "Build a commit.", SCHEMA),
        RemoteTool("look", "Look at a commit.", SCHEMA, '{"idempotent":true}', idempotent=True),
    ),
)
FORGE = Toolset("forge", "http://forge.test/call", (RemoteTool("search", "Search code.", SCHEMA),))

PUBLIC = Callbacks(public="http://runtime.test", listen=False)


DOWN = NoAnswer("http://ci.test/", "connection refused", reached=False)
CUT = NoAnswer("http://ci.test/", "nothing within 30 s", reached=True)


class Far:
    """Servers, a store and a clock, and a hand that delivers callbacks."""

    def __init__(self, store: Store, clock: ManualClock, *toolsets: Toolset) -> None:
        self.store = store
        self.clock = clock
        self.servers = MemoryToolServers({one.name: one for one in toolsets or (CI,)})

    def told(self, kind: type[CancelToolCall] | type[CloseThread] | type[Selected]) -> list[Any]:
        """Return the messages of a kind that were taken, in order."""
        return [one.message for one in self.servers.received if isinstance(one.message, kind)]

    @property
    def call(self) -> Invocation:
        """The last call that arrived."""
        return self.servers.calls[-1]

    async def deliver(self, callback: Callback, call: Invocation | None = None) -> Outcome:
        """Bring a callback under the token of a call, as a receiver would."""
        token = (call or self.call).callback_url.rpartition(CALLBACK_PATH)[2]
        grant = read(KeyRing([await self.store.secret()]), token, self.clock.now())
        arrival = arrive(callback, grant, delivery=clean(repr(callback)))
        assert isinstance(arrival, Arrival)
        (outcome,) = await self.store.put([arrival.message], self.clock.now(), blobs=arrival.blobs)
        return outcome

    async def answer(self, text: str, call: Invocation | None = None, **more: Any) -> Outcome:
        call = call or self.call
        return await self.deliver(Result(group_id=call.group_id, id=call.id, text=text, **more), call)

    async def happen(self, text: str, call: Invocation | None = None, **more: Any) -> Outcome:
        call = call or self.call
        return await self.deliver(
            SubscriptionEvent(group_id=call.group_id, tool_call_id=call.id, text=text, **more), call
        )

    async def choose(self, prompt: str, *choices: str, **more: Any) -> Outcome:
        call = self.call
        url = "http://ci.test/choices/1"
        asked = UserChoice(group_id=call.group_id, id=call.id, prompt=prompt, choices=choices, response_url=url, **more)
        return await self.deliver(asked)

    async def authorize(self, url: str) -> Outcome:
        return await self.deliver(OAuth(group_id=self.call.group_id, id=self.call.id, auth_url=url))


def far(*toolsets: Toolset) -> Far:
    return Far(MemoryStore(), ManualClock(), *toolsets)


def agents(far: Far, model: Any, *tools: Any, **more: Any) -> Any:
    return system(model, *tools, store=far.store, clock=far.clock, servers=far.servers, callbacks=PUBLIC, **more)


def failing(*answers: int | NoAnswer) -> Any:
    """Answer calls one after another; everything else, and what comes later, is taken."""
    left = list(answers)

    def answering(received: Received) -> int | NoAnswer:
        return left.pop(0) if left and isinstance(received.message, Invocation) else 200

    return answering
