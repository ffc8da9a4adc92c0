import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from hibernaut.errors import MalformedInput, ToolDefinitionError
from hibernaut.tools.context import ToolContext
from hibernaut.tools.tool import AnyTool, Tool, tool


async def build(commit: str, clean: bool = False) -> str:
    """Build a commit and say whether it passed.

    Args:
        commit: Its hash.
    """
    return f"{commit} {clean}"


async def watch(branch: str) -> AsyncIterator[str]:
    """Say when a branch moves."""
    yield f"watching {branch}"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Calendar:
    def __init__(self, owner: str) -> None:
        self.owner = owner

    async def book(self, day: str) -> str:
        """Book a day."""
        return f"{self.owner}: {day}"

    @staticmethod
    async def today() -> str:
        """Say which day it is."""
        return "Monday"


def refusal(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(ToolDefinitionError) as refused:
        tool(function, **options)
    return str(refused.value)


def test_a_decorated_function_says_what_it_is() -> None:
    made = tool(build)
    assert (made.name, made.description) == ("build", "Build a commit and say whether it passed.")
    schema = json.loads(made.parameters)
    assert schema["required"] == ["commit"]
    assert schema["properties"]["commit"] == {"type": "string", "description": "Its hash."}


def test_a_tool_without_options_runs_in_the_background_and_promises_nothing() -> None:
    made = tool(build)
    assert (made.mode, made.threaded, made.timeout, made.deadline) == ("background", False, 0, 0)
    assert (made.passive, made.idempotent, made.destructive) == (False, False, False)


def test_the_decorator_takes_options() -> None:
    @tool(name="make", passive=True, idempotent=True, destructive=True, timeout=1.5, deadline=86_400)
    async def work() -> None: ...

    assert (work.name, work.mode) == ("make", "background")
    assert tool(build, description="Make it.").description == "Make it."
    assert (work.passive, work.idempotent, work.destructive) == (True, True, True)
    assert (work.timeout, work.deadline) == (1_500, 86_400_000)


def test_empty_brackets_are_as_good_as_none() -> None:
    @tool()
    async def work() -> None: ...

    assert work.name == "work"


@pytest.mark.parametrize("seconds,milliseconds", [(0.0001, 1), (1, 1_000), (0.5, 500), (400 * 86_400, 34_560_000_000)])
def test_no_bound_that_is_given_becomes_none(seconds: float, milliseconds: int) -> None:
    assert tool(build, timeout=seconds).timeout == milliseconds
    assert tool(build, deadline=seconds).deadline == milliseconds


def test_a_decorated_function_stays_callable_as_it_was() -> None:
    assert asyncio.run(tool(build)("abc", clean=True)) == "abc True"
    assert tool(add, inline=True)(1, b=2) == 3

    async def first() -> str:
        return await anext(aiter(tool(watch)("main")))

    assert asyncio.run(first()) == "watching main"


def test_a_decorated_function_can_still_be_looked_at() -> None:
    assert inspect.signature(tool(build)) == inspect.signature(build)
    assert inspect.unwrap(tool(build)) is build


def test_a_tool_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        tool(build).name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "function,inline,mode,threaded",
    [
        (build, False, "background", False),
        (build, True, "inline", False),
        (add, False, "background", True),
        (add, True, "inline", True),
        (watch, False, "subscription", False),
        (functools.partial(build, clean=True), False, "background", False),
        (functools.partial(add, b=1), False, "background", True),
        (Calendar("ann").book, False, "background", False),
        (Calendar.today, False, "background", False),
    ],
)
def test_what_a_function_is_says_how_it_works(
    function: Callable[..., Any], inline: bool, mode: str, threaded: bool
) -> None:
    made = tool(function, inline=inline)
    assert (made.mode, made.threaded) == (mode, threaded)


def test_a_bound_method_is_a_tool_of_its_object() -> None:
    made = tool(Calendar("ann").book)
    assert json.loads(made.parameters)["properties"].keys() == {"day"}
    assert asyncio.run(made("Monday")) == "ann: Monday"


def test_events_of_a_subscription_get_threads_of_their_own_unless_they_go_into_the_thread() -> None:
    assert tool(watch).events == "threaded"
    assert tool(watch, events="associative").events == "associative"


def test_a_subscription_may_be_resumable() -> None:
    assert not tool(watch).resumable
    assert tool(watch, resumable=True).resumable


@pytest.mark.parametrize(
    "function,options,said",
    [
        (watch, {"inline": True}, "cannot be inline"),
        (build, {"inline": True, "passive": True}, "cannot be passive"),
        (watch, {"passive": True}, "cannot be passive"),
        (build, {"inline": True, "deadline": 5}, "use timeout"),
        (build, {"events": "threaded"}, "an async generator"),
        (build, {"resumable": True}, "only a subscription"),
        (watch, {"events": "sideways"}, '"associative" or "threaded"'),
        (build, {"timeout": 10, "deadline": 5}, "give it a longer deadline"),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_what_to_do(
    function: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    message = refusal(function, **options)
    assert said in message
    assert f".{function.__name__}" in message


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "5", 1e12])
@pytest.mark.parametrize("option", ["timeout", "deadline"])
def test_a_bound_that_is_no_time_is_refused(option: str, value: object) -> None:
    message = refusal(build, **{option: value})
    assert f"{option} of" in message
    assert "give seconds" in message


@pytest.mark.parametrize("name", ["", "a b", "1st", "a.b", "ä", "x" * 65, "a\n"])
def test_a_name_that_no_provider_takes_is_refused(name: str) -> None:
    assert "@tool(name=...)" in refusal(build, name=name)


@pytest.mark.parametrize("name", ["receive_event__injected", "mine__injected", "__harness_begin_compaction__"])
def test_the_runtimes_own_names_are_refused(name: str) -> None:
    assert "the runtime's own" in refusal(build, name=name)


def test_a_function_without_a_usable_name_needs_one() -> None:
    async def work() -> None: ...

    work.__name__ = "<lambda>"
    with pytest.raises(ToolDefinitionError):
        tool(work)
    assert tool(work, name="work").name == "work"


def numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "thing,said",
    [
        (numbers, "make it `async def`"),
        (Calendar, "is no function"),
        ("build", "is no function"),
        (vars(Calendar)["today"], "below @staticmethod"),
        (tool(build), "is a tool already"),
    ],
)
def test_what_is_no_function_cannot_be_a_tool(thing: Any, said: str) -> None:
    assert said in refusal(thing)


def test_a_parameter_without_a_type_is_refused() -> None:
    async def work(it) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001

    assert "'it'" in refusal(work)


async def ask(question: str, context: ToolContext) -> str:
    """Ask somebody."""
    return f"{context.call_id}: {question}"


def test_c34_the_context_is_given_to_the_function_and_hidden_from_the_model() -> None:
    made: AnyTool = tool(ask)
    assert json.loads(made.parameters)["properties"].keys() == {"question"}
    keywords = made.keywords('{"question":"why?"}', ToolContext(call_id="c", thread_id="t", tool="ask"))
    assert asyncio.run(made.function(**keywords)) == "c: why?"


def test_what_the_model_left_out_is_left_to_the_function() -> None:
    context = ToolContext(call_id="c", thread_id="t", tool="build")
    assert tool(build).keywords('{"commit":"abc"}', context) == {"commit": "abc"}


def test_c36_arguments_that_were_made_for_another_version_are_refused() -> None:
    context = ToolContext(call_id="c", thread_id="t", tool="build")
    with pytest.raises(MalformedInput, match="revision"):
        tool(build).keywords('{"revision":"abc"}', context)


def test_a_model_cannot_hand_in_a_context() -> None:
    context = ToolContext(call_id="c", thread_id="t", tool="ask")
    with pytest.raises(MalformedInput, match="context"):
        tool(ask).keywords('{"question":"why?","context":{"user":"root"}}', context)


def test_a_tool_keeps_the_types_of_its_function() -> None:
    made: Tool[[int, int], int] = tool(add)
    decorated: Tool[[int, int], int] = tool(inline=True)(add)
    assert made(1, 2) == decorated(1, 2) == 3
