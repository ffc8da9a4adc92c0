"""The demo's tree of threads, with its real processes: it holds what it claims, or says what is off."""

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hibernaut.cli.demo.tree.story import _Story
from hibernaut.cli.root import hibernaut
from tests.e2e.demos import (
    COMMAND,
    PATIENCE,
    check_form,
    finish,
    left_over,
    read_until,
    running_demo,
    told,
)

ROOT = Path(__file__).parents[2]


def test_the_tree_finds_all_that_it_claims(tmp_path: Path) -> None:
    demo = told(tmp_path, "tree")
    assert demo.returncode == 0, demo.stderr
    facts = json.loads(demo.stdout)
    assert [summary(stage) for stage in facts["stages"]] == [
        ("asleep", ["engine", "canary"], 0, 1, 0, 0),
        ("heard", ["engine", "canary"], 1, 2, 1, 0),
        ("killed", ["canary"], 3, 2, 1, 0),
        ("resumed", ["engine", "canary"], 3, 4, 3, 0),
        ("at_work", ["engine", "canary"], 5, 6, 5, 1),
        ("asking", ["engine", "canary"], 5, 6, 5, 0),
        ("answered", ["engine", "canary"], 6, 7, 6, 0),
        ("over", [], 6, 7, 6, 0),
    ]
    _, heard, killed, resumed, *_ = facts["stages"]
    assert (heard["commits"], heard["bytes"]) == (killed["commits"], killed["bytes"])
    assert [watch["place"] for watch in facts["watched"]] == [0, 46]
    assert [watch["pid"] for watch in facts["watched"]] == [engine(heard), engine(resumed)]
    assert [line["event_id"] for line in facts["lines"]] == ["46", "92", "138", "184", "231", "277"]
    assert [line["summarized"] for line in facts["lines"]] == [False] * 3 + [True] * 3
    assert [line["thread"] for line in facts["lines"] if "61 of 1,000" in line["text"]] == facts["reports"]
    threads = [line["thread"] for line in facts["lines"]]
    assert list(facts["receipts_verified"]) == [facts["thread"], *dict.fromkeys(threads)]
    assert sum(facts["receipts_verified"].values()) == facts["stages"][-1]["commits"]
    before, after = facts["tokens"]
    assert after < before
    question = facts["question"]
    assert (question["answer"], question["user"], question["answers"]) == ("Roll back", "anna", 1)
    assert facts["rollbacks"] == 1
    assert 0 < facts["seconds"] < PATIENCE
    assert left_over(tmp_path) == []
    check_form(demo.stderr, stages=7)


def summary(stage: dict[str, Any]) -> tuple[object, ...]:
    roles = [process["role"] for process in stage["processes"]]
    return stage["name"], roles, stage["lines"], stage["threads"], stage["ended"], stage["waiting"]


def engine(stage: dict[str, Any]) -> object:
    return stage["processes"][0]["pid"]


@pytest.mark.parametrize(
    "fault,words",
    [
        ("lost", "the line that ends at byte 92 was given to 0 threads: 09:05 release 4.2: 4 of 1,000"),
        ("doubled", "a thread was made for what is no line of the log: event:call_"),
        ("changed", "the thread of the line that ends at byte 92 was given: 09:05 release 4.2: 0 of"),
    ],
)
def test_a_line_that_does_not_reach_one_thread_is_told(
    fault: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Story, "agent", "tests.e2e.faulty_agent")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("FAULT", fault)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'src'}")
    ran = CliRunner().invoke(hibernaut, ["demo", "tree", "--fast", "--store", str(tmp_path / "agents.db")])
    assert ran.exit_code == 1
    assert f"Error: the demo stopped: {words}" in ran.stderr
    assert left_over(tmp_path) == []


def test_a_canary_that_dies_is_told_in_one_line(tmp_path: Path) -> None:
    with running_demo(tmp_path, "tree") as demo:
        canary = int(read_until(demo, r"canary (\d+) \(")[1])
        os.kill(canary, signal.SIGKILL)
        code, errors = finish(demo)
    assert (code, errors) == (1, "Error: the demo stopped: the canary ended by itself\n")
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    "number,moment",
    [(signal.SIGINT, r"canary \d+ \("), (signal.SIGTERM, "threads compact"), (signal.SIGHUP, r"^4\. ")],
)
def test_an_interrupted_tree_leaves_nothing_behind(number: signal.Signals, moment: str, tmp_path: Path) -> None:
    with running_demo(tmp_path, "tree") as demo:
        read_until(demo, moment)
        demo.send_signal(number)
        code, errors = finish(demo)
    assert (code, errors) == (128 + number, "")
    assert left_over(tmp_path) == []


def test_the_options_of_a_story_stand_behind_its_name(tmp_path: Path) -> None:
    demo = subprocess.run(
        [*COMMAND, "--fast", "tree"], cwd=tmp_path, capture_output=True, timeout=PATIENCE, encoding="utf-8", check=False
    )
    assert demo.returncode == 2
    assert "give the options after `tree`" in demo.stderr
