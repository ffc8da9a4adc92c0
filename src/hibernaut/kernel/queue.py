"""What operators do to messages that wait for a thread: take one back, or change what it says.

Both come before anything else that a round does, so what was dropped has woken nothing, and what was changed is read as
it is then. What was taken in before is history, and stays.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from hibernaut.codec import pack, sha256
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.outputs import withdraw
from hibernaut.messages.inputs import Delivered, Drop, Edit, InputContent, InputMessage, Word, is_word
from hibernaut.messages.parts import Content, is_blank

_DECISIONS = frozenset({Drop, Edit})


def about_queue(content: InputContent | None) -> str:
    """Return the id of the message that an input is to drop or edit, "" if it is about none."""
    return content.message_id if isinstance(content, Drop | Edit) else ""


def change_queue(draft: Draft, inputs: Sequence[Delivered]) -> Sequence[Delivered]:
    """Drop and edit what operators want dropped and edited; return the inputs that are left, as they are then."""
    for one in inputs:
        if _is_decision(one):
            break
    else:
        return inputs
    decisions = list(filter(_is_decision, inputs))
    decided = {one.message_id for one in decisions}
    left = {one.message_id: one for one in inputs if one.message_id not in decided}
    beside = dict(draft.found.queued)
    for arrived in decisions:
        content = arrived.message.content if arrived.message else None
        where = left if about_queue(content) in left else beside
        draft.dispose(arrived, _change(draft, content, where) if isinstance(content, Drop | Edit) else _STALE)
    return list(left.values())


_STALE = Disposition.STALE


def _is_decision(arrived: Delivered) -> bool:
    return arrived.message is not None and type(arrived.message.content) in _DECISIONS


def _change(draft: Draft, decision: Drop | Edit, where: dict[str, Delivered]) -> Disposition:
    target = where.get(decision.message_id)
    why = f": {decision.reason}" if decision.reason else ""
    if target is None:
        if isinstance(decision, Drop) and withdraw(draft, decision.message_id, why):
            draft.notice("dropped", f"nobody waits for the answer to {decision.message_id} any more{why}")
            return Disposition.ACCEPTED
        return Disposition.STALE
    message = target.message
    if message is None or not is_word(message.content):
        return Disposition.REFUSED
    if isinstance(decision, Drop):
        draft.dispose_all([target], Disposition.DROPPED)
        draft.edited.pop(decision.message_id, None)
        del where[decision.message_id]
        draft.notice("dropped", f"message {decision.message_id} was dropped by an operator{why}")
        return Disposition.ACCEPTED
    if is_blank(decision.content):
        return Disposition.REFUSED
    edited = _edited(message, message.content, decision.content)
    digests = digest_of(message.content.content), digest_of(decision.content)
    draft.edits += ((decision.message_id, *digests),)
    draft.edited[decision.message_id] = edited
    where[decision.message_id] = replace(target, message=edited)
    draft.notice("edited", f"message {decision.message_id} was edited by an operator{why}")
    return Disposition.ACCEPTED


def _edited(message: InputMessage, word: Word, content: Content) -> InputMessage:
    return replace(message, content=replace(word, content=content))


def digest_of(content: Content) -> bytes:
    """Return the SHA-256 of what a message says: of a text in UTF-8, or of its parts as they are stored."""
    return sha256(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else pack(content))
