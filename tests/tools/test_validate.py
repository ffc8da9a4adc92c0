"""Schemas of strangers, and what is told of arguments that do not fit."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.errors import ToolDefinitionError
from hibernaut.tools.validate import (
    LARGEST_SCHEMA,
    LONGEST_PROBLEM,
    MOST_PROBLEMS,
    MOST_RECURSIVE_WORK,
    MOST_WORK,
    compile_schema,
)

OPERATORS = ["add", "sub", "mul", "div", "pow"]


def expression(union: str, *, shared: bool = False) -> dict[str, Any]:
    """Return the schema of a nested expression, as generators write it: a union of objects that contain it again."""
    part = {"$ref": "#/$defs/expression"}
    kinds = {
        name: {"type": "object", "properties": {"a": part, "b": part, "op": {"const": name}}, "required": ["op", "a"]}
        for name in OPERATORS
    }
    references = [{"$ref": f"#/$defs/{name}"} for name in kinds]
    either: dict[str, Any] = {union: [*(references if shared else kinds.values()), {"type": "number"}]}
    definitions = {"expression": either} | (kinds if shared else {})
    return {"$defs": definitions, "type": "object", "properties": {"it": part}, "required": ["it"]}


def nested(depth: int, leaf: Any, operator: str = "pow") -> dict[str, Any]:
    value = leaf
    for _ in range(depth):
        value = {"a": value, "b": 1, "op": operator}
    return {"it": value}


def multiplying(levels: int, leaf: dict[str, Any], keyword: str = "allOf") -> dict[str, Any]:
    """Return a small schema that asks for each of its levels twice, as in "a billion laughs"."""
    definitions = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]}
        for level in range(levels)
    }
    return {"$defs": definitions | {f"d{levels}": leaf}, "$ref": "#/$defs/d0"}


def refusal(schema: dict[str, Any]) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        compile_schema(schema)
    text = str(caught.value)
    assert len(text) < 1_000
    return text


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a real server that serves schemas, and the list of requests that it saw."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type":"object"}')

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 (the library's name)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}/schema.json", seen
        http.shutdown()
        thread.join()


def test_the_library_alone_would_fetch(server: tuple[str, list[str]]) -> None:
    address, seen = server
    assert jsonschema_rs.validator_for({"$ref": address}).is_valid({})
    assert seen == ["/schema.json"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "ADDRESS"},
        {"$ref": "ADDRESS#/definitions/x"},
        {"properties": {"a": {"items": {"anyOf": [{"$ref": "ADDRESS"}]}}}},
        {"$defs": {"x": {"$ref": "ADDRESS"}}, "properties": {"a": {"$ref": "#/$defs/x"}}},
        {"$defs": {"never used": {"$ref": "ADDRESS"}}},
        {"$dynamicRef": "ADDRESS"},
        {"$schema": "ADDRESS", "type": "object"},
        {"$id": "ADDRESS", "properties": {"a": {"$ref": "other.json"}}},
        {"$id": "ADDRESS/..", "properties": {"a": {"$ref": "schema.json"}}},
        {"properties": {"a": {"$id": "ADDRESS", "$ref": "other.json"}}},
        {"x-unknown": {"deep": {"$ref": "ADDRESS"}}, "properties": {"a": {"$ref": "#/x-unknown/deep"}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "ADDRESS", "properties": {"a": {"$ref": "b"}}},
    ],
)
def test_nothing_is_fetched_for_a_schema(schema: dict[str, Any], server: tuple[str, list[str]]) -> None:
    address, seen = server
    written = json.loads(json.dumps(schema).replace("ADDRESS", address))
    text = refusal(written)
    assert "nothing is fetched" in text or "meta-schema" in text or "of its own" in text
    assert seen == []


@pytest.mark.parametrize("reference", ["file:///etc/passwd", "other.json", "/etc/passwd", "urn:x", "//host/x"])
def test_references_to_anything_outside_are_refused(reference: str) -> None:
    assert f"refers to {reference}, and nothing is fetched" in refusal({"properties": {"a": {"$ref": reference}}})


@pytest.mark.parametrize("reference", ["#/$defs/none", "#none", "#/properties/a/anyOf/7", "#/properties/a/anyOf/x"])
def test_references_to_what_is_not_there_are_refused(reference: str) -> None:
    text = refusal({"properties": {"a": {"anyOf": [{"type": "string"}]}, "b": {"$ref": reference}}})
    assert f"refers to {reference}, which it does not have" in text


@pytest.mark.parametrize(
    "schema, place",
    [
        ({"type": "objekt"}, "#/type"),
        ({"properties": {"a": {"minLength": -1}}}, "#/properties/a/minLength"),
        ({"properties": {"a": {"pattern": "("}}}, "#/properties/a/pattern"),
        ({"properties": {"a": {"pattern": "(?:(?:a{1000}){1000}){100}"}}}, "#/properties/a/pattern"),
        ({"required": "a"}, "#/required"),
    ],
)
def test_schemas_that_are_not_valid_are_refused_with_the_place(schema: dict[str, Any], place: str) -> None:
    assert f"the schema is not valid at {place}: " in refusal(schema)


def test_schemas_that_are_too_large_or_no_json_are_refused() -> None:
    assert f"at most {LARGEST_SCHEMA:,} are taken" in refusal({"description": "x" * LARGEST_SCHEMA})
    assert "the schema is not JSON" in refusal({"default": object()})
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    assert "the schema is not JSON" in refusal(deep)
    while deep:
        deep = deep["not"]  # one by one, so that freeing it does not recurse


def test_a_schema_that_is_deep_but_not_too_deep_is_told_from_a_crash() -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(600):
        deep = {"not": deep}
    assert "the schema is not valid: Recursion limit reached" in refusal(deep)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_whose_references_multiply_is_refused_before_it_runs(keyword: str) -> None:
    assert "references multiply: one value would be held against 4,398,046,511,10" in refusal(
        multiplying(40, {"type": "object"}, keyword)
    )


def test_references_that_multiply_from_level_to_level_are_refused_too() -> None:
    definitions: dict[str, Any] = {"d60": {"type": "object"}}
    for level in range(60):
        twice = [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]
        definitions[f"d{level}"] = {"properties": {"a": {"allOf": twice}}}
    assert "references multiply" in refusal({"$defs": definitions, "$ref": "#/$defs/d0"})


def test_a_schema_that_contains_itself_may_multiply_less() -> None:
    again = {"properties": {"a": {"$ref": "#/$defs/d0"}}}
    assert f"and {MOST_RECURSIVE_WORK:,} are the most" in refusal(multiplying(11, again))
    assert f"and {MOST_WORK:,} are the most" in refusal(multiplying(17, {"type": "object"}))
    assert compile_schema(multiplying(11, {"type": "object"})).problems({}) == []
    assert compile_schema(multiplying(5, again)).problems({"a": {"a": {}}}) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"properties": {"x": {"$ref": "#/$defs/b"}}, "$ref": "#/$defs/b"},
                   "b": {"not": {"$ref": "#/$defs/a"}}},
         "$ref": "#/$defs/a"},
    ],
)  # fmt: skip
def test_a_schema_that_never_gets_to_the_value_is_refused(schema: dict[str, Any]) -> None:
    assert "refers to itself for one and the same value" in refusal(schema)


def test_wide_schemas_with_shared_parts_are_taken() -> None:
    address = {"type": "object", "properties": {f"line{number}": {"type": "string"} for number in range(20)}}
    schema = {
        "$defs": {"address": address},
        "type": "object",
        "properties": {f"p{number}": {"$ref": "#/$defs/address"} for number in range(3_000)},
    }
    validator = compile_schema(schema)
    assert validator.problems({"p7": {"line3": 1}}) == ['at $.p7.line3: 1 is not of type "string"']


@pytest.mark.parametrize("union", ["anyOf", "oneOf"])
@pytest.mark.parametrize("shared", [False, True])
def test_deep_unions_are_checked_and_explained_without_growing(union: str, shared: bool) -> None:
    validator = compile_schema(expression(union, shared=shared))
    assert validator.problems(nested(60, 1)) == []
    # The library's own list of errors takes minutes from depth 7 on.
    assert validator.problems(nested(30, "x")) == [f'at $.it{".a" * 30}: "x" is none of what it may be: object, number']


def test_the_alternative_that_was_meant_is_explained() -> None:
    validator = compile_schema(expression("anyOf", shared=True))
    assert validator.problems({"it": {"op": "mul", "b": 2}}) == ['at $.it: "a" is a required property']
    assert validator.problems({"it": {"op": "mul", "a": {"op": "sub", "a": None}}}) == [
        "at $.it.a.a: null is none of what it may be: object, number"
    ]
    assert validator.problems(nested(2, 1, "mod")) == [
        'at $.it.op: "mod" is not one of "add", "sub", "mul", "div", "pow"'
    ]


def test_a_value_that_fits_two_of_one_is_told_so() -> None:
    validator = compile_schema({"properties": {"a": {"oneOf": [{"type": "integer"}, {"minimum": 3}]}}})
    assert validator.problems({"a": 2}) == []
    assert validator.problems({"a": 5}) == ["at $.a: 5 does not fit the tool's schema (oneOf)"]


def test_every_problem_is_told_with_its_path() -> None:
    validator = compile_schema(
        {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "maximum": 9},
                "mode": {"enum": ["fast", "slow"]},
                "when": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
                "a/b ~%": {"type": "string", "maxLength": 2},
                "pair": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
            },
            "required": ["path"],
            "additionalProperties": False,
            "$defs": {"edit": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}},
        }
    )
    problems = validator.problems(
        {
            "size": 12,
            "mode": "medium",
            "when": 1,
            "edits": [{"line": 1}, {"line": "2"}, {}],
            "a/b ~%": "long",
            "pair": ["x", "y"],
            "more": 1,
        }
    )
    assert sorted(problems) == sorted(
        [
            "at $: Additional properties are not allowed ('more' was unexpected)",
            'at $: "path" is a required property',
            "at $.size: 12 is greater than the maximum of 9",
            'at $.mode: "medium" is not one of "fast" or "slow"',
            "at $.when: 1 is none of what it may be: string, null",
            'at $.edits[1].line: "2" is not of type "integer"',
            'at $.edits[2]: "line" is a required property',
            'at $["a/b ~%"]: "long" is longer than 2 characters',
            'at $.pair[0]: "x" is not of type "integer"',
        ]
    )


@pytest.mark.parametrize(
    "schema, value, problem",
    [
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"xa": "s"}, 'at $.xa: "s" is not of type "integer"'),
        ({"additionalProperties": {"type": "integer"}}, {"a": "s"}, 'at $.a: "s" is not of type "integer"'),
        ({"properties": {"a": False}}, {"a": 1}, "at $.a: 1 is not allowed here"),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, 'at $: "b" is a required property'),
        ({"if": {"required": ["a"]}, "else": {"required": ["b"]}}, {}, 'at $: "b" is a required property'),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, 'at $: "b" is a required property'),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, 'at $: "b" is a required property'),
        ({"allOf": [{}, {"required": ["b"]}]}, {}, 'at $: "b" is a required property'),
        ({"not": {"required": ["a"]}}, {"a": 1}, 'at $: {"a": 1} does not fit the tool\'s schema (not)'),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1},
         'at $: {"ab": 1} does not fit the tool\'s schema (propertyNames)'),
        ({"properties": {"a": {"contains": {"const": 1}}}}, {"a": [2]},
         "at $.a: [2] does not fit the tool's schema (contains)"),
        ({"properties": {}, "unevaluatedProperties": False}, {"b": 1},
         'at $: {"b": 1} does not fit the tool\'s schema (properties, unevaluatedProperties)'),
        ({"$defs": {"n": {"$anchor": "name", "type": "string"}}, "properties": {"a": {"$ref": "#name"}}}, {"a": 1},
         'at $.a: 1 is not of type "string"'),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://tools.example/x.json",
          "definitions": {"n": {"type": "string"}},
          "properties": {"a": {"$ref": "https://tools.example/x.json#/definitions/n"}}}, {"a": 1},
         'at $.a: 1 is not of type "string"'),
        ({"$schema": "http://json-schema.org/draft-07/schema#",
          "properties": {"a": {"items": [{"type": "string"}], "additionalItems": {"type": "integer"}}}},
         {"a": ["", ""]},
         'at $.a[1]: "" is not of type "integer"'),
        ({"$schema": "http://json-schema.org/draft-07/schema#",
          "properties": {"a": {"items": [{"type": "string"}], "additionalItems": False}}}, {"a": ["", ""]},
         'at $.a: Additional items are not allowed ("" was unexpected)'),
        ({"$schema": "http://json-schema.org/draft-04/schema#",
          "properties": {"a": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}}, {"a": 0},
         "at $.a: 0 is less than or equal to the minimum of 0"),
    ],
)  # fmt: skip
def test_each_keyword_is_explained(schema: dict[str, Any], value: Any, problem: str) -> None:
    assert compile_schema(schema).problems(value) == [problem]


def test_problems_are_bounded_in_number_and_length() -> None:
    validator = compile_schema({"additionalProperties": {"type": "integer"}})
    problems = validator.problems({f"key{number}": "x" * 1_000_000 for number in range(MOST_PROBLEMS + 5)})
    assert len(problems) == MOST_PROBLEMS
    assert all(len(problem) < LONGEST_PROBLEM + 50 for problem in problems)
    assert all(problem.endswith('" is not of type "integer"') for problem in problems)


@pytest.mark.parametrize(
    "pattern, words",
    [
        ("^(a+)+$", "does not match"),
        ("^(a|aa)+$", "does not match"),
        ("^(?=a)(a|aa)+$", "does not match"),
        (r"^(?:(a+)+)\1$", "limit for backtracking count exceeded"),
    ],
)
def test_regular_expressions_take_bounded_time(pattern: str, words: str) -> None:
    evil = "a" * 50_000 + "!"
    problems = compile_schema({"properties": {"it": {"pattern": pattern}}}).problems({"it": evil})
    assert len(problems) == 1
    assert words in problems[0]


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "^(?=a)(a|aa)+$"])
def test_regular_expressions_for_names_take_bounded_time(pattern: str) -> None:
    validator = compile_schema({"patternProperties": {pattern: {"type": "integer"}}})
    evil = "a" * 50_000
    assert validator.problems({evil + "!": "x"}) == []
    assert len(validator.problems({evil: "x", evil + "!": "x"})) == 1


def test_formats_are_notes_and_not_checked() -> None:
    assert compile_schema({"properties": {"a": {"type": "string", "format": "date"}}}).problems({"a": "soon"}) == []


def test_the_same_schema_is_compiled_once() -> None:
    one = compile_schema({"type": "object", "required": ["a"]})
    assert compile_schema({"required": ["a"], "type": "object"}) is one
    assert compile_schema({"type": "object", "required": ["b"]}) is not one


def test_a_compiled_schema_does_not_follow_changes_of_the_dict_it_came_from() -> None:
    schema: dict[str, Any] = {"$id": "urn:x", "properties": {"a": {"$ref": "urn:x#/$defs/n"}}, "$defs": {"n": {}}}
    before = repr(schema)
    validator = compile_schema(schema)
    assert repr(schema) == before
    schema["required"] = ["b"]
    assert validator.problems({}) == []


def test_one_validator_serves_many_threads() -> None:
    validator = compile_schema(expression("anyOf"))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: validator.problems(nested(number % 20, "x")), range(200)))
    assert found == [
        [f'at $.it{".a" * (number % 20)}: "x" is none of what it may be: object, number'] for number in range(200)
    ]


SIMPLE = st.recursive(
    st.sampled_from(
        [
            {"type": "integer"},
            {"type": ["string", "null"]},
            {"enum": ["a", 1]},
            {"const": "a"},
            {"minimum": 3},
            {"maxLength": 1},
            {"type": "object", "required": ["a"]},
            {"type": "object", "additionalProperties": False},
            {"maxItems": 1},
            {},
            False,
            {"$ref": "#/$defs/tree"},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda a, b: {"properties": {"a": a, "b": b}, "additionalProperties": False}, inner, inner),
        st.builds(lambda a, b: {"type": "object", "properties": {"a": a}, "additionalProperties": b}, inner, inner),
        st.builds(lambda kind, *subs: {kind: list(subs)}, st.sampled_from(["anyOf", "oneOf", "allOf"]), inner, inner),
        st.builds(lambda kind, sub: {kind: sub}, st.sampled_from(["items", "not", "contains", "propertyNames"]), inner),
        st.builds(lambda a, b: {"prefixItems": [a], "items": b}, inner, inner),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
    ),
    max_leaves=8,
)
INSTANCES = st.recursive(
    st.sampled_from(["a", "ab", 1, 5, None, True, 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)
TREE = {"type": "object", "properties": {"a": {"$ref": "#/$defs/tree"}, "b": {"type": "integer"}}}


@given(SIMPLE, INSTANCES)
def test_there_are_problems_exactly_when_the_library_says_that_it_does_not_fit(part: Any, value: Any) -> None:
    schema = {"properties": {"it": part}, "$defs": {"tree": TREE}}
    fits = jsonschema_rs.validator_for(schema).is_valid({"it": value})
    problems = compile_schema(schema).problems({"it": value})
    assert (problems == []) == fits
    assert all(problem.startswith("at $") for problem in problems)


def test_importing_the_module_does_not_load_the_library() -> None:
    program = "import sys, hibernaut.tools.validate; print('jsonschema_rs' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert result.stdout.strip() == b"False"
