"""Where a tool server may lead: its endpoint, and the addresses that it names for answers."""

import asyncio
from typing import Final, Protocol

from hibernaut.errors import MalformedInput
from hibernaut.rap.origins import host, is_loopback_host, may_lead, origin, zones
from hibernaut.rap.reading import shown
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.tool_servers import EndpointRefused
from hibernaut.rap.wire import check_address

_ALLOW: Final = "; `RemoteServer(trust_endpoint=True)` allows it, or `trust_endpoint = true` in a .toml file"


class Guide(Protocol):
    """A server, as far as matters for where it may lead."""

    @property
    def name(self) -> str:
        """What it is called in refusals."""
        ...

    @property
    def has_credentials(self) -> bool:
        """Whether requests to it say who asks."""
        ...

    @property
    def trust_endpoint(self) -> bool:
        """Whether it may lead anywhere, and the credentials with it."""
        ...

    @property
    def connect_within(self) -> int:
        """Milliseconds in which hosts must be found."""
        ...


async def check_lead(
    server: Guide, base: str, url: str, what: str, *, bare: bool = False, endpoint: str | None = None
) -> bool:
    """Check that a server may lead to an address, and return whether its credentials go there.

    Args:
        server: who leads.
        base: where it is.
        url: where it leads to.
        what: names the address in refusals.
        bare: rather go without credentials than not at all.
        endpoint: the server's endpoint, if it is known: what is at its origin is the server itself.

    Raises:
        EndpointRefused: it may not.
        NoAnswer: the host of one of them cannot be found.
    """
    try:
        check_address(what, url)
    except MalformedInput as error:
        raise _refused(server, str(error)) from None
    if origin(url) == origin(base):
        return True
    named = f"{what}, {shown(url)},"
    if not server.trust_endpoint and not await _may_lead(server, base, url):
        raise _refused(server, f"{named} is further inside this machine or network than the server may lead{_ALLOW}")
    if not server.has_credentials or (bare and (endpoint is None or origin(url) != origin(endpoint))):
        return False
    if not server.trust_endpoint:
        raise _refused(server, f"{named} is at another origin than its url; credentials are not sent there{_ALLOW}")
    if url.startswith("http:") and not is_loopback_host(host(url)):
        raise _refused(server, f"{named} is not https: credentials would go there in the clear")
    return True


async def _may_lead(server: Guide, base: str, url: str) -> bool:
    if host(base) == host(url):
        return True
    try:
        async with asyncio.timeout(server.connect_within / 1_000):
            return may_lead(await zones(host(base)), await zones(host(url)))
    except (OSError, UnicodeError) as error:
        raise NoAnswer(url, f"its host cannot be found: {error}", reached=False) from error


def _refused(server: Guide, why: str) -> EndpointRefused:
    return EndpointRefused(f"tool server {server.name!r}: {why}")
