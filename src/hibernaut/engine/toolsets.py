"""What tool servers have for threads: found once for a tree, kept with it, and judged like any other tool."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from hibernaut.codec import sha256
from hibernaut.errors import ConfigurationError, HibernautError, StoreError
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.fold import Refusal, Run, Verdict
from hibernaut.messages.tools import ToolSpec
from hibernaut.rap.display import display_of
from hibernaut.rap.manifest import Clash, RemoteTool, Toolset, merge, read_manifest
from hibernaut.rap.tool_servers import DiscoveryFailed, ToolServers
from hibernaut.stores.protocol import Store
from hibernaut.tools.table import Entry

logger = logging.getLogger(__name__)

MOST_READ: Final = 256
"""Manifests that are kept ready for use."""

DISCOVER_WITHIN: Final = 5_000
"""Milliseconds that a slice waits for the tools of servers; those that come later are there for the next one."""


class Found(msgspec.Struct, frozen=True):
    """What came of asking servers for their tools."""

    manifests: dict[str, Blob]
    """By the server's name."""
    problems: dict[str, str]
    """What is wrong, by the server's name: there are no tools, or those that it had before serve."""


class ServerTool(msgspec.Struct, frozen=True):
    """A tool of a server, as an entry of a thread's table."""

    server: str
    tool: RemoteTool

    @property
    def spec(self) -> ToolSpec:
        """What the model is shown."""
        return self.tool.spec

    @property
    def annotations(self) -> tuple[str, ...]:
        """What the server says of the tool."""
        return self.tool.flags

    def judge(self, values: dict[str, Any], written: str, now: int) -> Verdict:  # noqa: ARG002
        """Refuse what does not fit the schema; a server never sees it."""
        if problems := self.tool.problems(values):
            return Refusal(f"Not run. The arguments do not fit: {'; '.join(problems)}")
        return Run("background", server=self.server, event_schema=self.tool.event_schema)

    def display(self, values: dict[str, Any]) -> str:
        """Return what the server's script makes of the call."""
        script = self.tool.display_script
        return display_of(script, self.tool.name, values) if script else ""


class Toolsets:
    """Finds the tools of servers."""

    def __init__(self, servers: ToolServers, store: Store) -> None:
        self._servers = servers
        self._store = store
        self._latest: dict[str, bytes] = {}
        self._read: dict[bytes, Toolset] = {}

    def wanted(self, names: Collection[str] | None, known: Mapping[str, bytes]) -> list[str]:
        """Return which of the servers that a thread may use have to be asked; None stands for all."""
        return [name for name in self._servers.names if name not in known and (names is None or name in names)]

    async def find(self, names: Sequence[str]) -> Found:
        """Ask servers for their tools, all at once. What one had before serves while it cannot be reached."""
        found = Found({}, {})
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._find(name, found))
        return found

    async def _find(self, name: str, found: Found) -> None:
        try:
            async with asyncio.timeout(DISCOVER_WITHIN / 1_000):
                manifest = (await self._servers.discover(name)).manifest
        except TimeoutError:
            manifest = await self._stale(name, f"no answer within {DISCOVER_WITHIN / 1_000:g} s", found)
        except DiscoveryFailed as error:
            manifest = await self._stale(name, error.why, found) if error.unreachable else b""
            if not error.unreachable:
                found.problems[name] = f"its tools cannot be used: {error.why}"
        except ConfigurationError as error:
            told = str(error).removeprefix(f"tool server {name!r}: ")
            manifest, found.problems[name] = b"", f"its tools cannot be used: {told}"
        else:
            await self._remember(name, manifest)
        if manifest:
            blob = found.manifests[name] = Blob(sha256(manifest), manifest)
            self._keep(name, blob.digest, manifest)

    async def _remember(self, name: str, manifest: bytes) -> None:
        if self._latest.get(name) != manifest:
            self._latest[name] = manifest
            try:
                await self._store.write_note(_note(name), manifest)
            except StoreError:
                logger.warning("the tools of server %s are not remembered over a restart", name, exc_info=True)

    async def _stale(self, name: str, why: str, found: Found) -> bytes:
        """Return what a server had when it was last asked, b"" if nobody knows."""
        manifest = self._latest.get(name)
        if manifest is None:
            manifest = await self._store.read_note(_note(name)) or b""
        if manifest:
            self._latest[name] = manifest
            logger.info("server %s: %s; what it had before serves", name, why)
            found.problems[name] = f"{why}; what it had before serves"
        else:
            found.problems[name] = f"{why}; its tools come when it can be reached"
        return manifest

    async def entries(
        self, known: Mapping[str, bytes], taken: Collection[str]
    ) -> tuple[dict[str, Entry], tuple[Clash, ...]]:
        """Return the tools of manifests that a thread keeps, and the names that are refused."""
        toolsets = {name: await self.toolset(name, digest) for name, digest in known.items()}
        usable, clashes = merge({name: one for name, one in toolsets.items() if one is not None}, taken)
        return {name: ServerTool(server, tool) for name, (server, tool) in usable.items()}, tuple(clashes)

    async def toolset(self, server: str, digest: bytes) -> Toolset | None:
        """Return a toolset that a thread keeps; None if it cannot be read any more."""
        if digest not in self._read:
            manifest = await self._store.read_blob(digest)
            if manifest is None:
                return None
            self._keep(server, digest, manifest)
        return self._read.get(digest)

    def _keep(self, server: str, digest: bytes, manifest: bytes) -> None:
        try:
            toolset = read_manifest(manifest)
        except HibernautError as error:  # an older version took it
            logger.warning("the tools of server %s that are kept cannot be used: %s", server, error)
            return
        if len(self._read) >= MOST_READ:
            del self._read[next(iter(self._read))]
        self._read[digest] = toolset


def _note(server: str) -> str:
    return f"toolset:{server}"
