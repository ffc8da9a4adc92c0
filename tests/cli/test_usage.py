"""What threads have used and what it has cost, from the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke, serve_until_idle

STORE = ("--store", "agents.db")

PRICED = """
from hibernaut import ScriptedModel
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import Counted
from hibernaut.models.prices import Prices
from hibernaut.models.protocol import ModelInfo
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.scripted import call, fail, results, turn

def answer(request):
    usage = Usage(1_000, 100, 400)
    if request.transcript[-1].content == "break":
        return fail(InvalidRequest("no"), Counted(Usage(1_000, 0, 400)), "word " * 80)
    if request.transcript[-1].content == "spawn" and not results(request):
        return turn(call("spawn_thread", instructions="help", child_of=[]), usage=usage)
    return turn("Done.", usage=usage)

def dear():
    return ScriptedModel(answer, info=ModelInfo(prices=Prices(input=3.0, output=15.0, cached=0.3)))

def unknown():
    return ScriptedModel(answer)
"""

COST = 600 * 3 + 400 * 0.3 + 100 * 15


@pytest.fixture
def used(folder: Path, invoke: Invoke) -> None:
    """Two threads have used what has a price, one what has none."""
    (folder / "priced.py").write_text(PRICED, encoding="utf-8")
    for thread, model in (("first", "dear"), ("second", "dear"), ("second", "dear"), ("third", "unknown")):
        invoke("run", "hello", "--thread", thread, "--model", f"priced.py:{model}", *STORE)


@pytest.mark.usefixtures("used")
def test_each_tree_is_a_line_the_dearest_first_and_all_of_them_are_added_up(invoke: Invoke) -> None:
    shown = invoke("usage", *STORE)
    heads, *rows = [line.split() for line in shown.stdout.splitlines()]
    assert heads[:5] == ["THREAD", "INPUT", "CACHED", "OUTPUT", "COST"]
    assert rows == [
        ["second", "2,000", "800", "200", "$0.0068"],
        ["first", "1,000", "400", "100", "$0.0034"],
        ["third", "1,000", "400", "100", "?"],
        ["all", "4,000", "1,600", "400", "$0.0103"],
    ]
    assert "1,100 tokens have no known price and are not in the cost" in shown.stderr


@pytest.mark.usefixtures("used")
def test_programs_get_millionths_of_a_dollar(invoke: Invoke) -> None:
    lines = [json.loads(line) for line in invoke("usage", *STORE, "--json", "--limit", "1").stdout.splitlines()]
    assert [(line["thread_id"], line["cost"], line["threads"]) for line in lines] == [("second", 2 * COST, 1)]


def test_every_completion_of_a_tree_counts_once_for_the_thread_that_made_it(folder: Path, invoke: Invoke) -> None:
    (folder / "priced.py").write_text(PRICED, encoding="utf-8")
    invoke("run", "spawn", "--thread", "root", "--model", "priced.py:dear", *STORE)
    serve_until_idle()
    threads = [json.loads(line) for line in invoke("usage", "root", *STORE, "--json").stdout.splitlines()]
    (tree,) = [json.loads(line) for line in invoke("usage", *STORE, "--json").stdout.splitlines()]
    assert len(threads) == tree["threads"] == 2
    assert sum(one["cost"] for one in threads) == tree["cost"]
    assert all(one["cost"] % COST == 0 and one["cost"] for one in threads)


def test_what_was_cut_short_is_marked_as_an_estimate(folder: Path, invoke: Invoke) -> None:
    (folder / "priced.py").write_text(PRICED, encoding="utf-8")
    invoke("run", "break", "--thread", "a", "--model", "priced.py:dear", *STORE)
    shown = invoke("usage", *STORE)
    assert shown.stdout.splitlines()[1].split() == ["a", "1,000", "400", "100", "~$0.0034"]
    assert "100 tokens ($0.0015) are estimated: no provider says what a completion took" in shown.stderr
    (line,) = [json.loads(line) for line in invoke("usage", *STORE, "--json").stdout.splitlines()]
    assert (line["cost"], line["estimated"], line["estimated_cost"]) == (COST, 100, 1_500)
    told = invoke("threads", "show", "a", *STORE).stdout
    assert "1,000 in (400 cached), 100 out; 100 of them estimated" in told
    assert "~$0.0034" in told
    assert "  ~1,100  " in invoke("receipts", "a", *STORE).stdout
    (receipt,) = [json.loads(line) for line in invoke("receipts", "a", *STORE, "--json").stdout.splitlines()]
    assert receipt["usage"] == {"input": 1_000, "output": 100, "cached": 400, "estimated": 100}


def test_without_threads_the_sum_is_nothing(folder: Path, invoke: Invoke) -> None:
    invoke("run", "hello", "--thread", "a", "--model", "echo", "--tenant", "other", *STORE)
    assert invoke("usage", *STORE).stdout.splitlines()[-1].split() == ["all", "0", "0", "0", "$0.0000"]
    assert invoke("usage", "nobody", *STORE).exit_code == 1
