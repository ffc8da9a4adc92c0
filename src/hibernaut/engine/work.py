"""An effect with what whoever performs it may know of its thread."""

import msgspec

from hibernaut.kernel.commit import Effect
from hibernaut.kernel.config import LaunchConfig, decode_config
from hibernaut.kernel.head import Head, metadata_of
from hibernaut.stores.protocol import EffectRow, Store


class Work(msgspec.Struct, frozen=True, gc=False):
    """An effect that is to be performed."""

    effect: Effect
    thread_id: str
    tenant: str = ""
    user: str = ""
    """On whose behalf the thread works."""
    metadata: str = ""
    above: tuple[str, ...] = ()
    """The threads above it, the root first."""
    toolset: bytes = b""
    """SHA-256 of the manifest that the thread keeps of the effect's server."""
    trace: bytes = b""
    """Where the thread stands in the traces of whoever runs it."""


def work_for(effect: Effect, head: Head, config: LaunchConfig) -> Work:
    """Return an effect of a thread as work."""
    above = head.link.stack if head.link else ()
    toolset = head.toolsets.get(effect.server, b"")
    metadata = metadata_of(head, head.calls.get(effect.call_id))
    return Work(effect, head.thread_id, config.tenant, config.user, metadata, above, toolset, head.trace)


async def work_of(store: Store, row: EffectRow, head: Head) -> Work:
    """Return what stands in the outbox as work."""
    data = await store.read_config(head.config)
    return work_for(row.effect, head, decode_config(data) if data is not None else LaunchConfig())
