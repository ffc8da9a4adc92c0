"""The root of the command: what it loads, how it ends, what it says of itself."""

import subprocess
import sys

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from hibernaut.cli.failures import Failure, Leave, cause_of
from hibernaut.cli.root import COMMANDS, LazyGroup, hibernaut
from hibernaut.errors import (
    ConfigurationError,
    HibernautError,
    MalformedInput,
    StoreCorrupt,
    UnknownThread,
    VerificationFailed,
)
from hibernaut.version import build
from tests.cli.conftest import Invoke

ENGINE = {"hibernaut.system", "hibernaut.engine", "hibernaut.kernel", "hibernaut.stores", "asyncio", "msgspec"}


def loaded_by(*words: str) -> set[str]:
    program = f"import sys; sys.argv = ['hibernaut', *{words!r}]\nfrom hibernaut.cli import main\n"
    program += "try: main()\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, encoding="utf-8")
    return set(result.stderr.split())


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_load_nothing_of_the_engine(word: str) -> None:
    loaded = loaded_by(word)
    assert "hibernaut.cli.root" in loaded
    assert loaded & ENGINE == set()


def test_the_package_runs_as_the_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "hibernaut", "--version"], capture_output=True, check=True, encoding="utf-8"
    )
    assert result.stdout == f"hibernaut {build()}\n"


def test_help_lists_every_command_and_every_exit_code(invoke: Invoke) -> None:
    shown = invoke("--help").stdout
    assert [name for name, (_, summary) in COMMANDS.items() if f"  {name}" not in shown or summary not in shown] == []
    assert [code for code in (0, 1, 2, 3, 4, 5, 6, 7, 130) if f"{code}  " not in shown] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_root_says_and_is_what_it_says(name: str) -> None:
    command = hibernaut.get_command(click.Context(hibernaut), name)
    assert command is not None
    assert command.name == name
    assert command.help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, invoke: Invoke) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert f"Usage: hibernaut {name}" in result.stdout


def test_the_version_is_printed(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"hibernaut {build()}\n"


def test_an_unknown_command_is_a_usage_error(invoke: Invoke) -> None:
    result = invoke("walk")
    assert result.exit_code == 2
    assert "No such command 'walk'" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_says_how_to_install_what_it_prints(shell: str, invoke: Invoke) -> None:
    lines = invoke("completion", shell).stdout.splitlines()
    assert lines[0].startswith("# ")
    assert f"hibernaut completion {shell}" in lines[0]
    assert any("_HIBERNAUT_COMPLETE" in line for line in lines[1:])


def test_completing_a_command_loads_none() -> None:
    complete = BashComplete(hibernaut, {}, "hibernaut", "_HIBERNAUT_COMPLETE")
    assert [item.value for item in complete.get_completions([], "re")] == ["record", "receipts"]
    assert [item.value for item in complete.get_completions(["run"], "--thr")] == ["--thread"]
    assert [item.value for item in complete.get_completions(["record"], "--to")] == ["--tools", "--to"]
    assert [item.type for item in complete.get_completions(["record", "--to"], "tests/")] == ["file"]


# Errors


def root_that_raises(error: BaseException) -> LazyGroup:
    root = LazyGroup("hibernaut", invoke_without_command=True)

    @root.result_callback()
    def fail(*_: object) -> None:
        raise error

    return root


def ending(error: BaseException) -> tuple[int, str]:
    result = CliRunner().invoke(root_that_raises(error), [])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    "error, code, text",
    [
        (MalformedInput("the text\n is blank"), 1, "Error: the text is blank\n"),
        (ConfigurationError("no model"), 2, "Error: no model\n"),
        (StoreCorrupt("it is torn"), 6, "Error: it is torn\n"),
        (VerificationFailed("receipt 2 is missing"), 7, "Error: receipt 2 is missing\n"),
        (HibernautError(), 1, "Error: error\n"),
        (ExceptionGroup("tasks", [ExceptionGroup("tasks", [StoreCorrupt("deep")])]), 6, "Error: deep\n"),
        (BaseExceptionGroup("tasks", [Leave(5)]), 5, ""),
        (Leave(3), 3, ""),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_that_are_known_end_in_one_line_and_their_code(error: BaseException, code: int, text: str) -> None:
    assert ending(error) == (code, text)


def test_an_error_says_what_to_do_about_it() -> None:
    _, text = ending(UnknownThread("builds"))
    assert "hibernaut threads list" in text


def test_a_defect_is_not_hidden_behind_an_error_that_came_with_it() -> None:
    defect = ZeroDivisionError("a defect")
    assert cause_of(ExceptionGroup("tasks", [StoreCorrupt("torn"), ExceptionGroup("more", [defect])])) is defect


def test_with_the_debug_variable_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIBERNAUT_DEBUG", "1")
    error = MalformedInput("blank")
    assert CliRunner().invoke(root_that_raises(error), []).exception is error


def test_the_exit_code_of_a_failure_is_its_own() -> None:
    assert (Failure(StoreCorrupt("torn")).exit_code, Failure(MalformedInput("blank")).exit_code) == (6, 1)
