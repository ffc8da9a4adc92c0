"""JSON Schemas without references."""

from typing import Any

import pytest

from hibernaut.models.schemas import MOST_NODES, inlined

POINT = {"type": "object", "properties": {"x": {"type": "number"}}}


@pytest.mark.parametrize(
    "schema,plain",
    [
        ({"$ref": "#/$defs/P", "$defs": {"P": POINT}}, POINT),
        ({"$ref": "#/definitions/P", "definitions": {"P": POINT}}, POINT),
        ({"items": {"$ref": "#/$defs/a~1b~0c"}, "$defs": {"a/b~c": {"type": "string"}}}, {"items": {"type": "string"}}),
        ({"anyOf": [{"$ref": "#/anyOf/1"}, {"type": "null"}]}, {"anyOf": [{"type": "null"}, {"type": "null"}]}),
        ({"not": {"$ref": "#/gone"}}, {"not": {}}),
        ({"not": {"$ref": "https://elsewhere.example/schema"}}, {"not": {}}),
        (
            {"additionalProperties": False, "const": {"$ref": "x"}},
            {"additionalProperties": False, "const": {"$ref": "x"}},
        ),
        ({"properties": {"$ref": {"type": "string"}}}, {"properties": {"$ref": {"type": "string"}}}),
        ({"$ref": "#/$defs/P", "title": "Mine", "$defs": {"P": {"title": "P"}}}, {"title": "Mine"}),
    ],
)
def test_references_are_replaced_by_what_they_lead_to(schema: dict[str, Any], plain: dict[str, Any]) -> None:
    assert inlined(schema) == plain


def test_one_that_leads_into_itself_ends() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}, "up": {"$ref": "#"}}}
    found = inlined({"$ref": "#/$defs/T", "$defs": {"T": tree}})
    assert found["properties"]["left"] == {"type": "object"}
    assert inlined({"$ref": "#"}) == {}


def test_one_that_doubles_at_every_step_stays_small() -> None:
    doubling = {
        f"d{step}": {"properties": {"a": {"$ref": f"#/$defs/d{step + 1}"}, "b": {"$ref": f"#/$defs/d{step + 1}"}}}
        for step in range(40)
    }
    found = inlined({"$ref": "#/$defs/d0", "$defs": doubling})
    assert len(str(found)) < MOST_NODES * 40
