"""Receipts for people and for programs, and the proof that they hold."""

import json
import re
import subprocess
from pathlib import Path

import apsw
import jsonschema_rs
import pytest

from tests.cli.conftest import Invoke

STORE = ("--store", "agents.db")
DOCS = Path(__file__).parents[2] / "docs"


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
def test_receipts_say_what_came_in_and_what_became_of_it_in_80_columns(invoke: Invoke) -> None:
    lines = invoke("receipts", "sum", *STORE).stdout.splitlines()
    heads, first, second = lines
    assert heads.split() == ["NO", "TIME", "TURN", "TOKENS", "HISTORY", "WHAT"]
    assert first.split()[0] == "1"
    assert first.endswith("add; <- api accepted")
    assert second.endswith("<- tool:add accepted")
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("two_threads")
def test_receipts_can_be_read_by_programs(invoke: Invoke) -> None:
    result = invoke("receipts", "sum", *STORE, "--json", "--verify")
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["resume_id"], second["resume_id"]) == ("sum@1", "sum@2")
    (request,) = first["tool_requests"]
    call = request["call_id"]
    assert request == {
        "request_id": call,
        "idempotency_key": call,
        "kind": "invoke",
        "call_id": call,
        "tool": "add",
        "dispatch": "dispatched",
        "effect_state": "settled",
        "result": f"result:{call}",
    }
    assert second["inputs"] == [
        {
            "id": f"result:{call}",
            "disposition": "accepted",
            "provenance": {"sender": "tool:add", "answers": {"call": call}},
        }
    ]
    assert second["settled"] == [{"request_id": call, "input": f"result:{call}"}]
    assert second["previous"] == first["receipt"]
    assert second["history_before"] == first["history_after"]
    assert result.stderr == "verified: 2 receipts of sum\n"


@pytest.mark.usefixtures("two_threads")
def test_payloads_are_shown_only_when_they_are_asked_for(invoke: Invoke) -> None:
    assert "It says" not in invoke("receipts", "sum", *STORE, "--json").stdout
    last = json.loads(invoke("receipts", "sum", *STORE, "--json", "--with-payloads").stdout.splitlines()[-1])
    assert [item["type"] for item in last["items"]] == ["result", "agent"]
    assert last["items"][1]["text"] == "It says: 3"
    assert invoke("receipts", "sum", *STORE, "--with-payloads").exit_code == 2


@pytest.mark.usefixtures("two_threads")
def test_what_is_printed_is_what_the_schema_says(invoke: Invoke) -> None:
    schema = json.loads(invoke("receipts", "--schema").stdout)
    assert schema == json.loads((DOCS / "resume_contract_v1.json").read_text(encoding="utf-8"))
    validator = jsonschema_rs.validator_for(schema)
    for words in ([], ["--with-payloads"]):
        for line in invoke("receipts", "sum", *STORE, "--json", *words).stdout.splitlines():
            validator.validate(json.loads(line))
            assert not validator.is_valid(json.loads(line) | {"resume_contract": "v2"})


@pytest.mark.usefixtures("two_threads")
def test_a_chain_is_checked_with_nothing_but_a_shell_as_the_page_says(invoke: Invoke, folder: Path) -> None:
    page = (DOCS / "receipts.md").read_text(encoding="utf-8")
    script = re.search(r"```sh check\.sh\n(.*?)```", page, re.DOTALL)
    assert script is not None
    (folder / "check.sh").write_text(script[1])
    printed = invoke("receipts", "sum", *STORE, "--json", "--with-payloads").stdout
    assert check(folder, printed) == (0, "2 receipts hold\n")
    assert check(folder, "") == (1, "there are no receipts in receipts.jsonl\n")
    lines = printed.splitlines()
    assert check(folder, f"{lines[1]}\n")[0] == 1
    for name in ("receipt", "previous", "history_before", "history_after"):
        record = json.loads(lines[1])
        record[name] = "sha256:" + "0" * 64
        assert check(folder, f"{lines[0]}\n{json.dumps(record)}\n") == (1, f"sum@2 does not hold: {name}\n")
    forged = lines[1].replace('"stored_page":"', '"stored_page":"AAAA')
    assert check(folder, f"{lines[0]}\n{forged}\n") == (1, "sum@2 does not hold: history_after\n")


def check(folder: Path, receipts: str) -> tuple[int, str]:
    """Run the script of the page on some receipts."""
    (folder / "receipts.jsonl").write_text(receipts)
    done = subprocess.run(
        ["bash", "check.sh", "receipts.jsonl"], cwd=folder, capture_output=True, encoding="utf-8", check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.usefixtures("two_threads")
def test_a_chain_that_holds_is_verified(invoke: Invoke) -> None:
    assert invoke("verify", "sum", *STORE).stdout == "verified: 2 receipts of sum\n"
    for words in (["--all"], ["--all-tenants"], ["--all", "--jobs", "2"]):
        result = invoke("verify", *words, *STORE)
        assert (result.exit_code, result.stdout) == (0, "verified: 3 receipts of 2 threads; 0 threads failed\n")
    assert invoke("verify", "--all", "--tenant", "other", *STORE).stdout.startswith("verified: 0 receipts of 0 threads")


@pytest.mark.usefixtures("two_threads")
def test_a_history_that_was_changed_is_found_out(invoke: Invoke, folder: Path) -> None:
    forge(folder)
    for words in (["verify", "sum"], ["receipts", "sum", "--verify"]):
        result = invoke(*words, *STORE)
        assert result.exit_code == 7
        assert "the history at version 2 is not the one its receipt names" in result.stderr
    result = invoke("verify", "--all", *STORE)
    assert result.exit_code == 7
    assert result.stderr.startswith("Error: sum: version 2, page: ")
    assert result.stdout == "verified: 1 receipts of 1 threads; 1 threads failed\n"


@pytest.mark.usefixtures("two_threads")
def test_what_does_not_hold_is_told_to_programs(invoke: Invoke, folder: Path) -> None:
    forge(folder)
    for words in (["sum"], ["--all"]):
        result = invoke("verify", *words, *STORE, "--json")
        broken, numbers = (json.loads(line) for line in result.stdout.splitlines())
        assert (result.exit_code, broken["thread_id"], broken["version"], broken["kind"]) == (7, "sum", 2, "page")
        assert numbers["broken"] == 1


@pytest.mark.usefixtures("two_threads")
def test_an_effect_that_no_receipt_owes_is_found_out(invoke: Invoke, folder: Path) -> None:
    invoke(
        "run", "call ask", "--thread", "asks", "--model", "agent.py:model", "--tools", "agent.py", *STORE, "--no-wait"
    )
    assert invoke("verify", "asks", *STORE).exit_code == 0
    connection = apsw.Connection(str(folder / "agents.db"))
    connection.execute("DELETE FROM outbox")
    connection.close()
    result = invoke("verify", "asks", *STORE, "--json")
    broken = json.loads(result.stdout.splitlines()[0])
    assert (result.exit_code, broken["kind"], broken["version"]) == (7, "effect", 1)
    assert broken["problem"].endswith("is neither in the outbox nor settled")


@pytest.mark.parametrize("words", [(), ("sum", "--all"), ("--all", "--all-tenants")])
@pytest.mark.usefixtures("two_threads")
def test_what_is_to_be_verified_must_be_said(words: tuple[str, ...], invoke: Invoke) -> None:
    assert invoke("verify", *words, *STORE).exit_code == 2
