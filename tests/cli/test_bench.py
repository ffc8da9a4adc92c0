"""`hibernaut bench`: the workload runs whole on both stores, and says what it measured under its published names."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_density_workload_makes_two_completions_a_turn(store: str, invoke: Invoke) -> None:
    result = invoke("bench", "scale", "--agents", "3", "--turns", "2", "--store", store, "--json")
    measured = json.loads(result.stdout)
    assert measured["completions"] == 12
    assert measured["parameters"] == {"agents": 3, "turns": 2, "store": store, "wave": 500}
    assert measured["text_bytes_per_agent"] > 2 * 2_500
    assert measured["stored_bytes_per_agent"] > measured["text_bytes_per_agent"]
    assert {"completions_per_s", "resident_bytes_per_agent", "share_of_floor"} <= set(measured)
    assert measured["machine"]["cores"] >= 1


def test_several_runs_are_told_by_median_least_and_most_beside_an_earlier_one(invoke: Invoke, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    words = ("bench", "history", "--pairs", "2", "--runs", "2")
    before.write_text(invoke(*words, "--items", "20", "--json").stdout)
    told = invoke(*words, "--items", "30", "--compare", str(before)).stdout
    assert told.splitlines()[3].split() == ["median", "min", "max", "ratio"]
    assert "not the same: --items is 30, was 20" in told
    assert len(json.loads(before.read_text())["runs"]) == 2
