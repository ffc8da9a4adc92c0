"""A server that dies after any of its transactions: what was acknowledged is answered, and nothing is done twice."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from hibernaut import ToolContext
from hibernaut.rap import ToolServer
from hibernaut.rap.kit.transactions import Transactions
from tests.rap.kit.runtime import Receiver, Runtime, Said

CALLS = ("once", "often", "person", "count")


class History:
    """One run of a server, of which the state is kept as it was after each transaction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states = 0
        self.begun: dict[str, int] = {}
        """After how many transactions each function ran."""

    def server(self, state: Path) -> ToolServer:
        server = ToolServer("desk", state=state)

        @server.tool
        async def once() -> str:
            """Do what must not be done twice."""
            self.begun.setdefault("once", self.states)
            return "done"

        @server.tool(idempotent=True)
        async def often() -> str:
            """Do what may be done twice."""
            return "done"

        @server.tool(idempotent=True)
        async def person(context: ToolContext) -> str:
            """Ask."""
            return await context.ask("Shall I?", ["yes", "no"])

        @server.tool(resumable=True)
        async def count(context: ToolContext) -> AsyncIterator[str]:
            """Count."""
            yield "counting"
            for number in range(context.last_sequence + 1, 4):
                yield str(number)

        return server

    def keep(self) -> None:
        self.states += 1
        kept = self.folder / str(self.states)
        kept.mkdir()
        for path in self.folder.glob("desk.db*"):
            shutil.copy(path, kept / path.name)


class Taken(list[Said]):
    """What a runtime took, and after how many transactions."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history
        self.ends: dict[str, int] = {}

    def append(self, said: Said) -> None:
        super().append(said)
        if said["type"] == "tool_result" and not said.get("subscription"):
            self.ends[said["id"]] = self.history.states
        elif said.get("final"):
            self.ends[said["tool_call_id"]] = self.history.states


def result_of(name: str, taken: list[Said]) -> Said | None:
    return next((each for each in taken if each["type"] == "tool_result" and each["id"] == name), None)


async def until_all_is_said(runtime: Runtime, wanted: set[str], asked: list[Said]) -> None:
    """Answer what is asked, or was asked before the server died, until the calls have ended."""
    async with asyncio.timeout(20):
        while not wanted <= ended(runtime.taken):
            for each in [*asked, *runtime.taken]:
                if each["type"] == "user_choice":
                    path = "/rap/" + each["response_url"].partition("/rap/")[2]
                    await runtime.post(path, {"id": each["id"], "selected": 1})
            await runtime.alive()


def ended(taken: list[Said]) -> set[str]:
    plain = {each["id"] for each in taken if each["type"] == "tool_result" and not each.get("subscription")}
    return plain | {each["tool_call_id"] for each in taken if each.get("final")}


@pytest.mark.long
async def test_whatever_transaction_was_the_last_one(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, first = History(tmp_path), receiver.runtime()
    acknowledged: dict[str, int] = {}
    first.taken = taken = Taken(history)

    with monkeypatch.context() as patch:
        transact = Transactions._transact

        def kept(self: Transactions, connection: apsw.Connection, jobs: list[object]) -> None:
            written = connection.total_changes()
            transact(self, connection, jobs)  # type: ignore[arg-type]
            if connection.total_changes() != written:
                history.keep()

        patch.setattr(Transactions, "_transact", kept)
        async with first.calling(history.server(tmp_path / "desk.db")):
            for name in CALLS:
                assert (await first.call(name, name=name)).status == 200
                acknowledged[name] = history.states
            await until_all_is_said(first, set(CALLS), [])
    said_at_first, ends, ran = list(taken), dict(taken.ends), history.begun["once"]

    assert history.states > 15
    for last in range(1, history.states + 1):
        first.taken.clear()
        history.begun.clear()
        async with first.calling(history.server(tmp_path / str(last) / "desk.db")):
            await until_all_is_said(
                first, {name for name in CALLS if acknowledged[name] <= last <= ends[name]}, said_at_first
            )
            for name in CALLS:
                told, before = result_of(name, first.taken), result_of(name, said_at_first)
                assert told is None or before is None or told.get("is_error") or told["text"] == before["text"]
        assert last < ran or "once" not in history.begun, f"it was done again after transaction {last}"
        numbers = {each["sequence"]: each["text"] for each in first.taken if each["type"] == "subscription_event"}
        assert all(numbers.get(number, str(number)) == str(number) for number in range(1, 4))
