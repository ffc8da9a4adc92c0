"""Where an address leads, as far as trust goes: to which origin, and how far inside.

A server on the internet must not be able to point this runtime at what only this machine or its network can reach.
"""

import asyncio
import ipaddress
import socket
from typing import Final, Literal
from urllib.parse import urlsplit

Zone = Literal["public", "private", "link-local", "loopback"]
"""How far inside an address is."""

_PORTS: Final = {"http": 80, "https": 443}
_SEEN_FROM: Final[dict[Zone, frozenset[Zone]]] = {
    "public": frozenset({"public"}),
    "private": frozenset({"public", "private"}),
    "link-local": frozenset({"public", "link-local"}),
    "loopback": frozenset({"public", "private", "loopback"}),
}


def origin(url: str) -> str:
    """Return scheme, host and port of a URL, written in one way."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{(parts.hostname or '').rstrip('.')}:{parts.port or _PORTS[parts.scheme]}"


def host(url: str) -> str:
    """Return the host of a URL."""
    return (urlsplit(url).hostname or "").rstrip(".")


def is_loopback_host(name: str) -> bool:
    """Return whether a host is this machine by its very name."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return zone(name) == "loopback"
    except ValueError:
        return False


def zone(address: str) -> Zone:
    """Return how far inside an IP address is. `ValueError`: it is none."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    if ip.is_link_local:
        return "link-local"
    return "public" if ip.is_global else "private"


async def zones(name: str) -> frozenset[Zone]:
    """Return how far inside a host is, by all its addresses. `OSError`: it has none."""
    if is_loopback_host(name):
        return frozenset({"loopback"})
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return frozenset(zone(str(address[0])) for *_, address in found)


def may_lead(base: frozenset[Zone], target: frozenset[Zone]) -> bool:
    """Return whether a server may point at a target: not further inside than it is itself."""
    return all(any(there in _SEEN_FROM[here] for here in base) for there in target)
