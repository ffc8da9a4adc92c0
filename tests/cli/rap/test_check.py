"""`hibernaut rap check`, as people and scripts see it."""

import io
import json
import signal
import subprocess
import sys

import pytest

from hibernaut.cli.rap.check import Progress
from hibernaut.cli.terminal import width
from hibernaut.rap.check.findings import Finding
from hibernaut.rap.check.rules import RULES
from tests.cli.conftest import Invoke
from tests.cli.rap.conftest import beside
from tests.rap.check.tool_server import ToolServer

SHORT = ("--quiet", "0.1", "--timeout", "2")


def test_the_table_fits_into_80_columns_and_says_what_was_not_tried(server: ToolServer, invoke: Invoke) -> None:
    result = invoke("rap", "check", server.url, *SHORT, "--rule", "echo.ids", "--rule", "choice.shape")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "RULE                        LEVEL   OUTCOME    WHAT WAS SEEN"
    assert lines[1].startswith("echo.ids                    MUST    kept       tool_result for thread_")
    assert lines[2:-1] == [
        "choice.shape                MUST    not tried",
        "",
        "Not tried:",
        "    choice.shape: name a tool that asks a person with --choose",
        "",
    ]
    assert lines[-1].startswith("no MUST is broken: 1 kept, 1 not tried of 2, in ")
    assert max(map(width, lines)) <= 80
    assert result.stderr == ""


def test_what_is_broken_is_told_in_full_and_in_the_exit_code(invoke: Invoke) -> None:
    with beside("strict close", "unmarked") as server:
        result = invoke(
            "rap",
            "check",
            f"{server.url}/",
            *SHORT,
            *(f"--rule={rule}" for rule in ("close.always-200", "errors.marked")),
        )
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert "close.always-200            MUST    BROKEN     see below" in lines
    place = lines.index("close.always-200 (MUST) is broken.")
    assert lines[place + 1 : place + 4] == [
        '    Demanded ("To a tool server"): POST {base}/close_thread is answered with',
        "      200, whether the thread is known or not.",
        "    Seen: an unknown thread: status 404: {}",
    ]
    assert lines[-1].startswith("1 MUST broken: 2 broken of 2, in ")


def test_what_is_only_better_does_not_fail(invoke: Invoke) -> None:
    with beside("unmarked") as server:
        result = invoke("rap", "check", server.url, *SHORT, "--rule", "errors.marked")
    assert result.exit_code == 0
    assert "errors.marked (+) is broken." in result.stdout


def test_the_json_form_is_that_of_the_page(server: ToolServer, invoke: Invoke) -> None:
    result = invoke(
        "rap", "check", f"{server.url}/.well-known/rap-toolset", "--rule", "call.answers", "--tool", "deploy", "--json"
    )
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report.keys() == {"rap_check", "server", "name", "started", "took", "passed", "rules"}
    assert (report["rap_check"], report["server"], report["name"]) == (1, server.url, "numbers")
    assert report["passed"] is True
    rule = next(rule for rule in RULES if rule.id == "call.answers")
    assert report["rules"] == [
        {
            "id": "call.answers",
            "level": "MUST",
            "section": rule.section,
            "demand": rule.demand,
            "outcome": "kept",
            "seen": "deploy: tool_result: deployed",
        }
    ]


def test_a_server_that_is_not_there_has_a_code_of_its_own(invoke: Invoke) -> None:
    result = invoke("rap", "check", "http://127.0.0.1:1")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith("Error: no answer from http://127.0.0.1:1")


@pytest.mark.parametrize(
    "words, problem",
    [
        (["tools.example"], "it starts with http:// or https://"),
        (["http://x", "--tool", "add={"], "add: The arguments are not valid JSON"),
        (["http://x", "--listen", "8900"], "write HOST:PORT"),
        (["http://x", "--bearer", "secret"], "name an environment variable, as in env:TOKEN"),
        (["http://x", "--bearer", "env:NOBODY_HAS_THIS"], "NOBODY_HAS_THIS holds no secret"),
        (["http://x", "--header", "Authorization"], "write NAME=VALUE"),
        (["http://x", "--rule", "echo"], "there is no rule 'echo'"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_said(words: list[str], problem: str, invoke: Invoke) -> None:
    result = invoke("rap", "check", *words)
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())


def test_who_we_are_is_told_by_bearer_and_header(
    server: ToolServer, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    server.authorized_by.clear()
    invoke("rap", "check", server.url, "--rule", "discovery.wellknown", "--bearer", "env:TOKEN")
    assert set(server.authorized_by) == {"Bearer s3cret"}
    server.authorized_by.clear()
    invoke("rap", "inspect", server.url, "--header", "Authorization=Basic x")
    assert server.authorized_by == ["Basic x"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_says_how_far_it_is_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress(31)
    for outcome in ("kept", "broken"):
        progress.tell(Finding(RULES[0], outcome, "status 200"))
    progress.tell(Finding(RULES[1], "kept", ""))
    progress.clear()
    assert terminal.getvalue().split("\r\x1b[K")[1:] == [
        "1 of 31 rules: discovery.wellknown",
        "1 of 31 rules: discovery.wellknown",
        "2 of 31 rules: discovery.manifest",
        "",
    ]


def test_ctrl_c_leaves_no_call_behind() -> None:
    words = ("--rule", "cancel.stops", "--slow", "slow", "--quiet", "60")
    with beside() as server:
        command = [sys.executable, "-m", "hibernaut.cli", "rap", "check", server.url, *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
            assert server.at_work.wait(20)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=20)
        assert (process.returncode, out) == (130, "")
        assert server.open == 0
