"""What OpenAI's APIs take and refuse, as data. What only some servers of the Chat API refuse stands in `servers`."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.codec import sha256, to_json
from hibernaut.models.outputs import guaranteed
from hibernaut.models.protocol import About, Effort, OutputSpec
from hibernaut.models.tool_names import ToolNames

LEAST_OUTPUT: Final = 16
"""Tokens of output below which the Responses API refuses a limit."""

LONGEST_CACHE_KEY: Final = 64
"""Characters of `prompt_cache_key`."""

LONGEST_NAME: Final = 64
"""Characters of a function's name."""

MOST_TOOLS: Final = 128
"""Functions that a request may offer."""

ANSWER: Final = "answer"
"""What the form of an answer is called."""

MOST_CALLS: Final = 128
"""Calls that one message of the Chat API may have."""

ENCRYPTED: Final = "reasoning.encrypted_content"
"""What `include` names, so that reasoning can be replayed to a provider that stores nothing."""

_NAME: Final = r"[A-Za-z0-9_-]{1,64}"

_REASONING: Final = re.compile(r"(?:.*/)?(?:ft:)?(?:o\d|gpt-[5-9]|gpt-oss|codex)(?!.*-chat)", re.IGNORECASE)
"""Ids of models that reason, as far as an id tells. Others refuse reasoning, and to be asked for it."""

_FORMLESS: Final = re.compile(
    r"(?:.*/)?(?:ft:)?(?:gpt-3\.5|gpt-4(?:-turbo|-\d{4}|-32k|-vision)|gpt-4o-2024-05-13|o1-(?:mini|preview)).*|gpt-4",
    re.IGNORECASE,
)
"""Ids of models that cannot be held to the form of their answers."""

_LEAST_EFFORTS: Final = (
    (re.compile(r"(?:.*/)?(?:ft:)?o\d.*", re.IGNORECASE), "low"),
    (re.compile(r"(?:.*/)?(?:ft:)?gpt-5(?:-mini|-nano)?(?:-\d{4}.*)?", re.IGNORECASE), "minimal"),
    (re.compile(r"(?:.*/)?gpt-5(?:\.\d)?-(?:codex|pro).*", re.IGNORECASE), "low"),
)
"""What is asked of models that cannot do without thinking."""

_value = msgspec.json.Decoder()


def reasons(about: About) -> bool:
    """Tell whether a model thinks before it speaks."""
    return about.info.reasoning or _REASONING.match(about.model_id) is not None


def form_of(about: About, output: OutputSpec | None) -> dict[str, Any] | None:
    """Return the schema that the answer of a model of OpenAI's is held to; None where it cannot be held to one."""
    if output is None or not about.settings.forms or _FORMLESS.fullmatch(about.model_id):
        return None
    found = guaranteed(output.schema)
    return found.schema if found and found.complete else None


def effort_of(about: About) -> str:
    """Return the effort to ask a model of OpenAI's for; "": nothing is said of it."""
    wanted: Effort = about.settings.effort
    if wanted == "none":
        for pattern, least in _LEAST_EFFORTS:
            if pattern.fullmatch(about.model_id):
                return least
    return wanted


def tool_names() -> ToolNames:
    """Return how tools are called on the wire."""
    return ToolNames(_NAME, LONGEST_NAME)


def object_text(arguments: str) -> str:
    """Return the arguments of a call as the text of a JSON object, whatever an old history holds."""
    try:
        value = _value.decode(arguments)
    except (msgspec.DecodeError, UnicodeError):
        value = None
    return arguments if isinstance(value, dict) else to_json({"arguments": arguments})


def cache_key(name: str) -> str:
    """Return what keeps prompts that begin alike on the same machines."""
    return name if len(name) <= LONGEST_CACHE_KEY and name.isascii() else sha256(name.encode()).hex()


def merged(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a body, with those that a user gave on top. Objects are merged, everything else is replaced."""
    result = dict(own)
    for name, value in given.items():
        before = result.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[name] = merged(before, value) if both else value  # type: ignore[arg-type]  # `both` says so
    return result


def error_text(text: str) -> str:
    """Return the text of a result that says that a call failed: these APIs have no other mark for it."""
    return text if text[:5].lower() == "error" else f"Error: {text}"
