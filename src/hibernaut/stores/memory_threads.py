"""What a store in memory keeps of one thread."""

from collections.abc import Iterable

import msgspec

from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import USER, Delivered, InputMessage
from hibernaut.stores.letters import LongInbox
from hibernaut.stores.memory_engines import FROZEN, Engine
from hibernaut.stores.protocol import AWAKE


class Letter(msgspec.Struct, gc=False, eq=False):
    """A message in an inbox."""

    message: InputMessage
    accepted: int
    due: int
    urgency: int
    deferred: bool = False


Inbox = list[Letter] | LongInbox[Letter] | None


class Wake(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The place of a thread in the queues. An entry whose ticket is not its thread's is outdated."""

    moment: int
    rank: int
    ticket: int


class Thread(msgspec.Struct, gc=False, eq=False):
    """One thread."""

    thread_id: str
    tenant: str
    head: bytes
    created: int
    updated: int
    version: int = 0
    log: int = 0
    """Where its last commit stands; see `hibernaut.stores.memory_logs`."""
    asleep: int = 0
    """Where head and `known` stand while they are put away: then neither is here."""
    known: bytes | bytearray = b""
    """Digests of the ids of all messages accepted so far, but for the dropped ones."""
    status: Status = "open"
    inbox: Inbox = None
    effects: tuple[str, ...] = ()
    token: int = 0
    tries: int = 0
    owner: Engine | None = None
    not_before: int = 0
    continues: int | None = None
    """The moment of the commit that said so."""
    wake: Wake | None = None
    """None while there is nothing to do, or while a living engine has the claim."""

    def is_woken_by(self, letter: Letter) -> bool:
        """Tell whether a message gives the thread something to do, as it stands now."""
        return self.owner is not FROZEN and (self.status in AWAKE or letter.urgency == USER)

    def hand_over(self, now: int) -> tuple[Delivered, ...]:
        """Return what a claim gives. A short inbox never holds too many for one."""
        if isinstance(self.inbox, LongInbox):
            return delivered(self.inbox.hand_over(now, is_open=self.status in AWAKE))
        return delivered([letter for letter in self.inbox or () if letter.due <= now or letter.deferred])


def delivered(letters: Iterable[Letter]) -> tuple[Delivered, ...]:
    """Return messages as a claim hands them over."""
    return tuple(
        [Delivered(letter.message.message_id, letter.accepted, letter.message, "", letter.due) for letter in letters]
    )
