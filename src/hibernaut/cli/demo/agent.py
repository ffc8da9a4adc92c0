"""The agent of the demo: what it can do, and a scripted model that decides for it.

Everything here is found again by name when a new process wakes the agent, and what it knows comes from its stored
conversation.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from hibernaut.cli.demo.build import FAILED, OUTPUT, PASSED
from hibernaut.cli.demo.project import read_pins, write_pins
from hibernaut.errors import ToolError
from hibernaut.messages.items import CallItem, ResultItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_result, last_user_text, say, turn
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool

INSTRUCTIONS = "You keep the dependencies of a project safe, and its build green."


class Surroundings(msgspec.Struct):
    """What the tools are told, as the metadata of the thread: it is stored with the thread."""

    store: str
    folder: str
    """Where the project is."""
    seconds: float
    """How long a build takes."""


@tool(inline=True, idempotent=True)
def edit_requirements(package: str, version: str, ctx: ToolContext) -> str:
    """Pin a package in requirements.txt.

    Args:
        package: its name.
        version: the version to pin.
        ctx: the call.
    """
    folder = Path(_surroundings(ctx).folder)
    pins = read_pins(folder)
    if package not in pins:
        raise ToolError(f"requirements.txt has no {package}")
    before = pins[package]
    write_pins(folder, {**pins, package: version})
    return f"requirements.txt: {package} {before} -> {version}"


@tool
def start_build(ctx: ToolContext) -> Deferred:
    """Start a build with what requirements.txt pins. Its report comes when it is done."""
    around, deferred = _surroundings(ctx), ctx.defer()
    folder = Path(around.folder)
    program = [sys.executable, "-P", "-m", "hibernaut.cli.demo.build"]
    with (folder / OUTPUT).open("ab") as output:
        # In a session of its own, so that nothing that befalls the engine reaches it.
        build = subprocess.Popen(  # noqa: S603  # our own program, with values that the store holds
            [*program, around.store, ctx.call_id, around.folder, str(around.seconds)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    if build.stdin:
        with build.stdin as pipe:  # command lines can be read by everybody, and who has the token can answer
            pipe.write(deferred.token.encode())
    return deferred


TOOLS = (edit_requirements, start_build)


def decide(request: ModelRequest) -> ScriptedTurn:
    """Play the model: from the conversation alone, decide what to say and do next."""
    calls = [item for item in request.transcript if isinstance(item, CallItem)]
    task = re.search(r"(\w+) before .*? Fixed in ([\d.]+(?:(?:, | and )[\d.]*\d)*)", last_user_text(request))
    if task is None:
        return say("Tell me which advisory you mean, and in which versions it is fixed.")
    package = task[1]
    fixed = sorted(re.findall(r"\d[\d.]*\d", task[2]), key=_numbers, reverse=True)
    pinned = [json.loads(item.arguments)["version"] for item in calls if item.name == edit_requirements.name]
    if not pinned:
        words = f"{fixed[0]} is the newest version with the fix. I pin it and build."
        return turn(words, call(edit_requirements.name, package=package, version=fixed[0]))
    result = last_result(request)
    if calls[-1].name == edit_requirements.name and not _failed(request):
        return turn(call(start_build.name))
    if result.startswith(PASSED):
        return say(_good_news(package, pinned, _failing_tests(request)))
    left = [version for version in fixed if version not in pinned]
    if not result.startswith(FAILED) or not left:
        return say(f"I could not move {package} to a safe version. The last thing I saw: {result.splitlines()[0]}")
    failing = " and ".join(_names(result))
    words = (
        f"With {package} {pinned[-1]}, {failing} fails. The advisory names one more version with the fix, "
        f"{left[0]}. I try that."
    )
    return turn(words, call(edit_requirements.name, package=package, version=left[0]))


def _surroundings(ctx: ToolContext) -> Surroundings:
    return msgspec.convert(ctx.metadata, Surroundings)


def _good_news(package: str, pinned: list[str], failing: list[str]) -> str:
    words = f"Done. {package} is pinned to {pinned[-1]}, which has the fix, and the build passes."
    if not failing:
        return words
    return f"{words} To go on to {pinned[0]} one day, look at {' and '.join(failing)} first."


def _failing_tests(request: ModelRequest) -> list[str]:
    reports = [str(item.content) for item in request.transcript if isinstance(item, ResultItem)]
    return [name for report in reports if report.startswith(FAILED) for name in _names(report)]


def _failed(request: ModelRequest) -> bool:
    last = request.transcript[-1]
    return isinstance(last, ResultItem) and last.is_error


def _names(report: str) -> list[str]:
    """Return the names of the tests that a build's report says have failed."""
    return re.findall(r"^(?:FAIL|ERROR): (\w+)", report, re.MULTILINE)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]
