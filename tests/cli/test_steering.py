"""Operators at the command line: what waits for a thread, calls, giving up and trying again, forks."""

import json

import pytest

from tests.cli.conftest import Invoke, serve_until_idle

STORE = ("--store", "agents.db")
AGENT = ("--model", "agent.py:model", "--tools", "agent.py")


def decisions(invoke: Invoke, thread: str = "t") -> list[dict[str, str]]:
    lines = invoke("receipts", thread, *STORE, "--json").stdout.splitlines()
    return [one for line in lines for one in json.loads(line)["operator_decision"]]


def waiting(invoke: Invoke) -> list[dict[str, object]]:
    return [json.loads(line) for line in invoke("threads", "inbox", "t", *STORE, "--json").stdout.splitlines()]


def test_what_waits_is_shown_dropped_and_edited(invoke: Invoke) -> None:
    invoke("run", "one", "--thread", "t", "--model", "echo", *STORE)
    assert "Nothing waits for t." in invoke("threads", "inbox", "t", *STORE).stderr
    for text in ("wipe it", "build abc"):
        invoke("send", "t", text, *STORE)
    first, second = waiting(invoke)
    assert (first["kind"], first["text"], first["changeable"]) == ("user", "wipe it", True)
    listed = invoke("threads", "inbox", "t", *STORE).stdout.splitlines()
    assert listed[0].split() == ["MESSAGE", "KIND", "FROM", "CAME", "DUE", "SAYS"]
    assert "user *" in listed[1]
    dropped, edited = str(first["message_id"]), str(second["message_id"])
    assert invoke("threads", "drop", "t", dropped, "--reason", "a slip", *STORE).stdout.startswith("accepted: drop")
    assert invoke("threads", "edit", "t", edited, "-", *STORE, stdin="build def\n").exit_code == 0
    assert [one["kind"] for one in waiting(invoke)] == ["user", "user", "drop", "edit"]
    serve_until_idle()
    history = invoke("threads", "history", "t", *STORE).stdout
    assert "build def" in history
    assert "build abc" not in history
    told = [(one["action"], one["message"], one["reason"]) for one in decisions(invoke)]
    assert told == [("drop", dropped, "a slip"), ("edit", edited, "")]
    assert invoke("verify", "--all", *STORE).exit_code == 0
    late = invoke("threads", "drop", "t", edited, *STORE)
    assert (late.exit_code, "it was read, or never came" in late.stderr) == (1, True)


def test_a_call_is_cancelled_by_its_id(invoke: Invoke) -> None:
    invoke("run", "call ask", "--thread", "t", *AGENT, *STORE, "--no-wait")
    (call,) = json.loads(invoke("threads", "show", "t", *STORE, "--json").stdout)["calls"]
    unknown = invoke("threads", "cancel", "t", "call_x", *STORE)
    assert (unknown.exit_code, call["call_id"] in unknown.stderr) == (1, True)
    assert invoke("threads", "cancel", "t", call["call_id"], "--reason", "too slow", *STORE).exit_code == 0
    invoke("run", "hello", "--thread", "t", *AGENT, *STORE)
    (decision,) = decisions(invoke)
    assert (decision["action"], decision["call"], decision["reason"]) == ("cancel", call["call_id"], "too slow")


def test_a_thread_is_parked_and_tried_again(invoke: Invoke) -> None:
    invoke("run", "one", "--thread", "t", "--model", "echo", *STORE)
    for action, status in (("park", "parked"), ("retry", "open")):
        assert invoke("threads", action, "t", "--reason", f"to {action}", *STORE).exit_code == 0
        serve_until_idle()
        assert json.loads(invoke("threads", "show", "t", *STORE, "--json").stdout)["status"] == status
    assert [(one["action"], one["reason"]) for one in decisions(invoke)] == [("park", "to park"), ("retry", "to retry")]


def test_a_thread_is_forked_after_an_item(invoke: Invoke) -> None:
    invoke("run", "one", "--thread", "t", "--model", "echo", *STORE)
    words = ("threads", "fork", "t", "--at", "2", "--as", "other", "--message", "two", "--reason", "to compare")
    assert invoke(*words, *STORE).stdout.startswith("forked: other, from t.")
    serve_until_idle()
    assert "Fork of  t\n" in invoke("threads", "show", "other", *STORE).stdout
    shown = invoke("threads", "history", "other", "--full", *STORE).stdout
    assert [text in shown for text in ("one", "two")] == [True, True]
    assert decisions(invoke, "other")[0]["reason"] == "to compare"
    assert invoke("verify", "--all", *STORE).exit_code == 0
    refused = invoke("threads", "delete", "t", "--yes", *STORE)
    assert (refused.exit_code, "other" in refused.stderr) == (1, True)
    assert invoke("threads", "fork", "t", "--at", "9", *STORE).exit_code == 1
    for thread in ("other", "t"):
        assert invoke("threads", "delete", thread, "--yes", "--reason", "it is over", *STORE).exit_code == 0
    told = invoke("threads", "show", "t", *STORE)
    assert (told.exit_code, told.stderr.startswith("Thread t was deleted ")) == (1, True)
    assert ": it is over.\n" in told.stderr


@pytest.mark.parametrize("command", ["inbox", "drop", "edit", "cancel", "park", "retry", "resume", "fork"])
def test_every_command_says_what_it_does(command: str, invoke: Invoke) -> None:
    told = invoke("threads", command, "--help").stdout
    assert told.startswith("Usage: hibernaut threads")
    assert ("--reason" in told) == (command != "inbox")
