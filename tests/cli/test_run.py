"""`hibernaut run` in this process: what it prints and how it ends."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke

MODEL = ("--model", "agent.py:model")
TOOLS = ("--tools", "agent.py")


def test_a_task_is_answered(invoke: Invoke) -> None:
    result = invoke("run", "hello", "--model", "echo")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "You said: hello\n", "")


def test_calls_and_results_are_shown_between_the_texts(invoke: Invoke) -> None:
    result = invoke("run", 'call add {"a": 1, "b": 2}', *MODEL, *TOOLS)
    assert result.stdout == '→ add {"a":1,"b":2}\n← add: 3\nIt says: 3\n'
    assert result.exit_code == 0


def test_a_failed_call_is_shown_as_such(invoke: Invoke) -> None:
    result = invoke("run", 'call add {"a": "x", "b": 2}', *MODEL, *TOOLS)
    assert "✗ add: Not run." in result.stdout


def test_every_line_of_json_is_an_event_of_the_thread(invoke: Invoke) -> None:
    result = invoke("run", 'call add {"a": 1, "b": 2}', *MODEL, *TOOLS, "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert {event["type"] for event in events} == {
        "UserInput",
        "CompletionStarted",
        "ToolCall",
        "ToolResult",
        "TextChunk",
        "CompletionFinished",
    }
    assert len({event["thread_id"] for event in events}) == 1
    assert "".join(event["text"] for event in events if event["type"] == "TextChunk") == "It says: 3"
    assert all(event["usage"]["input"] == 0 for event in events if event["type"] == "CompletionFinished")


def test_the_task_can_come_from_standard_input_whatever_its_bytes(invoke: Invoke) -> None:
    result = invoke("run", "-", "--model", "echo", stdin=b"caf\xe9 \xff\n")
    assert result.stdout == "You said: caf\ufffd \ufffd\n"


@pytest.mark.parametrize("task", ["", " \n"])
def test_a_blank_task_is_refused(task: str, invoke: Invoke) -> None:
    result = invoke("run", task, "--model", "echo")
    assert (result.exit_code, result.stderr) == (1, "Error: the text is blank\n")


def test_without_a_model_it_says_which_there_are(invoke: Invoke, folder: Path) -> None:
    result = invoke("run", "hello", "--store", "agents.db")
    assert result.exit_code == 2
    assert "no model is named" in result.stderr
    assert "echo" in result.stderr


def test_the_environment_names_what_the_command_line_does_not(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIBERNAUT_STORE", "agents.db")
    monkeypatch.setenv("HIBERNAUT_MODEL", "echo")
    monkeypatch.setenv("HIBERNAUT_TENANT", "ours")
    assert invoke("run", "hello", "--thread", "t").exit_code == 0
    assert json.loads(invoke("threads", "list", "--json").stdout)["tenant"] == "ours"
    assert invoke("threads", "list", "--tenant", "theirs").stdout == ""


def test_a_thread_goes_on_where_it_was(invoke: Invoke) -> None:
    where = ("--store", "agents.db", "--thread", "t")
    invoke("run", "one", *where, "--model", "echo")
    result = invoke("run", "two", *where)
    assert (result.exit_code, result.stdout) == (0, "You said: two\n")
    assert [
        json.loads(line)["type"] for line in invoke("threads", "history", "t", *where[:2], "--json").stdout.splitlines()
    ] == [
        "user",
        "agent",
    ] * 2


def test_a_thread_keeps_what_it_was_launched_with_and_that_is_said(invoke: Invoke) -> None:
    where = ("--store", "agents.db", "--thread", "t")
    invoke("run", "one", *where, *MODEL, "--tools", "agent.py:add", "--instructions", "Be kind.")
    result = invoke("run", "two", *where, "--model", "echo", "--tools", "agent.py:ask", "--instructions", "Be quick.")
    assert result.stdout == "You said: two\n"
    notes = result.stderr.splitlines()
    assert [note for note in notes if "keeps the model" in note and note.endswith("agent.py:model")]
    assert [note for note in notes if "tools that are not here: add" in note]
    assert [note for note in notes if "does not get them: ask" in note]
    assert [note for note in notes if "keeps the instructions" in note]


def test_instructions_can_come_from_a_file(invoke: Invoke, folder: Path) -> None:
    (folder / "be.txt").write_bytes(b"Be kind \xff.")
    invoke("run", "one", "--store", "agents.db", "--thread", "t", "--model", "echo", "--instructions", "@be.txt")
    shown = json.loads(invoke("threads", "show", "t", "--store", "agents.db", "--json").stdout)
    assert shown["instructions"] == "Be kind \ufffd."


def test_instructions_from_a_file_that_is_not_there_are_a_usage_error(invoke: Invoke) -> None:
    result = invoke("run", "one", "--model", "echo", "--instructions", "@nowhere.txt")
    assert result.exit_code == 2
    assert "nowhere.txt cannot be read" in result.stderr


# How it ends


def test_a_parked_agent_says_why_and_how_to_go_on(invoke: Invoke) -> None:
    result = invoke("run", "park", *MODEL, "--store", "agents.db", "--thread", "t")
    assert result.exit_code == 3
    assert "authentication_failed: no key" in result.stderr
    assert "hibernaut threads resume t --store agents.db" in result.stderr


def test_a_parked_agent_goes_on_when_it_is_spoken_to(invoke: Invoke) -> None:
    where = ("--store", "agents.db", "--thread", "t")
    invoke("run", "park", *MODEL, *where)
    result = invoke("run", "hello", *where)
    assert result.exit_code == 0
    assert result.stdout.endswith("You said: hello\n")


def test_a_stopped_agent_goes_on_when_it_is_spoken_to(invoke: Invoke) -> None:
    where = ("--store", "agents.db", "--thread", "t")
    invoke("run", "one", "--model", "echo", *where)
    invoke("threads", "stop", "t", "--store", "agents.db")
    result = invoke("run", "two", *where)
    assert result.exit_code == 0
    assert result.stdout.endswith("You said: two\n")


def test_an_agent_that_is_left_asleep_is_told_how_to_go_on(invoke: Invoke) -> None:
    result = invoke("run", 'call sleep {"seconds": 3600}', *MODEL, "--store", "agents.db", "--thread", "t", "--no-wait")
    assert result.exit_code == 5
    assert "sleeps until" in result.stderr
    assert "hibernaut serve --local --store agents.db --model agent.py:model" in result.stderr


def test_an_agent_that_waits_for_a_deferred_call_can_be_left(invoke: Invoke) -> None:
    result = invoke("run", "call ask", *MODEL, *TOOLS, "--store", "agents.db", "--no-wait")
    assert result.exit_code == 5
    assert "waits for ask" in result.stderr


@pytest.mark.parametrize("task", ["call ask", "call sleep_until_event_or_input"])
def test_in_memory_nobody_waits_for_what_can_never_come(task: str, invoke: Invoke) -> None:
    result = invoke("run", task, *MODEL, *TOOLS)
    assert result.exit_code == 5
    assert "cannot come to a store in memory" in result.stderr


def test_a_sleep_is_waited_for(invoke: Invoke) -> None:
    result = invoke("run", 'call sleep {"seconds": 0.01}', *MODEL)
    assert result.exit_code == 0
    assert result.stdout.endswith("It says: Slept until the time set.\n")


@pytest.mark.parametrize("more", [(), ("--store", "agents.db")])
def test_a_run_that_takes_too_long_is_left(more: tuple[str, ...], invoke: Invoke) -> None:
    result = invoke("run", 'call sleep {"seconds": 3600}', *MODEL, "--timeout", "0.05", *more)
    assert result.exit_code == 5
    assert "The time is up" in result.stderr


def test_an_agent_in_memory_cannot_be_left(invoke: Invoke) -> None:
    result = invoke("run", "hello", "--model", "echo", "--no-wait")
    assert result.exit_code == 2
    assert "--no-wait needs --store" in result.stderr


@pytest.mark.parametrize(
    "words, code, problem",
    [
        (("--timeout", "0"), 2, "--timeout"),
        (("--thread", " "), 2, "it is empty"),
        (("--tools", "nowhere"), 2, "there is no module 'nowhere'"),
        (("--tools", "agent.py:add", "--tools", "agent.py:twin"), 2, "two tools are called 'add'"),
        (("--store", "no/where/agents.db"), 6, "there is no directory"),
        (("--store", "."), 6, "is not a file"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    words: tuple[str, ...], code: int, problem: str, invoke: Invoke, folder: Path
) -> None:
    with (folder / "agent.py").open("a", encoding="utf-8") as module:
        module.write("\ntwin = tool(add.function, name='add')\n")
    result = invoke("run", "hello", "--model", "echo", *words)
    assert result.exit_code == code
    assert problem in result.stderr.splitlines()[-1]


def test_the_thread_of_another_tenant_is_not_spoken_to(invoke: Invoke) -> None:
    where = ("--store", "agents.db", "--thread", "t", "--model", "echo")
    invoke("run", "ours", *where, "--tenant", "ours")
    result = invoke("run", "theirs", *where, "--tenant", "theirs")
    assert result.exit_code == 1
    assert "there is no thread 't'" in result.stderr
    history = invoke("threads", "history", "t", "--store", "agents.db", "--tenant", "ours").stdout
    assert "theirs" not in history


def test_what_a_thread_below_asks_is_shown_with_how_to_answer_it(invoke: Invoke, folder: Path) -> None:
    (folder / "asker.py").write_text(
        "from hibernaut import ScriptedModel, ToolContext, tool\n"
        "from hibernaut.models.scripted import call, say\n"
        "@tool\n"
        "async def ask(context: ToolContext) -> str:\n"
        '    "Ask."\n'
        '    return await context.ask("May I?", ["Yes", "No"])\n'
        "def answer(request):\n"
        "    if request.thread_id != 't':\n"
        "        return call('ask')\n"
        "    if len(request.transcript) == 1:\n"
        "        return call('spawn_thread', instructions='Ask.', child_of=[])\n"
        "    return say('It asks.')\n"
        "model = ScriptedModel(answer)\n"
    )
    result = invoke(
        *(
            "run",
            "go",
            "--thread",
            "t",
            "--model",
            "asker.py:model",
            "--tools",
            "asker.py",
            "--timeout",
            "2",
            "--store",
            "agents.db",
        )
    )
    assert "? May I?\n" in result.stdout
    assert "Answer it with: hibernaut answer q_" in result.stderr
