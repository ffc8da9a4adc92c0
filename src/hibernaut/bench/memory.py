"""What a process holds, as its operating system counts it."""

import ctypes
import gc
import os
import sys
from pathlib import Path

from hibernaut.errors import ConfigurationError


def resident_bytes() -> int:
    """Return the resident memory of this process, after giving back what is not in use.

    Raises:
        ConfigurationError: this is not Linux.
    """
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return resident_now()


def resident_now() -> int:
    """Return the resident memory of this process as it is, with what is free in it.

    Raises:
        ConfigurationError: this is not Linux.
    """
    if sys.platform != "linux":
        raise ConfigurationError(f"resident memory is measured on Linux only, not on {sys.platform}")
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
