"""What the Messages API of Anthropic takes and refuses, as data and small functions.

Where a rule goes by the model, its family and version are read off its id, which every platform writes a little
differently. A model that is newer than this table is taken for one like the newest of its family.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from hibernaut.models.errors import InvalidRequest
from hibernaut.models.outputs import guaranteed
from hibernaut.models.protocol import About, Effort, OutputSpec

TOOL_NAME: Final = r"[A-Za-z0-9_-]{1,64}"
LONGEST_TOOL_NAME: Final = 64

CALL_ID: Final = r"[A-Za-z0-9_-]{1,64}"
"""Ids of calls. The API does not say how long they may be; its own have thirty characters."""

PARAMETER: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What the parameters of tools are called."""

COMBINED: Final = ("anyOf", "oneOf", "allOf")
"""What may not stand at the top of a tool's schema."""

BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"
"""Without it in `anthropic-beta` a request may not say what becomes of thinking that belongs to another history."""

LEAST_BUDGET: Final = 1_024
"""Tokens of thinking below which there is none. It has to be smaller than the output limit."""

BUDGETS: Final[Mapping[Effort, int]] = {"low": 2_048, "medium": 8_192, "high": 24_576}
"""Tokens for models that are told how much to think."""

NO_TOOLS: Final = b'[{"name":"none","description":"Never call this.","input_schema":{"type":"object","properties":{}}}]'
"""Tools of a request that has none, for a history with calls in it: without any it is refused."""


class Traits(msgspec.Struct, frozen=True):
    """What a model does about thinking, and how much it says at most unless told otherwise."""

    thinking: Literal["none", "budget", "adaptive"] = "budget"
    """Whether it cannot think, is told how many tokens it may think, or decides for itself."""
    off: Literal["", "disabled", "between_tools", "never"] = ""
    """How it is told not to think; "": it does not unless asked to."""
    silent: bool = False
    """Whether its thinking comes without words unless asked for."""
    bound: bool = False
    """Whether its thinking is refused where anything before it has changed since."""
    output: int = 32_000


_OLD: Final = Traits("none", output=4_096)
_THIRD: Final = Traits("none", output=8_192)
_BUDGET: Final = Traits("budget")
_ADAPTIVE: Final = Traits("adaptive", output=64_000)
_QUIET: Final = Traits("adaptive", silent=True, output=64_000)
_FIFTH: Final = Traits("adaptive", "disabled", silent=True, output=64_000)
_ALWAYS: Final = Traits("adaptive", "never", silent=True, output=64_000)
_BOUND: Final = Traits("adaptive", "never", silent=True, bound=True, output=64_000)

UNKNOWN: Final = Traits(output=8_192)
"""Of models that are not Claude, behind servers that speak the same API."""

MODELS: Final[Mapping[str, tuple[tuple[tuple[int, int], Traits], ...]]] = {
    "opus": (
        ((3, 0), _OLD),
        ((4, 0), _BUDGET),
        ((4, 6), _ADAPTIVE),
        ((4, 7), _QUIET),
        ((5, 0), _FIFTH),
        ((5, 5), _BOUND),
    ),
    "sonnet": (
        ((3, 0), _OLD),
        ((3, 5), _THIRD),
        ((3, 7), _BUDGET),
        ((4, 6), _ADAPTIVE),
        ((5, 0), _FIFTH),
        ((5, 5), Traits("adaptive", "between_tools", silent=True, bound=True, output=64_000)),
    ),
    "haiku": (
        ((3, 0), _OLD),
        ((3, 5), _THIRD),
        ((4, 5), _BUDGET),
        ((5, 5), Traits("adaptive", "disabled", silent=True, bound=True, output=64_000)),
    ),
    "fable": (((5, 0), _ALWAYS), ((5, 1), _BOUND)),
    "mythos": (((0, 0), _ALWAYS), ((5, 1), _BOUND)),
}
"""By family, from which version on."""

FORMS_SINCE: Final[Mapping[str, tuple[int, int]]] = {
    "opus": (4, 1),
    "sonnet": (4, 5),
    "haiku": (4, 5),
    "fable": (5, 0),
    "mythos": (0, 0),
}
"""From which version on models can be held to the form of their answers, by family."""

MOST_OPTIONAL: Final = 24
"""Members of a form that may be missing."""

MOST_CHOICES: Final = 16
"""Schemas of a form that are one of several."""

_NEVER: Final = (99, 0)

_VERSIONS_LAST: Final = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)(?:-(\d{1,2})(?:[-.](\d{1,2}))?)?(?!\d)")
_VERSIONS_FIRST: Final = re.compile(r"claude-(\d)(?:[-.](\d))?-(opus|sonnet|haiku)")


def traits_of(model_id: str) -> Traits:
    """Return what is known of a model by its id."""
    family, version = _family_of(model_id)
    traits = UNKNOWN
    for since, each in MODELS.get(family, ()):
        if version >= since:
            traits = each
    return traits


def keeps_forms(model_id: str) -> bool:
    """Tell whether a model can be held to the form of its answer."""
    family, version = _family_of(model_id)
    return version >= FORMS_SINCE.get(family, _NEVER)


def form_of(about: About, output: OutputSpec | None) -> dict[str, Any] | None:
    """Return the schema that the answer of a model is held to; None where it cannot be held to one."""
    if output is None or not about.settings.forms or not keeps_forms(about.model_id):
        return None
    found = guaranteed(output.schema)
    if found is None or found.optional > MOST_OPTIONAL or found.choices > MOST_CHOICES:
        return None
    return found.schema


def _family_of(model_id: str) -> tuple[str, tuple[int, int]]:
    found = _VERSIONS_LAST.search(model_id)
    if found:
        family, major, minor = found.groups()
    else:
        found = _VERSIONS_FIRST.search(model_id)
        if not found:
            return "", (0, 0)
        major, minor, family = found.groups()
    return family, (int(major or 0), int(minor or 0))


def output_of(about: About, traits: Traits) -> int:
    """Return how many tokens a turn may have: the API wants to be told.

    Without a setting it is less than many models can: prompt and output together have to fit into the window.
    """
    return about.settings.max_output or min(about.info.max_output or traits.output, traits.output)


def thinking_of(traits: Traits, effort: Effort, output: int, *, midway: bool) -> dict[str, Any]:
    """Return the fields of a request that say how much the model may think.

    `midway`: calls are being answered in a turn that did not begin with thinking. A model that is told how much to
    think must not begin with it then.
    """
    if traits.thinking == "none":
        return {}
    if traits.thinking == "budget":
        budget = min(BUDGETS.get(effort, 0), output - LEAST_BUDGET)
        if budget < LEAST_BUDGET or midway:
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}
    if effort == "none" and traits.off != "never":
        return {"thinking": {"type": traits.off}} if traits.off else {}
    fields: dict[str, Any] = {}
    if effort or traits.bound or traits.off:
        fields["thinking"] = {"type": "adaptive"}
        if traits.silent:
            fields["thinking"]["display"] = "summarized"
        if traits.bound:
            fields["thinking"]["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    if effort:
        fields["output_config"] = {"effort": "low" if effort == "none" else effort}
    return fields


def replays(traits: Traits, effort: Effort) -> bool:
    """Tell whether thinking is sent back.

    Where a model that checks it is told not to think, it cannot be told what becomes of thinking that is out of place.
    """
    return traits.thinking != "none" and not (traits.bound and effort == "none" and traits.off != "never")


def schema_of(tool: str, parameters: str) -> dict[str, Any]:
    """Return a tool's schema as the API takes it: an object, without alternatives at its top.

    What the alternatives ask for is left to the check of the arguments; their properties are named.

    Raises:
        InvalidRequest: a parameter cannot be called what it is called.
    """
    schema: Any = msgspec.json.decode(parameters)
    if not isinstance(schema, dict):
        schema = {}
    branches = [branch for word in COMBINED for branch in schema.pop(word, ()) if isinstance(branch, dict)]
    properties = dict(schema.get("properties") or {})
    for branch in branches:
        for name, value in (branch.get("properties") or {}).items():
            properties.setdefault(name, value)
    for name in properties:
        if not PARAMETER.fullmatch(name):
            raise InvalidRequest(
                f"the tool {tool} has a parameter {name!r:.200}; Anthropic takes letters, digits, _ . and -, up to 64"
            )
    return {**schema, "type": "object", "properties": properties}
