"""What of a function is the model's to read and to give, and which functions cannot be tools."""

import functools
import json
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from hibernaut.messages.text import clean
from hibernaut.tools.arguments import ArgumentsRefused, canonical, parse_arguments
from hibernaut.tools.schema import signature_of
from tests.tools.signatures import Color, Point, Range, ToolContext, refusal, signature

GOOGLE = """Search.

    Args:
        pattern: What to look for,
            as a regular expression.
        limit (int): How many.

    Returns:
        Lines.
    """
NUMPY = """Search.

    Parameters
    ----------
    pattern : str
        What to look for,
        as a regular expression.
    limit : int, optional
        How many.

    Returns
    -------
    list
        Lines.
    """
REST = """Search.

    :param pattern: What to look for,
        as a regular expression.
    :param int limit: How many.
    :returns: Lines.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST])
def test_the_docstring_describes_the_parameters(text: str) -> None:
    def search(pattern: str, limit: int = 1) -> None: ...

    search.__doc__ = text
    made = signature(search)
    properties: Any = made.schema["properties"]
    assert made.description == "Search."
    assert properties["pattern"]["description"] == "What to look for,\nas a regular expression."
    assert properties["limit"]["description"] == "How many."


def test_the_description_is_the_text_before_the_sections() -> None:
    def search(pattern: Annotated[str, msgspec.Meta(description="Meta wins.")]) -> None:
        """Search the files
        of the project.

        Matches are:
          - whole lines
          - in order

        Args:
            pattern: The docstring loses.
            gone: Of a parameter that is no more.
        """

    made = signature(search)
    assert made.description == "Search the files\nof the project.\n\nMatches are:\n  - whole lines\n  - in order"
    properties: Any = made.schema["properties"]
    assert properties == {"pattern": {"type": "string", "description": "Meta wins."}}


@pytest.mark.parametrize(
    "hint",
    [
        ToolContext,
        ToolContext[int],
        ToolContext | None,
        Annotated[ToolContext[int], "the context"],
        "ToolContext",
        "ToolContext[int]",
        "elsewhere.ToolContext",
    ],
)
def test_the_context_is_told_apart_and_the_model_does_not_see_it(hint: object) -> None:
    def work(first: str, it: Any, last: int = 1) -> None: ...

    work.__annotations__["it"] = hint
    made = signature(work)
    assert made.context_parameter == "it"
    properties: Any = made.schema["properties"]
    assert list(properties) == ["first", "last"]
    assert made.decode({"first": "a"}) == {"first": "a"}
    with pytest.raises(ArgumentsRefused, match="unknown field `it`"):
        made.decode({"first": "a", "it": {}})


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({}, "Object missing required field `count`"),
        ({"count": "1"}, "Expected `int`, got `str` - at `$.count`"),
        ({"count": True}, "Expected `int`, got `bool` - at `$.count`"),
        ({"count": 1, "colour": "red"}, "Object contains unknown field `colour`; the tool takes: count, color"),
        ({"count": 1, "color": "green"}, "Invalid enum value 'green' - at `$.color`"),
        ("[]", "The arguments are not a JSON object: Expected `object`, got `array`"),
        ('{"count": ', "The arguments are not a JSON object: Input data was truncated"),
    ],
)
def test_c16_arguments_that_do_not_fit_are_refused_with_the_reason(arguments: Any, reason: str) -> None:
    def paint(count: int, color: Color = Color.RED) -> None: ...

    with pytest.raises(ArgumentsRefused) as caught:
        signature(paint).decode(arguments)
    assert reason in str(caught.value)


def test_c19_the_function_gets_the_nul_that_was_cleaned_for_storage() -> None:
    def write(text: str, lines: list[str] = []) -> None: ...  # noqa: B006 (never changed)

    made = signature(write)
    wanted = {"text": "a\x00\u2400", "lines": ["\u241b"]}
    arguments = parse_arguments(json.dumps(wanted))
    assert arguments["text"] == clean("a\x00\u2400")
    assert made.decode(arguments) == wanted
    assert made.decode(canonical(arguments)) == wanted


def test_parameters_may_have_names_that_classes_give_a_meaning() -> None:
    def odd(self: int, __private: int, __struct_fields__: int, a0: int = 1, rename: int = 2) -> None: ...

    values = {"self": 1, "__private": 2, "__struct_fields__": 3, "a0": 4}
    assert signature(odd).decode(dict(values)) == values


def test_keywords_that_a_partial_binds_are_not_the_models_to_give() -> None:
    def query(text: str, connection: complex, limit: int = 5) -> None:
        """Query."""

    made = signature(functools.partial(query, connection=1j))
    properties: Any = made.schema["properties"]
    assert (made.name, made.description, list(properties)) == ("query", "Query.", ["text", "limit"])


def test_methods_and_wrapped_functions_are_read_through() -> None:
    class Shop:
        def buy(self, what: str) -> None: ...

    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    functools.update_wrapper(wrapper, Shop.buy)
    wrapper.__wrapped__ = Shop().buy  # type: ignore[attr-defined]
    for function in (Shop().buy, wrapper):
        assert signature(function).decode({"what": "milk"}) == {"what": "milk"}


def test_annotations_as_text_are_resolved_in_the_functions_module() -> None:
    def work(it: "Point", other: "list[Point]") -> None: ...

    assert signature(work).decode({"it": {"x": 1}, "other": []}) == {"it": Point(1), "other": []}


def test_annotations_as_text_may_use_local_names_that_are_handed_in() -> None:
    class Local(msgspec.Struct):
        x: int

    def work(it: "Local") -> None: ...

    made = signature_of(work, local_names=locals())
    assert made.decode({"it": {"x": 1}}) == {"it": Local(1)}
    assert "define Local at module level" in refusal(work)


def test_what_a_function_returns_does_not_matter() -> None:
    def work(it: int) -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821 (that it is nowhere is the point)
        ...

    assert signature(work).decode({"it": 1}) == {"it": 1}


def take_stars(*it: int) -> None: ...
def take_two_stars(**it: int) -> None: ...
def take_unannotated(it) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
def take_positional(it: int, /) -> None: ...
def take_complex(it: complex) -> None: ...
def take_nested(it: list[dict[str, complex]]) -> None: ...
def take_function(it: Callable[[], int]) -> None: ...
def take_two_texts(it: str | bytes) -> None: ...
def take_two_classes(it: Point | Range) -> None: ...
def take_missing(it: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def take_broken(it: "list[") -> None: ...  # type: ignore[valid-type]  # noqa: F722
def take_constraints(it: Annotated[int, pydantic.Field(ge=1)]) -> None: ...
def take_contexts(it: list[ToolContext[int]]) -> None: ...


@pytest.mark.parametrize(
    "function, reason",
    [
        (take_stars, "is *it, which has no schema: name each parameter"),
        (take_two_stars, "is **it, which has no schema: name each parameter"),
        (take_unannotated, "has no annotation: say its type, for example `it: str`"),
        (take_positional, "is positional-only, but tools are called by keyword: remove the `/`"),
        (take_complex, "has a type that a tool cannot take: type <class 'complex'> is not supported. Take str, int,"),
        (take_nested, "has a type that a tool cannot take: type <class 'complex'> is not supported. Take str, int,"),
        (take_function, "has a type that a tool cannot take: type <class 'collections.abc.Callable'> is not supported"),
        (take_two_texts, "has a type that a tool cannot take: Type unions may not contain more than one str-like type"),
        (take_two_classes, "has a type that a tool cannot take: Type unions may not contain more than one dict-like"),
        (take_missing, "cannot be resolved (name 'Missing' is not defined): define Missing at module level"),
        (take_broken, "cannot be resolved: Forward reference must be an expression"),
        (take_constraints, "has constraints that nothing checks: write them as msgspec.Meta(...)"),
        (take_contexts, "ToolContext'> is not supported"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_the_place_and_the_way_out(
    function: Callable[..., Any], reason: str
) -> None:
    text = refusal(function)
    assert f"parameter 'it' of {function.__module__}.{function.__qualname__}" in text
    assert reason in text


@pytest.mark.parametrize("name", ["receive_event__injected", "__harness_begin_compaction__", "__injected"])
def test_reserved_names_are_refused_for_tools_and_parameters(name: str) -> None:
    def work() -> None: ...

    assert f"the name {name!r} of" in refusal(work, name=name)
    work.__name__ = name
    assert "is the runtime's own" in refusal(work)
    space: dict[str, Any] = {}
    exec(f"def work({name}: int): ...", space)
    assert f"parameter {name!r} of" in refusal(space["work"])


@pytest.mark.parametrize("name", ["", "größe", "a b", "a.b", "<lambda>", "x" * 129])
def test_names_that_providers_do_not_take_are_refused(name: str) -> None:
    def work() -> None: ...

    work.__name__ = name
    assert f"cannot be called {name!r} as a tool" in refusal(work)
    assert signature_of(work, name="another-name_1").name == "another-name_1"


def test_parameters_that_providers_do_not_take_are_refused() -> None:
    def work(größe: int) -> None: ...  # noqa: PLC2401 (the refused name)

    assert "parameter 'größe' of" in refusal(work)


def test_a_function_has_one_context() -> None:
    def work(one: ToolContext[int], two: ToolContext[int] | None) -> None: ...

    assert "has two parameters for its context, one and two" in refusal(work)
