"""What waits for a person, from the command line."""

import json
from pathlib import Path

import pytest

from hibernaut.cli.asking import chosen
from hibernaut.errors import MalformedInput
from tests.cli.conftest import Invoke, serve_until_idle

STORE = ("--store", "agents.db")
MODEL = ("--model", "agent.py:model", "--tools", "agent.py:decide")

DECIDE = '''

@tool
async def decide(ctx: ToolContext, what: str = "it", timeout: float | None = None) -> str:
    """Let a person decide."""
    return "decided: " + await ctx.ask(f"Do {what}?\\nReally?", ["Yes", "No"], default=1, timeout=timeout)
'''


@pytest.fixture
def asking(folder: Path) -> None:
    """The tool `decide` of the module `agent` asks a person."""
    with (folder / "agent.py").open("a", encoding="utf-8") as file:
        file.write(DECIDE)


def ask(invoke: Invoke, thread: str = "t", arguments: str = "") -> str:
    """Let a thread ask, and leave it; return the question's id."""
    result = invoke("run", f"call decide {arguments}", "--thread", thread, *MODEL, *STORE, "--no-wait")
    assert result.exit_code == 5
    assert "? Do " in result.stdout
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Answer it with: ")]
    words = line.split()
    assert words[3:5] == ["hibernaut", "answer"]
    return words[5]


@pytest.mark.usefixtures("asking")
def test_what_waits_is_listed_oldest_first_with_how_to_answer_it(invoke: Invoke) -> None:
    invoke("send", "x", "hi", *STORE)
    assert "Nothing waits" in invoke("inbox", *STORE).stderr
    first, second = ask(invoke, "one"), ask(invoke, "two", '{"what": "that", "timeout": 3600}')
    shown = invoke("inbox", *STORE).stdout
    assert shown.index("Do it?") < shown.index("Do that?")
    for line in ("decide in thread one", "    1  Yes", f"  Answer: hibernaut answer {second} NUMBER --store agents.db"):
        assert line in shown
    assert "2  No  (counts in 59 min if nobody answers)" in shown
    records = [json.loads(line) for line in invoke("inbox", *STORE, "--json").stdout.splitlines()]
    assert [record["question_id"] for record in records] == [first, second]
    assert json.loads(invoke("inbox", *STORE, "--json", "--thread", "two").stdout)["thread_id"] == "two"
    assert invoke("inbox", *STORE, "--thread", "nobody").exit_code == 1
    assert first in invoke("threads", "show", "one", *STORE).stdout
    assert json.loads(invoke("threads", "show", "one", *STORE, "--json").stdout)["asks"][0]["question_id"] == first


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("choice, words", [("1", "Yes"), ("2", "No"), ("no", "No")])
def test_c39_an_answer_is_taken_while_nobody_runs_and_heard_when_somebody_does(
    choice: str, words: str, invoke: Invoke
) -> None:
    name = ask(invoke)
    serve_until_idle()
    assert invoke("answer", name, choice, *STORE, "--user", "anna").stdout == f"accepted: {words}\n"
    again = invoke("answer", name, "1", *STORE)
    assert (again.exit_code, "already" in again.stderr) == (1, True)
    serve_until_idle()
    last = invoke("threads", "history", "t", *STORE, "--full").stdout
    assert f"The answer: {words}" in last
    assert "has not been done" in last
    over = invoke("answer", name, "1", *STORE)
    assert (over.exit_code, f"has its answer already: {words}" in over.stderr) == (1, True)
    assert "Nothing waits" in invoke("inbox", *STORE).stderr


@pytest.mark.usefixtures("asking")
def test_c40_what_cannot_be_an_answer_is_refused_and_changes_nothing(invoke: Invoke) -> None:
    name = ask(invoke)
    for choice in ("0", "3", "maybe"):
        result = invoke("answer", name, choice, *STORE)
        assert (result.exit_code, "1 'Yes', 2 'No'" in result.stderr) == (1, True)
    result = invoke("answer", "q_none.1@t", "1", *STORE)
    assert (result.exit_code, "`hibernaut inbox` shows those that wait" in result.stderr) == (1, True)
    assert invoke("answer", name.partition("@")[0], "1", *STORE).stdout == "accepted: Yes\n"


@pytest.mark.usefixtures("asking")
def test_a_question_that_nobody_can_answer_ends_a_run_in_memory(invoke: Invoke) -> None:
    result = invoke("run", "call decide", *MODEL)
    assert result.exit_code == 5
    assert "Nobody can answer that here" in result.stderr


@pytest.mark.parametrize("given, number", [("1", 0), (" b ", 1), ("B", 1), ("2", 1)])
def test_a_choice_is_meant_by_its_number_or_its_words(given: str, number: int) -> None:
    assert chosen(("a", "b"), given) == number


@pytest.mark.parametrize("given", ["0", "3", "-1", "c", "", "²", "99999999999999999999"])
def test_what_means_no_choice_is_refused(given: str) -> None:
    with pytest.raises(MalformedInput, match="none of the choices, which are: 1 'a', 2 'b'"):
        chosen(("a", "b"), given)


def test_what_may_mean_two_choices_is_refused() -> None:
    with pytest.raises(MalformedInput, match="may be two of the choices"):
        chosen(("2", "1"), "1")
    assert chosen(("1", "2"), "1") == 0
