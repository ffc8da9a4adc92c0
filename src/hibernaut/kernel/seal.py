"""From a draft to the commit: the page, the digests, the receipt."""

from collections.abc import Collection

import msgspec

from hibernaut.codec import sha256
from hibernaut.kernel.commit import Disposition, SliceCommit
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Extra, encode_head
from hibernaut.kernel.provenance import Entry
from hibernaut.kernel.receipt import Receipt, TurnCommit, encode_receipt, next_history
from hibernaut.messages.events import Usage
from hibernaut.messages.inputs import InputMessage
from hibernaut.messages.items import encode_page

_NOT_FINAL = (Disposition.DEFERRED, Disposition.HELD)


class Asked(msgspec.Struct, gc=False):
    """What the receipt says of a completion."""

    turn: TurnCommit = TurnCommit.NONE
    model: str = ""
    shown: int = 0
    attempt: int = 0
    usage: Usage | None = None
    estimated: int = 0
    tools: bytes = b""


def seal(
    draft: Draft,
    asked: Asked,
    *,
    started: int,
    now: int,
    build: str,
    extra: Extra | None = None,
) -> SliceCommit:
    """Close a draft. Its head gets the next version; the draft must not be used again, the head may."""
    head = draft.head
    page = encode_page(draft.items)
    consumed = tuple([name for name, disposition in draft.dispositions if disposition not in _NOT_FINAL])
    head.version += 1
    head.items += len(draft.items)
    if draft.authority.seconds:
        head.worked += now - started
    head.size += len(page)
    head.history = next_history(head.history, page)
    known_build, head.build = head.build, build
    tools = asked.tools if asked.tools != head.tools else b""
    if tools:
        head.tools = tools
    first, took = head.version == 1, now - started
    inputs = tuple(draft.dispositions)
    owes = _owes(draft) if draft.effects else ()
    config = head.config if first else b""
    authority = head.authority if first or draft.reauthorized else b""
    provenance = _provenance(draft) if draft.provenance else ()
    # In the order of their fields: by their names both would take four times as long, and every slice makes them.
    receipt = encode_receipt(
        Receipt(
            head.version,
            head.receipts,
            head.history,
            inputs,
            asked.turn,
            draft.calls,
            owes,
            draft.settled,
            asked.usage,
            asked.model,
            asked.shown,
            asked.attempt,
            head.attempts,
            started,
            took,
            tools,
            config,
            "" if build == known_build else build,
            authority,
            provenance,
            draft.edits,
            asked.estimated,
        )
    )
    head.receipts = sha256(receipt)
    rewritten = _still_waiting(draft, consumed) if draft.edited else ()
    continues = head.owes and head.status == "open" and not head.turn and not head.attempts
    asking = sum(question.answer < 0 for question in head.questions.values()) if head.questions else 0
    return SliceCommit(
        head.thread_id,
        head.version,
        encode_head(head, extra),
        page,
        receipt,
        head.status,
        consumed,
        draft.deferred,
        draft.dropped,
        rewritten,
        draft.spawned,
        draft.outgoing,
        draft.effects,
        draft.settled,
        continues,
        draft.blobs,
        asking,
        now,
    )


def _provenance(draft: Draft) -> tuple[Entry, ...]:
    entries = [draft.provenance.get(name, 0) for name, _ in draft.dispositions]
    while entries and not entries[-1]:
        entries.pop()
    return tuple(entries)


def _still_waiting(draft: Draft, consumed: Collection[str]) -> tuple[InputMessage, ...]:
    return tuple([message for name, message in draft.edited.items() if name not in consumed])


def _owes(draft: Draft) -> tuple[int | str, ...]:
    names = tuple([effect.request_id for effect in draft.effects])
    if names == draft.calls:
        return tuple(range(len(names)))
    places = {name: place for place, name in enumerate(draft.calls)}
    return tuple([places.get(name, name) for name in names])
