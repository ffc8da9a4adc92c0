"""Receipts, and the proof that they hold."""

import json
from pathlib import Path

import apsw
import pytest

from tests.cli.conftest import Invoke

STORE = ("--store", "agents.db")


@pytest.fixture
def two_threads(invoke: Invoke) -> None:
    invoke(
        "run",
        'call add {"a": 1, "b": 2}',
        "--thread",
        "sum",
        "--model",
        "agent.py:model",
        "--tools",
        "agent.py",
        *STORE,
    )
    invoke("run", "hello", "--thread", "echo", "--model", "echo", *STORE)


def forge(folder: Path) -> None:
    """Change a word in a stored history."""
    connection = apsw.Connection(str(folder / "agents.db"))
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
    for table in tables:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()]
        if "page" not in columns:
            continue
        for row, page in connection.execute(f"SELECT rowid, page FROM {table}").fetchall():
            if isinstance(page, bytes) and b"It says" in page:
                connection.execute(f"UPDATE {table} SET page = ? WHERE rowid = ?", (page.replace(b"It", b"He"), row))
    connection.close()


@pytest.mark.usefixtures("two_threads")
def test_receipts_say_what_came_in_and_what_became_of_it(invoke: Invoke) -> None:
    heads, first, second = invoke("receipts", "sum", *STORE).stdout.splitlines()
    assert heads.split() == ["NO", "TIME", "MS", "TURN", "TOKENS", "HISTORY", "CALLS", "INPUTS"]
    assert first.split()[0] == "1"
    assert first.endswith(" accepted")
    assert "result:call_" in second


@pytest.mark.usefixtures("two_threads")
def test_receipts_can_be_read_by_programs(invoke: Invoke) -> None:
    result = invoke("receipts", "sum", *STORE, "--json", "--verify")
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["version"], second["version"]) == (1, 2)
    assert first["calls"] == first["dispatched"]
    assert first["inputs"][0]["disposition"] == "accepted"
    assert len(second["previous"]) == 64
    assert result.stderr == "verified: 2 receipts of sum\n"


@pytest.mark.usefixtures("two_threads")
def test_a_chain_that_holds_is_verified(invoke: Invoke) -> None:
    assert invoke("verify", "sum", *STORE).stdout == "verified: 2 receipts of sum\n"
    result = invoke("verify", "--all", *STORE)
    assert (result.exit_code, result.stdout) == (0, "verified: 3 receipts of 2 threads; 0 threads failed\n")


@pytest.mark.usefixtures("two_threads")
def test_a_history_that_was_changed_is_found_out(invoke: Invoke, folder: Path) -> None:
    forge(folder)
    for words in (["verify", "sum"], ["receipts", "sum", "--verify"]):
        result = invoke(*words, *STORE)
        assert result.exit_code == 7
        assert "the history at version 2 is not the one its receipt names" in result.stderr
    result = invoke("verify", "--all", *STORE)
    assert result.exit_code == 7
    assert result.stderr.startswith("Error: sum: ")
    assert result.stdout == "verified: 1 receipts of 1 threads; 1 threads failed\n"


@pytest.mark.parametrize("words", [(), ("sum", "--all")])
@pytest.mark.usefixtures("two_threads")
def test_what_is_to_be_verified_must_be_said(words: tuple[str, ...], invoke: Invoke) -> None:
    assert invoke("verify", *words, *STORE).exit_code == 2
