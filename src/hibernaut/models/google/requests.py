"""The body of a request to the Gemini API: what stays the same comes first."""

import functools
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from hibernaut.messages.tools import ToolSpec
from hibernaut.models.bodies import joined, merged
from hibernaut.models.google.rules import Generation, json_schema, own_schema
from hibernaut.models.protocol import About, ModelRequest
from hibernaut.models.tool_names import ToolNames

_encode = msgspec.json.Encoder().encode

_CONFIG: Final = "generationConfig"


def name_of(model_id: str) -> str:
    """Return the whole name of a model. Ids may name their collection, such as `tunedModels/mine`."""
    return model_id if "/" in model_id else f"models/{model_id}"


def path_of(model_id: str, method: str) -> str:
    """Return where a model is asked."""
    return f"/{quote(name_of(model_id))}:{method}"


def body_of(
    about: About,
    generation: Generation,
    request: ModelRequest,
    names: ToolNames,
    contents: Sequence[bytes],
) -> bytes:
    """Return the body of a request. What the settings say of it wins, member by member."""
    given = dict(about.settings.parameters)
    form = request.output.schema if request.output and generation.forms and about.settings.forms else ""
    config = merged(_config(about, generation, form), given.pop(_CONFIG, {}))
    members: dict[str, Sequence[bytes]] = {}
    instructions, tools = request.instructions, request.offered(held=bool(form))
    if instructions and not instructions.isspace():
        members["systemInstruction"] = (_instructions(instructions),)
    if tools:
        members["tools"] = (_tools(tools, generation.json_schema, names),)
    if config:
        members[_CONFIG] = (_encode(config),)
    members |= {name: (_encode(value),) for name, value in given.items()}
    members.setdefault("contents", contents)
    return joined(members)


def _config(about: About, generation: Generation, form: str) -> dict[str, Any]:
    settings = about.settings
    made: dict[str, Any] = {}
    limit = settings.max_output or about.info.max_output
    if limit:
        made["maxOutputTokens"] = limit
    thinking = generation.thinking.get(settings.effort)
    if thinking:
        made["thinkingConfig"] = thinking
    if form:
        made["responseMimeType"] = "application/json"
        made["responseJsonSchema"] = json_schema(msgspec.json.decode(form))
    return made


@functools.lru_cache(maxsize=64)
def _instructions(text: str) -> bytes:
    return b'{"parts":[{"text":' + _encode(text) + b"}]}"


@functools.lru_cache(maxsize=64)
def _tools(tools: tuple[ToolSpec, ...], as_json_schema: bool, names: ToolNames) -> bytes:  # noqa: FBT001  # a key
    declared = []
    for tool in tools:
        made: dict[str, Any] = {"name": names.on_wire(tool.name), "description": tool.description or tool.name}
        parameters = msgspec.json.decode(tool.parameters)
        if as_json_schema:
            made["parametersJsonSchema"] = json_schema(parameters)
        elif parameters.get("properties"):  # an object of nothing is refused
            made["parameters"] = own_schema(parameters)
        declared.append(made)
    return _encode([{"functionDeclarations": declared}])
