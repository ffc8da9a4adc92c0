"""Who handed an input in, and what for, as receipts keep it: next to nothing, since its message id mostly says it.

A receipt has an entry for each of its inputs, in their order; entries at the end that say nothing are left out.

* 0: as the message id implies (`implied`).
* Any other number: the sender is `SENDERS` at that place, the rest is as the message id implies.
* Texts: sender ("" for the implied one), call, question, action, reason, message; empty ones at the end are left out.
"""

from typing import Final

import msgspec

from hibernaut.kernel.head import Head
from hibernaut.messages.inputs import (
    Answer,
    Ask,
    Command,
    Drop,
    Edit,
    Event,
    Forked,
    InputMessage,
    Settlement,
    Timer,
    ToolResult,
    UserText,
)

SENDERS: Final = ("", "api", "engine", "operator", "rap", "token", "step", "cli", "rap:unsigned")
"""Senders that have a number. Others may be added at the end."""

UNREADABLE: Final = ("?",)
"""The entry of an input that cannot be read."""

Entry = int | tuple[str, ...]


class Provenance(msgspec.Struct, frozen=True):
    """Where an input came from, and what it is for."""

    sender: str
    call: str = ""
    """The call that it answers, or that a command is about."""
    question: str = ""
    """The question that it answers."""
    action: str = ""
    """What an operator decided with it."""
    reason: str = ""
    """Why; of an event, why it was refused, or what is to be known of it."""
    message: str = ""
    """The message that was decided about."""


def provenance_of(message: InputMessage) -> Provenance:
    """Return where a message came from, and what it is for."""
    sender, content = message.sender, message.content
    match content:
        case ToolResult() | Event():
            return Provenance(sender, content.call_id)
        case Timer(purpose="question"):
            return Provenance(sender, question=content.call_id)
        case Timer():
            return Provenance(sender, content.call_id)
        case Answer():
            return Provenance(sender, question=content.question_id)
        case Command():
            return Provenance(sender, content.call_id, action=content.action, reason=content.reason)
        case Settlement():
            return Provenance(sender, content.call_id, action="settle", reason=content.reason)
        case Drop():
            return Provenance(sender, action="drop", reason=content.reason, message=content.message_id)
        case Edit():
            return Provenance(sender, action="edit", reason=content.reason, message=content.message_id)
        case Forked():
            return Provenance(sender, action="fork", reason=content.reason)
        case _:
            return Provenance(sender)


def call_named_by(message_id: str) -> str:
    """Return the call that a message id names, "" if it names none."""
    kind, _, rest = message_id.partition(":")
    if kind == "event":
        return rest.partition(":")[0]
    return rest if kind in ("result", "unknown", "sleep", "deadline", "cancelled", "asked", "settled") else ""


def implied(message_id: str, tool: str, thread_id: str, parent: str) -> Provenance:
    """Return what a message id says about its message. `tool` is that of the call that it names."""
    kind, _, rest = message_id.partition(":")
    call = call_named_by(message_id)
    match kind:
        case "result" | "event":
            return Provenance(f"tool:{tool}", call)
        case "unknown" | "sleep" | "deadline" | "retry" | "orphaned":
            return Provenance("engine", call)
        case "question":
            return Provenance("engine", question=rest)
        case "answer":
            return Provenance("api", question=rest)
        case "cancelled" | "asked":
            return Provenance(f"thread:{thread_id}", call)
        case "seed" | "parent":
            return Provenance(f"thread:{parent}")
        case "closed":
            return Provenance(f"thread:{rest}")
        case _:
            return Provenance("api", call)


def entry_of(message: InputMessage, tool: str, head: Head, note: str = "") -> Entry:
    """Return what a receipt keeps of where a message came from, and of what there is to say of an event."""
    if not note and _is_plain(message, tool):
        return 0
    told = provenance_of(message)
    if note:
        told = msgspec.structs.replace(told, reason=note)
    known = implied(message.message_id, tool, head.thread_id, head.link.parent if head.link else "")
    if told == known:
        return 0
    if told.sender in SENDERS and told == msgspec.structs.replace(known, sender=told.sender):
        return SENDERS.index(told.sender)
    texts = ["" if told.sender == known.sender else told.sender, *msgspec.structs.astuple(told)[1:]]
    while len(texts) > 1 and not texts[-1]:
        texts.pop()
    return tuple(texts)


def _is_plain(message: InputMessage, tool: str) -> bool:
    """Tell, at little cost, that a message is one of the most that say nothing beyond their ids."""
    content = message.content
    if type(content) is UserText or type(content) is Ask:
        return message.sender == "api" and message.message_id.startswith("msg_")
    is_result = type(content) is ToolResult and message.message_id == f"result:{content.call_id}"
    return is_result and message.sender == f"tool:{tool}"


def read_entry(entry: Entry, message_id: str, tool: str, thread_id: str, parent: str) -> Provenance | None:
    """Return what a receipt says of an input; None if it could not be read.

    A sender that a newer version has given a number is "".
    """
    known = implied(message_id, tool, thread_id, parent)
    if isinstance(entry, int):
        if entry == 0:
            return known
        return msgspec.structs.replace(known, sender=SENDERS[entry] if entry < len(SENDERS) else "")
    if entry == UNREADABLE:
        return None
    sender, *rest = entry
    return Provenance(sender or known.sender, *rest[: len(Provenance.__struct_fields__) - 1])
