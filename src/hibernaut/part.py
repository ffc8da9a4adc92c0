"""What every part of an `AgentSystem` stands on."""

from abc import ABC, abstractmethod

from hibernaut.clock import Clock
from hibernaut.errors import UnknownThread
from hibernaut.stores.protocol import Store, ThreadRow


class SystemPart(ABC):
    """A part of an `AgentSystem`, in a room of its own: what all of them need of the whole."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """The store that the system runs on."""

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """Where its time comes from."""

    @property
    @abstractmethod
    def tenant(self) -> str:
        """Whose threads it sees and makes."""

    async def row(self, thread_id: str) -> ThreadRow:
        """Return a thread of this tenant as it is stored.

        Raises:
            UnknownThread: there is none.
        """
        row = await self.store.read_head(thread_id)
        if row is None or row.tenant != self.tenant:
            raise UnknownThread(thread_id)
        return row
