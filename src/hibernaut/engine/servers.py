"""What an engine is given of tool servers. What works with it is loaded only where there are any."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from hibernaut.tools.tokens import KeyRing

if TYPE_CHECKING:
    from hibernaut.rap.servers import HeadersFor
    from hibernaut.rap.tool_servers import ToolServers


ADDRESS_NOTE: Final = "callbacks:address"
"""The note of the address that the servers of all open calls have been told; see `address_note`."""


def address_note(tenant: str | None) -> str:
    """Return the key of that note, for the open calls of one tenant, or of all."""
    return f"{ADDRESS_NOTE}:{tenant}" if tenant else ADDRESS_NOTE


class Remote(msgspec.Struct, frozen=True):
    """Tool servers, and how they reach the runtime."""

    servers: "ToolServers"
    public: str
    """The base URL of the receiver of callbacks."""
    keys: KeyRing
    """What signs their tokens."""
    moved: bool = False
    """Calls that are open were told another address."""
    headers_for: "Mapping[str, HeadersFor]" = {}
    """What says who asks, of the servers of which it depends on whose call it is."""
