"""The embedded store: one SQLite file, several processes."""

from hibernaut.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
