"""`hibernaut authority`, and agents that are started with one."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hibernaut import AgentSystem, Authority, Condition, Rule, ScriptedModel
from hibernaut.cli.policies import load_authority
from hibernaut.cli.policies import written as shown_as
from hibernaut.cli.root import hibernaut
from hibernaut.kernel.authority import narrowed
from hibernaut.kernel.event_policy import EventPolicy
from hibernaut.models.scripted import say

CAREFUL = """\
calls = 50

[[rules]]
decision = "deny"
tools = ["wipe"]
reason = "not here"

[[rules]]
decision = "ask"
tools = ["pay"]

[[rules.arguments]]
path = "$.amount"
above = 100
"""


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with a thread `a` that has spoken once."""
    path = str(tmp_path / "agents.db")

    async def make() -> None:
        async with AgentSystem(model=ScriptedModel([say("Hello.")]), store=path) as system:
            agent = await system.launch(thread_id="a", message="Hi")
            await agent.wait_idle()

    asyncio.run(make())
    return path


def run_engine(store: str) -> None:
    async def run() -> None:
        async with AgentSystem(model=ScriptedModel([]), store=store) as system:
            await system.wait_idle()

    asyncio.run(run())


def hib(*words: str) -> Result:
    return CliRunner().invoke(hibernaut, list(words))


def written(tmp_path: Path, text: str = CAREFUL) -> str:
    path = tmp_path / "careful.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_an_authority_is_set_shown_explained_and_reset(store: str, tmp_path: Path) -> None:
    given = ("--store", store)
    assert hib("authority", "show", "a", *given).output.splitlines()[0] == "# everything is allowed"
    done = hib("authority", "set", "a", written(tmp_path), *given, "--reason", "audit")
    assert (done.exit_code, done.output) == (0, "accepted: authorize a. An engine on this store carries it out.\n")
    run_engine(store)
    shown = hib("authority", "show", "a", *given).output
    assert 'tools = ["wipe"]' in shown
    assert hib("authority", "check", written(tmp_path, shown)).exit_code == 0
    refused = hib("authority", "explain", "a", "wipe", *given)
    assert refused.exit_code == 1
    assert refused.output.splitlines()[0] == "wipe: it is refused (not here)"
    asks = hib("authority", "explain", "a", "pay", '{"amount":101}', *given)
    assert (asks.exit_code, asks.output.splitlines()[0]) == (0, "pay: it waits until a person allows it")
    allowed = hib("authority", "explain", "a", "pay", '{"amount":99}', *given, "--json")
    events = {"taken": True, "max_bytes": 1_048_576, "per_minute": 600, "lifetime": 2_592_000}
    assert json.loads(allowed.output) == {"decision": "allow", "reason": "", "rule": None, "events": events}
    assert hib("authority", "reset", "a", *given).exit_code == 0
    run_engine(store)
    assert hib("authority", "explain", "a", "wipe", *given).exit_code == 0


def test_the_limits_and_the_event_policy_are_shown_and_explained(store: str, tmp_path: Path) -> None:
    text = """\
calls = 50
seconds = 90
max_children = 2

[events]
tools = ["watch"]
max_bytes = 2000
per_minute = 5
lifetime = 86400
"""
    given = ("--store", store)
    assert hib("authority", "set", "a", written(tmp_path, text), *given).exit_code == 0
    run_engine(store)
    shown = hib("authority", "show", "a", *given).output
    assert "[events]" in shown
    assert hib("authority", "check", written(tmp_path, shown)).exit_code == 0
    limits, events = shown.splitlines()[-2:]
    assert limits.endswith("50 calls, any number of tokens, 90 s of work, 2 children at once, threads nested 4 deep")
    assert events == "# events: up to 2,000 bytes, 5 a minute; a subscription lasts for 24 h"
    taken = hib("authority", "explain", "a", "watch", *given).output.splitlines()[-1]
    assert (
        taken == "if it subscribes: its events are taken: up to 2,000 bytes, 5 a minute; a subscription lasts for 24 h"
    )
    refused = hib("authority", "explain", "a", "listen", *given).output.splitlines()[-1]
    assert refused == "if it subscribes: its events are refused"


@pytest.mark.parametrize(
    "text, words",
    [
        ("rules = 1", "Expected `array`"),
        ('[[rules]]\ndecision = "perhaps"', "perhaps"),
        ('[[rules]]\ndecision = "deny"\nannotations = ["evil"]', "no annotation 'evil'"),
        ("surprise = 1", "unknown field `surprise`"),
        ("[events]\nlifetime = -1", "events.lifetime is -1"),
        ("max_depth = -1", "max_depth is -1"),
        ("[events]\nsource = []", "unknown field `source`"),
        ("= 1", "is no authority"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_in_a_line(tmp_path: Path, text: str, words: str) -> None:
    refused = hib("authority", "check", written(tmp_path, text))
    assert refused.exit_code != 0
    assert words in refused.output
    assert len(refused.output.strip().splitlines()) == 1


def test_a_file_that_is_not_there_and_arguments_that_are_none_are_refused(store: str, tmp_path: Path) -> None:
    assert "cannot be read" in hib("authority", "set", "a", str(tmp_path / "no.toml"), "--store", store).output
    assert "ARGUMENTS" in hib("authority", "explain", "a", "pay", "[1]", "--store", store).output


def test_an_agent_is_started_with_an_authority_and_keeps_it(tmp_path: Path) -> None:
    store, file = str(tmp_path / "new.db"), written(tmp_path)
    words = ("run", "Hi", "--model", "echo", "--store", store, "--thread", "b")
    assert hib(*words, "--authority", file).exit_code == 0
    assert hib("authority", "explain", "b", "wipe", "--store", store).exit_code == 1
    again = hib(*words, "--authority", written(tmp_path, "calls = 3"))
    assert "the thread keeps the authority it has" in again.output + (again.stderr if again.stderr_bytes else "")


def test_the_api_and_a_file_say_the_same(tmp_path: Path) -> None:
    text = '[[rules]]\ndecision = "ask"\nannotations = ["destructive", "!read_only"]\nreason = "careful"\n'
    rule = Rule(decision="ask", annotations=("destructive", "!read_only"), reason="careful")
    assert load_authority(written(tmp_path, text)) == Authority(rules=(rule,))


def test_whatever_is_shown_can_be_given_again(tmp_path: Path) -> None:
    inner = Rule(
        decision="ask", arguments=(Condition(path='$["a b"]', one_of=("x", 1, True)),), reason='say "no"\nplease'
    )
    whole = Authority(
        calls=3,
        events=EventPolicy(servers=("ci",), lifetime=60),
        seconds=9,
        max_depth=0,
        rules=(inner, Rule(decision="deny")),
        children=Authority(default="ask", rules=(inner,), calls=1),
    )
    whole = narrowed(whole, whole.children)
    assert load_authority(written(tmp_path, shown_as(whole))) == whole
