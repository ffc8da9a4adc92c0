import json

import pytest

from hibernaut.errors import ToolDefinitionError
from hibernaut.tools.context import ToolContext


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
