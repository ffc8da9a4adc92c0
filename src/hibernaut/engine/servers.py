"""What an engine is given of tool servers. What works with it is loaded only where there are any."""

from typing import TYPE_CHECKING, Final

import msgspec

from hibernaut.tools.tokens import KeyRing

if TYPE_CHECKING:
    from hibernaut.rap.tool_servers import ToolServers


ADDRESS_NOTE: Final = "callbacks:address"
"""The note of the address that the servers of all open calls have been told."""


class Remote(msgspec.Struct, frozen=True):
    """Tool servers, and how they reach the runtime."""

    servers: "ToolServers"
    public: str
    """The base URL of the receiver of callbacks."""
    keys: KeyRing
    """What signs their tokens."""
    moved: bool = False
    """Calls that are open were told another address."""
