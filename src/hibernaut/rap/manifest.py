"""The tools that a server says it has, taken whole or refused whole.

A manifest comes from somebody else: everything in it is bounded and checked before a model is shown any of it. A
refusal names every tool that is at fault and says why, so that one look is enough to mend it.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from hibernaut.errors import HibernautError, MalformedInput, ToolDefinitionError
from hibernaut.messages.text import clean, shorten
from hibernaut.messages.tools import ToolSpec
from hibernaut.rap.limits import (
    LARGEST_ANNOTATIONS,
    LIMITS,
    LONGEST_ADDRESS,
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    LONGEST_SCRIPT,
    MOST_TOOLS,
    WireLimits,
)
from hibernaut.rap.reading import read_object, shown
from hibernaut.rap.wire import check_address, convert
from hibernaut.tools.arguments import JSON
from hibernaut.tools.builtin import BUILT_IN
from hibernaut.tools.tool import is_reserved
from hibernaut.tools.validate import compile_schema

MOST_PROBLEMS: Final = 20
"""Problems that a refusal tells; it counts the others."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_FLAGS: Final = ("readOnly", "destructive", "idempotent", "longRunning")
_BUILT_IN: Final = frozenset(function.__name__ for function in BUILT_IN)


class ToolsetRefused(HibernautError):
    """A tool server's manifest cannot be used, not even in part. `problems` says what is wrong, tool by tool."""

    code = "toolset_refused"

    def __init__(self, problems: Collection[str]) -> None:
        self.problems = tuple(problems)
        told = "; ".join(self.problems[:MOST_PROBLEMS])
        more = f"; and {len(self.problems) - MOST_PROBLEMS} more" if len(self.problems) > MOST_PROBLEMS else ""
        super().__init__(f"the toolset is refused: {told}{more}")


class RemoteTool(msgspec.Struct, frozen=True):
    """A tool of a server, checked. `parameters` and `annotations` are JSON text."""

    name: str
    description: str
    parameters: str
    annotations: str = "{}"
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    long_running: bool = False
    requires_auth: str = ""
    """The provider at which a person has to authorize something, "" if none."""
    display_script: str = ""
    event_schema: str = ""
    """A JSON Schema of the events of a subscription, as JSON text; "" for any."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is told of it."""
        return ToolSpec(self.name, self.description, self.parameters)

    @property
    def flags(self) -> tuple[str, ...]:
        """What the server says of it, by the names that authorities use."""
        flags = {
            "read_only": self.read_only,
            "destructive": self.destructive,
            "idempotent": self.idempotent,
            "long_running": self.long_running,
        }
        return tuple(name for name, is_set in flags.items() if is_set)

    def problems(self, arguments: JSON) -> list[str]:
        """Say what is wrong with the arguments of a call, nothing if it may be sent to the server."""
        return compile_schema(msgspec.json.decode(self.parameters)).problems(arguments)


class Toolset(msgspec.Struct, frozen=True):
    """What a server has, checked."""

    name: str
    endpoint: str
    tools: tuple[RemoteTool, ...]
    description: str = ""
    needs_migration: bool = False
    idempotency_keys: bool = False
    """A call that comes again under the same `Idempotency-Key` is one call: it may be sent again without fear."""


class Clash(msgspec.Struct, frozen=True):
    """A name that is refused, since more than one has it. `servers` are those that do."""

    tool: str
    servers: tuple[str, ...]
    own: bool = False
    """The runtime, or the program, has a tool of that name itself, which stays."""

    def __str__(self) -> str:
        servers = " and ".join(self.servers)
        if self.own:
            return f"the tool {self.tool!r} of {servers} is refused: there is one of that name already"
        return f"the tool {self.tool!r} is refused for all of them: {servers} each have one"


class _Written(msgspec.Struct, frozen=True, rename="camel"):
    """A manifest as it comes off the wire. Its tools are looked at one by one, so that each can be named."""

    name: str
    endpoint: str
    tools: list[Any]
    description: str = ""
    needs_migration: bool = False
    idempotency_keys: bool = False


class _WrittenTool(msgspec.Struct, frozen=True, rename="camel"):
    """One of its tools."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any] = {}
    display_script: str = ""
    event_schema: dict[str, Any] | None = None


def read_manifest(body: bytes, limits: WireLimits = LIMITS) -> Toolset:
    """Read and check a manifest.

    Raises:
        TooLarge: before anything is parsed.
        MalformedInput: it is not even JSON.
        ToolsetRefused: anything in it is not as it must be.
    """
    fields = read_object(
        body, what="the manifest", limit=limits.manifest_bytes, setting="manifest_bytes", depth=limits.depth
    )
    try:
        written = convert(fields, _Written, "the manifest")
    except MalformedInput as error:
        raise ToolsetRefused([str(error)]) from None
    problems = _problems_of_server(written)
    tools: list[RemoteTool] = []
    for number, each in enumerate(written.tools[:MOST_TOOLS], 1):
        try:
            tools.append(_tool(each))
        except (MalformedInput, ToolDefinitionError) as error:
            problems.append(f"{_label(each, number)}: {error}")
    problems += _repeated(written.tools[:MOST_TOOLS])
    if problems:
        raise ToolsetRefused(problems)
    description = clean(written.description)
    return Toolset(
        clean(written.name),
        written.endpoint,
        tuple(tools),
        description,
        written.needs_migration,
        written.idempotency_keys,
    )


def write_manifest(toolset: Toolset) -> bytes:
    """Write a manifest: what a server answers at the well-known path. The same toolset gives the same bytes."""
    fields: dict[str, Any] = {"name": toolset.name, "endpoint": toolset.endpoint}
    if toolset.description:
        fields["description"] = toolset.description
    if toolset.needs_migration:
        fields["needsMigration"] = True
    if toolset.idempotency_keys:
        fields["idempotencyKeys"] = True
    return msgspec.json.encode(fields | {"tools": [_tool_fields(tool) for tool in toolset.tools]})


def merge(
    toolsets: Mapping[str, Toolset], taken: Collection[str] = ()
) -> tuple[dict[str, tuple[str, RemoteTool]], list[Clash]]:
    """Put the tools of several servers together.

    Args:
        toolsets: by what the server is called in words for people, such as its URL.
        taken: names that the program has tools of, besides the built-in ones.

    Returns:
        Each tool that may be used, by its name, with its server; and the names that nobody may use, or that a server
        may not, because more than one has them.
    """
    servers: dict[str, list[str]] = {}
    for server, toolset in toolsets.items():
        for tool in toolset.tools:
            servers.setdefault(tool.name, []).append(server)
    own = {name for name in servers if name in taken or name in _BUILT_IN}
    clashes = [Clash(name, tuple(who), own=name in own) for name, who in servers.items() if len(who) > 1 or name in own]
    refused = {clash.tool for clash in clashes}
    usable = {
        tool.name: (server, tool)
        for server, toolset in toolsets.items()
        for tool in toolset.tools
        if tool.name not in refused
    }
    return usable, clashes


def _problems_of_server(written: _Written) -> list[str]:
    problems = []
    if not written.name.strip() or len(written.name) > LONGEST_NAME or not written.name.isprintable():
        problems.append(f"its name {shown(written.name)} is not a text of 1 to {LONGEST_NAME} characters on one line")
    if len(written.description) > LONGEST_DESCRIPTION:
        problems.append(_too_long("its description", written.description, LONGEST_DESCRIPTION))
    try:
        check_address("its endpoint", written.endpoint[: LONGEST_ADDRESS + 1])
    except MalformedInput as error:
        problems.append(str(error))
    if len(written.endpoint) > LONGEST_ADDRESS:
        problems.append(_too_long("its endpoint", written.endpoint, LONGEST_ADDRESS))
    if not written.tools:
        problems.append("it has no tools")
    if len(written.tools) > MOST_TOOLS:
        problems.append(f"it has {len(written.tools):,} tools; at most {MOST_TOOLS:,} are taken")
    return problems


def _tool(fields: Any) -> RemoteTool:
    if not isinstance(fields, dict):
        raise MalformedInput("it is not an object")
    written = convert(fields, _WrittenTool, "it")
    _check_name(written.name)
    for what, text, longest in (
        ("its description", written.description, LONGEST_DESCRIPTION),
        ("its displayScript", written.display_script, LONGEST_SCRIPT),
    ):
        if len(text) > longest:
            raise MalformedInput(_too_long(what, text, longest))
    if written.input_schema.get("type", "object") != "object":
        raise MalformedInput("its inputSchema is not of type object, and arguments are always one")
    parameters = msgspec.json.encode(written.input_schema).decode()
    compile_schema(written.input_schema)
    notes = written.annotations
    return RemoteTool(
        written.name,
        clean(written.description),
        parameters,
        _checked_annotations(notes),
        read_only=bool(notes.get("readOnly")),
        destructive=bool(notes.get("destructive")),
        idempotent=bool(notes.get("idempotent")),
        long_running=bool(notes.get("longRunning")),
        requires_auth=clean(notes.get("requiresAuth") or ""),
        display_script=clean(written.display_script),
        event_schema=_checked_event_schema(written.event_schema),
    )


def _checked_event_schema(schema: dict[str, Any] | None) -> str:
    if schema is None:
        return ""
    try:
        compile_schema(schema)
    except ToolDefinitionError as error:
        raise MalformedInput(f"its eventSchema cannot be used: {error}") from None
    return msgspec.json.encode(schema).decode()


def _check_name(name: str) -> None:
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise MalformedInput(f"its name has other characters than letters, digits, _ and -, or not 1 to {LONGEST_NAME}")
    if is_reserved(name) or name in _BUILT_IN:
        raise MalformedInput("its name is the runtime's own")


def _checked_annotations(annotations: dict[str, Any]) -> str:
    for flag in _FLAGS:
        if not isinstance(annotations.get(flag), bool | None):
            raise MalformedInput(f"its annotation {flag} is neither true nor false")
    auth = annotations.get("requiresAuth")
    if auth is not None and (not isinstance(auth, str) or not auth.strip() or len(auth) > LONGEST_NAME):
        raise MalformedInput(f"its annotation requiresAuth is not a text of 1 to {LONGEST_NAME} characters")
    text = msgspec.json.encode(annotations)
    if len(text) > LARGEST_ANNOTATIONS:
        raise MalformedInput(f"its annotations have {len(text):,} bytes; at most {LARGEST_ANNOTATIONS:,} are taken")
    return text.decode()


def _repeated(tools: list[Any]) -> list[str]:
    names = [each.get("name") for each in tools if isinstance(each, dict)]
    counts: dict[str, int] = {}
    for name in names:
        if isinstance(name, str):
            counts[name] = counts.get(name, 0) + 1
    return [f"{count} tools are called {shown(name)}" for name, count in counts.items() if count > 1]


def _label(fields: Any, number: int) -> str:
    name = fields.get("name") if isinstance(fields, dict) else None
    named = f" ({shorten(clean(name), LONGEST_NAME)})" if isinstance(name, str) and name else ""
    return f"tool {number}{named}"


def _too_long(what: str, text: str, longest: int) -> str:
    return f"{what} has {len(text):,} characters; at most {longest:,} are taken"


def _tool_fields(tool: RemoteTool) -> dict[str, Any]:
    annotations = msgspec.json.decode(tool.annotations)
    fields = {"name": tool.name, "description": tool.description, "inputSchema": msgspec.json.decode(tool.parameters)}
    if annotations:
        fields["annotations"] = annotations
    if tool.display_script:
        fields["displayScript"] = tool.display_script
    if tool.event_schema:
        fields["eventSchema"] = msgspec.json.decode(tool.event_schema)
    return fields
