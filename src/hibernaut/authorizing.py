"""What a thread may do, seen from outside: read, explained, and kept for whoever changes it."""

from collections.abc import Mapping
from typing import Any

from hibernaut.codec import pack, sha256
from hibernaut.errors import HibernautError, StoreCorrupt
from hibernaut.kernel.authority import Authority, Facts, Judge, Judgement, check_authority, decode_authority
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.config import decode_config
from hibernaut.kernel.head import Head
from hibernaut.rap.manifest import read_manifest
from hibernaut.stores.protocol import Store
from hibernaut.tools.table import annotations_of
from hibernaut.tools.tool import AnyTool


async def authority_of(store: Store, head: Head) -> Authority:
    """Return what a thread may do now.

    Raises:
        StoreCorrupt: the store does not have it.
    """
    data = await (store.read_blob(head.authority) if head.authority else store.read_config(head.config))
    if data is None:
        raise StoreCorrupt(f"the authority of thread {head.thread_id!r} is not in the store")
    return decode_authority(data) if head.authority else decode_config(data).authority


async def explain(
    store: Store, tools: Mapping[str, AnyTool], head: Head, tool: str, arguments: Mapping[str, Any]
) -> Judgement:
    """Say what would become of a call of a thread, and by which rule.

    Raises:
        StoreCorrupt: the store does not have the thread's authority.
    """
    facts = await facts_of(store, tools, head, tool)
    return Judge(await authority_of(store, head)).decide(tool, facts, dict(arguments))


async def facts_of(store: Store, tools: Mapping[str, AnyTool], head: Head, tool: str) -> Facts:
    """Return what is known of a tool: of this program, or of a server whose tools the thread has."""
    if tool in tools:
        return Facts("", frozenset(annotations_of(tools[tool])))
    for server, digest in head.toolsets.items():
        manifest = await store.read_blob(digest)
        try:
            remote = read_manifest(manifest).tools if manifest is not None else ()
        except HibernautError:  # an older version took it; the engine says so when it meets it
            continue
        for one in remote:
            if one.name == tool:
                return Facts(server, frozenset(one.flags))
    return Facts()


def packed(authority: Authority) -> Blob:
    """Return an authority as it is stored.

    Raises:
        ConfigurationError: it cannot be meant.
    """
    body = pack(check_authority(authority))
    return Blob(sha256(body), body)
