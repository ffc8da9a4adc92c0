"""What a thread was launched with, made ready for use: configurations by digest, their tools found again by name."""

from collections.abc import Mapping

import msgspec

from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.config import LaunchConfig, decode_config
from hibernaut.kernel.sizes import frame_tokens
from hibernaut.stores.protocol import Store
from hibernaut.tools.table import ToolTable
from hibernaut.tools.tool import AnyTool


class Launch(msgspec.Struct, frozen=True):
    """A launch configuration and the tools it names, as far as this program has them."""

    config: LaunchConfig
    table: ToolTable
    frame: int = 0
    """Tokens that its instructions and its tools take of every prompt, as estimated."""


class Launches:
    """Finds launch configurations. They never change, so each is read and prepared once."""

    def __init__(self, store: Store, tools: Mapping[str, AnyTool]) -> None:
        self._store = store
        self._tools = tools
        self._known: dict[bytes, Launch] = {}

    async def get(self, digest: bytes) -> Launch:
        """Return a configuration.

        Raises:
            StoreCorrupt: the store does not have it.
        """
        launch = self._known.get(digest)
        if launch is None:
            data = await self._store.read_config(digest)
            if data is None:
                raise StoreCorrupt(f"launch configuration {digest.hex()[:12]} is not in the store")
            config = decode_config(data)
            table = ToolTable(list(self._tools.values()), config.tools, config.authority.tools)
            launch = self._known[digest] = Launch(config, table, frame_tokens(config.instructions, table.specs))
        return launch
