"""What the Gemini API takes, as data: by platform, and by generation of its models."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.models.pictures import PictureLimits
from hibernaut.models.protocol import Effort
from hibernaut.models.schemas import inlined

TOOL_NAME: Final = r"[A-Za-z_][A-Za-z0-9_-]{0,62}"
LONGEST_TOOL_NAME: Final = 63

CALL_ID: Final = r"[A-Za-z0-9_-]{1,64}"
"""Ids of calls that are sent back; the API names no alphabet, its own ones are of this."""

UNSIGNED: Final = "skip_thought_signature_validator"
"""The signature that the API takes for a call that no model of its own has signed."""

PICTURES: Final = PictureLimits(
    media_types=frozenset({"image/jpeg", "image/png", "image/webp"}),
    size=7_000_000,
    side=100_000,  # larger ones are made smaller there
    count=900,
    together=15_000_000,  # of a request of 20 MB
    crowd=900,
    addresses=False,  # only files that were handed in before, and those are gone after two days
)


class Platform(msgspec.Struct, frozen=True):
    """Where the API is spoken. A signature is good on its own platform only."""

    name: str
    call_ids: bool
    """Whether calls and their results may have ids; the other platform refuses the field."""
    lists_models: bool
    wraps_counting: bool
    """Whether a request whose tokens are to be counted stands inside of another."""


GEMINI_API: Final = Platform("google", call_ids=True, lists_models=True, wraps_counting=True)
VERTEX: Final = Platform("vertex", call_ids=False, lists_models=False, wraps_counting=False)


class Generation(msgspec.Struct, frozen=True):
    """What models of one generation take."""

    signed_calls: bool = False
    """Whether the first call of each step must have a signature."""
    result_images: bool = False
    """Whether the result of a call may have images; otherwise they follow the results."""
    json_schema: bool = True
    """Whether parameters may be a JSON Schema; otherwise they are the API's own `Schema`."""
    forms: bool = False
    """Whether answers can be held to a form where there are functions as well."""
    thinking: Mapping[Effort, Mapping[str, Any]] = {}
    """The member `thinkingConfig` by effort; without any the model cannot think."""


_BUDGETS: Final[Mapping[Effort, Mapping[str, Any]]] = {
    "": {"includeThoughts": True},
    "none": {"thinkingBudget": 0},
    "low": {"thinkingBudget": 1_024, "includeThoughts": True},
    "medium": {"thinkingBudget": 8_192, "includeThoughts": True},
    "high": {"thinkingBudget": 24_576, "includeThoughts": True},
}
_LEVELS: Final[Mapping[Effort, Mapping[str, Any]]] = {
    "": {"includeThoughts": True},
    "none": {"thinkingLevel": "minimal"},
    "low": {"thinkingLevel": "low", "includeThoughts": True},
    "medium": {"thinkingLevel": "medium", "includeThoughts": True},
    "high": {"thinkingLevel": "high", "includeThoughts": True},
}


def _third(thinking: Mapping[Effort, Mapping[str, Any]]) -> Generation:
    return Generation(signed_calls=True, result_images=True, forms=True, thinking=thinking)


GENERATIONS: Final[tuple[tuple[str, Generation], ...]] = (
    (r"gemini-(1\.|2\.0|pro-1|flash-1|pro$)|gemini-1|gemma-[123]", Generation(json_schema=False)),
    (r"gemini-2\.5-pro", Generation(thinking={**_BUDGETS, "none": {"thinkingBudget": 128}})),  # it always thinks
    (r"gemini-2\.5", Generation(thinking=_BUDGETS)),
    (r"gemma-", Generation()),
    (r"gemini-[0-9.]*-?flash", _third(_LEVELS)),
    (r"", _third({**_LEVELS, "none": {"thinkingLevel": "low"}})),
)
"""Patterns of how a model's id begins; the first that fits counts. Names without a number are of the newest."""


def generation_of(model_id: str) -> Generation:
    """Return what a model takes."""
    name = model_id.rpartition("/")[2]
    return next(generation for pattern, generation in GENERATIONS if re.match(pattern, name))


_SCHEMA_FIELDS: Final = frozenset(
    {
        "anyOf", "default", "description", "enum", "example", "format", "items", "maximum", "maxItems", "maxLength",
        "maxProperties", "minimum", "minItems", "minLength", "minProperties", "nullable", "pattern", "properties",
        "required", "title", "type",
    }
)  # fmt: skip
_FORMATS: Final = frozenset({"date-time", "enum", "double", "float", "int32", "int64"})


def json_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema as the member `parametersJsonSchema` takes it: an object, without references."""
    return {"type": "object", **inlined(parameters)}


def own_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema as the API's own `Schema` says it, as far as that can."""
    return _own({"type": "object", **inlined(parameters)})


def _own(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    for part in schema.get("allOf", ()):
        schema = {**(part if isinstance(part, Mapping) else {}), **schema}
    nullable, options = _options(schema)
    if len(options) > 1:
        # Nothing else may stand beside it.
        return {"anyOf": [_own({**option, **nullable}) for option in options]}
    made = {name: value for name, value in {**schema, **options[0], **nullable}.items() if name in _SCHEMA_FIELDS}
    made.pop("anyOf", None)
    values = [options[0]["const"]] if "const" in options[0] else made.pop("enum", None)
    if values and all(isinstance(value, str) for value in values):
        made |= {"type": "string", "enum": values}
    if made.get("format") not in _FORMATS:
        made.pop("format", None)
    if "properties" in made:
        made["properties"] = {name: _own(part) for name, part in made["properties"].items()}
        made["required"] = [name for name in made.get("required", ()) if name in made["properties"]]
    if not made.get("required"):
        made.pop("required", None)
    if made.get("type") == "array":
        made["items"] = _own(made.get("items")) or {"type": "string"}
    return made


def _options(schema: Mapping[str, Any]) -> tuple[dict[str, bool], list[dict[str, Any]]]:
    """Return whether null is allowed, and the schemas that a value may be of, each whole."""
    base = {name: value for name, value in schema.items() if name not in ("anyOf", "oneOf", "allOf")}
    found = [option for option in schema.get("anyOf", schema.get("oneOf", ())) if isinstance(option, Mapping)]
    kinds = schema.get("type")
    if not found and isinstance(kinds, list):
        found = [{"type": kind} for kind in kinds]
    real = [{**base, **option} for option in found if option.get("type") != "null"]
    return {"nullable": True} if len(real) < len(found) else {}, real or [base]
