"""The ids of calls on a provider's wire."""

import re
from base64 import b32encode

from hibernaut.codec import sha256
from hibernaut.messages.items import CallItem


class CallIds:
    """Gives every call of a transcript an id that its provider takes, and that no other call has.

    The provider's own id is used where it has one that is fit. Models repeat theirs, and other providers' have other
    alphabets: then one is made of the runtime's id. The same transcript has the same ids, however long it becomes.

    Args:
        fit: a pattern of the whole id.
        prefix: what an id that is made begins with.
        length: how many letters and digits follow, 26 at most.
    """

    __slots__ = ("_fit", "_length", "_prefix", "_used", "_wire")

    def __init__(self, fit: str = r"[A-Za-z0-9_-]{1,64}", prefix: str = "call_", length: int = 26) -> None:
        self._fit = re.compile(fit)
        self._prefix = prefix
        self._length = length
        self._used: set[str] = set()
        self._wire: dict[str, str] = {}

    def begin(self, call: CallItem) -> str:
        """Return the id of a call that is written now."""
        name = call.provider_id
        tries = 0
        while not self._fit.fullmatch(name) or name in self._used:
            again = b"~%d" % tries if tries else b""
            digest = b32encode(sha256(call.id.encode(), again)[:16]).decode().lower()
            name = self._prefix + digest[: self._length].rstrip("=")
            tries += 1
        self._used.add(name)
        self._wire[call.id] = name
        return name

    def of(self, call_id: str) -> str:
        """Return the id of the call that a result answers."""
        return self._wire.pop(call_id)
