"""Where and with what something was measured: without that a figure means nothing."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import apsw
import msgspec

from hibernaut.version import build

LIBRARIES = ("apsw", "msgspec", "uvloop")
"""What speed depends on beside our own code."""


class Machine(msgspec.Struct, frozen=True):
    """A machine, as its operating system tells. 0 and "": it does not."""

    processor: str
    cores: int
    """Cores that this process may use."""
    memory_bytes: int
    system: str
    """Operating system, kernel and architecture."""


class Build(msgspec.Struct, frozen=True):
    """What ran."""

    hibernaut: str
    commit: str
    """The git commit of a checkout, with a "+" when files of it are changed; "" elsewhere."""
    python: str
    sqlite: str
    libraries: dict[str, str]


def this_machine() -> Machine:
    """Return what this process runs on."""
    return Machine(_processor(), _cores(), _memory(), platform.platform())


def this_build() -> Build:
    """Return what runs in this process."""
    python = f"{platform.python_implementation()} {platform.python_version()} ({platform.python_compiler()})"
    return Build(build(), _commit(), python, apsw.sqlite_lib_version(), _libraries())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def _libraries() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    here = Path(__file__)
    # A file that git does not know may lie in a virtual environment inside somebody else's checkout.
    if not _git(here.parent, "ls-files", here.name):
        return ""
    commit = _git(here.parent, "rev-parse", "HEAD")
    return commit + ("+" if _git(here.parent, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *words: str) -> str:
    try:
        told = subprocess.run(  # noqa: S603  # its words are ours
            ["git", "-C", str(folder), *words],  # noqa: S607  # wherever it is
            check=False,
            capture_output=True,
            text=True,
        )
    except OSError:
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""
