"""The names of tools on a provider's wire."""

import re
from base64 import b32encode
from typing import Final

from hibernaut.codec import sha256

REMEMBERED: Final = 10_000
"""Names that had to be changed and are known again when a model calls them; then the oldest is forgotten."""

_DIGEST: Final = 10


class ToolNames:
    """Gives tools names that a provider takes, the same at all times, and knows them again.

    A name that is fit is used as it is. Any other is cut, what does not fit in it becomes `_`, and letters and digits
    that are made from the whole of it are added.

    Args:
        fit: a pattern of the whole name; it must take letters, digits and `_`, and a name that begins with `_`.
        longest: characters that a name may have.
    """

    __slots__ = ("_fit", "_longest", "_names")

    def __init__(self, fit: str, longest: int) -> None:
        self._fit = re.compile(fit)
        self._longest = longest
        self._names: dict[str, str] = {}

    def on_wire(self, name: str) -> str:
        """Return the name that the provider is told."""
        if self._fit.fullmatch(name):
            return name
        digest = b32encode(sha256(name.encode("utf-8", "surrogatepass"))).decode().lower()[:_DIGEST]
        begin = re.sub(r"[^A-Za-z0-9_]", "_", name)[: self._longest - _DIGEST - 2]
        wire = ("" if begin[:1].isalpha() else "_") + begin + "_" + digest
        if wire not in self._names and len(self._names) >= REMEMBERED:
            del self._names[next(iter(self._names))]
        self._names[wire] = name
        return wire

    def of(self, wire: str) -> str:
        """Return the name of the tool that a model calls."""
        return self._names.get(wire, wire)
