"""Watches a folder: every file that is written there is an event, and each event gets a thread of its own.

    hibernaut rap serve examples/rap/files.py:server --state files.db

An event is named by when its file was written, so a subscription that is resumed after a restart of the server tells of
what was written meanwhile, without a list of its own: whatever is newer than the last event. It is the folder in the
environment variable WATCHED that can be watched, or the current one, and nothing outside of it.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from fnmatch import fnmatch
from pathlib import Path

from hibernaut import ToolContext, ToolError, ToolEvent
from hibernaut.rap import ToolServer

server = ToolServer("files", description="Tells of files that are written.")


def root() -> Path:
    """Return the folder that can be watched."""
    return Path(os.environ.get("WATCHED", ".")).resolve()


@server.tool(resumable=True, read_only=True)
async def watch(context: ToolContext, pattern: str = "*", seconds: float = 1.0) -> AsyncIterator[object]:
    """Watch a folder and tell of every file that is written in it.

    Args:
        context: Which file was the last one that was told of.
        pattern: Which names count, such as *.csv.
        seconds: How often it is looked.
    """
    if context.last_event_id:
        written, _, name = context.last_event_id.partition(" ")
        last = (int(written), name)
    else:
        last = max(await asyncio.to_thread(newer, (0, ""), pattern), default=(0, ""))
    yield f"watching {root()} for {pattern}"
    while True:
        for found in await asyncio.to_thread(newer, last, pattern):
            last = found
            yield ToolEvent(f"{found[1]} was written", f"{found[0]} {found[1]}"[:200])
        await asyncio.sleep(seconds)


def newer(last: tuple[int, str], pattern: str) -> list[tuple[int, str]]:
    """Return the files that were written after the last one, as moment (in nanoseconds) and name, in order."""
    found = []
    for entry in os.scandir(root()):
        if entry.is_file(follow_symlinks=False) and fnmatch(entry.name, pattern):
            moment = (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
            if moment > last:
                found.append(moment)
    return sorted(found)


@server.tool(read_only=True, idempotent=True)
def read(name: str) -> str:
    """Read a file of the folder.

    Args:
        name: Its name.
    """
    place = (root() / name).resolve()
    if not place.is_relative_to(root()) or not place.is_file():
        raise ToolError(f"there is no file {name!r} in the folder that is watched")
    return place.read_text(encoding="utf-8", errors="replace")
