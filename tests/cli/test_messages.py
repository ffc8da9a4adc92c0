"""What is put into a thread from outside: texts, published messages, results of deferred calls."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke, serve_until_idle

STORE = ("--store", "agents.db")
MODEL = ("--model", "agent.py:model", "--tools", "agent.py")


def waiting(invoke: Invoke, thread_id: str) -> int:
    shown: int = json.loads(invoke("threads", "show", thread_id, *STORE, "--json").stdout)["waiting"]
    return shown


def test_a_text_makes_the_thread_that_it_is_for(invoke: Invoke) -> None:
    result = invoke("send", "t", "hello", *STORE, "--id", "m1", *MODEL, "--instructions", "Be kind.")
    assert result.stdout == "accepted m1 (a new thread: t)\n"
    shown = json.loads(invoke("threads", "show", "t", *STORE, "--json").stdout)
    assert (shown["waiting"], shown["tools"], shown["instructions"]) == (1, ["add", "ask"], "Be kind.")
    assert shown["model"].endswith("/agent.py:model")


def test_a_message_that_is_sent_twice_is_one(invoke: Invoke) -> None:
    for _ in range(2):
        assert invoke("send", "t", "hello", *STORE, "--id", "m1").exit_code == 0
    assert waiting(invoke, "t") == 1


def test_a_name_is_never_taken_for_the_beginning_of_another(invoke: Invoke) -> None:
    invoke("send", "build-10", "hello", *STORE)
    assert "a new thread: build-1)" in invoke("send", "build-1", "hello", *STORE).stdout


def test_what_was_sent_can_be_read_by_programs(invoke: Invoke) -> None:
    result = invoke("send", "t", "-", *STORE, "--id", "m1", "--json", stdin=b"\xff hello")
    assert json.loads(result.stdout) == {"thread_id": "t", "message_id": "m1", "outcome": "accepted", "new": True}


def test_a_published_message_is_taken(invoke: Invoke) -> None:
    body = {"content": {"type": "text", "text": "hello"}, "group_id": "t", "metadata": {"pane": 3}}
    result = invoke("send", "t", json.dumps(body), "--published", *STORE, "--id", "m1", "--model", "echo")
    assert result.stdout == "accepted m1 (a new thread: t)\n"
    assert invoke("run", "and more", "--thread", "t", *STORE).exit_code == 0
    shown = json.loads(invoke("threads", "show", "t", *STORE, "--json").stdout)
    assert shown["metadata"] == {"pane": 3}


def test_a_published_result_reaches_a_thread_that_is_there(invoke: Invoke) -> None:
    body = {
        "content": {"type": "toolresult", "id": "call_1", "content": [{"type": "text", "text": "3"}]},
        "group_id": "t",
    }
    refused = invoke("send", "t", json.dumps(body), "--published", *STORE)
    assert refused.exit_code == 1
    assert "only a user text creates one" in refused.stderr
    invoke("send", "t", "hello", *STORE)
    first, second = (
        invoke("send", "t", json.dumps(body), "--published", *STORE, "--id", "m2").stdout for _ in range(2)
    )
    assert (first, second) == ("accepted m2\n", "duplicate m2\n")
    assert waiting(invoke, "t") == 2


@pytest.mark.parametrize(
    "body, problem",
    [
        ("hello", "the message cannot be read"),
        ('{"content": {"type": "text", "text": "x"}, "group_id": "other"}', "for group 'other', not for thread 't'"),
        ('{"content": {"type": "video"}, "group_id": "t"}', "content of type 'video' is not taken here"),
        ('{"content": {"type": "text", "text": "x"}, "group_id": "t", "metadata": 3}', "must be an object"),
    ],
)
def test_a_published_message_that_cannot_be_read_changes_nothing(body: str, problem: str, invoke: Invoke) -> None:
    result = invoke("send", "t", body, "--published", *STORE)
    assert result.exit_code == 1
    assert problem in result.stderr
    assert invoke("threads", "list", *STORE).stdout == ""


@pytest.mark.parametrize("words", [("t", " "), ("t", "hello", "--tenant", "theirs")])
def test_a_text_that_is_refused_changes_nothing(words: tuple[str, ...], invoke: Invoke) -> None:
    invoke("send", "t", "first", *STORE)
    assert invoke("send", *words, *STORE).exit_code == 1
    assert waiting(invoke, "t") == 1


def test_a_text_for_a_store_in_memory_is_refused(invoke: Invoke) -> None:
    assert invoke("send", "t", "hello", "--store", ":memory:").exit_code == 2


# Results


def deferred(invoke: Invoke, folder: Path) -> str:
    invoke("run", "call ask", "--thread", "t", *MODEL, *STORE, "--no-wait")
    return (folder / "token").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words, stdin, shown",
    [
        (("it passed",), None, "It says: it passed"),
        (("it failed", "--error"), None, "It says: it failed"),
        (("-",), b"caf\xe9\n", "It says: caf\ufffd"),
    ],
)
def test_a_result_is_delivered_with_nobody_running_and_read_by_the_next_engine(
    words: tuple[str, ...], stdin: bytes | None, shown: str, invoke: Invoke, folder: Path
) -> None:
    token = deferred(invoke, folder)
    assert invoke("deliver", token, *words, *STORE, stdin=stdin).stdout == "accepted\n"
    serve_until_idle()
    lines = invoke("threads", "history", "t", *STORE).stdout.splitlines()
    assert lines[3].endswith(shown)
    assert ("error ask" in lines[2]) == ("--error" in words)


def test_a_second_result_is_refused(invoke: Invoke, folder: Path) -> None:
    token = deferred(invoke, folder)
    invoke("deliver", token, "one", *STORE)
    result = invoke("deliver", token, "two", *STORE)
    assert result.exit_code == 1
    assert "has its answer already" in result.stderr


@pytest.mark.parametrize("change", [lambda token: token[:-1], lambda token: "x" + token, lambda _: "\udcff", str.upper])
def test_a_token_that_is_not_whole_is_refused(change: object, invoke: Invoke, folder: Path) -> None:
    assert callable(change)
    result = invoke("deliver", change(deferred(invoke, folder)), "one", *STORE)
    assert result.exit_code == 1
    assert "this callback token is not valid" in result.stderr
    assert waiting(invoke, "t") == 0
