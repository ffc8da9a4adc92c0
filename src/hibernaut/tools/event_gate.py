"""Which events get in: the one place where an event is held against what its subscription and its thread demand.

Every door asks it before it stores an event, so that whoever sends one can be told; every slice asks it for the events
that it is about to take in, since doors may have been passed by, or what is demanded may have changed.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeVar

from hibernaut.errors import EventMisfit, StoreCorrupt
from hibernaut.kernel.authority import Judge, decode_authority
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.config import decode_config
from hibernaut.kernel.head import Call, Registry, Standing
from hibernaut.kernel.subscriptions import refusal_of, size_of
from hibernaut.messages.inputs import Delivered, Event
from hibernaut.messages.parts import Content, Excerpt, Text, is_blank
from hibernaut.tools.event_schema import misfit

T = TypeVar("T")

MOST_KEPT: Final = 1_024
"""Authorities and schemas that are kept ready for use, of each."""


class Contents(Protocol):
    """Where what never changes is found by its digest."""

    async def read_blob(self, digest: bytes) -> bytes | None:
        """Return a blob; None if there is none."""
        ...

    async def read_config(self, digest: bytes) -> bytes | None:
        """Return a launch configuration; None if there is none."""
        ...


class EventGate:
    """Judges events."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._judges: dict[bytes, Judge] = {}
        self._schemas: dict[bytes, bytes] = {}

    async def check(self, thread: Registry, event: Event, now: int, blobs: Iterable[Blob] = ()) -> None:
        """Check an event that has just been delivered; `blobs` are those that it brings. A last event always gets in.

        Raises:
            EventMisfit, EventNotTaken, SubscriptionOver, TooLarge: it does not get in.
            StoreCorrupt: what it must be held against is not in the store.
        """
        call = thread.calls.get(event.call_id)
        if call is None or event.final:  # that it is over is never lost; what it says of that may be
            return
        refusal = refusal_of(await self._judge(thread), call, size_of(event.content, blobs), now)
        if refusal is not None:
            raise refusal
        beside = {blob.digest: blob.data for blob in blobs}
        if problems := await self._problems(call, event, beside):
            raise EventMisfit(call.tool, problems)

    async def misfits(self, calls: Mapping[str, Call], inputs: Iterable[Delivered]) -> dict[str, str]:
        """Return what is wrong with events that do not fit the schemas of their subscriptions, by message id.

        Raises:
            StoreCorrupt: a schema, or what an event says, is not in the store.
        """
        found: dict[str, str] = {}
        for arrived in inputs:
            message = arrived.message
            if message is None or not isinstance(message.content, Event) or message.sender == "engine":
                continue
            call = calls.get(message.content.call_id)
            if call is not None and (problems := await self._problems(call, message.content, {})):
                found[arrived.message_id] = problems
        return found

    async def _problems(self, call: Call | Standing, event: Event, beside: Mapping[bytes, bytes]) -> str:
        if not call.event_schema or (event.final and is_blank(event.content)):
            return ""
        text = await self._text_of(event.content, beside)
        return "it is not one text" if text is None else misfit(await self._schema(call.event_schema), text)

    async def _text_of(self, content: Content, beside: Mapping[bytes, bytes]) -> str | None:
        """Return what a content says, wholly; None if it is anything else than one text."""
        if isinstance(content, str):
            return content
        if len(content) != 1 or not isinstance(only := content[0], Text | Excerpt):
            return None
        if isinstance(only, Text):
            return only.text
        whole = beside.get(only.blob) or await self._contents.read_blob(only.blob)
        if whole is None:
            raise StoreCorrupt(f"blob {only.blob.hex()[:12]}, which an event says, is not in the store")
        return whole.decode("utf-8", "replace")

    async def _schema(self, digest: bytes) -> bytes:
        schema = self._schemas.get(digest)
        if schema is None:
            schema = await self._contents.read_blob(digest)
            if schema is None:
                raise StoreCorrupt(f"event schema {digest.hex()[:12]} is not in the store")
            _keep(self._schemas, digest, schema)
        return schema

    async def _judge(self, thread: Registry) -> Judge:
        digest = thread.authority or thread.config
        judge = self._judges.get(digest)
        if judge is None:
            contents = self._contents
            data = await (contents.read_blob(digest) if thread.authority else contents.read_config(digest))
            if data is None:
                raise StoreCorrupt(f"authority {digest.hex()[:12]} is not in the store")
            judge = Judge(decode_authority(data) if thread.authority else decode_config(data).authority)
            _keep(self._judges, digest, judge)
        return judge


def _keep(kept: dict[bytes, T], digest: bytes, value: T) -> None:
    if len(kept) >= MOST_KEPT:
        del kept[next(iter(kept))]
    kept[digest] = value
