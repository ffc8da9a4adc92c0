"""What an engine asks of tool servers, by their names. It never sees a connection, a process or a credential."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from hibernaut.errors import ConfigurationError, HibernautError
from hibernaut.rap.answers import Liveness
from hibernaut.rap.manifest import Toolset
from hibernaut.rap.replies import Reply
from hibernaut.rap.requests import AskStatus, CancelToolCall, CloseThread, Invocation, Migrate, Selected


class Discovered(msgspec.Struct, frozen=True):
    """What a server says it has: its manifest as it came off the wire, and read."""

    manifest: bytes
    toolset: Toolset


class DiscoveryFailed(HibernautError):
    """A server's tools cannot be had now.

    `unreachable`: it did not answer or is in trouble, so that a toolset of before may still serve; otherwise it
    answered something that cannot be used. `again_at`: it is not asked before, in milliseconds since 1970.
    """

    code = "discovery_failed"

    def __init__(self, server: str, why: str, *, unreachable: bool, again_at: int, left: int) -> None:
        super().__init__(
            f"the tools of server {server!r} cannot be had: {why}; it is asked again in {left / 1_000:g} s"
        )
        self.server = server
        self.why = why
        self.unreachable = unreachable
        self.again_at = again_at


class EndpointRefused(ConfigurationError):
    """A server leads to an address that it is not trusted to lead to. Nothing was sent."""

    code = "endpoint_refused"


class UnknownServer(ConfigurationError):
    """No tool server of that name is configured."""

    code = "unknown_server"


class ToolServers(Protocol):
    """Tool servers by name. Every method may raise what is said of all of them.

    Raises:
        NoAnswer: nothing came back (`status` says "unknown" instead).
        UnknownServer: there is none of that name.
        EndpointRefused: the message would go where the server is not trusted to lead to.
        ConfigurationError: a credential cannot be read.
    """

    @property
    def names(self) -> Sequence[str]:
        """The names of the servers, in the order that models are shown their tools."""
        ...

    async def discover(self, name: str) -> Discovered:
        """Ask for a server's tools. Whoever asks while somebody does already gets the same answer.

        Raises:
            DiscoveryFailed: instead of NoAnswer; for a while after it, at once.
        """
        ...

    async def invoke(self, name: str, invocation: Invocation, headers: Mapping[str, str], endpoint: str) -> Reply:
        """Post a call. `endpoint` is that of the caller's manifest; a newer one that is known here goes before it."""
        ...

    async def cancel(self, name: str, notice: CancelToolCall) -> Reply:
        """Tell that a call or subscription is not wanted any more."""
        ...

    async def close_thread(self, name: str, notice: CloseThread) -> Reply:
        """Tell that a thread has ended."""
        ...

    async def status(self, name: str, question: AskStatus) -> Liveness:
        """Ask whether a call is still at work. No answer is "unknown", and not raised."""
        ...

    async def select(self, name: str, url: str, answer: Selected) -> Reply:
        """Post a person's answer to the `response_url` of a choice."""
        ...

    async def migrate(self, name: str, order: Migrate) -> Reply:
        """Have the state of a session moved to another server."""
        ...
