"""Who an engine is, and whether the process behind it still runs."""

import os
import socket
from pathlib import Path

from hibernaut.ids import Ids
from hibernaut.stores.protocol import Owner


def this_owner(ids: Ids) -> Owner:
    """Return a new engine's identity in this process."""
    return Owner(ids.new("engine"), process_name(os.getpid()))


def process_name(pid: int) -> str:
    """Return "HOST-BOOT/PID/START": no other process ever has it. "" where the platform does not tell."""
    machine, start = _machine(), _start(pid)
    return f"{machine}/{pid}/{start}" if machine and start else ""


def certainly_gone(process: str) -> bool:
    """Tell whether a process named by `process_name` has ended. False when that cannot be known from here."""
    if not process:
        return False
    machine, pid, start = process.rsplit("/", 2)
    return machine == _machine() and _start(int(pid)) != start


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return f"{socket.gethostname()}-{boot[:8]}-{space}"


def _start(pid: int) -> str:
    """Return when a process started (clock ticks since boot), "" if there is none or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
