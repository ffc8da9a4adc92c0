"""The agent of the second story: what it and the threads below it can do, and a scripted model that decides for them.

Everything here is found again by name when a new process wakes the agent. What a thread knows comes from its own
conversation, and what it has inherited: nothing is remembered here.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from hibernaut.cli.demo.failure import GLANCE
from hibernaut.cli.demo.tree import log, release
from hibernaut.messages.items import EVENT_TOOL, CallItem, ResultItem, UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, say, turn
from hibernaut.tools.context import ToolContext, ToolEvent
from hibernaut.tools.tool import tool

INSTRUCTIONS = "You watch releases, and ask whoever is on call before you do anything about them."

WATCHES = "watches.txt"
"""One line whenever the log begins to be watched: by which process, from which byte on."""

HOLD = "hold"
"""As long as this file is in the folder, packing does not end: on a slow machine, too, the story keeps its order."""

ROLL_BACK, KEEP = "Roll back", "Keep it"


class Around(msgspec.Struct):
    """What the tools are told, as the metadata of the thread: it is stored with the thread."""

    folder: str
    seconds: float
    """How long packing takes."""


class Watch(msgspec.Struct, frozen=True):
    """A line of `WATCHES`."""

    pid: int
    place: int


@tool(inline=True, idempotent=True)
def read_runbook(ctx: ToolContext) -> str:
    """Read what is to be done with a canary release."""
    return release.read_runbook(_folder(ctx))


@tool(resumable=True)
async def watch_log(ctx: ToolContext) -> AsyncGenerator[str | ToolEvent, None]:
    """Watch the log of the canary. Each line comes as an event."""
    folder, place = _folder(ctx), int(ctx.last_event_id or 0)
    _note_watch(folder, Watch(os.getpid(), place))
    yield f"watching {log.LOG}"
    async for line in log.follow(folder / log.LOG, place):
        yield ToolEvent(line.text, f"{line.end}")


@tool
async def pack_logs(ctx: ToolContext) -> str:
    """Pack the logs of the release before this one."""
    folder = _folder(ctx)
    packed = await asyncio.to_thread(release.pack, folder)
    await asyncio.sleep(msgspec.convert(ctx.metadata, Around).seconds)
    while (folder / HOLD).exists():  # noqa: ASYNC110  # it is another process that takes it away
        await asyncio.sleep(GLANCE)
    return f"packed {packed.files} logs: {packed.before:,} -> {packed.after:,} bytes"


@tool
async def roll_back(measured: str, ctx: ToolContext) -> str:
    """Make the release before this one live again. Whoever is on call is asked first.

    Args:
        measured: what is wrong with this one.
        ctx: the call.
    """
    answer = await ctx.ask(f"{measured}. Roll back to {release.OLD}?", [ROLL_BACK, KEEP], default=1)
    if answer != ROLL_BACK:
        return f"{release.NEW} stays, says who is on call"
    release.roll_back(_folder(ctx), ctx.call_id)
    return f"{release.OLD} is live again"


TOOLS = (read_runbook, watch_log, pack_logs, roll_back)


def watches(folder: Path) -> list[Watch]:
    """Return by which process, and from which byte on, the log was watched, in order."""
    file = folder / WATCHES
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Watch) for line in lines]


# The model


def decide(request: ModelRequest) -> ScriptedTurn:
    """Play the model: from the conversation alone, decide what to say and do next."""
    limit = _limit(request)
    if request.purpose == "summary":
        return say(
            f"I read the runbook of canary releases. It says: roll back if more than {limit} of 1,000 requests failed, "
            "and ask whoever is on call first; ordinary lines bother nobody; look at every line for itself. "
            f"I was asked to watch the log of release {release.NEW}, and do."
        )
    own = _own_thread(request)
    if own:
        line = last_result(request)
        report = {"report_to_parent": line} if (failed := _failed(line)) is None or failed > limit else {}
        return call("close_thread", thread_id=own, **report)
    last = request.transcript[-1]
    if isinstance(last, UserItem):
        words = plain_text(last.content)
        return call(pack_logs.name) if "pack" in words else call(read_runbook.name)
    answered = _tool_of_last(request)
    if answered == read_runbook.name:
        return call(watch_log.name)
    if answered == watch_log.name:
        return say(f"I watch it. Above {limit} of 1,000 I ask whoever is on call; you hear nothing of the rest.")
    if answered == EVENT_TOOL:
        measured = last_result(request).splitlines()[-1]
        return turn(f"{_unsaid(request)}A line is above {limit}. I ask.", call(roll_back.name, measured=measured))
    if answered == pack_logs.name:
        return say(_sentence(last_result(request)))
    return say(f"{_sentence(last_result(request))} I go on watching.")


def _folder(ctx: ToolContext) -> Path:
    return Path(msgspec.convert(ctx.metadata, Around).folder)


def _note_watch(folder: Path, watch: Watch) -> None:
    with (folder / WATCHES).open("ab") as file:
        file.write(msgspec.json.encode(watch) + b"\n")


def _limit(request: ModelRequest) -> int:
    """Return the limit that the runbook sets: it is read in the runbook itself, or in a summary of it."""
    texts = [plain_text(item.content) for item in request.transcript if isinstance(item, UserItem | ResultItem)]
    found = re.search(r"more than (\d+) of 1,000", "\n".join(texts))
    return int(found[1]) if found else 0


def _failed(line: str) -> int | None:
    found = re.search(r"(\d+) of 1,000 requests failed$", line)
    return int(found[1]) if found else None


def _own_thread(request: ModelRequest) -> str:
    """Return the id of the temporary thread that this is; "" if it is none."""
    notes = [plain_text(item.content) for item in request.transcript if isinstance(item, UserItem) and item.origin]
    ids = re.findall(r"temporary thread that was made for the one event below. Its id is (\w+),", "\n".join(notes))
    return ids[-1] if ids else ""


def _tool_of_last(request: ModelRequest) -> str:
    """Return the tool whose result came last."""
    last = request.transcript[-1]
    calls = {item.id: item.name for item in request.transcript if isinstance(item, CallItem)}
    return calls.get(last.call_id, "") if isinstance(last, ResultItem) else ""


def _unsaid(request: ModelRequest) -> str:
    """Return, as a sentence, the result that came with the report and that nothing was said about yet."""
    before = request.transcript[-3]
    return f"{_sentence(plain_text(before.content))} " if isinstance(before, ResultItem) else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
