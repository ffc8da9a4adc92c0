"""What a scenario is made of: an agent, and what happens to it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from hibernaut.kernel.authority import Authority
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.models.protocol import Model
from hibernaut.models.scripted import Script
from hibernaut.rap.manifest import Toolset
from hibernaut.testing.seen import Seen
from hibernaut.testing.tool_servers import Received
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from hibernaut.rap.kit.server import ToolServer


class Said(msgspec.Struct, frozen=True):
    """What a person says, so many milliseconds after the agent has come to rest."""

    text: str
    after: int = 0


class Play(msgspec.Struct):
    """A scenario, set on the stage of one process. Every process makes it anew, from the top."""

    model: Model | Script
    """What it says must follow from what it is asked: another process asks it again, or goes on from there."""
    drive: Callable[[], Awaitable[None]] | None = None
    """What people and others do; without it, the `inputs` are said, each when the agent rests."""
    tools: Sequence[AnyTool] = ()
    options: ThreadOptions = ThreadOptions()
    inputs: Sequence[str | Said] = ()
    check: Callable[[Seen], object] | None = None
    """Looks at the end, and raises an AssertionError if it is not right."""
    untimely: bool = False
    """As soon as nobody knows how a call ended, the agent takes another course, which is only checked for order.

    So where a call is over sooner once its process died, and what was to interrupt it comes when it is over.
    """
    instructions: str = "You are tested."
    authority: Authority | None = None
    resident: bool = True
    """An engine runs; otherwise the client drives it step by step."""
    servers: Sequence[Toolset] = ()
    """What tool servers in memory have."""
    url: str = ""
    """The base URL of a real tool server, instead of those."""
    server: "ToolServer | None" = None
    """A tool server of the kit, which a chaos run with processes runs beside them, instead of those."""
    answering: Callable[[Received], int] = lambda _: 200
    """The status that servers in memory answer with."""
    before_acknowledging: Callable[[], Awaitable[object]] | None = None
    """What they do when they have taken a call, before they say so."""

    def repeatable(self) -> set[str]:
        """Return the names of the tools whose calls may be begun twice."""
        own = {tool.name for tool in self.tools if tool.idempotent or tool.resumable}
        remote = {
            tool.name
            for one in self.servers
            for tool in one.tools
            if one.idempotency_keys or tool.idempotent or tool.read_only
        }
        # A server of the kit knows the keys of its calls.
        served = {tool.name for tool in self.server.tools} if self.server is not None else set[str]()
        return own | remote | served
