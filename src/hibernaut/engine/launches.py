"""What a thread was launched with, made ready for use: configurations by digest, their tools found again by name."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.authority import OPEN, Judge, decode_authority
from hibernaut.kernel.config import LaunchConfig, decode_config
from hibernaut.kernel.head import Head
from hibernaut.kernel.sizes import frame_tokens
from hibernaut.messages.inputs import Command, Delivered
from hibernaut.stores.protocol import Store
from hibernaut.tools.builtin import BUILT_IN
from hibernaut.tools.table import Entry, ToolTable
from hibernaut.tools.tool import AnyTool

if TYPE_CHECKING:
    from hibernaut.engine.toolsets import Toolsets
    from hibernaut.rap.manifest import Clash

logger = logging.getLogger(__name__)

MOST_EQUIPPED = 1_024
"""Launches with the tools of servers that are kept ready."""


class Launch(msgspec.Struct, frozen=True):
    """A launch configuration and the tools it names, as far as this program has them."""

    config: LaunchConfig
    table: ToolTable
    frame: int = 0
    """Tokens that its instructions and its tools take of every prompt, as estimated."""
    authority: Judge = OPEN
    """What the thread may do now."""
    clashes: "tuple[Clash, ...]" = ()
    """Tools of servers that are refused for their names."""


class Launches:
    """Finds launch configurations. They never change, so each is read and prepared once."""

    def __init__(self, store: Store, tools: Mapping[str, AnyTool], toolsets: "Toolsets | None" = None) -> None:
        self._store = store
        self._tools = tools
        self._toolsets = toolsets
        self._known: dict[bytes, Launch] = {}
        self._authorities: dict[bytes, Judge] = {}
        self._equipped: dict[tuple[bytes, bytes, tuple[tuple[str, bytes], ...]], Launch] = {}

    def ready(self, head: Head) -> Launch | None:
        """Return the same as `get`, if nothing has to be read for it."""
        return None if head.authority else self._known.get(head.config)

    async def get(self, head: Head) -> Launch:
        """Return what a thread was launched with, without the tools of servers, and what it may do now.

        Raises:
            StoreCorrupt: the store does not have it.
        """
        launch = self._known.get(head.config)
        if launch is None:
            data = await self._store.read_config(head.config)
            if data is None:
                raise StoreCorrupt(f"launch configuration {head.config.hex()[:12]} is not in the store")
            config = decode_config(data)
            launch = self._known[head.config] = self._ready(config, Judge(config.authority), {})
        if not head.authority:
            return launch
        return replace(launch, authority=await self._authority(head.authority))

    async def authorities(self, head: Head, inputs: Sequence[Delivered]) -> dict[bytes, Judge]:
        """Return what inputs want a thread to be allowed, by digest; what the store does not have is left out."""
        contents = [one.message.content for one in inputs if one.message]
        wanted = {one.authority for one in contents if isinstance(one, Command) and one.action == "authorize"}
        found: dict[bytes, Judge] = {}
        for digest in wanted:
            try:
                found[digest] = (await self.get(replace(head, authority=digest))).authority
            except StoreCorrupt as error:
                logger.warning("thread %s was not given another authority: %s", head.thread_id, error)
        return found

    async def equipped(self, head: Head) -> Launch:
        """Return the same with the tools of servers, as the thread keeps them.

        Raises:
            StoreCorrupt: the store does not have it.
        """
        launch = await self.get(head)
        keeps = head.toolsets if self._toolsets is not None else {}
        if not keeps and not head.authority:
            return launch
        key = (head.config, head.authority, tuple(sorted(keeps.items())))
        equipped = self._equipped.get(key)
        if equipped is None:
            entries: Mapping[str, Entry] = {}
            clashes: tuple[Clash, ...] = ()
            if keeps and self._toolsets is not None:
                own = {*self._tools, *(function.__name__ for function in BUILT_IN)}
                entries, clashes = await self._toolsets.entries(dict(key[2]), own)
            equipped = replace(self._ready(launch.config, launch.authority, entries), clashes=clashes)
            if len(self._equipped) >= MOST_EQUIPPED:
                del self._equipped[next(iter(self._equipped))]
            self._equipped[key] = equipped
        return equipped

    async def _authority(self, digest: bytes) -> Judge:
        judge = self._authorities.get(digest)
        if judge is None:
            data = await self._store.read_blob(digest)
            if data is None:
                raise StoreCorrupt(f"authority {digest.hex()[:12]} is not in the store")
            judge = Judge(decode_authority(data))
            if len(self._authorities) >= MOST_EQUIPPED:
                del self._authorities[next(iter(self._authorities))]
            self._authorities[digest] = judge
        return judge

    def _ready(self, config: LaunchConfig, authority: Judge, others: Mapping[str, Entry]) -> Launch:
        table = ToolTable(list(self._tools.values()), config.tools, authority.shows, others=others)
        return Launch(config, table, frame_tokens(config.instructions, table.specs), authority)
