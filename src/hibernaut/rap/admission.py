"""What a request to a runtime must look like before a byte of its body is read.

A page in a browser can be made to post to this machine. It cannot leave out its `Origin`, cannot send JSON without
asking first, and, led here under a name of its own (DNS rebinding), names that name as `Host`.
"""

import ipaddress
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from hibernaut.errors import HibernautError, TooLarge
from hibernaut.messages.text import clean, shorten
from hibernaut.rap.answers import Answer, answer_to
from hibernaut.rap.limits import WireLimits

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names under which a listener on this machine is reached."""

_JSON: Final = "application/json"
_UTF8: Final = ("utf-8", "utf8")
_LONGEST_NAMED: Final = 100
_MOST_DIGITS: Final = 18


class Refusal(msgspec.Struct, frozen=True):
    """Why something was not taken: a code to count it by, and the answer."""

    code: str
    answer: Answer


class Heading(msgspec.Struct, frozen=True):
    """The headers that matter here, each with all its values."""

    host: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()
    content_type: tuple[str, ...] = ()
    content_encoding: tuple[str, ...] = ()
    content_length: tuple[str, ...] = ()
    idempotency_key: tuple[str, ...] = ()
    forwarded: tuple[str, ...] = ()
    """Of whatever a proxy says about whom it speaks for."""


_FIELDS: Final = {
    b"host": "host",
    b"origin": "origin",
    b"content-type": "content_type",
    b"content-encoding": "content_encoding",
    b"content-length": "content_length",
    b"idempotency-key": "idempotency_key",
    b"forwarded": "forwarded",
    b"x-forwarded-for": "forwarded",
    b"x-real-ip": "forwarded",
}


def heading(headers: Iterable[Sequence[bytes]]) -> Heading:
    """Return the headers that matter; their names are in lower case."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in headers:
        if (field := _FIELDS.get(name)) is not None:
            found[field] = (*found.get(field, ()), value.decode("latin-1").strip())
    return Heading(**found)


def refusal_to(error: HibernautError) -> Refusal:
    """Return why a callback is refused that was read, and the answer."""
    return Refusal(error.code, answer_to(error))


def wrong_method(allowed: str) -> Refusal:
    """Return the refusal of a method."""
    return _refusal(405, "method_refused", f"only {allowed} is taken here", ("Allow", allowed))


def unknown_path() -> Refusal:
    """Return the refusal of a path."""
    return _refusal(404, "unknown_path", "there is nothing at this path")


def check_sender(head: Heading, hosts: Collection[str] | None) -> Refusal | None:
    """Refuse what is sent under a foreign name, or by a page in a browser. `hosts` of None: any name."""
    if len(head.host) != 1 or not head.host[0]:
        return _refusal(400, "host_refused", "the request must name one host")
    host = head.host[0].lower()
    if hosts is not None and host not in hosts and _without_port(host) not in hosts:
        named = shorten(clean(host), _LONGEST_NAMED)
        return _refusal(421, "host_refused", f"this listener is not called {named!r}")
    if head.origin:
        return _refusal(403, "origin_refused", "pages in a browser cannot deliver here")
    return None


def check_content(head: Heading, limits: WireLimits) -> Refusal | None:
    """Refuse what is not plain JSON, or says that it is above its bound."""
    if not _is_json(head.content_type) or any(coding.lower() != "identity" for coding in head.content_encoding):
        return _refusal(415, "content_type_refused", f"the body must be {_JSON}, in UTF-8 and not compressed")
    written = head.content_length[0] if head.content_length else "0"
    if not (written.isascii() and written.isdigit()):
        return _refusal(400, "malformed_input", "the Content-Length is no number")
    size = int(written[:_MOST_DIGITS])
    if size > limits.callback_bytes:
        return refusal_to(TooLarge("the callback", size, limits.callback_bytes, "callback_bytes"))
    return None


def is_loopback(peer: str) -> bool:
    """Tell whether an address is one of this machine's own."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _is_json(written: tuple[str, ...]) -> bool:
    if written == (_JSON,):
        return True
    if len(written) != 1:
        return False
    kind, *parameters = (part.strip().lower() for part in written[0].split(";"))
    charsets = [part.partition("=")[2].strip('"') for part in parameters if part.startswith("charset=")]
    return kind == _JSON and all(charset in _UTF8 for charset in charsets)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


def _refusal(status: int, code: str, words: str, *headers: tuple[str, str]) -> Refusal:
    body = msgspec.json.encode({"error": code, "message": words})
    return Refusal(code, Answer(status, body, (("Content-Type", _JSON), *headers)))
