"""The demo through the real command and with its real processes: it holds what it claims, or says what is off."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import apsw
import pytest

from hibernaut.stores.packing import unpack
from tests.e2e.demos import LONGEST_RUN, check_form, finish, left_over, read_until, running_demo, told


def test_the_demo_finds_all_that_it_claims(tmp_path: Path) -> None:
    demo = told(tmp_path)
    assert demo.returncode == 0, demo.stderr
    facts = json.loads(demo.stdout)
    assert [(stage["name"], roles(stage), stage["commits"], stage["waiting"]) for stage in facts["stages"]] == [
        ("asleep", ["engine", "build"], 2, 0),
        ("killed", ["build"], 2, 0),
        ("delivered", [], 2, 1),
        ("asleep_again", ["engine", "build"], 4, 0),
        ("answered", ["engine"], 5, 0),
        ("over", [], 5, 0),
    ]
    asleep, killed, delivered, again, *_ = facts["stages"]
    assert sizes(asleep) == sizes(killed) == sizes(delivered)
    assert [build["pid"] for build in asleep["processes"][1:]] == [build["pid"] for build in killed["processes"]]
    assert len({process["pid"] for process in asleep["processes"] + again["processes"]}) == 4
    assert [(build["performed"], build["passed"]) for build in facts["builds"]] == [(1, False), (1, True)]
    assert len({build["request"] for build in facts["builds"]}) == 2
    assert facts["receipts_verified"] == 5
    assert 0 < facts["seconds"] < LONGEST_RUN
    assert left_over(tmp_path) == []
    check_form(demo.stderr, stages=6)


def roles(stage: dict[str, Any]) -> list[str]:
    return [process["role"] for process in stage["processes"]]


def sizes(stage: dict[str, Any]) -> tuple[int, int, int]:
    return stage["head"], stage["history"], stage["receipts"]


def test_a_build_that_brings_no_report_is_told_in_one_line(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        build = int(read_until(demo, r"build (\d+) \(")[1])
        os.kill(build, signal.SIGKILL)
        code, errors = finish(demo)
    assert code == 1
    how = ("too early", "without a report")  # as the story looks after it just then, or waits for its end already
    assert errors in [f"Error: the demo stopped: the build ended {words}\n" for words in how]
    assert left_over(tmp_path) == []


def test_an_engine_that_dies_by_itself_is_told_in_one_line(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        read_until(demo, r"^4\. ")
        engine = int(read_until(demo, r"engine +process (\d+)")[1])
        os.kill(engine, signal.SIGKILL)
        code, errors = finish(demo)
    assert code == 1
    assert errors == f"Error: the demo stopped: the engine, process {engine}, ended by itself\n"
    assert left_over(tmp_path) == []


def test_a_history_that_somebody_changed_is_told_in_one_line(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        read_until(demo, r"^2\. ")
        change_history(tmp_path / "agents.db", b"newest", b"oldest")
        code, errors = finish(demo)
    assert code == 7
    assert errors == "Error: the history at version 1 is not the one its receipt names\n"
    assert left_over(tmp_path) == []


def change_history(store: Path, before: bytes, after: bytes) -> None:
    connection = apsw.Connection(str(store))
    connection.set_busy_timeout(10_000)
    with connection:
        rows: Any = connection.execute("SELECT place, page, packed FROM log").fetchall()
        whole = [(place, unpack(page) if packed else page) for place, page, packed in rows]
        pages = [(place, page) for place, page in whole if before in page]
        for place, page in pages:
            altered = page.replace(before, after)
            connection.execute("UPDATE log SET page = ?, packed = 0 WHERE place = ?", (altered, place))
    connection.close()
    assert len(pages) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        read_until(demo, r"build \d+ \(")
        demo.send_signal(number)
        code, errors = finish(demo)
    assert (code, errors) == (128 + number, "")
    assert left_over(tmp_path) == []


def test_a_store_that_exists_is_not_touched(tmp_path: Path) -> None:
    store = tmp_path / "agents.db"
    store.write_text("mine", encoding="utf-8")
    with running_demo(tmp_path) as demo:
        code, errors = finish(demo)
    assert code == 2
    assert "exists already" in errors
    assert store.read_text(encoding="utf-8") == "mine"
