"""`hibernaut record` in this process, and what it recorded played back by `run`."""

import json
from pathlib import Path

import pytest

from hibernaut.testing.recording import Recording
from tests.cli.conftest import Invoke, serve_until_idle

MODEL = ("--model", "agent.py:model")
TOOLS = ("--tools", "agent.py")
ADD = 'call add {"a": 1, "b": 2}'


@pytest.fixture
def recorded(invoke: Invoke) -> str:
    """A recording of a task with a call."""
    assert invoke("record", ADD, *MODEL, *TOOLS, "--to", "fixtures/add.json").exit_code == 0
    return "recorded:fixtures/add.json"


def test_a_task_is_printed_as_run_prints_it_and_recorded_and_played_back(invoke: Invoke, folder: Path) -> None:
    live = invoke("run", ADD, *MODEL, *TOOLS)
    result = invoke("record", ADD, *MODEL, *TOOLS, "--to", "fixtures/add.json")
    assert (result.exit_code, result.stdout) == (0, live.stdout)
    assert result.stderr == (
        "Recorded 2 completions in fixtures/add.json; `--model recorded:fixtures/add.json` plays them back.\n"
    )
    again = invoke("run", ADD, "--model", "recorded:fixtures/add.json", *TOOLS)
    assert (again.exit_code, again.stdout, again.stderr) == (0, live.stdout, "")
    assert "agent.py:model" in (folder / "fixtures" / "add.json").read_text(encoding="utf-8")
    assert str(folder) not in (folder / "fixtures" / "add.json").read_text(encoding="utf-8")


def test_the_same_task_has_the_same_file(invoke: Invoke, folder: Path) -> None:
    for name in ("one.json", "two.json"):
        invoke("record", ADD, *MODEL, *TOOLS, "--to", name)
    assert (folder / "one.json").read_bytes() == (folder / "two.json").read_bytes()


def test_json_lines_stay_lines_of_json(invoke: Invoke) -> None:
    result = invoke("record", ADD, *MODEL, *TOOLS, "--to", "add.json", "--json")
    assert {json.loads(line)["type"] for line in result.stdout.splitlines()} >= {"ToolCall", "TextChunk"}


def test_another_request_is_refused_with_the_first_difference(invoke: Invoke, recorded: str) -> None:
    result = invoke("run", 'call add {"a": 1, "b": 3}', "--model", recorded, *TOOLS)
    assert result.exit_code == 3
    assert "not_recorded: this was not recorded in " in result.stderr
    assert '\n- user call add {"a": 1, "b": 2}\n+ user call add {"a": 1, "b": 3}\n' in result.stderr
    assert "Traceback" not in result.stderr


def test_a_tool_that_has_changed_is_another_request(invoke: Invoke, recorded: str, folder: Path) -> None:
    source = (folder / "agent.py").read_text(encoding="utf-8")
    (folder / "other.py").write_text(source.replace("Add two numbers.", "Add up."), encoding="utf-8")
    result = invoke("run", ADD, "--model", recorded, "--tools", "other.py")
    assert result.exit_code == 3
    assert "- tool add: Add two numbers.\n+ tool add: Add up.\n" in result.stderr


def test_a_thread_of_a_store_is_played_back_from_any_directory(
    invoke: Invoke, recorded: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("record", "hello", *MODEL, "--to", "hello.json")
    for thread, task in (("t", "hello"), ("u", "bye")):
        invoke("send", thread, task, "--store", "agents.db", "--model", "recorded:hello.json")
    monkeypatch.chdir(folder.parent)
    serve_until_idle(f"{folder}/agents.db")
    monkeypatch.chdir(folder)
    last = [
        json.loads(invoke("threads", "history", name, "--store", "agents.db", "--json").stdout.splitlines()[-1])
        for name in ("t", "u")
    ]
    assert [item["type"] for item in last] == ["agent", "notice"]
    assert "not_recorded" in last[1]["text"]


# The file


def test_a_file_that_is_there_is_refused_before_anybody_is_asked(invoke: Invoke, recorded: str, folder: Path) -> None:
    before = (folder / "fixtures" / "add.json").read_bytes()
    result = invoke("record", "hello", *MODEL, "--to", "fixtures/add.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "add.json is there already: --append adds to it, --force records it anew" in result.stderr
    both = invoke("record", "hello", *MODEL, "--to", "fixtures/add.json", "--append", "--force")
    assert (both.exit_code, "give one of them" in both.stderr) == (2, True)
    assert (folder / "fixtures" / "add.json").read_bytes() == before


def test_what_is_appended_stands_beside_what_was_there(invoke: Invoke, recorded: str, folder: Path) -> None:
    file = folder / "fixtures" / "add.json"
    before = file.read_bytes()
    same = invoke("record", ADD, *MODEL, *TOOLS, "--to", str(file), "--append")
    assert (same.exit_code, same.stderr) == (0, f"Nothing was recorded: {file} has it all.\n")
    assert file.read_bytes() == before
    more = invoke("record", "hello", *MODEL, *TOOLS, "--to", str(file), "--append")
    assert "Recorded 1 completion in" in more.stderr
    for task in (ADD, "hello"):
        assert invoke("run", task, "--model", recorded, *TOOLS).exit_code == 0


def test_with_force_a_file_is_recorded_anew_whatever_it_was(invoke: Invoke, recorded: str, folder: Path) -> None:
    file = folder / "fixtures" / "add.json"
    file.write_text("no recording", encoding="utf-8")
    assert invoke("record", "hello", *MODEL, "--to", str(file), "--force").exit_code == 0
    assert [one.asked for one in Recording(file).completions] == [("user hello",)]


@pytest.mark.parametrize(
    "words,problem",
    [
        (("--to", "agent.py", "--append"), "agent.py is no recording, or a broken one"),
        (("--to", "agent.py/a.json"), "cannot be written"),
        (("--to", "."), "is a directory"),
        ((), "Missing option '--to'"),
    ],
)
def test_what_cannot_be_recorded_to_is_said_before_anybody_is_asked(
    words: tuple[str, ...], problem: str, invoke: Invoke
) -> None:
    result = invoke("record", "hello", *MODEL, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


@pytest.mark.parametrize(
    "name,problem",
    [
        ("recorded:nowhere.json", "/nowhere.json; `hibernaut record` makes one"),
        ("recorded:", "recorded: names no file"),
        ("recorded:agent.py", "agent.py is no recording"),
    ],
)
def test_what_is_no_recording_is_no_model(name: str, problem: str, invoke: Invoke) -> None:
    result = invoke("run", "hello", "--model", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1


# How it ends


def test_a_completion_that_failed_for_good_leaves_the_file_as_it_was(
    invoke: Invoke, recorded: str, folder: Path
) -> None:
    before = (folder / "fixtures" / "add.json").read_bytes()
    for options in (("--to", "new.json"), ("--to", "fixtures/add.json", "--force")):
        result = invoke("record", "park", *MODEL, *options)
        assert result.exit_code == 3
        assert result.stderr.endswith("Nothing was recorded: a completion has failed, or did not come to its end.\n")
    assert not (folder / "new.json").exists()
    assert (folder / "fixtures" / "add.json").read_bytes() == before


def test_an_agent_that_is_left_waiting_has_said_what_it_has_said(invoke: Invoke) -> None:
    words = ("call ask", *TOOLS, "--store", "agents.db", "--no-wait")
    assert invoke("record", *words, *MODEL, "--to", "ask.json").exit_code == 5
    played = invoke("run", *words, "--model", "recorded:ask.json")
    assert played.exit_code == 5
    assert "waits for ask" in played.stderr


def test_without_a_model_it_says_which_there_are(invoke: Invoke) -> None:
    result = invoke("record", "hello", "--to", "a.json")
    assert result.exit_code == 2
    assert "no model is named" in result.stderr
