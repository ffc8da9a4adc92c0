"""What SQLite's errors mean to whoever asked."""

import errno

import apsw

from hibernaut.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BUSY = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError)
_UNREACHABLE = (apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError, apsw.AuthError)


def translate(error: Exception, path: str, system_error: int = 0) -> Exception:
    """Return the typed error for what SQLite raised about a store's file; any other error is returned as it is."""
    if not isinstance(error, apsw.Error):
        return error
    if isinstance(error, _BUSY):
        return StoreBusy(f"{path} is held by another process ({error}); nothing was written, try again")
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and system_error in _NO_ROOM):
        return StoreFull(f"there is no room to write {path} ({error}); nothing was written, make room and try again")
    if isinstance(error, _DAMAGED):
        return StoreCorrupt(f"{path} is damaged ({error}); put back a copy of it, with its -wal file if there is one")
    if isinstance(error, _UNREACHABLE):
        return StoreError(f"{path} cannot be opened or written ({error}); check the rights on it and on its directory")
    return StoreError(f"{path} could not do what was asked ({error}); nothing was written")
