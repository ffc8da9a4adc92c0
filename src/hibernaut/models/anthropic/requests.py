"""The body of a request: settings, then what stays the same (tools, instructions), then the messages."""

import functools
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from hibernaut.messages.tools import ToolSpec
from hibernaut.models.anthropic.platforms import Platform
from hibernaut.models.anthropic.rules import (
    BINDING_BETA,
    NO_TOOLS,
    form_of,
    output_of,
    replays,
    schema_of,
    thinking_of,
    traits_of,
)
from hibernaut.models.anthropic.writing import Manner, MessageWriter
from hibernaut.models.errors import InvalidRequest
from hibernaut.models.protocol import About, ModelRequest
from hibernaut.models.tool_names import ToolNames

CacheFor = Literal["", "5m", "1h"]

MARKS: Final[Mapping[CacheFor, bytes]] = {
    "": b',"cache_control":{"type":"ephemeral"}',
    "5m": b',"cache_control":{"type":"ephemeral","ttl":"5m"}',
    "1h": b',"cache_control":{"type":"ephemeral","ttl":"1h"}',
}
"""What marks the end of a prompt that the provider is to keep, by how long.

There are four at most: after the tools, after the instructions, at the end, and where the end was when the model was
last asked. From a mark the provider looks only twenty blocks back for what it has kept.
"""

_encode = msgspec.json.Encoder().encode


class Body(msgspec.Struct, frozen=True):
    """A body, and the betas that it needs."""

    data: bytes
    betas: tuple[str, ...] = ()


def manner_of(dialect: str, platform: Platform, about: About) -> Manner:
    """Return how a transcript is written for a model."""
    replayed = replays(traits_of(about.model_id), about.settings.effort)
    return Manner(dialect if replayed else "", platform.pictures)


def body_of(
    platform: Platform,
    about: About,
    request: ModelRequest,
    writer: MessageWriter,
    manner: Manner,
    names: ToolNames,
    cache_for: CacheFor = "",
    *,
    counting: bool = False,
) -> Body:
    """Return what asks for a completion, or (`counting`) how many tokens that would take.

    Raises:
        InvalidRequest: it would not be taken.
    """
    # A summary is made once, from a prompt that no other request begins with.
    mark = MARKS[cache_for] if about.settings.cache and request.purpose == "turn" and not counting else b""
    messages = writer.pieces(manner, request.transcript, mark)
    fields: dict[str, Any] = {}
    if platform.names_model:
        fields["anthropic_version"] = platform.version
    if counting or not platform.names_model:
        fields["model"] = about.model_id
    traits = traits_of(about.model_id)
    output = output_of(about, traits)
    if not counting:
        fields |= {"max_tokens": output, "stream": True}
    fields |= thinking_of(traits, about.settings.effort, output, midway=writer.midway)
    form = form_of(about, request.output) if platform.forms else None
    if form:
        fields["output_config"] = {**fields.get("output_config", {}), "format": {"type": "json_schema", "schema": form}}
    members: dict[str, list[bytes]] = {}
    if tools := request.offered(held=form is not None):
        members["tools"] = [tools_json(tools, names, mark)]
    elif writer.calls:
        members["tools"] = [NO_TOOLS]
        fields["tool_choice"] = {"type": "none"}
    if request.instructions.strip():
        members["system"] = [system_json(request.instructions, mark)]
    members["messages"] = messages
    fields |= about.settings.parameters
    betas = tuple(fields.pop("betas", ()))
    thinking = fields.get("thinking")
    if isinstance(thinking, Mapping) and "block_binding" in thinking:
        betas = (BINDING_BETA, *betas)
    data = _joined(fields, members)
    if len(data) > platform.largest:
        raise InvalidRequest(
            f"the request to {platform.name} has {len(data):,} bytes, and it takes at most {platform.largest:,}"
        )
    return Body(data, betas)


def _joined(fields: Mapping[str, Any], members: Mapping[str, list[bytes]]) -> bytes:
    """Return an object of fields and of members that are written already. Fields win over members."""
    pieces = [_encode(fields)[:-1]]
    for name, text in members.items():
        if name not in fields:
            pieces += (b',"', name.encode(), b'":', *text)
    pieces.append(b"}")
    return b"".join(pieces)


@functools.lru_cache(maxsize=64)
def tools_json(tools: tuple[ToolSpec, ...], names: ToolNames, mark: bytes) -> bytes:
    """Return tools as the API takes them, the last one marked for the cache.

    Raises:
        InvalidRequest: one has a parameter that cannot be called what it is called.
    """
    written = [_encode(_tool(tool, names)) for tool in tools]
    written[-1] = written[-1][:-1] + mark + b"}"
    return b"[" + b",".join(written) + b"]"


def _tool(tool: ToolSpec, names: ToolNames) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": names.on_wire(tool.name), **described, "input_schema": schema_of(tool.name, tool.parameters)}


@functools.lru_cache(maxsize=64)
def system_json(instructions: str, mark: bytes) -> bytes:
    """Return instructions as the API takes them, marked for the cache."""
    return b"".join((b'[{"type":"text","text":', _encode(instructions), mark, b"}]"))
