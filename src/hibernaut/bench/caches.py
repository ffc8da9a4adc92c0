"""Making the system forget files, so that what is read next comes from the disk."""

import os
from pathlib import Path

from hibernaut.errors import ConfigurationError

DROP = Path("/proc/sys/vm/drop_caches")
"""Where Linux is told to forget all files that it keeps in memory."""


def forget(path: Path) -> None:
    """Put a file, and SQLite's log beside it, out of the system's cache."""
    for one in (path, path.with_name(path.name + "-wal")):
        if one.exists():
            descriptor = os.open(one, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def forget_all() -> None:
    """Put all files out of the system's cache, whoever uses them.

    Raises:
        ConfigurationError: the system does not let this user do it.
    """
    try:
        os.sync()
        DROP.write_text("3\n", encoding="ascii")
    except OSError as error:
        raise ConfigurationError(
            f"the system's cache cannot be dropped ({error.strerror}); be root on Linux, or leave out --drop-caches"
        ) from error
