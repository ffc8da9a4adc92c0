"""The command with real processes: kills, signals, pipes, and several at once on one store."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hibernaut.cli.running import opened
from hibernaut.cli.starting import Setting
from hibernaut.messages.items import Item, TextItem, UserItem
from hibernaut.system import AgentSystem
from tests.e2e.processes import AGENT, COMMAND, PATIENCE, done, environment, running, serving, until_there

MODEL = ("--model", "agent.py:model", "--tools", "agent.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    return tmp_path


def texts(folder: Path, thread_id: str, kind: str = "agent") -> list[str]:
    """Return what a thread's history holds of one kind."""
    _, output, _ = done(folder, "threads", "history", thread_id, "--json")
    items = [json.loads(line) for line in output.splitlines()]
    return [item.get("text", item.get("content")) for item in items if item["type"] == kind]


# Accepted means stored


def test_what_was_accepted_is_answered_though_the_engine_was_killed_over_it(folder: Path) -> None:
    (folder / "stalled").touch()
    with serving(folder) as engine:
        code, output, _ = done(folder, "send", "t", "hello", "--id", "m1", *MODEL)
        assert (code, output) == (0, "accepted m1 (a new thread: t)\n")
        until_there(folder / "asked", engine.process)
        engine.process.send_signal(signal.SIGKILL)
        engine.process.wait(PATIENCE)
    (folder / "stalled").unlink()
    with serving(folder) as engine:
        engine.read_until("said.*: You said: hello")
    assert texts(folder, "t", "user") == ["hello"]
    assert texts(folder, "t") == ["You said: hello"]
    assert done(folder, "verify", "--all")[0] == 0


def test_what_was_accepted_with_nobody_running_is_answered_by_the_next_engine(folder: Path) -> None:
    for name in ("a", "b"):
        assert done(folder, "send", name, f"hello {name}", *MODEL)[0] == 0
    with serving(folder) as engine:
        seen = {engine.read_until("said.*: You said: hello").split()[-1] for _ in range(2)}
    assert seen == {"a", "b"}


def test_a_message_reaches_an_engine_that_runs_already(folder: Path) -> None:
    with serving(folder) as engine:
        for text in ("one", "two"):
            done(folder, "send", "t", text, *MODEL)
            engine.read_until(f"You said: {text}")


def test_a_result_delivered_with_nobody_running_wakes_the_thread_of_the_next_engine(folder: Path) -> None:
    with serving(folder) as engine:
        done(folder, "send", "t", "call ask", *MODEL)
        engine.read_until("→ ask")
        until_there(folder / "token", engine.process)
        engine.process.kill()
    token = (folder / "token").read_text(encoding="utf-8")
    assert done(folder, "deliver", token, "-", stdin=b"it passed\n") == (0, "accepted\n", "")
    with serving(folder) as engine:
        engine.read_until("← .*: it passed")
        engine.read_until("said.*: It says: it passed")
    code, _, errors = done(folder, "deliver", token, "again")
    assert (code, errors.count("\n")) == (1, 1)


def test_two_engines_on_one_store_answer_everything_once(folder: Path) -> None:
    setting = Setting(str(folder / "agents.db"), model=str(folder / "agent.py:model"))

    async def say_twice(number: int, client: AgentSystem) -> list[Item]:
        handle = await client.launch(thread_id=f"t{number}", message="hello")
        await handle.wait_idle()
        await handle.send("and bye")
        await handle.wait_idle()
        assert await client.verify(handle.thread_id) == 2
        return await handle.history()

    async def talk() -> list[list[Item]]:
        async with opened(setting) as client:
            return await asyncio.gather(*(say_twice(number, client) for number in range(50)))

    with serving(folder) as first, serving(folder) as second:
        histories = asyncio.run(talk())
        ends = []
        for engine in (first, second):
            engine.process.send_signal(signal.SIGTERM)
            ends.append(engine.end())
    expected = [UserItem("hello"), TextItem("You said: hello"), UserItem("and bye"), TextItem("You said: and bye")]
    assert histories == [expected] * 50
    assert [code for code, _, _ in ends] == [0, 0]
    counts = [int(re.findall(r"stopped after (\d+) completions", output)[0]) for _, output, _ in ends]
    assert sum(counts) == 100


# Signals


def test_an_engine_that_is_asked_to_stop_says_so_and_ends_well(folder: Path) -> None:
    with serving(folder) as engine:
        engine.process.send_signal(signal.SIGTERM)
        code, output, errors = engine.end()
    assert (code, errors) == (0, "")
    assert "stopping" in output
    assert "stopped after 0 completions" in output


def test_an_engine_that_is_asked_twice_stops_at_once_and_loses_nothing(folder: Path) -> None:
    (folder / "stalled").touch()
    with serving(folder) as engine:
        done(folder, "send", "t", "hello", *MODEL)
        until_there(folder / "asked", engine.process)
        engine.process.send_signal(signal.SIGINT)
        engine.read_until("stopping")
        code = press_until_it_ends(engine.process, signal.SIGINT)
    assert code == 130
    (folder / "stalled").unlink()
    with serving(folder) as engine:
        engine.read_until("You said: hello")


def press_until_it_ends(process: subprocess.Popen[str], number: signal.Signals) -> int:
    """Send a signal until the process ends: the second of two that come together counts as one."""
    while True:
        process.send_signal(number)
        try:
            return process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue


def test_an_interrupted_run_leaves_its_thread_as_it_is(folder: Path) -> None:
    (folder / "stalled").touch()
    with running(folder, "run", "hello", "--thread", "t", *MODEL) as command:
        until_there(folder / "asked", command.process)
        command.process.send_signal(signal.SIGINT)
        code, _, errors = command.end()
    assert code == 130
    assert "thread t stays as it is" in errors
    assert "Traceback" not in errors
    (folder / "stalled").unlink()
    with serving(folder) as engine:
        engine.read_until("You said: hello")
    assert texts(folder, "t") == ["You said: hello"]


@pytest.mark.parametrize("store", ["agents.db", ":memory:"])
def test_a_tool_that_never_returns_holds_up_nobody_who_wants_to_leave(store: str, folder: Path) -> None:
    with running(folder, "run", "call hang", "--store", store, *MODEL) as command:
        until_there(folder / "hangs", command.process)
        command.process.send_signal(signal.SIGINT)
        assert command.end()[0] == 130


def test_a_tool_that_never_returns_does_not_keep_an_engine_from_stopping(folder: Path) -> None:
    with serving(folder) as engine:
        done(folder, "send", "t", "call hang", *MODEL)
        until_there(folder / "hangs", engine.process)
        engine.process.send_signal(signal.SIGTERM)
        assert engine.end()[0] == 0
    with serving(folder) as engine:
        engine.read_until("said.*: It says: The process that ran hang was shut down")


# Pipes and terminals


def test_a_run_prints_what_it_does_and_nothing_else(folder: Path) -> None:
    assert done(folder, "run", "hello", *MODEL) == (0, "You said: hello\n", "")


def test_every_line_of_json_parses(folder: Path) -> None:
    code, output, errors = done(folder, "run", "-", "--json", *MODEL, stdin=b"caf\xe9 \xf0\x9f\x98\x80\x00\n")
    assert (code, errors) == (0, "")
    events = [json.loads(line) for line in output.splitlines()]
    assert events[0] | {"thread_id": "", "cursor": ""} == {
        "type": "UserInput",
        "thread_id": "",
        "cursor": "",
        "content": "caf\ufffd \U0001f600\u2400",
        "user": "",
        "origin": "",
    }


def test_arguments_that_are_not_utf_8_are_taken(folder: Path) -> None:
    result = subprocess.run(
        [*COMMAND, "run", b"caf\xe9", *MODEL],
        cwd=folder,
        env=environment(),
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    assert result.stdout.decode() == "You said: caf\ufffd\n"


@pytest.mark.parametrize("words", [("threads", "history", "t", "--full"), ("run", "hello", "--json", *MODEL)])
def test_a_reader_that_goes_away_is_no_error(words: tuple[str, ...], folder: Path) -> None:
    done(folder, "run", "-", "--thread", "t", *MODEL, stdin=b"word " * 50_000)
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        [*COMMAND, *words], cwd=folder, env=environment(), stdout=write, stderr=subprocess.PIPE
    ) as process:
        os.close(write)
        _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (141, b"")


def test_output_that_cannot_be_written_in_the_terminals_encoding_is_replaced(folder: Path) -> None:
    code, output, _ = done(folder, "run", "你 call", *MODEL, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (code, output) == (0, "You said: ? call\n")


def on_a_terminal(folder: Path, *words: str, **more: str) -> bytes:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *words], cwd=folder, env=environment(**more), stdin=subprocess.DEVNULL, stdout=theirs
    ) as process:
        os.close(theirs)
        output = b"".join(iter(reader(ours), b""))
        assert process.wait(PATIENCE) == 0
    os.close(ours)
    return output


def reader(descriptor: int) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            return os.read(descriptor, 65_536)
        except OSError:  # how a terminal says that the other side has closed it
            return b""

    return read


def test_a_terminal_gets_styles_unless_nobody_wants_them(folder: Path) -> None:
    words = ("run", "call missing", *MODEL)
    assert b"\x1b[" in on_a_terminal(folder, *words)
    for unstyled in (on_a_terminal(folder, *words, NO_COLOR="1"), on_a_terminal(folder, *words, TERM="dumb")):
        assert b"\x1b" not in unstyled
        assert "✗ missing: Not run: there is no tool named missing." in unstyled.decode()
    assert "\x1b" not in done(folder, *words)[1]


# Errors of users and errors of ours


@pytest.mark.parametrize(
    "words, code",
    [
        (("run", "hello"), 2),
        (("run", "hello", "--model", "nowhere:model"), 2),
        (("run", " ", "--model", "echo"), 1),
        (("run", "hello", "--model", "echo", "--store", "agent.py"), 6),
        (("threads", "list"), 6),
        (("deliver", "token", "result", "--store", "nowhere.db"), 6),
        (("serve", "--local", "--store", "no/where.db"), 6),
        (("serve", "--store", "other.db"), 2),
        (("chat", "--model", "nowhere.py:model"), 2),
    ],
)
def test_errors_of_users_are_told_in_a_line_without_a_traceback(
    words: tuple[str, ...], code: int, folder: Path
) -> None:
    found, output, errors = done(folder, *words)
    assert (found, output) == (code, "")
    assert errors.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in errors
    assert not (folder / "other.db").exists()


def test_a_store_of_a_newer_format_is_refused(folder: Path) -> None:
    done(folder, "send", "t", "hello")
    connection = apsw.Connection(str(folder / "agents.db"))
    connection.pragma("user_version", 9_999)
    connection.close()
    for words in (("threads", "list"), ("run", "hello", *MODEL), ("serve", "--local")):
        code, _, errors = done(folder, *words)
        assert code == 6
        assert "use a newer version" in errors
        assert errors.count("\n") == 1
