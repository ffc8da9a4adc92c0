"""`hibernaut bench`: the workload runs whole on both stores, and says what it measured under its published names."""

import json

import pytest

from hibernaut.bench.memory import resident_bytes
from hibernaut.errors import ConfigurationError
from tests.cli.conftest import Invoke


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_density_workload_makes_two_completions_a_turn(store: str, invoke: Invoke) -> None:
    result = invoke("bench", "scale", "--agents", "3", "--turns", "2", "--store", store, "--json")
    measured = json.loads(result.stdout)
    assert (measured["completions"], measured["agents"], measured["store"]) == (12, 3, store)
    assert measured["text_bytes_per_agent"] > 2 * 2_500
    assert measured["stored_bytes_per_agent"] > measured["text_bytes_per_agent"]
    assert {"completions_per_s", "resident_bytes_per_agent"} <= set(measured)


def test_resident_memory_is_not_guessed_where_it_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hibernaut.bench.memory.sys.platform", "darwin")
    with pytest.raises(ConfigurationError, match="on Linux only"):
        resident_bytes()
