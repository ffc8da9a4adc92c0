"""Threads that move from one store to another by a file."""

import json
import stat
from pathlib import Path

import pytest

from hibernaut.cli.threads import moving
from tests.cli.conftest import Invoke, serve_until_idle

STORE = ("--store", "agents.db")
OTHER = ("--store", "other.db")
MODEL = ("--model", "agent.py:model", "--tools", "agent.py")


def state(invoke: Invoke, *store: str) -> str:
    record = json.loads(invoke("threads", "show", "t", *store, "--json").stdout)
    return "frozen" if record["frozen"] else str(record["activity"])


def test_a_conversation_goes_from_one_store_to_another(invoke: Invoke, folder: Path) -> None:
    invoke("run", "Hello", "--thread", "t", *MODEL, *STORE)
    assert invoke("threads", "freeze", "t", *STORE).stdout == "frozen: 1 thread\n"
    assert invoke("threads", "freeze", "t", *STORE).stdout == "t was frozen already\n"
    invoke("send", "t", "More", *STORE)
    serve_until_idle()
    assert state(invoke, *STORE) == "frozen"
    assert invoke("threads", "list", *STORE).stdout.splitlines()[1].split()[1] == "frozen"
    assert "State    open, frozen\n" in invoke("threads", "show", "t", *STORE).stdout

    exported = invoke("threads", "export", "t", "t.hibernaut", *STORE)
    assert exported.exit_code == 0
    size = (folder / "t.hibernaut").stat().st_size
    assert exported.stdout.startswith("exported: 1 thread (")
    assert f"{size:,} bytes) to t.hibernaut. They are still here, and frozen.\n" in exported.stdout
    assert stat.S_IMODE((folder / "t.hibernaut").stat().st_mode) == 0o600

    imported = invoke("threads", "import", "t.hibernaut", *OTHER)
    assert imported.stdout == (
        "imported: 1 thread as t, frozen. `hibernaut threads thaw t --store other.db` lets them go on.\n"
    )
    assert state(invoke, *OTHER) == "frozen"
    assert invoke("threads", "thaw", "t", *OTHER).stdout == "thawed: 1 thread\n"
    assert invoke("threads", "thaw", "t", *OTHER).stdout == "t was not frozen\n"
    serve_until_idle("other.db")
    assert "You said: More" in invoke("threads", "history", "t", *OTHER).stdout
    assert invoke("verify", "t", *OTHER).exit_code == 0
    assert invoke("threads", "delete", "t", "--yes", *STORE).exit_code == 0


def test_calls_that_wait_for_callbacks_given_out_elsewhere_are_named(invoke: Invoke) -> None:
    invoke("run", "call ask", "--thread", "t", *MODEL, *STORE, "--no-wait")
    invoke("threads", "freeze", "t", *STORE)
    invoke("threads", "export", "t", "t.hibernaut", *STORE)
    imported = invoke("threads", "import", "t.hibernaut", *OTHER)
    assert (imported.exit_code, imported.stderr.startswith("warning: 1 call waits for callbacks")) == (0, True)


def test_what_cannot_be_exported_leaves_no_file(invoke: Invoke, folder: Path) -> None:
    invoke("run", "Hello", "--thread", "t", *MODEL, *STORE)
    refused = invoke("threads", "export", "t", "t.hibernaut", *STORE)
    assert (refused.exit_code, "is not frozen" in refused.stderr, "freeze its tree first" in refused.stderr) == (
        1,
        True,
        True,
    )
    assert not (folder / "t.hibernaut").exists()
    invoke("threads", "freeze", "t", *STORE)
    missing = invoke("threads", "export", "t", "no/such/folder", *STORE)
    assert (missing.exit_code, missing.stderr.splitlines()[-1]) == (
        1,
        "Error: no/such/folder cannot be written: No such file or directory",
    )


def test_a_file_that_is_there_is_not_overwritten(invoke: Invoke, folder: Path) -> None:
    invoke("run", "Hello", "--thread", "t", *MODEL, *STORE)
    invoke("threads", "freeze", "t", *STORE)
    (folder / "notes").write_text("mine")
    refused = invoke("threads", "export", "t", "notes", *STORE)
    assert (refused.exit_code, "notes is there already" in refused.stderr) == (2, True)
    assert (folder / "notes").read_text() == "mine"


def test_what_cannot_be_imported_changes_nothing(invoke: Invoke, folder: Path) -> None:
    invoke("run", "Hello", "--thread", "t", *MODEL, *STORE)
    invoke("threads", "freeze", "t", *STORE)
    invoke("threads", "export", "t", "t.hibernaut", *STORE)
    (folder / "foreign").write_text("Dear diary")
    (folder / "cut").write_bytes((folder / "t.hibernaut").read_bytes()[:-1])
    for name, reason in (
        ("foreign", "this is no archive of threads"),
        ("cut", "this archive is damaged (its end is missing)"),
        ("nowhere", "nowhere cannot be read: No such file or directory"),
    ):
        refused = invoke("threads", "import", name, *OTHER)
        assert (refused.exit_code, reason in refused.stderr) == (1, True)
    assert not (folder / "other.db").exists()
    again = invoke("threads", "import", "t.hibernaut", *STORE)
    assert (again.exit_code, "there is a thread 't' already" in again.stderr) == (1, True)
    tenant = invoke("threads", "import", "t.hibernaut", *OTHER, "--tenant", "x")
    assert (tenant.exit_code, "of the tenant ''" in tenant.stderr) == (1, True)


def test_a_terminal_is_shown_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    tell = moving._progress("read")
    for done in range(2_501):
        tell(done, 2_500)
    shown = ["\rread 0 of 2,500 records", "1,000 of", "2,000 of", "\rread 2,500 of 2,500 records\n"]
    printed = capsys.readouterr().err
    assert all(line in printed for line in shown)
    assert printed.count("\r") == 4
    moving._progress("read")(5, 5)
    assert capsys.readouterr().err == ""
