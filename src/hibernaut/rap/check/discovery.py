"""The manifest: is it there, and is it as it must be?"""

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from hibernaut.errors import InputRefused, ToolDefinitionError
from hibernaut.rap.check.peer import is_address
from hibernaut.rap.check.session import Session, is_taken
from hibernaut.rap.manifest import ToolsetRefused, read_manifest
from hibernaut.tools.validate import compile_schema


async def discover(session: Session) -> bool:
    """Read the manifest and return whether there is any. One that is refused is still searched for an endpoint.

    Raises:
        NoAnswer: the server cannot be reached at all.
    """
    answered = session.manifest = await session.peer.manifest()
    fields = _object(answered.body)
    if not is_taken(answered) or fields is None:
        session.findings.broken("discovery.wellknown", answered.words)
        return False
    session.findings.kept("discovery.wellknown", f"status {answered.status}, {len(answered.body):,} bytes")
    bad_schemas = list(_bad_schemas(fields))
    try:
        toolset = session.toolset = read_manifest(answered.body)
    except ToolsetRefused as error:
        others = [problem for problem in error.problems if not problem.endswith(tuple(bad_schemas))]
        if others or not bad_schemas:
            session.findings.broken("discovery.manifest", "; ".join(others) or str(error))
    except InputRefused as error:
        session.findings.broken("discovery.manifest", str(error))
    else:
        count = len(toolset.tools)
        session.findings.kept("discovery.manifest", f"{toolset.name}, {count} {'tool' if count == 1 else 'tools'}")
    if bad_schemas:
        session.findings.broken("discovery.schemas", "; ".join(bad_schemas))
        session.findings.kept("discovery.manifest", "all but the schemas")
    elif isinstance(fields.get("tools"), list):
        session.findings.kept("discovery.schemas", f"{len(fields['tools'])} schemas")
    else:
        session.findings.not_tried("discovery.schemas", "the manifest has no list of tools")
    if is_address(fields.get("endpoint")):
        await _find_endpoint(session, fields["endpoint"])
    return True


async def _find_endpoint(session: Session, endpoint: str) -> None:
    problem = await session.peer.check_endpoint(endpoint)
    if problem:
        session.findings.broken("discovery.manifest", problem)
        session.toolset = None
    else:
        session.peer.endpoint = endpoint


def _object(body: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        value = msgspec.json.decode(body)
        return value if isinstance(value, dict) else None
    return None


def _bad_schemas(fields: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with schemas, in the words of the refusal, which end with them."""
    tools = fields.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        schema = tool.get("inputSchema") if isinstance(tool, dict) else None
        if not isinstance(schema, dict):
            continue
        if schema.get("type", "object") != "object":
            yield "its inputSchema is not of type object, and arguments are always one"
        try:
            compile_schema(schema)
        except ToolDefinitionError as error:
            yield str(error)
