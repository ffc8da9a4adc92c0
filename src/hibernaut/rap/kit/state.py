"""What a tool server must not forget, in one SQLite file: calls, callbacks that are owed, questions that are open.

Each method is one transaction, durable when it returns. After a crash everything that returned is there, and nothing
of what did not. One process has the file at a time.
"""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

import apsw
import msgspec

from hibernaut.errors import StoreError, StoreFormatTooNew
from hibernaut.rap.kit.transactions import Transactions
from hibernaut.rap.requests import Invocation
from hibernaut.stores.queries import read_queries

APPLICATION_ID: Final = 0x48424E4B
"""What SQLite's `application_id` says in these files: "HBNK"."""

FORMAT: Final = 1

KEPT: Final = 7 * 86_400_000
"""Milliseconds that a call which is over is remembered, so that a repeat of it is one."""

MOST_KEPT: Final = 10_000
"""Calls that are over and remembered; above that the oldest are forgotten."""

_FORGOTTEN_AT_ONCE: Final = 500

CallState = Literal["accepted", "running", "deferred", "subscribed", "over"]
CallbackKind = Literal["result", "confirmation", "event", "final", "question"]

_KEPT_WHEN_SENT: Final = ("result", "confirmation", "final")

_SQL: Final = read_queries(Path(__file__).with_name("state.sql"))
_MAKE: Final = tuple(query for name, query in _SQL.items() if name.startswith("make_"))
_invocation: Final = msgspec.json.Decoder(Invocation)

T = TypeVar("T")


class StoredCall(msgspec.Struct, frozen=True):
    """A call as it is stored. `base` is the URL that the server was called under, `token` answers the call."""

    key: str
    invocation: Invocation
    callback_url: str
    base: str
    token: str
    state: CallState
    accepted: int
    last_event_id: str
    last_sequence: int


class Owed(msgspec.Struct, frozen=True):
    """A callback that is owed."""

    number: int
    kind: CallbackKind
    body: bytes
    made: int


class StoredQuestion(msgspec.Struct, frozen=True):
    """A question to a person; `selected` is below 0 until there is an answer."""

    key: str
    number: int
    choices: int
    selected: int
    call_id: str


class StoredAnswer(msgspec.Struct, frozen=True):
    """What is known of a question: its answer, when its default counts (0: never), where it goes if it is new."""

    selected: int
    due: int
    callback_url: str = ""


class State:
    """An open state file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._transactions = Transactions(path, self._set_up)
        self.secret = b""
        """32 bytes that what only this server can know is derived from."""

    @classmethod
    async def open(cls, path: str) -> Self:
        """Open a file, making it when there is none; ":memory:" is kept nowhere.

        Raises:
            StoreBusy: another server runs on it.
            StoreFormatTooNew: a newer version of Hibernaut has written it.
            StoreError: it cannot be had, or is not ours.
        """
        state = cls(path)
        try:
            await state._transactions.opened()
        except BaseException:
            await state.close()
            raise
        return state

    async def close(self) -> None:
        """Close the file."""
        await self._transactions.close()

    # Calls

    async def accept(
        self, key: str, invocation: Invocation, body: bytes, *, base: str, token: str, now: int
    ) -> StoredCall | None:
        """Store a call; return None if it is new, else the call that has this key, with the newer callback URL."""

        def work(do: _Queries) -> StoredCall | None:
            rows = do("read_call", key)
            if not rows:
                named = (key, invocation.group_id, invocation.id)
                do("add_call", *named, body, invocation.callback_url, base, token, now)
                return None
            known = _call(rows[0])
            if (known.invocation.group_id, known.invocation.id) == (invocation.group_id, invocation.id):
                do("set_callback_url", key, invocation.callback_url)
                if known.state == "over":
                    do("send_again", key, now)
            return known

        return await self._do(work)

    async def read_call(self, key: str) -> StoredCall | None:
        """Return a call."""
        return _first(await self._do(lambda do: do("read_call", key)))

    async def find_token(self, token: str) -> StoredCall | None:
        """Return the call that a token answers."""
        return _first(await self._do(lambda do: do("read_call_by_token", token)))

    async def open_calls(self) -> list[StoredCall]:
        """Return all calls that are not over, the oldest first."""
        return [_call(row) for row in await self._do(lambda do: do("read_open_calls"))]

    async def is_alive(self, thread_id: str, call_id: str) -> bool:
        """Tell whether something is still to come of a call."""
        return bool((await self._do(lambda do: do("read_alive", thread_id, call_id)))[0][0])

    async def set_state(self, key: str, state: CallState) -> bool:
        """Note how far a call is; tell whether it is not over."""
        return await self._do(lambda do: do.changed("set_state", key, state))

    async def cancel(self, thread_id: str, call_id: str, now: int) -> list[str]:
        """End calls and drop what they owe, all of a thread if `call_id` is empty, and return their keys."""

        def work(do: _Queries) -> list[str]:
            keys = [row[0] for row in do("find_unfinished", thread_id, call_id)]
            for key in keys:
                do.changed("end_call", key, now)
                do("delete_callbacks", key)
            return keys

        return await self._do(work)

    async def end(self, key: str, now: int) -> None:
        """End a call whose callbacks are not taken; what is owed is dropped."""

        def work(do: _Queries) -> None:
            do.changed("end_call", key, now)
            do("delete_callbacks", key)

        await self._do(work)

    async def forget(self, now: int) -> None:
        """Delete calls that have been over for long."""

        def work(do: _Queries) -> bool:
            keys = [row[0] for row in do("find_forgotten", now - KEPT, MOST_KEPT, _FORGOTTEN_AT_ONCE)]
            for key in keys:
                for query in ("delete_callbacks", "delete_questions", "delete_call"):
                    do(query, key)
            return len(keys) == _FORGOTTEN_AT_ONCE

        while await self._do(work):
            pass

    # Callbacks

    async def owe(
        self, key: str, kind: CallbackKind, body: bytes, now: int, *, event_id: str = "", sequence: int = 0
    ) -> str | None:
        """Store a callback of a call, and what it makes of the call; return where it goes, None if the call is over."""

        def work(do: _Queries) -> str | None:
            ends = kind in ("result", "final")
            if not (do.changed("end_call", key, now) if ends else do.changed("set_state", key, _STATES[kind])):
                return None
            if sequence:
                do("set_last_event", key, event_id, sequence)
            return do.add_callback(key, kind, body, now)

        return await self._do(work)

    async def waiting(self) -> list[tuple[str, int, str]]:
        """Return which calls owe callbacks, how many, and to where."""
        return await self._do(lambda do: do("read_waiting"))

    async def next_callback(self, key: str) -> Owed | None:
        """Return the first callback that a call owes."""
        return await self._do(lambda do: do.next_callback(key))

    async def settle(self, key: str, owed: Owed) -> tuple[int, Owed | None]:
        """Note that a callback is no longer owed; return how many of its call still are, and the next one."""

        def work(do: _Queries) -> tuple[int, Owed | None]:
            do("keep_sent_callback" if owed.kind in _KEPT_WHEN_SENT else "delete_callback", owed.number)
            count: int = do("count_waiting", key)[0][0]
            return count, do.next_callback(key) if count else None

        return await self._do(work)

    # Questions

    async def ask(
        self, key: str, number: int, *, secret: str, choices: int, due: int, body: bytes, now: int
    ) -> StoredAnswer | None:
        """Store a question, and the callback that asks it unless it was asked before; None if the call is over."""

        def work(do: _Queries) -> StoredAnswer | None:
            if not do.changed("set_state", key, "running"):
                return None
            rows = do("read_question", key, number)
            if rows:
                return StoredAnswer(*rows[0])
            do("add_question", key, number, secret, choices, due)
            return StoredAnswer(-1, due, do.add_callback(key, "question", body, now))

        return await self._do(work)

    async def find_question(self, secret: str) -> StoredQuestion | None:
        """Return the question of a secret, of several the open one; None if nobody waits or waited for it."""
        rows = await self._do(lambda do: do("find_question", secret))
        return StoredQuestion(*rows[0]) if rows else None

    async def answer(self, key: str, number: int, selected: int) -> bool:
        """Store the answer to a question; tell whether it had none."""
        return await self._do(lambda do: do.changed("answer_question", key, number, selected))

    async def settle_question(self, key: str, number: int, default: int) -> int:
        """Let the default be the answer, unless there is one; return what it is."""

        def work(do: _Queries) -> int:
            do("answer_question", key, number, default)
            rows = do("read_question", key, number)
            return rows[0][0] if rows else default

        return await self._do(work)

    # In the thread

    def _set_up(self, connection: apsw.Connection) -> None:
        connection.pragma("locking_mode", "exclusive")
        application, number = connection.pragma("application_id"), connection.pragma("user_version")
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0] and application != APPLICATION_ID:
            raise StoreError(f"{self._path} is an SQLite file of another program; name another one for the state")
        if isinstance(number, int) and number > FORMAT:
            raise StoreFormatTooNew(
                f"{self._path} has format {number}, this version of Hibernaut knows {FORMAT}; use a newer version"
            )
        if self._path != ":memory:" and connection.pragma("journal_mode", "wal") != "wal":
            raise StoreError(f"{self._path} cannot have a write-ahead log; name a file on a local disk")
        connection.pragma("synchronous", "full")
        connection.pragma("trusted_schema", False)
        with connection:
            if not number:
                for query in _MAKE:
                    connection.execute(query)
                connection.pragma("application_id", APPLICATION_ID)
                connection.pragma("user_version", FORMAT)
                connection.execute(_SQL["add_meta"], ("secret", secrets.token_bytes(32)))
            self.secret = _Queries(connection)("read_meta", "secret")[0][0]

    async def _do(self, work: Callable[["_Queries"], T]) -> T:
        return await self._transactions.run(lambda connection: work(_Queries(connection)))


class _Queries:
    """The queries, on a connection. It is called with one and returns the rows."""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __call__(self, query: str, *bindings: Any) -> list[Any]:
        return self._connection.execute(_SQL[query], bindings).fetchall()

    def next_callback(self, key: str) -> Owed | None:
        """Return the first callback that a call owes."""
        rows = self("read_next_callback", key)
        return Owed(*rows[0]) if rows else None

    def changed(self, query: str, *bindings: Any) -> bool:
        """Run a query that writes; tell whether it changed anything."""
        self(query, *bindings)
        return self._connection.changes() > 0

    def add_callback(self, key: str, kind: CallbackKind, body: bytes, now: int) -> str:
        """Store a callback and return where it goes."""
        self("add_callback", key, kind, body, now)
        url: str = self("read_callback_url", key)[0][0]
        return url


_STATES: Final[dict[CallbackKind, CallState]] = {
    "confirmation": "subscribed",
    "event": "subscribed",
}
"""What a call is once such a callback of it is owed."""


def _first(rows: Sequence[Any]) -> StoredCall | None:
    return _call(rows[0]) if rows else None


def _call(row: Sequence[Any]) -> StoredCall:
    key, _, _, invocation, *rest = row
    return StoredCall(key, _invocation.decode(invocation), *rest)
