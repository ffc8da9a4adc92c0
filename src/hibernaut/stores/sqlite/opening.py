"""Opening a store's file: what is there, whether it is ours and whole, and making it when there is none.

Nothing is written to a file that is not recognised as a store of a format known here. A new file is made beside its
place and put there in one step, so nobody ever sees half of one: a file that is there and empty has lost its content.
"""

import logging
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import apsw

from hibernaut.errors import StoreCorrupt, StoreError, StoreFormatTooNew
from hibernaut.stores.migrations import Migration, migrations
from hibernaut.stores.sqlite.failures import translate
from hibernaut.stores.sqlite.transaction import SQL

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x48424E54
"""What SQLite's `application_id` says in our files: "HBNT"."""

OLDEST_SQLITE = 3_051_003
"""Older ones can corrupt a file that has two writers (the WAL-reset bug)."""

LOG_KEPT = 10 * 1024 * 1024
"""Bytes to which the write-ahead log is cut when it begins anew: a little more than it has when that is due."""

WRITER_CACHE = 16 * 1024
READER_CACHE = 4 * 1024
"""KiB of pages that a connection keeps in memory."""

LARGE = 100_000_000
"""Bytes of a file from which on it is told that it is brought up to date: that may take a second for each of them."""

_LEAST_SIZE = 512
"""Bytes of the smallest page that SQLite has."""


class Opened(NamedTuple):
    """The connections of an open store."""

    path: str
    writer: apsw.Connection
    reader: apsw.Connection


def open_file(path: str | os.PathLike[str], busy_timeout: int) -> Opened:
    """Open a store, making it when there is none.

    Raises:
        StoreFormatTooNew: a newer version of Hibernaut has written it.
        StoreCorrupt: it is damaged, or not what it seems.
        StoreError: it cannot be had, or is not ours.
    """
    if apsw.SQLITE_VERSION_NUMBER < OLDEST_SQLITE or _linked() < OLDEST_SQLITE:
        raise StoreError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a file that has two writers; install a newer apsw"
        )
    name = os.path.realpath(path)
    with _translated(name):
        if not os.path.lexists(name):
            _make(name)
        _examine(name)
        writer = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with _translated(name, writer):
                _set_up(writer, busy_timeout, WRITER_CACHE)
                _migrate(writer, name)
                _check_size(writer, name)
            reader = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
            _set_up(reader, busy_timeout, READER_CACHE)
            reader.pragma("query_only", True)
        except BaseException:
            writer.close(force=True)
            raise
    return Opened(name, writer, reader)


@contextmanager
def _translated(path: str, connection: apsw.Connection | None = None) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path, 0 if connection is None else connection.system_errno) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror or error}") from error


def _linked() -> int:
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split(".")[:3])
    return (major * 1_000 + minor) * 1_000 + patch


# What is there


def _examine(path: str) -> None:
    """Refuse what is not a store that can be opened. Reads the first page, without locks and without the log."""
    status = Path(path).stat()
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a file; name a file for the store")
    if status.st_size == 0:
        raise StoreCorrupt(f"{path} is empty: it is no store, or has lost its content; put back a copy, or remove it")
    if status.st_size < _LEAST_SIZE:
        raise StoreCorrupt(
            f"{path} has only {status.st_size} bytes: it is no store, or is torn; put back a copy, or remove it"
        )
    # Through SQLite, since closing a descriptor of our own would drop the locks that this process may have on the file.
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(f"file:{quote(path)}?immutable=1", flags=flags)
        try:
            connection.pragma("writable_schema", True)  # else it refuses a file whose end is still in the log
            application, number = connection.pragma("application_id"), connection.pragma("user_version")
        finally:
            connection.close()
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise StoreCorrupt(
            f"{path} is not an SQLite file, or is damaged ({error}); put back a copy, or name another file"
        ) from error
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is an SQLite file of another program; it was left as it is: name another file")
    _check_format(number, path)


def _check_format(number: int, path: str) -> None:
    newest = len(migrations())
    if number > newest:
        raise StoreFormatTooNew(
            f"{path} has format {number}, this version of Hibernaut knows up to {newest}; use a newer version"
        )


def _check_size(connection: apsw.Connection, path: str) -> None:
    """Refuse a file that was cut off: it lacks more pages than its log can hold."""
    size = connection.pragma("page_size")
    with _transaction(connection, "BEGIN"):
        missing = connection.pragma("page_count") - _size_of(path) // size
        logged = _size_of(f"{path}-wal") // size
    if missing > logged:
        raise StoreCorrupt(f"{path} is cut off: {missing * size:,} bytes are missing at its end; put back a copy of it")


def _size_of(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0


# Making and migrating


def _make(path: str) -> None:
    """Make a new store, whole from the moment it can be seen. Somebody else may be quicker: then theirs is taken."""
    place = Path(path)
    if not place.parent.is_dir():
        raise StoreError(f"{path} cannot be made: there is no directory {place.parent}; make it first")
    if _size_of(f"{path}-wal"):
        raise StoreCorrupt(
            f"{path} is gone, but its newest part, {place.name}-wal, is there; put the file back, or move that away"
        )
    made = place.with_name(f".{place.name}.{secrets.token_hex(6)}.new")
    try:
        connection = apsw.Connection(str(made))
        try:
            with _translated(path, connection):
                _set_up(connection, 0, READER_CACHE)
                connection.pragma("application_id", APPLICATION_ID)
                _migrate(connection, path)
        finally:
            connection.close(force=True)
        _put_in_place(made, place)
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{made}{suffix}").unlink(missing_ok=True)


def _put_in_place(made: Path, place: Path) -> None:
    try:
        os.link(made, place)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not place.exists():
            made.rename(place)
    directory = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _set_up(connection: apsw.Connection, busy_timeout: int, cache: int) -> None:
    connection.set_busy_timeout(busy_timeout)
    if connection.pragma("journal_mode") != "wal" and connection.pragma("journal_mode", "wal") != "wal":
        raise StoreError(f"{connection.filename} cannot have a write-ahead log; name a file on a local disk")
    connection.pragma("synchronous", "full")
    connection.pragma("fullfsync", True)
    connection.pragma("checkpoint_fullfsync", True)
    connection.pragma("journal_size_limit", LOG_KEPT)
    connection.pragma("cache_size", -cache)
    connection.pragma("temp_store", "memory")
    connection.pragma("cell_size_check", True)
    connection.pragma("trusted_schema", False)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else every new value of a LIMIT prepares its query again
    connection.wal_autocheckpoint(0)


def _migrate(connection: apsw.Connection, path: str) -> None:
    """Check what was applied, and apply what is new."""
    with _transaction(connection, "BEGIN"):
        pending = _pending(connection, path)
    if pending:
        with _transaction(connection, "BEGIN IMMEDIATE"):
            pending = _pending(connection, path)
            if pending and (size := _size_of(path)) >= LARGE:
                logger.warning(
                    "%s (%s MB) is brought up from format %d to %d; this takes about a second for each 100 MB, and "
                    "twice as much room again on the disk, half of which stays for what comes",
                    *(path, f"{size // 1_000_000:,}", pending[0].number - 1, pending[-1].number),
                )
            for step in pending:
                _apply(connection, step)


def _pending(connection: apsw.Connection, path: str) -> Sequence[Migration]:
    """Return the steps that are still to be applied.

    Raises:
        StoreFormatTooNew: steps were applied that are not known here.
        StoreCorrupt: other steps were applied than those known here.
    """
    number: Any = connection.pragma("user_version")
    if not number:
        return migrations()
    _check_format(number, path)
    applied: Any = connection.execute(SQL["read_migrations"]).fetchall()
    for step, row in zip_longest(migrations()[:number], applied):
        if step is None or row is None or row != (step.number, step.name, step.checksum):
            wrong = f"{step.number} ({step.name})" if step else f"{row[0]} ({row[1]})"
            raise StoreCorrupt(
                f"{path} was made by other steps than this version of Hibernaut knows: migration {wrong} differs"
            )
    return migrations()[number:]


def _apply(connection: apsw.Connection, step: Migration) -> None:
    if step.number == 1:
        connection.execute(SQL["make_migrations"])
    connection.execute(step.script).fetchall()
    connection.execute(SQL["add_migration"], (step.number, step.name, step.checksum))
    if step.number == 1:
        connection.execute(SQL["add_meta"], ("secret", secrets.token_bytes(32)))
    connection.pragma("user_version", step.number)


@contextmanager
def _transaction(connection: apsw.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
