"""`hibernaut rap call`: what goes out, what comes back, and how it ends."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.rap.conftest import beside
from tests.rap.check.tool_server import ToolServer

TIME = ("--timeout", "5")


@pytest.mark.parametrize(
    "words, code, told",
    [
        (["add", '{"a": 1, "b": 41}'], 0, "42\n"),
        (["add", '{"a": 1}', "--no-check"], 1, "Error: a and b are integers\n"),
        (["login"], 0, "→ authorize it at https://login.example/o\nwelcome␛[2J\n"),
        (["watch", "--events", "2"], 0, "watching\nsubscribed; Ctrl-C ends it\nevent: event 1\nevent: event 2\n"),
        (
            ["watch", '{"count": 1}'],
            0,
            "watching\nsubscribed; Ctrl-C ends it\nevent (final): event 1\n",
        ),
        (
            ["confirm", "--answer", "1"],
            0,
            "? Ship it?\n    1  no\n    2  yes  (the default)\n  answered: no\nkept\n",
        ),
        (
            ["draw"],
            0,
            "a dot\n[a picture, image/png, 8 bytes]\nfor people, a change of dot.txt:\n-nothing\n+a dot\n",
        ),
    ],
)
def test_what_comes_back_is_printed(words: list[str], code: int, told: str, server: ToolServer, invoke: Invoke) -> None:
    result = invoke("rap", "call", server.url, *words, *TIME)
    assert (result.exit_code, result.stdout, result.stderr) == (code, told, "")


@pytest.mark.parametrize(
    "words, problem",
    [
        (["add", '{"a": 1}'], 'the arguments do not fit (--no-check sends them all the same): at $: "b" is a required'),
        (["add", "[1]"], "must be a JSON object"),
        (["add", "@nowhere.json"], "nowhere.json cannot be read: No such file"),
        (["walk"], "numbers has no tool 'walk'; it has: add, deploy, slow, watch, confirm, draw, login"),
        (["confirm"], "the call asks a person, and there is no terminal; give --answer"),
        (["confirm", "--answer", "maybe"], "'maybe' is none of the choices, which are: 1 'no', 2 'yes'"),
    ],
)
def test_what_cannot_be_called_or_answered_is_said(
    words: list[str], problem: str, server: ToolServer, invoke: Invoke
) -> None:
    result = invoke("rap", "call", server.url, *words, *TIME)
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())
    assert server.open == 0


def test_arguments_come_from_files_and_from_standard_input(folder: Path, server: ToolServer, invoke: Invoke) -> None:
    (folder / "arguments.json").write_text('{"a": 2, "b": 3}', encoding="utf-8")
    assert invoke("rap", "call", server.url, "add", "@arguments.json").stdout == "5\n"
    assert invoke("rap", "call", server.url, "add", "-", stdin='{"a": 2, "b": 4}').stdout == "6\n"


def test_pictures_are_saved_under_names_of_our_own_and_never_over_another(
    folder: Path, server: ToolServer, invoke: Invoke
) -> None:
    invoke("rap", "call", server.url, "draw", "--save", "pictures")
    result = invoke("rap", "call", server.url, "draw", "--save", "pictures")
    assert "[a picture, image/png, 8 bytes, written to pictures/draw-2.png]" in result.stdout
    assert sorted(path.name for path in (folder / "pictures").iterdir()) == ["draw-1.png", "draw-2.png"]
    assert (folder / "pictures" / "draw-1.png").read_bytes() == b"\x89PNG\r\n\x1a\n"


def test_json_is_one_object_a_line_as_it_came(server: ToolServer, invoke: Invoke) -> None:
    result = invoke("rap", "call", server.url, "confirm", "--answer", "yes", "--json")
    asked, answered, last = map(json.loads, result.stdout.splitlines())
    assert (asked["type"], asked["choices"], asked["default"]) == ("user_choice", ["no", "yes"], 1)
    assert answered == {"type": "answered", "selected": 1, "choice": "yes"}
    assert (last["type"], last["text"]) == ("tool_result", "shipped")


def test_a_call_that_is_not_answered_in_time_is_cancelled(invoke: Invoke) -> None:
    with beside("never answers") as server:
        silent = invoke("rap", "call", server.url, "slow", "--timeout", "0.2")
        assert server.open == 0
        nothing = invoke("rap", "call", server.url, "add", '{"a":1,"b":1}', "--timeout", "0.2")
    assert (silent.exit_code, nothing.exit_code) == (3, 3)
    assert silent.stderr == "Error: nothing came within 0.2 s; the call is cancelled\n"
    assert invoke("rap", "call", "http://127.0.0.1:1", "add").exit_code == 3


def test_a_call_that_is_refused_at_once_says_what_the_server_said(invoke: Invoke) -> None:
    with beside("elsewhere") as server:
        server.endpoint = f"{server.url}/nowhere"
        result = invoke("rap", "call", server.url, "deploy")
    assert result.exit_code == 1
    assert "answered with status 404" in result.stderr


def test_ids_that_are_not_those_of_the_call_and_what_is_no_callback_are_pointed_out(invoke: Invoke) -> None:
    with beside("foreign events") as server:
        result = invoke("rap", "call", server.url, "watch", '{"count": 1}', "--timeout", "0.5")
    refused = "warning: a callback of type 'subscription_event' came and was refused with 401: this callback token"
    assert refused in result.stderr
    assert result.exit_code == 3
    with beside("no choices") as server:
        result = invoke("rap", "call", server.url, "confirm", "--timeout", "0.5")
    assert "'user_choice' came and was refused with 400: the callback does not fit" in result.stderr
    assert "Error: nothing that is taken came within 0.5 s" in result.stderr
    assert result.exit_code == 3


def test_nobody_is_sent_where_the_runtime_sends_nobody(invoke: Invoke) -> None:
    with beside("http login", "answers inside") as server:
        login = invoke("rap", "call", server.url, "login", *TIME)
        asked = invoke("rap", "call", server.url, "confirm", "--answer", "yes", *TIME)
    assert "authorize" not in login.stdout
    assert "'oauth' came and was refused with 400: the url 'http://login.example/o' must begin" in login.stderr
    assert asked.exit_code == 1
    assert "the answer was not given: tool server" in asked.stderr
    assert "is further inside this machine or network than the server may lead" in asked.stderr


def started(*words: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "hibernaut.cli", "rap", "call", *words]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    out = subprocess.PIPE
    return subprocess.Popen(command, stdin=stdin, stdout=out, stderr=out, encoding="utf-8", env=environment)


def test_ctrl_c_ends_a_subscription_and_tells_the_server(server: ToolServer) -> None:
    with started(server.url, "watch") as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("event"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "interrupted; the call is cancelled\n")
    assert server.open == 0


def test_a_question_is_answered_on_the_terminal(server: ToolServer) -> None:
    ours, theirs = pty.openpty()
    try:
        with started(server.url, "confirm", stdin=theirs) as process:
            os.write(ours, b"maybe\nno\n")
            out, err = process.communicate(timeout=20)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (process.returncode, out.splitlines()[-1]) == (0, "kept")
    assert "'maybe' is none of the choices" in err
