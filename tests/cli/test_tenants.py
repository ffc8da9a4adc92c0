"""With `--tenant`, no command shows or changes anything of another tenant."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from hibernaut.cli.root import hibernaut
from hibernaut.stores.sqlite import SqliteStore
from tests.cli.conftest import Invoke
from tests.tenancy import SECRET, belongings, both

MODEL = ("--model", "echo")

CASES: dict[str, list[tuple[str, ...]]] = {
    "answer": [("{question}", "yes"), ("{short}", "yes")],
    "authority explain": [("t", "ask_outside")],
    "authority reset": [("t",)],
    "authority set": [("t", "policy.toml")],
    "authority show": [("t",)],
    "chat": [("--thread", "t", *MODEL)],
    "deliver": [("{token}", "forged")],
    "effects list": [(), ("t",)],
    "effects reconcile": [("--server", "http://127.0.0.1:9")],
    "effects settle": [("{call}", "--result", "forged", "--reason", "mine")],
    "effects show": [("{call}",)],
    "inbox": [(), ("--thread", "t")],
    "receipts": [("t", "--json", "--with-payloads"), ("t", "--verify")],
    "record": [("Hello", "--thread", "t", *MODEL, "--to", "stolen.json")],
    "run": [("Hello", "--thread", "t", *MODEL)],
    "send": [("t", "Hello"), ("t", "{published}", "--published"), ("t", "{result}", "--published")],
    "threads cancel": [("t", "{call}")],
    "threads close": [("t",)],
    "threads compact": [("t",)],
    "threads delete": [("t", "--yes")],
    "threads drop": [("t", "held")],
    "threads edit": [("t", "held", "forged")],
    "threads export": [("t", "stolen.hibernaut")],
    "threads fork": [("t",), ("t", "--as", "mine")],
    "threads freeze": [("t",)],
    "threads history": [("t", "--full")],
    "threads import": [("acme.hibernaut",)],
    "threads inbox": [("t",)],
    "threads list": [("--all",), ("--all", "--json")],
    "threads park": [("t",)],
    "threads prune": [("--older-than", "1h")],
    "threads resume": [("t", "--tree")],
    "threads retry": [("t",)],
    "threads show": [("t",), ("t", "--json")],
    "threads stop": [("t", "--tree")],
    "threads thaw": [("t",)],
    "threads tree": [("t", "--all")],
    "usage": [(), ("t",)],
    "verify": [("t",), ("--all", "--json")],
}
"""What other tries, by the command."""

SHOWS_ITS_OWN = ("effects list", "effects reconcile", "inbox", "threads list", "threads prune", "usage", "verify")
"""Commands that need no name, and then find what is other's own, or nothing."""

NO_TENANT = {
    "authority check": "reads a file",
    "bench callbacks": "makes a store of its own",
    "bench cold-start": "makes a store of its own",
    "bench durable": "makes a store of its own",
    "bench history": "makes a store of its own",
    "bench scale": "makes a store of its own",
    "bench wake": "makes a store of its own",
    "chaos": "makes stores of its own",
    "completion": "prints a script",
    "demo": "makes a store of its own",
    "demo tree": "makes a store of its own",
    "models": "reads a file",
    "models list": "asks a provider",
    "models show": "reads a file",
    "rap call": "talks to a tool server",
    "rap check": "talks to a tool server",
    "rap inspect": "talks to a tool server",
    "rap serve": "is a tool server",
    "stats": "shows numbers of the whole store, which name no thread",
    "serve": "runs an engine, for all tenants",
}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield " ".join(path), command


def test_every_command_is_tried_or_has_nothing_to_do_with_threads() -> None:
    found = {name: {parameter.name for parameter in command.params} for name, command in commands(hibernaut) if name}
    assert {name for name, parameters in found.items() if "tenant" in parameters} == set(CASES)
    assert {name for name, parameters in found.items() if "tenant" not in parameters} == set(NO_TENANT)


@pytest.fixture
def words(invoke: Invoke, folder: Path) -> dict[str, str]:
    """Make a store that both tenants use, and give the words that stand for what acme has."""
    found: dict[str, str] = {}

    async def make() -> None:
        store = await SqliteStore.open("agents.db")
        async with both(store) as world:
            found.update(question=world.question, token=world.token, call=world.calls["ask_outside"])
        await store.close()

    asyncio.run(make())
    assert invoke("threads", "freeze", "t", "--store", "agents.db", "--tenant", "acme").exit_code == 0
    export = invoke("threads", "export", "t", "acme.hibernaut", "--store", "agents.db", "--tenant", "acme")
    assert export.exit_code == 0
    (folder / "policy.toml").write_text('[[rules]]\ntools = ["*"]\naction = "deny"\n', encoding="utf-8")
    text = '{"content": {"type": "text", "text": "Hello"}, "group_id": "t"}'
    part = '{"type": "text", "text": "forged"}'
    result = f'{{"content": {{"type": "toolresult", "id": "{found["call"]}", "content": [{part}]}}, "group_id": "t"}}'
    return {**found, "short": found["question"].partition("@")[0], "published": text, "result": result}


def kept() -> dict[str, object]:
    async def read() -> dict[str, object]:
        store = await SqliteStore.open("agents.db")
        try:
            return await belongings(store, "acme")
        finally:
            await store.close()

    return asyncio.run(read())


def test_no_command_reaches_what_is_another_tenants(invoke: Invoke, folder: Path, words: dict[str, str]) -> None:
    before = kept()
    files = set(folder.iterdir())
    for name, attempts in CASES.items():
        for attempt in attempts:
            given = [words.get(word.strip("{}"), word) for word in attempt]
            command = [*name.split(), *given, "--store", "agents.db", "--tenant", "other"]
            code, output = talk(command) if name == "chat" else heard(invoke(*command))
            what = f"{name} {' '.join(given)}: {output}"
            ends_well = name == "chat" or (name in SHOWS_ITS_OWN and "t" not in attempt)
            assert (code == 0) == ends_well, what
            assert "Usage:" not in output, what
            assert SECRET not in output, what
            assert kept() == before, what
    assert set(folder.iterdir()) == files


def heard(result: Result) -> tuple[int, str]:
    return result.exit_code, result.output


def talk(command: list[str]) -> tuple[int, str]:
    """Run a command in a process of its own: it reads what is typed as bytes."""
    words = [sys.executable, "-m", "hibernaut.cli", *command]
    ended = subprocess.run(words, input="Hello\n", capture_output=True, check=False, encoding="utf-8", timeout=50)
    return ended.returncode, ended.stdout + ended.stderr
