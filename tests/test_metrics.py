"""What a process counts, how it is told, and that it says what the enums it is about say."""

import re

from hibernaut.exposition import render
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.receipt import TurnCommit
from hibernaut.metrics import COUNTERS, DISPOSITIONS, DOUBLINGS, LATENCIES, OUTCOMES, UNKNOWN, Latencies, Metrics

LINE = re.compile(r'([a-z_]+)(\{([a-z_]+)="([^"\\\n]*)"\})? (\d+(\.\d+)?)')


def test_the_values_of_labels_are_those_of_what_is_counted() -> None:
    assert [turn.name.lower() for turn in TurnCommit] == list(OUTCOMES)
    assert [disposition.name.lower() for disposition in Disposition] == list(DISPOSITIONS)


def test_every_family_is_of_something_that_is_counted() -> None:
    metrics = Metrics()
    for family in COUNTERS:
        count = getattr(metrics, family.field)
        assert isinstance(count, list) == bool(family.label)
        assert not family.label or len(count) == len(family.values)
    assert all(isinstance(getattr(metrics, family.field), Latencies) for family in LATENCIES)


def test_a_latency_is_in_the_bucket_of_the_first_power_of_two_that_is_not_below_it() -> None:
    latencies = Latencies()
    for value in (-5, 0, 1, 2, 3, 4, 5, 2**22, 2**22 + 1, 2**40):
        latencies.observe(value)
    assert latencies.buckets == [3, 1, 2, 1, *[0] * (DOUBLINGS - 5), 1, 2]
    assert (latencies.count, latencies.greatest) == (10, 2**40)
    assert latencies.sum == 1 + 2 + 3 + 4 + 5 + 2**22 + 2**22 + 1 + 2**40


def test_what_is_told_is_the_text_format_of_prometheus() -> None:
    metrics = Metrics()
    metrics.reconciled[UNKNOWN] += 2
    metrics.resumed.observe(7)
    metrics.resumed.observe(2_000)
    metrics.recovery.observe(1_250)
    metrics.callbacks = {"taken": 3, "token_refused": 1}
    text = render(metrics)
    assert text.endswith("\n")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in lines if not LINE.fullmatch(line.replace("+Inf", "inf"))] == []
    assert 'hibernaut_effects_reconciled_total{how="unknown"} 2' in lines
    assert "hibernaut_stop_violations_total 0" in lines
    assert [line for line in lines if line.startswith("hibernaut_resume_latency_seconds")] == [
        *(
            f'hibernaut_resume_latency_seconds_bucket{{le="{2**power / 1000:g}"}} {(power > 2) + (power > 10)}'
            for power in range(20)
        ),
        'hibernaut_resume_latency_seconds_bucket{le="1048.576"} 2',
        'hibernaut_resume_latency_seconds_bucket{le="2097.152"} 2',
        'hibernaut_resume_latency_seconds_bucket{le="4194.304"} 2',
        'hibernaut_resume_latency_seconds_bucket{le="+Inf"} 2',
        "hibernaut_resume_latency_seconds_sum 2.007",
        "hibernaut_resume_latency_seconds_count 2",
    ]
    assert "hibernaut_resume_latency_max_seconds 2" in lines
    assert "hibernaut_recovery_seconds 1.25" in lines
    assert 'hibernaut_callbacks_total{result="token_refused"} 1' in lines


def test_every_family_has_its_help_and_its_type_once_before_its_samples() -> None:
    heads: dict[str, list[str]] = {}
    for line in render(Metrics()).splitlines():
        if line.startswith("# "):
            _, what, name, _ = line.split(" ", 3)
            heads.setdefault(name, []).append(what)
        else:
            name = re.split(r"[{ ]", line)[0]
            assert heads.get(name) or heads.get(re.sub("_(bucket|sum|count)$", "", name))
    assert set(map(tuple, heads.values())) == {("HELP", "TYPE")}


def test_what_was_saved_is_not_added_twice() -> None:
    metrics = Metrics()
    metrics.slices += 2
    metrics.resumed.observe(5)
    added, greatest = metrics.unsaved()
    assert added == {"slices": 2, "resumed.count": 1, "resumed.sum": 5}
    assert greatest == {"resumed.greatest": 5}
    metrics.slices += 1
    metrics.saved(added, greatest)
    assert metrics.unsaved() == ({"slices": 1}, {})
