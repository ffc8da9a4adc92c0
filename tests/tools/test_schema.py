"""From the types of parameters to the schema that a model reads, and from a call back to their values."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import IntEnum
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union
from uuid import UUID

import msgspec
import pydantic
import pytest

from hibernaut.errors import ToolDefinitionError
from hibernaut.tools.arguments import JSON, ArgumentsRefused
from tests.tools.signatures import Color, Point, Range, signature


class Level(IntEnum):
    HIGH = 3
    LOW = 1


class Pair(NamedTuple):
    left: str
    right: int = 1


class Node(msgspec.Struct):
    name: str
    children: list["Node"] = []


class Street(pydantic.BaseModel):
    name: str
    number: int = pydantic.Field(default=1, ge=1)


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    name: str
    born: dt.date
    streets: list[Street] = []
    friends: list["Person"] = []


def schema_of(hint: object) -> dict[str, Any]:
    """Return the schema of a parameter with this annotation, definitions inside."""

    def take(it: Any) -> None: ...

    take.__annotations__["it"] = hint
    root = signature(take).schema
    properties, definitions = root["properties"], root.get("$defs")
    assert isinstance(properties, dict)
    schema = properties["it"]
    assert isinstance(schema, dict)
    return schema | ({"$defs": definitions} if definitions else {})


def decoded(hint: object, value: Any) -> Any:
    def take(it: Any) -> None: ...

    take.__annotations__["it"] = hint
    return signature(take).decode({"it": value})["it"]


def test_a_function_becomes_a_schema_in_the_order_of_its_parameters() -> None:
    async def search(pattern: str, limit: int = 20, *, exact: bool = False, weight: float = 0.5) -> list[str]:
        """Search the files."""
        return [pattern, str((limit, exact, weight))]

    made = signature(search)
    assert made.name == "search"
    assert made.description == "Search the files."
    assert made.context_parameter is None
    assert made.parameters == (
        '{"type":"object","properties":{"pattern":{"type":"string"},"limit":{"type":"integer","default":20},'
        '"exact":{"type":"boolean","default":false},"weight":{"type":"number","default":0.5}},'
        '"required":["pattern"],"additionalProperties":false}'
    )
    assert made.decode({"exact": True, "pattern": "x"}) == {"pattern": "x", "exact": True}


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def now() -> str:
        return ""

    made = signature(now)
    assert made.schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert made.description == ""
    assert made.decode({}) == {}
    assert made.decode("{}") == {}


@pytest.mark.parametrize(
    "hint, schema",
    [
        (str, {"type": "string"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict[str, Any], {"type": "object"}),
        (Any, {}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 (the old spelling is meant)
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007 (the same)
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["z", "a", "m"], {"type": "string", "enum": ["z", "a", "m"]}),
        (Literal[3, 1, 2], {"type": "integer", "enum": [3, 1, 2]}),
        (Literal["z", 1, None], {"enum": ["z", 1, None]}),  # noqa: PYI061 (the order is the point)
        (dt.date, {"type": "string", "format": "date"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Annotated[int, msgspec.Meta(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (Annotated[str, msgspec.Meta(description="a word")], {"type": "string", "description": "a word"}),
        (Annotated[str, "a word"], {"type": "string", "description": "a word"}),
        (Annotated[str, pydantic.Field(description="a word")], {"type": "string", "description": "a word"}),
        (
            Color,
            {
                "$ref": "#/$defs/Color",
                "$defs": {"Color": {"title": "Color", "type": "string", "enum": ["red", "blue", "amber"]}},
            },
        ),
        (Level, {"$ref": "#/$defs/Level", "$defs": {"Level": {"title": "Level", "type": "integer", "enum": [3, 1]}}}),
    ],
)
def test_a_type_has_its_schema(hint: object, schema: dict[str, Any]) -> None:
    made = schema_of(hint)
    made.get("$defs", {}).get("Level", {}).pop("description", None)
    assert made == schema


@pytest.mark.parametrize(
    "hint, value, expected",
    [
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[str], ["a", "b"], {"a", "b"}),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (dt.datetime, "2026-01-02T03:04:05Z", dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
        (dt.date, "2026-01-02", dt.date(2026, 1, 2)),
        (UUID, "6ba7b810-9dad-11d1-80b4-00c04fd430c8", UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
        (Decimal, "1.50", Decimal("1.50")),
        (bytes, "aGk=", b"hi"),
        (Color, "amber", Color.AMBER),
        (Level | None, 1, Level.LOW),
        (Point, {"x": 1, "how": "fly"}, Point(1, how="fly")),
        (Range, {"end": 2}, {"end": 2}),
        (Pair, ["a", 2], Pair("a", 2)),
        (Node, {"name": "a", "children": [{"name": "b"}]}, Node("a", [Node("b")])),
        (list[Point] | None, [{"x": 1}], [Point(1)]),
        (float, 5, 5.0),
    ],
)
def test_values_come_to_the_function_as_it_declares_them(hint: object, value: Any, expected: Any) -> None:
    got = decoded(hint, value)
    assert got == expected
    assert type(got) is type(expected)


def test_integers_that_a_provider_writes_with_a_decimal_point_are_taken() -> None:
    assert repr(decoded(list[int], [5.0, 2])) == "[5, 2]"
    assert repr(decoded(Point, {"x": 1.0})) == "Point(x=1, y=0, how='walk')"
    with pytest.raises(ArgumentsRefused, match=r"Expected `int`, got `float` - at `\$\.it\[0\]`"):
        decoded(list[int], [5.5])


def test_the_orders_of_literals_are_kept_even_where_two_hold_the_same_values() -> None:
    def turn(first: Literal["b", "a"], second: list[Literal["a", "b"]], point: Point) -> None: ...

    schema: Any = signature(turn).schema
    assert schema["properties"]["first"]["enum"] == ["b", "a"]
    assert schema["properties"]["second"]["items"]["enum"] == ["a", "b"]
    assert schema["$defs"]["Point"]["properties"]["how"]["enum"] == ["walk", "drive", "fly"]


def test_a_parameter_named_like_a_keyword_of_schemas_is_a_parameter() -> None:
    def odd(enum: Literal["b", "a"], default: Literal["d", "c"], description: str, properties: int = 1) -> None: ...

    schema: Any = signature(odd).schema
    assert schema["properties"]["enum"]["enum"] == ["b", "a"]
    assert schema["properties"]["default"]["enum"] == ["d", "c"]


def test_definitions_are_shared_and_there_only_when_used() -> None:
    def route(start: Point, via: list[Point], end: Point | None = None) -> None: ...

    schema: Any = signature(route).schema
    assert list(schema["$defs"]) == ["Point"]
    assert schema["properties"]["start"] == {"$ref": "#/$defs/Point"}
    assert schema["$defs"]["Point"]["description"] == "A place."


def test_two_classes_of_one_name_have_two_definitions() -> None:
    def other() -> type:
        return msgspec.defstruct("Point", [("z", str)], module=Point.__module__)

    def both(one: Any, two: Any) -> None: ...

    both.__annotations__.update(one=Point, two=other())
    if tuple(map(int, msgspec.__version__.split(".")[:2])) < (0, 23):
        with pytest.raises(ToolDefinitionError, match="two classes of one name"):
            signature(both)
        return
    schema: Any = signature(both).schema
    found = [schema["$defs"][schema["properties"][name]["$ref"].removeprefix("#/$defs/")] for name in ("one", "two")]
    assert [list(each["properties"]) for each in found] == [["x", "y", "how"], ["z"]]


def test_pydantic_models_are_taken_by_their_methods() -> None:
    def invite(guest: Person, others: list[Street], home: Street | None = None) -> None:
        """Invite.

        Args:
            guest: Who comes.
        """

    made = signature(invite)
    schema: Any = made.schema
    assert schema["properties"]["guest"] == {"$ref": "#/$defs/Person.Person", "description": "Who comes."}
    assert schema["$defs"]["Person.Person"]["properties"]["streets"]["items"] == {"$ref": "#/$defs/Person.Street"}
    guest: JSON = {"name": "Ada", "born": "1815-12-10", "streets": [{"name": "Dorset"}]}
    values = made.decode({"guest": guest, "others": [{"name": "Main", "number": 2}]})
    assert values["guest"] == Person(name="Ada", born=dt.date(1815, 12, 10), streets=[Street(name="Dorset")])
    assert values["others"] == [Street(name="Main", number=2)]
    with pytest.raises(ArgumentsRefused, match="greater than or equal to 1"):
        made.decode({"guest": guest, "others": [{"name": "Main", "number": 0}]})


def test_models_of_one_name_with_other_parts_keep_theirs_apart() -> None:
    class Part(pydantic.BaseModel):
        size: int

    class Person(pydantic.BaseModel):
        street: Part

    def both(one: Any, two: Any, three: Any) -> None: ...

    class Street(pydantic.BaseModel):
        other: str

    class Another(pydantic.BaseModel):
        street: Street

    Another.__name__ = "Person"
    both.__annotations__.update(one=globals()["Person"], two=Person, three=Another)
    schema: Any = signature(both).schema
    parts = {name: list(part["properties"]) for name, part in schema["$defs"].items()}
    assert parts.pop("Person.Street") == ["name", "number"]
    assert parts.pop("Person.Part") == ["size"]
    assert ["other"] in parts.values()


def test_defaults_are_in_the_schema_where_json_can_write_them() -> None:
    marker = object()

    def many(
        point: Point = Point(1, 2),  # noqa: B008 (a default that is no plain value)
        color: Color = Color.BLUE,
        tags: frozenset[str] = frozenset({"b", "a", "c"}),
        home: Street = Street(name="x"),  # noqa: B008 (the same)
        nothing: str | None = None,
        limit: float = float("inf"),
        other: Any = marker,
    ) -> None: ...

    made = signature(many)
    properties: Any = made.schema["properties"]
    defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    assert defaults == {
        "point": {"x": 1, "y": 2, "how": "walk"},
        "color": "blue",
        "tags": ["a", "b", "c"],
        "home": {"name": "x", "number": 1},
        "nothing": None,
    }
    assert made.schema["required"] == []
    assert made.decode({}) == {}, "the function's own defaults apply, whatever they are"


def test_a_default_of_none_makes_a_parameter_optional() -> None:
    def find(name: str = None, size: Annotated[int, msgspec.Meta(ge=1)] = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013 (widely written)

    made = signature(find)
    properties: Any = made.schema["properties"]
    assert properties["name"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert made.decode({"name": None, "size": None}) == {"name": None, "size": None}


def test_the_schema_is_the_same_in_every_process() -> None:
    program = (
        "from hibernaut.tools.schema import signature_of\n"
        "def work(tags: set[str] = {'a', 'b', 'c', 'd'}, how: dict[str, int] = {'z': 1, 'y': 2}): ...\n"
        "print(signature_of(work).parameters)"
    )
    written = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(written) == 1


def test_importing_the_module_loads_neither_pydantic_nor_the_docstring_parser() -> None:
    program = "import sys, hibernaut.tools.schema; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert not {"pydantic", "docstring_parser", "jsonschema_rs"} & set(result.stdout.split())
