"""A conversation on a real terminal, seen as a person sees it, and one that comes through a pipe."""

import asyncio
import codecs
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hibernaut import AgentSystem
from hibernaut.models.echo import EchoModel
from tests.cli.emulator import Emulator
from tests.e2e.processes import AGENT, COMMAND, PATIENCE, done, environment, until_there

MODEL = ("--model", "agent.py:model", "--tools", "agent.py")
COLUMNS = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    return tmp_path


class Talk:
    """A chat on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._screen = Emulator(COLUMNS)
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    @property
    def lines(self) -> list[str]:
        """What stands on the terminal."""
        return self._screen.lines

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._terminal, keys.encode())

    def see(self, *lines: str) -> None:
        """Return when these lines stand on the terminal, one below the other, at its end."""
        while tuple(self.lines[-len(lines) :]) != lines:
            data = os.read(self._terminal, 65_536)
            assert data, self.lines
            self._screen.write(self._decoder.decode(data))

    def end(self) -> int:
        """Return the exit code."""
        while True:
            try:
                self._screen.write(self._decoder.decode(os.read(self._terminal, 65_536)))
            except OSError:  # how a terminal says that the other side has closed it
                return self.process.wait(PATIENCE)


@contextmanager
def talking(folder: Path, *words: str, command: str = "chat", **more: str) -> Iterator[Talk]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with subprocess.Popen(
        [*COMMAND, command, *words], cwd=folder, env=environment(**more), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        try:
            yield Talk(process, ours)
        finally:
            process.kill()
            os.close(ours)


def test_an_agent_answers_what_is_typed(folder: Path) -> None:
    with talking(folder, "--store", "agents.db", "--thread", "t", *MODEL) as talk:
        talk.see(">")
        talk.press("helo\x1b[Dl")
        talk.see("> hello")
        talk.press("\r")
        talk.see("> hello", "You said: hello", ">")
        talk.press("\x04")
        assert talk.end() == 0
        assert "hibernaut chat --thread t --store agents.db" in "".join(talk.lines)


def test_what_is_typed_while_the_agent_speaks_interrupts_it(folder: Path) -> None:
    (folder / "stalled").touch()
    with talking(folder, *MODEL) as talk:
        talk.see(">")
        talk.press("hello\r")
        talk.see("> hello", "Let me think", ">")
        (folder / "stalled").unlink()
        talk.press("never mind")
        talk.see("Let me think", "> never mind")
        talk.press("\r")
        talk.see("> hello", "Let me think", "[interrupted]", "> never mind", "You said: never mind", ">")


def test_ctrl_c_stops_the_agent_and_the_next_word_lets_it_go_on(folder: Path) -> None:
    (folder / "stalled").touch()
    with talking(folder, *MODEL) as talk:
        talk.see(">")
        talk.press("hello\r")
        talk.see("Let me think", ">")
        talk.press("\x03")
        talk.see("Let me think", "[interrupted]", "— stopped: by the user", ">")
        (folder / "stalled").unlink()
        talk.press("go on\r")
        talk.see("— resumed: was stopped", "> go on", "You said: go on", ">")


def test_ctrl_c_throws_away_what_is_typed_and_leaves_when_there_is_nothing_more(folder: Path) -> None:
    with talking(folder, *MODEL) as talk:
        talk.see(">")
        talk.press("hello")
        talk.see("> hello")
        talk.press("\x03")
        talk.see(">")
        talk.press("\x03")
        talk.see("[Ctrl-D leaves]", ">")
        talk.press("\x03")
        assert talk.end() == 130


def test_calls_and_results_of_others_are_shown_while_the_user_types(folder: Path) -> None:
    with talking(folder, "--store", "agents.db", "--thread", "t", *MODEL) as talk:
        talk.see(">")
        talk.press("call ask\r")
        talk.see("> call ask", "→ ask", ">")
        talk.press("half a sen")
        talk.see("→ ask", "> half a sen")
        until_there(folder / "token", talk.process)
        done(folder, "deliver", (folder / "token").read_text(encoding="utf-8"), "it passed")
        talk.see("← ask: it passed", "It says: it passed", "> half a sen")


DECIDE = '''

@tool
async def decide(ctx: ToolContext) -> str:
    """Let people decide."""
    return await ctx.ask("Which one?", ["This", "That"]) + " and " + await ctx.ask("When?", ["Now", "Then"])
'''


def test_c39_a_person_answers_what_is_asked_by_its_number_and_says_everything_else(folder: Path) -> None:
    with (folder / "agent.py").open("a", encoding="utf-8") as file:
        file.write(DECIDE)
    where = ("--store", "agents.db", "--thread", "t", *MODEL)
    with talking(folder, *where) as talk:
        talk.see(">")
        talk.press("call decide\r")
        talk.see("→ decide", "? Which one?", "    1  This", "    2  That", ">")
        talk.press("hello\r")
        talk.see("> hello", "You said: hello", ">")
        talk.press("2\r")
        talk.see("! somebody answers: That", "? When?", "    1  Now", "    2  Then", ">")
        assert "> 2" not in talk.lines
        talk.press("\x04")
        assert talk.end() == 0
    with talking(folder, *where) as talk:
        talk.see("? When?", "    1  Now", "    2  Then", ">")
        talk.press("now\r")
        talk.see("! somebody answers: Now", ">")
        talk.press("\x04")
        assert talk.end() == 0
    history = done(folder, "threads", "history", "t", "--full")[1]
    assert "The answer: That" in history
    assert "The answer: Now" in history


def test_a_task_that_asks_is_answered_in_its_terminal(folder: Path) -> None:
    with (folder / "agent.py").open("a", encoding="utf-8") as file:
        file.write(DECIDE)
    with talking(folder, "call decide", *MODEL, "--store", ":memory:", command="run") as talk:
        talk.see("? Which one?", "    1  This", "    2  That", "")
        talk.press("what?\n")
        talk.see("what?", "Type the number of a choice.", "")
        talk.press("2\n")
        talk.see("! somebody answers: That", "? When?", "    1  Now", "    2  Then", "")
        talk.press("then\n")
        talk.see("← decide: That and Then", "It says: That and Then", "")
        assert talk.end() == 0


def test_what_others_say_in_the_thread_is_shown(folder: Path) -> None:
    with talking(folder, "--store", "agents.db", "--thread", "t", *MODEL) as talk:
        talk.see(">")
        talk.press("one\r")
        talk.see("You said: one", ">")
        done(folder, "send", "t", "two", "--user", "ann")
        talk.see("ann > two", "You said: two", ">")


def test_a_conversation_that_is_taken_up_again_shows_its_last_part(folder: Path) -> None:
    where = ("--store", "agents.db", "--thread", "t")

    async def say_much() -> None:
        async with AgentSystem(model=EchoModel(), store=folder / "agents.db") as system:
            handle = await system.launch(thread_id="t")
            for number in range(30):
                await handle.send(f"word {number}")
                await handle.wait_idle()

    asyncio.run(say_much())
    with talking(folder, *where, "--model", "echo") as talk:
        talk.see("> word 29", "You said: word 29", ">")
        assert "> word 10" not in talk.lines
        assert talk.lines[0].startswith("… what was before: hibernaut threads history t")
        talk.press("and on\r")
        talk.see("You said: word 29", "> and on", "You said: and on", ">")


def test_the_terminal_is_left_as_it_was(folder: Path) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(
        [*COMMAND, "chat", "--model", "echo"], env=environment(), stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder
    ) as process:
        seen = b""
        while b"> " not in seen:
            seen += os.read(ours, 65_536)
        assert termios.tcgetattr(theirs) != before
        process.terminate()
        assert process.wait(PATIENCE) == 143
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_without_colour_nothing_steers_the_terminal(folder: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "chat", "--model", "echo"],
        cwd=folder,
        env=environment(NO_COLOR="1"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.write(ours, b"hello\n")
        seen = b""
        while b"You said: hello\r\n" not in seen:
            seen += os.read(ours, 65_536)
        os.write(ours, b"\x04")
        assert process.wait(PATIENCE) == 0
    assert b"\x1b" not in seen
    assert seen.count(b"hello") == 2
    os.close(ours)
    os.close(theirs)


def test_lines_from_a_pipe_are_said_one_after_the_other(folder: Path) -> None:
    code, output, errors = done(folder, "chat", *MODEL, "--store", ":memory:", stdin=b"one\n\ncall missing\ntwo\xff")
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[:3] == ["> one", "You said: one", "> call missing"]
    assert lines[-2:] == ["> two\ufffd", "You said: two\ufffd"]


def test_a_text_that_is_refused_does_not_end_the_conversation(folder: Path) -> None:
    async def close() -> None:
        async with AgentSystem(model=EchoModel(), store=folder / "agents.db") as system:
            handle = await system.launch(thread_id="t", message="hello")
            await handle.wait_idle()
            await handle.close()
            await system.wait_idle()

    asyncio.run(close())
    code, output, _ = done(folder, "chat", "--thread", "t", "--model", "echo", stdin=b"one\ntwo\n")
    assert code == 0
    assert output.splitlines()[-2:] == ["Error: thread 't' is closed and takes no more input"] * 2
