"""What a thread was launched with, made ready for use: configurations by digest, their tools found again by name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.config import LaunchConfig, decode_config
from hibernaut.kernel.sizes import frame_tokens
from hibernaut.stores.protocol import Store
from hibernaut.tools.builtin import BUILT_IN
from hibernaut.tools.table import Entry, ToolTable
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from hibernaut.engine.toolsets import Toolsets
    from hibernaut.rap.manifest import Clash

MOST_EQUIPPED = 1_024
"""Launches with the tools of servers that are kept ready."""


class Launch(msgspec.Struct, frozen=True):
    """A launch configuration and the tools it names, as far as this program has them."""

    config: LaunchConfig
    table: ToolTable
    frame: int = 0
    """Tokens that its instructions and its tools take of every prompt, as estimated."""
    clashes: "tuple[Clash, ...]" = ()
    """Tools of servers that are refused for their names."""


class Launches:
    """Finds launch configurations. They never change, so each is read and prepared once."""

    def __init__(self, store: Store, tools: Mapping[str, AnyTool], toolsets: "Toolsets | None" = None) -> None:
        self._store = store
        self._tools = tools
        self._toolsets = toolsets
        self._known: dict[bytes, Launch] = {}
        self._equipped: dict[tuple[bytes, tuple[tuple[str, bytes], ...]], Launch] = {}

    async def get(self, digest: bytes) -> Launch:
        """Return a configuration, without the tools of servers.

        Raises:
            StoreCorrupt: the store does not have it.
        """
        launch = self._known.get(digest)
        if launch is None:
            data = await self._store.read_config(digest)
            if data is None:
                raise StoreCorrupt(f"launch configuration {digest.hex()[:12]} is not in the store")
            launch = self._known[digest] = self._ready(decode_config(data), {})
        return launch

    async def equipped(self, digest: bytes, known: Mapping[str, bytes]) -> Launch:
        """Return a configuration with the tools of the manifests that a thread keeps, by their servers.

        Raises:
            StoreCorrupt: the store does not have it.
        """
        launch = await self.get(digest)
        if not known or self._toolsets is None:
            return launch
        key = (digest, tuple(sorted(known.items())))
        equipped = self._equipped.get(key)
        if equipped is None:
            own = {*self._tools, *(function.__name__ for function in BUILT_IN)}
            entries, clashes = await self._toolsets.entries(dict(key[1]), own)
            equipped = replace(self._ready(launch.config, entries), clashes=clashes)
            if len(self._equipped) >= MOST_EQUIPPED:
                del self._equipped[next(iter(self._equipped))]
            self._equipped[key] = equipped
        return equipped

    def _ready(self, config: LaunchConfig, others: Mapping[str, Entry]) -> Launch:
        table = ToolTable(list(self._tools.values()), config.tools, config.authority.tools, others=others)
        return Launch(config, table, frame_tokens(config.instructions, table.specs))
