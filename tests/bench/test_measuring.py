"""What benchmarks run is whole, however small: what should be made is made, and what they tell adds up."""

import asyncio
from pathlib import Path

import pytest

from hibernaut.bench import cold_start, wake
from hibernaut.bench.caches import forget_all
from hibernaut.bench.callbacks import callbacks
from hibernaut.bench.durable import durable
from hibernaut.bench.floor import Floor
from hibernaut.bench.history import history
from hibernaut.bench.memory import resident_bytes
from hibernaut.errors import ConfigurationError


def test_durable_completions_are_counted_in_transactions() -> None:
    found = asyncio.run(durable(agents=6, turns=2, wave=4))
    assert found.completions == 24
    assert [one.agents for one in found.samples] == [4, 6]
    assert found.completions_per_transaction == pytest.approx(24 / (found.transactions_per_s * found.seconds))
    assert found.stored_bytes_per_completion >= 0


def test_waking_agents_takes_longer_than_accepting_their_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SETTLED", "RESTS"):
        monkeypatch.setattr(wake, name, 0.01)
    monkeypatch.setattr(wake, "FEW", 5)
    found = asyncio.run(wake.wake(agents=20, messages=6, store=str(tmp_path / "agents.db")))
    assert 0 < found.accepted_p50_ms < found.p50_ms <= found.p99_ms
    assert found.made_per_s > 0
    assert asyncio.run(wake.wake(agents=20, messages=6, store=str(tmp_path / "agents.db"))).made_per_s == 0


def test_a_cold_start_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    found = asyncio.run(cold_start.cold_start(agents=3, store=str(tmp_path / "agents.db")))
    parts = found.warm_python_s + found.warm_imports_s + found.warm_open_s + found.warm_message_s
    assert parts == pytest.approx(found.warm_s)
    assert min(found.warm_python_s, found.warm_imports_s, found.warm_open_s, found.warm_message_s) > 0
    assert found.cold_s > found.cold_open_s + found.cold_message_s


def test_a_start_that_fails_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the new process ended with 1"):
        asyncio.run(cold_start._start(tmp_path / "missing" / "agents.db", 0))


def test_caches_that_may_not_be_dropped_are_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hibernaut.bench.caches.DROP", tmp_path / "missing" / "drop")
    with pytest.raises(ConfigurationError, match="be root on Linux, or leave out --drop-caches"):
        forget_all()


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_histories_have_the_length_that_is_told(store: str) -> None:
    found = asyncio.run(history(items=40, pairs=12, store=store))
    assert min(found.short_ms, found.long_ms, found.ratio, found.cold_short_ms, found.cold_long_ms) > 0


def test_every_callback_that_was_answered_is_stored() -> None:
    found = asyncio.run(callbacks(threads=8, connections=4, seconds=0.3))
    assert found.callbacks > 0
    assert found.share_of_bare == pytest.approx(found.callbacks_per_s / found.bare_per_s)


@pytest.mark.parametrize("name", ["", "floor.db"])
def test_the_floor_does_as_many_completions_as_it_says(name: str, tmp_path: Path) -> None:
    floor = Floor(tmp_path / name if name else "", wave=3)
    assert floor.per_second(7) > 0
    assert floor.completions == 6
    floor.close()


def test_resident_memory_is_not_guessed_where_it_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hibernaut.bench.memory.sys.platform", "darwin")
    with pytest.raises(ConfigurationError, match="on Linux only"):
        resident_bytes()
