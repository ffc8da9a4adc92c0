"""What work on the store's file is written against.

Every function that works inside a transaction gets it, and values that were made ready outside of it, and checks before
it writes. None waits, reads a clock, or knows of threads and tasks. What it does is said where `Store` has a method of
its name.
"""

from collections.abc import Sequence
from typing import Any

import apsw

from hibernaut.stores.queries import load_queries
from hibernaut.stores.sqlite.pages import Pages

SQL = load_queries("sqlite")


class Transaction:
    """A way to run the named queries inside the transaction under way.

    It uses one cursor, so a query ends the one before: rows are fetched at once.
    """

    __slots__ = ("_execute", "_execute_many", "changes", "hints", "pages", "total_changes")

    def __init__(self, connection: apsw.Connection, *, compress: bool = False) -> None:
        cursor = connection.cursor()
        self._execute, self._execute_many = cursor.execute, cursor.executemany
        self.changes = connection.changes
        """Return how many rows the last query that writes has changed."""
        self.total_changes = connection.total_changes
        """Return how many rows the connection has changed since it was opened."""
        self.pages = Pages(compress=compress)
        self.hints: list[tuple[str, int]] = []
        """Threads that get something to do, and how urgent it is; told once the transaction is durable."""

    def run(self, query: str, bindings: Sequence[Any] = ()) -> None:
        """Run a query that returns nothing."""
        self._execute(SQL[query], bindings)

    def rows(self, query: str, bindings: Sequence[Any] = ()) -> list[Any]:
        """Run a query and return its rows."""
        return self._execute(SQL[query], bindings).fetchall()

    def first(self, query: str, bindings: Sequence[Any] = ()) -> Any:
        """Run a query and return its first row, or None."""
        rows = self._execute(SQL[query], bindings).fetchall()
        return rows[0] if rows else None

    def many(self, query: str, bindings: Sequence[Sequence[Any]]) -> list[Any]:
        """Run a query once for each of the bindings; return all its rows."""
        return self._execute_many(SQL[query], bindings).fetchall() if bindings else []

    def each(self, query: str, bindings: Sequence[Sequence[Any]]) -> list[bool]:
        """Run a query that writes once for each of the bindings; tell of each whether it has changed something.

        To have the query return what it changed takes twice as long: SQLite keeps a table for the rows, and copies of
        all pages that it writes to.
        """
        execute, statement, changes = self._execute, SQL[query], self.changes
        changed = []
        for one in bindings:
            execute(statement, one)
            changed.append(changes() > 0)
        return changed
