import asyncio
import json
from typing import Any, cast

import pytest

from hibernaut.errors import MalformedInput, ToolDefinitionError
from hibernaut.tools.context import MOST_CHOICES, Asked, ToolContext, ToolEvent


def test_a_context_says_whose_call_it_is() -> None:
    context = ToolContext(call_id="c", thread_id="t", tool="build", tenant="acme", user="ann", metadata='{"a": [1]}')
    named = (context.call_id, context.thread_id, context.tool, context.tenant, context.user, context.metadata)
    assert named == ("c", "t", "build", "acme", "ann", {"a": [1]})


def test_a_thread_without_metadata_has_none() -> None:
    assert ToolContext(call_id="c", thread_id="t", tool="build").metadata == {}


def test_c34_what_one_call_does_to_its_metadata_no_other_call_sees() -> None:
    stored = json.dumps({"tags": ["a"]})
    first = ToolContext(call_id="c1", thread_id="t", tool="build", metadata=stored)
    second = ToolContext(call_id="c2", thread_id="t", tool="build", metadata=stored)
    first.metadata["tags"].append("b")
    first.metadata["mine"] = True
    assert first.metadata == {"tags": ["a", "b"], "mine": True}
    assert second.metadata == {"tags": ["a"]}


def test_c34_each_context_hands_out_the_token_of_its_own_call() -> None:
    contexts = [
        ToolContext(call_id=f"c{n}", thread_id=f"t{n}", tool="build", issue_token=lambda n=n: f"token {n}")  # type: ignore[misc]
        for n in range(100)
    ]
    deferred = [context.defer() for context in reversed(contexts)]
    found = [(value.call_id, value.token) for value in reversed(deferred)]
    assert found == [(f"c{n}", f"token {n}") for n in range(100)]


def test_a_call_that_cannot_be_deferred_says_so() -> None:
    with pytest.raises(ToolDefinitionError, match="build cannot defer its result"):
        ToolContext(call_id="c", thread_id="t", tool="build").defer()


def test_a_deferred_does_not_print_its_token() -> None:
    deferred = ToolContext(call_id="c", thread_id="t", tool="build", issue_token=lambda: "s3cret").defer()
    assert deferred.token == "s3cret"
    assert "s3cret" not in repr(deferred)


def test_c17_progress_reaches_whoever_watches_in_one_short_clean_line() -> None:
    seen: list[str] = []
    context = ToolContext(call_id="c", thread_id="t", tool="build", report=seen.append)
    context.progress("half\nway")
    context.progress("\ud83d there")
    context.progress("🙂" * 5_000)
    assert seen[:2] == ["half way", "\ufffd there"]
    assert len(seen[2]) == 2_000
    assert seen[2].startswith("🙂🙂")


def test_progress_that_nobody_watches_is_no_error() -> None:
    context = ToolContext(call_id="c", thread_id="t", tool="build")
    context.progress("half way")
    assert context.metadata == {}


class Person:
    """Answers what a context asks."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)
        self.asked: list[Asked] = []
        self.context = ToolContext(call_id="c", thread_id="t", tool="build", ask=self._answer)

    async def _answer(self, asked: Asked) -> int:
        self.asked.append(asked)
        return self.numbers.pop(0)


def test_a_person_is_asked_and_the_words_of_the_choice_come_back() -> None:
    person = Person(1, 0)
    assert asyncio.run(person.context.ask(" Which\ud83d? ", ["a", " b "], timeout=1.5)) == "b"
    assert asyncio.run(person.context.ask("And now?", ("a", "b"), default=1)) == "a"
    assert person.asked == [
        Asked(1, "Which\ufffd?", ("a", "b"), 0, 1_500),
        Asked(2, "And now?", ("a", "b"), 1),
    ]


@pytest.mark.parametrize("number, authorized", [(0, True), (1, False)])
def test_a_person_is_asked_to_authorize_something(number: int, authorized: bool) -> None:
    person = Person(number)
    assert asyncio.run(person.context.authorize("https://example.org/a?b=c", timeout=60)) is authorized
    assert person.asked == [
        Asked(1, "build needs your authorization", ("Done", "Cancel"), 1, 60_000, "https://example.org/a?b=c")
    ]


@pytest.mark.parametrize(
    "values, problem",
    [
        ({"choices": []}, "no choices"),
        ({"choices": "ab"}, "a list"),
        ({"choices": ["a", "A "]}, "read the same"),
        ({"choices": ["a", " "]}, "choice 2 is blank"),
        ({"choices": ["a", 2]}, "choice 2 is a int"),
        ({"choices": ["a" * 201]}, "choice 1 has 201 characters"),
        ({"choices": [str(n) for n in range(MOST_CHOICES + 1)]}, "at most 20"),
        ({"prompt": "\n"}, "prompt is blank"),
        ({"prompt": None}, "must be a text"),
        ({"prompt": "a" * 4_001}, "4,001 characters"),
        ({"default": 2}, "from 0 to 1"),
        ({"default": -1}, "from 0 to 1"),
        ({"default": True}, "from 0 to 1"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": 1e12}, "timeout"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_at_once(values: dict[str, Any], problem: str) -> None:
    person = Person()
    with pytest.raises(MalformedInput, match=problem):
        _ = person.context.ask(**({"prompt": "Which?", "choices": ["a", "b"]} | values))
    assert person.asked == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "http://example.org/",
        "http://localhost.example.org/",
        "https://",
        "https:///path",
        "https://user@example.org/",
        "https://example.org\\@evil.org/",
        "https://exa mple.org/",
        "https://example.org/\x1b[2J",
        "https://[::1",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://example.org/" + "a" * 2_000,
        cast("str", None),
    ],
)
def test_an_address_where_nobody_should_be_sent_is_refused(url: str) -> None:
    with pytest.raises(MalformedInput):
        _ = Person().context.authorize(url)


@pytest.mark.parametrize(
    "url", ["http://localhost:8080/a", "http://127.0.0.1/", "http://[::1]:1/", "HTTPS://EXAMPLE.org"]
)
def test_addresses_of_this_machine_and_safe_ones_are_taken(url: str) -> None:
    assert asyncio.run(Person(0).context.authorize(url, "For you"))


def test_a_call_that_cannot_ask_says_so_at_once() -> None:
    context = ToolContext(call_id="c", thread_id="t", tool="build")
    with pytest.raises(ToolDefinitionError, match="build cannot ask a person"):
        _ = context.ask("Which?", ["a", "b"])
    with pytest.raises(ToolDefinitionError, match="build cannot ask a person"):
        _ = context.authorize("https://example.org/")


def test_an_event_may_have_an_id_of_its_own() -> None:
    event = ToolEvent("news", "offset 7", final=True)
    assert (event.content, event.event_id, event.final) == ("news", "offset 7", True)
    assert ToolEvent("news").event_id == ""
    for bad in (" ", 5, "x" * 201):
        with pytest.raises(MalformedInput, match="event id"):
            ToolEvent("news", cast("str", bad))
