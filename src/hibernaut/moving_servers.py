"""What a move has to do with tool servers: what they keep moves along, and open calls learn a new callback address."""

from collections.abc import Mapping

import msgspec

from hibernaut.errors import HibernautError
from hibernaut.kernel.commit import Effect
from hibernaut.kernel.head import decode_head
from hibernaut.messages.text import decode, excerpt
from hibernaut.rap.answers import LONGEST_EXCERPT, fate_of_call
from hibernaut.rap.manifest import Toolset, read_manifest
from hibernaut.rap.requests import Migrate
from hibernaut.rap.tool_servers import ToolServers
from hibernaut.stores.protocol import Store


class ServerRefused(HibernautError):
    """A tool server has not moved what it keeps."""

    code = "server_refused"


class ServersOfTree(msgspec.Struct, frozen=True):
    """The tool servers that a tree uses, by name: what they said of themselves when it asked them."""

    toolsets: dict[str, Toolset]

    def to_move(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return where the state of each server that keeps any goes; "" where nobody has said it."""
        keeping = [name for name, toolset in self.toolsets.items() if toolset.needs_migration]
        return {name: places.get(name, "") for name in keeping}

    def may_repeat(self, effect: Effect) -> bool:
        """Tell whether a call may be sent to its server anew: it does the work of one key once."""
        toolset = self.toolsets.get(effect.server)
        return toolset is not None and toolset.idempotency_keys


async def servers_of_tree(store: Store, root: str) -> ServersOfTree:
    """Return the tool servers that a tree uses. Of several manifests of one server, one that restricts more counts."""
    digests = {entry for row in await store.read_tree(root) for entry in decode_head(row.head).head.toolsets.items()}
    found: dict[str, Toolset] = {}
    for name, digest in sorted(digests):
        manifest = await store.read_blob(digest)
        if manifest is not None:
            found[name] = _stricter(read_manifest(manifest), found.get(name))
    return ServersOfTree(found)


def _stricter(toolset: Toolset, other: Toolset | None) -> Toolset:
    if other is None:
        return toolset
    return msgspec.structs.replace(
        toolset,
        needs_migration=toolset.needs_migration or other.needs_migration,
        idempotency_keys=toolset.idempotency_keys and other.idempotency_keys,
    )


class MovingServers:
    """Has tool servers move what they keep: see `hibernaut.moving.MigratesServers`."""

    def __init__(self, servers: ToolServers) -> None:
        self._servers = servers

    async def migrate(self, server: str, session_id: str, destination_url: str) -> None:
        """Ask a server once.

        Raises:
            ServerRefused: naming its answer. NoAnswer.
        """
        reply = await self._servers.migrate(server, Migrate(session_id, destination_url))
        if fate_of_call(reply.status) != "taken":
            words = excerpt(decode(reply.body).strip(), LONGEST_EXCERPT)
            raise ServerRefused(f"it answered with status {reply.status}" + (f": {words}" if words else ""))
