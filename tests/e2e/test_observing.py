"""What is seen of a served store from outside: by Prometheus, by `stats`, and as spans."""

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.processes import AGENT, PATIENCE, done, running

MODEL = ("--model", "agent.py:model", "--tools", "agent.py")
SERVE = ("serve", "--local", "--tools", "agent.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    return tmp_path


def ask(url: str, **headers: str) -> tuple[int, str, str]:
    """Return status, content type and body of what is found at an address."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_prometheus_finds_what_an_engine_counts_and_stats_what_it_has_counted(folder: Path) -> None:
    with running(folder, *SERVE, "--metrics", "0") as engine:
        url = engine.read_until("metrics are at").split(" at ")[1].strip()
        for _ in range(2):
            done(folder, "send", "t", "hello", "--id", "m1", *MODEL)
        engine.read_until("said")
        assert url.startswith("http://127.0.0.1:")
        status, kind, text = ask(url)
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'hibernaut_completions_total{outcome="complete"} 1\n' in text
        assert "hibernaut_store_duplicates_total 1\n" in text
        assert 'hibernaut_store_threads{status="open"} 1\n' in text
        assert "hibernaut_recovery_seconds 0" in text
        assert ask(url + "/more")[0] == 404
        assert ask(url, Origin="https://example.com")[0] == 403
        assert ask(url, Host="rebound.example.com")[0] == 421
        engine.process.send_signal(signal.SIGTERM)
        assert engine.end()[0] == 0
    code, output, _ = done(folder, "stats", "--json", "--deep")
    stats = json.loads(output)
    assert code == 0
    assert (stats["duplicates"], stats["counted"]["completions"]["complete"]) == (1, 1)
    assert stats["proven"]["completions"] == {"complete": 1}
    shown = done(folder, "stats")[1].splitlines()
    assert "duplicate inputs suppressed       1" in shown
    assert "stop violations                   0" in shown
    assert "approval misbindings              0" in shown


def test_the_front_door_alone_has_metrics_too(folder: Path) -> None:
    with running(folder, "serve", "--inbox-only", "--metrics", "127.0.0.1:0") as door:
        url = door.read_until("metrics are at").split(" at ")[1].strip()
        assert 'hibernaut_callbacks_total{result="taken"} 0\n' in ask(url)[2]


def test_an_address_that_cannot_be_had_is_said_at_once(folder: Path) -> None:
    code, _, errors = done(folder, *SERVE, "--metrics", "nowhere")
    assert code == 2
    assert "'nowhere' is no address to listen at" in errors


def test_spans_go_where_the_environment_says(folder: Path) -> None:
    done(folder, "send", "t", "hello", *MODEL)
    with running(folder, *SERVE, OTEL_TRACES_EXPORTER="console") as engine:
        engine.read_until("said")
        engine.process.send_signal(signal.SIGTERM)
        code, output, _ = engine.end()
    assert code == 0
    assert '"name": "slice"' in output
    assert '"gen_ai.operation.name": "chat"' in output
    assert '"service.name": "hibernaut"' in output


def test_without_a_word_in_the_environment_there_are_none(folder: Path) -> None:
    done(folder, "send", "t", "hello", *MODEL)
    for more in ((), ("--no-traces",)):
        given = {"OTEL_TRACES_EXPORTER": "console"} if more else {}
        with running(folder, *SERVE, *more, **given) as engine:
            engine.read_until("serving")
            engine.process.send_signal(signal.SIGTERM)
            assert '"name": "slice"' not in engine.end()[1]


def test_an_exporter_that_is_not_there_is_an_error_where_traces_are_demanded_and_a_warning_else(folder: Path) -> None:
    code, _, errors = done(folder, *SERVE, "--traces", OTEL_TRACES_EXPORTER="carrier-pigeon")
    assert code == 2
    assert "there is no exporter 'carrier-pigeon'" in errors
    with running(folder, *SERVE, OTEL_TRACES_EXPORTER="carrier-pigeon") as engine:
        engine.read_until("serving")
        engine.process.send_signal(signal.SIGTERM)
        code, _, errors = engine.end()
    assert code == 0
    assert "there will be none: there is no exporter 'carrier-pigeon'" in errors
