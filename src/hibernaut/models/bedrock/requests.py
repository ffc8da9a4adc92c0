"""The body of a request to the Converse API: what stays the same comes first."""

import functools
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from hibernaut.codec import to_json
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.anthropic.rules import BINDING_BETA, form_of, output_of, replays, thinking_of, traits_of
from hibernaut.models.bedrock.rules import CACHE_POINT, NO_TOOL, Family, schema_for
from hibernaut.models.bedrock.writing import ConverseWriter
from hibernaut.models.bodies import merged
from hibernaut.models.protocol import About, ModelRequest, OutputSpec
from hibernaut.models.tool_names import ToolNames

_encode = msgspec.json.Encoder().encode

_FIELDS: Final = "additionalModelRequestFields"


def path_of(model_id: str, operation: str) -> str:
    """Return where a model is asked. Its id may be an ARN, with slashes that are part of it."""
    return f"/model/{quote(model_id, safe='')}/{operation}"


def body_of(
    about: About, family: Family, request: ModelRequest, writer: ConverseWriter, names: ToolNames
) -> dict[str, Sequence[bytes]]:
    """Return the members of a body, each written, in pieces. What the settings say wins, member by member.

    Raises:
        InvalidRequest: a tool cannot be said.
    """
    # A summary is made once, from a prompt that no other request begins with.
    cached = family.cached if about.settings.cache and request.purpose == "turn" else frozenset()
    members: dict[str, Sequence[bytes]] = {}
    form = _form(about, family, request.output)
    if tools := request.offered(held=bool(form)):
        members["toolConfig"] = (_tools(tools, family, names, "tools" in cached),)
    elif writer.calls:
        members["toolConfig"] = (b'{"tools":[', NO_TOOL, b"]}")
    if request.instructions.strip():
        members["system"] = (_system(request.instructions, "system" in cached),)
    told = family.thinking != "claude" or replays(traits_of(about.model_id), about.settings.effort)
    messages = writer.pieces(request.transcript, replays=told, cached="messages" in cached)
    own = _settings(about, family, midway=writer.midway)
    if form:
        own["outputConfig"] = form
    given = about.settings.parameters
    members |= {name: (_encode(value),) for name, value in merged(own, given).items()}
    members.setdefault("messages", messages)
    return members


def _form(about: About, family: Family, output: OutputSpec | None) -> dict[str, Any]:
    """Return how the answer is held to its form; nothing where it cannot be."""
    form = form_of(about, output) if family.thinking == "claude" else None
    if form is None:
        return {}
    schema = {"name": "answer", "schema": to_json(form)}  # the API takes it as text
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}


def _settings(about: About, family: Family, *, midway: bool) -> dict[str, Any]:
    settings = about.settings
    limit = settings.max_output or about.info.max_output
    fields: dict[str, Any] = {}
    if family.thinking == "claude":
        traits = traits_of(about.model_id)
        limit = output_of(about, traits)
        fields = thinking_of(traits, settings.effort, limit, midway=midway)
        if "block_binding" in fields.get("thinking", {}):
            fields["anthropic_beta"] = [BINDING_BETA]
    elif family.thinking == "nova" and settings.effort:
        kind = {"type": "enabled", "maxReasoningEffort": settings.effort}
        fields["reasoningConfig"] = {"type": "disabled"} if settings.effort == "none" else kind
    elif family.thinking == "effort" and settings.effort:
        fields["reasoning_effort"] = "low" if settings.effort == "none" else settings.effort
    made: dict[str, Any] = {"inferenceConfig": {"maxTokens": limit}} if limit else {}
    return {**made, _FIELDS: fields} if fields else made


@functools.lru_cache(maxsize=64)
def _system(text: str, cached: bool) -> bytes:  # noqa: FBT001  # a key of the cache
    return b'[{"text":' + _encode(text) + b"}" + (b"," + CACHE_POINT if cached else b"") + b"]"


@functools.lru_cache(maxsize=64)
def _tools(tools: tuple[ToolSpec, ...], family: Family, names: ToolNames, cached: bool) -> bytes:  # noqa: FBT001
    written = [_encode({"toolSpec": _tool(tool, family, names)}) for tool in tools]
    if cached:
        written.append(CACHE_POINT)
    return b'{"tools":[' + b",".join(written) + b"]}"


def _tool(tool: ToolSpec, family: Family, names: ToolNames) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description.strip() else {}
    schema = schema_for(family, tool.name, tool.parameters)
    return {"name": names.on_wire(tool.name), **described, "inputSchema": {"json": schema}}
