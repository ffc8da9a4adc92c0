"""What is owed to the outside, from the command line."""

import json

import pytest

from tests.cli.conftest import Invoke

STORE = ("--store", "agents.db")


@pytest.fixture
def request_id(invoke: Invoke) -> str:
    """The request id of a call that waits for somebody's answer."""
    invoke(
        "run", "call ask", "--thread", "asks", "--model", "agent.py:model", "--tools", "agent.py", *STORE, "--no-wait"
    )
    (line,) = invoke("effects", "list", *STORE, "--json").stdout.splitlines()
    name: str = json.loads(line)["request_id"]
    return name


def test_effects_are_listed_with_their_state_and_who_works_on_them(invoke: Invoke, request_id: str) -> None:
    heads, row = invoke("effects", "list", "asks", *STORE).stdout.splitlines()
    assert heads.split() == ["REQUEST", "STATE", "SINCE", "THREAD", "TOOL", "SERVER", "OWNER"]
    assert row.split()[:2] == [request_id, "accepted"]
    assert invoke("effects", "list", *STORE, "--tenant", "other").stderr == "Nothing is owed to the outside.\n"


def test_one_effect_is_shown_with_its_call_and_what_the_receipts_say(invoke: Invoke, request_id: str) -> None:
    shown = invoke("effects", "show", request_id.removeprefix("call_"), *STORE).stdout
    assert shown.startswith(f"{request_id} (invoke) of thread asks\n  tool:     ask\n  call:     {request_id}, open\n")
    assert "  receipt:  version 1, " in shown
    assert shown.endswith(": invoke dispatched\n")
    record = json.loads(invoke("effects", "show", request_id, *STORE, "--json").stdout)
    assert (record["call_state"], [one["version"] for one in record["receipts"]]) == ("open", [1])


def test_a_call_is_answered_by_hand(invoke: Invoke, request_id: str) -> None:
    words = ("effects", "settle", request_id, *STORE, "--reason", "I asked them", "--user", "ada")
    assert invoke(*words).exit_code == 2
    assert invoke(*words, "--result", "Yes.", "--unknown").exit_code == 2
    assert invoke(*words, "--result", "Yes.").stdout == f"accepted: settled:{request_id}\n"
    again = invoke(*words, "--unknown")
    assert (again.exit_code, "is there; the thread has not taken it in yet" in again.stderr) == (1, True)
    invoke("run", "hello", "--thread", "asks", "--model", "agent.py:model", "--tools", "agent.py", *STORE)
    receipts = invoke("receipts", "asks", *STORE, "--json").stdout.splitlines()
    decisions = [one for line in receipts for one in json.loads(line)["operator_decision"]]
    assert decisions == [
        {
            "action": "settle",
            "call": request_id,
            "reason": "I asked them",
            "sender": "operator:ada",
            "input": f"settled:{request_id}",
        }
    ]
    unknown = invoke(*words, "--unknown")
    assert (unknown.exit_code, "`hibernaut effects list` shows those under way" in unknown.stderr) == (1, True)


@pytest.mark.usefixtures("request_id")
def test_where_no_engine_runs_servers_are_asked_only_if_they_are_named(invoke: Invoke) -> None:
    result = invoke("effects", "reconcile", *STORE)
    assert result.exit_code == 2
    assert "no engine runs on this store" in result.stderr
