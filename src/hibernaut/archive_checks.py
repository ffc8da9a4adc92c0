"""What an archive must be before its tree is made: one tenant's, and about nothing but its own threads.

An archive is a file that anybody may have written. What its records say of themselves is held against what the stored
values in them say, since engines go by those: a thread that claimed a place in another tree would inherit from it, one
that was launched for another tenant would work with its credentials, and an effect under another id would be taken for
that one. That it brings whatever it refers to is the store's to check (`Store.import_tree`).
"""

from collections.abc import Sequence

from hibernaut.errors import MalformedInput, StoreCorrupt
from hibernaut.kernel.config import decode_config
from hibernaut.kernel.head import Head, decode_head
from hibernaut.messages.inputs import decode_input
from hibernaut.stores.archive import (
    ConfigRecord,
    EffectRecord,
    MessageRecord,
    Record,
    ThreadRecord,
    decode_effect,
)


def check_records(records: Sequence[Record], tenant: str) -> None:
    """Check the records of an archive.

    Raises:
        MalformedInput: they are not those of one tree of that tenant. StoreCorrupt, StoreFormatTooNew.
    """
    configs = {record.digest for record in records if isinstance(record, ConfigRecord)}
    stacks: dict[str, tuple[str, ...]] = {}
    thread_id = ""
    for record in records:
        if isinstance(record, ThreadRecord):
            thread_id = record.thread_id
            above = stacks.get(record.parent, ())
            stacks[thread_id] = (*above, thread_id)
            _check_thread(record, tenant, above, configs)
        elif isinstance(record, ConfigRecord):
            if decode_config(record.body).tenant != tenant:
                raise MalformedInput("the tree is not whole: a thread of it was launched for another tenant")
        elif isinstance(record, MessageRecord):
            _check_message(record, thread_id)
        elif isinstance(record, EffectRecord) and decode_effect(record).request_id != record.request_id:
            raise MalformedInput(f"the tree is not whole: the effect {record.request_id} is another one")


def _check_thread(record: ThreadRecord, tenant: str, above: tuple[str, ...], configs: set[bytes]) -> None:
    head = decode_head(record.head).head
    if (head.thread_id, head.version, record.tenant) != (record.thread_id, record.version, tenant):
        raise MalformedInput(f"the tree is not whole: the head of {record.thread_id!r} is that of another thread")
    if _stack(head) != above:
        raise MalformedInput(f"the tree is not whole: thread {record.thread_id!r} says that it hangs somewhere else")
    if head.config not in configs:
        raise MalformedInput(f"the tree is not whole: what {record.thread_id!r} was launched with is not in it")


def _stack(head: Head) -> tuple[str, ...]:
    return head.link.stack if head.link is not None else ()


def _check_message(record: MessageRecord, thread_id: str) -> None:
    try:
        message = decode_input(record.body)
    except StoreCorrupt:  # its thread refuses it when it comes to it
        return
    if (message.thread_id, message.message_id) != (thread_id, record.message_id):
        raise MalformedInput(f"the tree is not whole: message {record.message_id!r} is for another thread")
