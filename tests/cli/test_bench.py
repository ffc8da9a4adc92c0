"""`hibernaut bench`: the workload runs whole on both stores, and says what it measured under its published names."""

import json
from pathlib import Path

import pytest

from hibernaut.bench.memory import resident_bytes
from hibernaut.bench.readings import Readings
from hibernaut.errors import ConfigurationError
from hibernaut.stores import packing
from tests.cli.conftest import Invoke


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_density_workload_makes_two_completions_a_turn(store: str, invoke: Invoke) -> None:
    result = invoke("bench", "scale", "--agents", "3", "--turns", "2", "--store", store, "--json")
    measured = json.loads(result.stdout)
    assert measured["completions"] == 12
    given = {"agents": 3, "turns": 2, "store": store, "wave": 500, "text": "unique", "compress": None}
    assert measured["parameters"] == given
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


def test_real_texts_are_packed_where_it_is_asked_for(invoke: Invoke) -> None:
    sizes = {}
    for flag in ("--compress", "--no-compress"):
        result = invoke("bench", "scale", "--agents", "5", "--turns", "6", "--text", "corpus", flag, "--json")
        measured = json.loads(result.stdout)
        given = measured["parameters"]
        assert (given["text"], given["compress"]) == ("corpus", flag == "--compress")
        assert measured["text_bytes_per_agent"] == 6 * (130 + 2 * 12 * 98 + 340)
        sizes[flag] = measured["stored_bytes_per_agent"] / measured["text_bytes_per_agent"]
    assert sizes["--compress"] < 0.6
    assert sizes["--no-compress"] > 1


def test_an_agent_reads_nothing_twice_and_no_text_is_of_the_dictionary() -> None:
    readings = Readings()
    said = ["".join(readings.chunks("agent")) for _ in range(40)]
    chunks = [text[at : at + 98] for text in said for at in range(0, len(text), 98)]
    repeated = len(chunks) - len(set(chunks))
    assert repeated < 0.02 * len(chunks)
    learned = (Path(packing.__file__).parent / "dictionaries" / "1.zdict").read_bytes()
    assert sum(text[at : at + 60].encode() in learned for text in said for at in range(0, len(text), 60)) == 0


def test_resident_memory_is_not_guessed_where_it_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hibernaut.bench.memory.sys.platform", "darwin")
    with pytest.raises(ConfigurationError, match="on Linux only"):
        resident_bytes()
