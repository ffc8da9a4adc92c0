"""The command in this process, in a folder of its own that holds a module with a model and tools."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hibernaut.cli.models import NamedModels
from hibernaut.cli.root import hibernaut
from hibernaut.system import AgentSystem

AGENT = '''
"""A model that does what it is told, and tools for it."""

import json
from pathlib import Path

from hibernaut import ScriptedModel, ToolContext, tool
from hibernaut.messages.items import UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.models.errors import AuthenticationFailed
from hibernaut.models.scripted import call, fail, say


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def ask(ctx: ToolContext) -> object:
    """Leave the answer to somebody else."""
    deferred = ctx.defer()
    Path("token").write_text(deferred.token)
    return deferred


async def plain(text: str) -> str:
    """Say it back."""
    return text


both = [add, plain]


def answer(request):
    last = request.transcript[-1]
    said = plain_text(last.content)
    if not isinstance(last, UserItem):
        return say("It says: " + said)
    word, _, rest = said.partition(" ")
    if word == "call":
        name, _, arguments = rest.partition(" ")
        return call(name, json.loads(arguments or "{}"))
    if word == "park":
        return fail(AuthenticationFailed("no key"))
    return say("You said: ", said)


def make():
    return ScriptedModel(answer)


model = make()
number = 7
'''

Invoke = Callable[..., Result]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, with nothing in the environment that the command heeds."""
    for name in ("HIBERNAUT_STORE", "HIBERNAUT_MODEL", "HIBERNAUT_TENANT", "HIBERNAUT_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in ("agent", *(name for name in sys.modules if name not in modules and "@" in name)):
        sys.modules.pop(name, None)


def serve_until_idle(store: str = "agents.db") -> None:
    """Run an engine on a store, as `hibernaut serve` does, until it has nothing to do."""

    async def run() -> None:
        async with AgentSystem(models=NamedModels(""), store=store) as system, asyncio.timeout(30):
            await system.wait_idle()

    asyncio.run(run())


@pytest.fixture
def invoke() -> Invoke:
    """Run the command; what is wrong in it shows as what it is."""

    def run(*words: str, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(hibernaut, words, input=stdin, prog_name="hibernaut")
        if result.exception is not None and not isinstance(result.exception, SystemExit | click.ClickException):
            raise result.exception
        return result

    return run
