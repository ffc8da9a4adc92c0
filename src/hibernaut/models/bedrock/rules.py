"""What the Converse API of Amazon Bedrock takes, as data: of all models, and by family."""

import re
from typing import Any, Final, Literal

import msgspec

from hibernaut.models.anthropic.rules import schema_of
from hibernaut.models.pictures import PictureLimits
from hibernaut.models.schemas import inlined

TOOL_NAME: Final = r"[A-Za-z0-9_-]{1,64}"
LONGEST_TOOL_NAME: Final = 64

CALL_ID: Final = r"[A-Za-z0-9_-]{1,64}"
"""Ids of calls. The API takes `.` and `:` too, but not all of its models do."""

PICTURES: Final = PictureLimits(size=5_000_000, count=20, together=15_000_000, addresses=False)
"""An image has 3.75 MB, a request 20; there are 20 images at most."""

CACHE_POINT: Final = b'{"cachePoint":{"type":"default"}}'

NO_TOOL: Final = (
    b'{"toolSpec":{"name":"none","description":"Never call this.",'
    b'"inputSchema":{"json":{"type":"object","properties":{}}}}}'
)
"""The tool of a request that has none, for a history with calls in it: without any it is refused."""


class Family(msgspec.Struct, frozen=True):
    """What the models of one maker take."""

    cached: frozenset[Literal["tools", "system", "messages"]] = frozenset()
    """Where there may be cache points."""
    status: bool = False
    """Whether a result may say that it is an error."""
    result_images: bool = False
    """Whether a result may have images; otherwise they follow the results."""
    replays: bool = False
    """Whether reasoning that is signed is sent back; of others none is."""
    thinking: Literal["", "claude", "nova", "effort"] = ""
    """How it is told how much to think."""
    schema: Literal["", "claude", "nova"] = ""
    """What may stand at the top of a tool's schema."""


_ALL: Final = frozenset[Literal["tools", "system", "messages"]](("tools", "system", "messages"))
_CLAUDE: Final = Family(_ALL, status=True, result_images=True, replays=True, thinking="claude", schema="claude")
_NOVA: Final = Family(frozenset({"system"}), status=True, result_images=True, schema="nova")

FAMILIES: Final[tuple[tuple[str, Family], ...]] = (
    (
        r"anthropic\.claude-(3-(haiku|sonnet|opus|5-sonnet)|instant|v)",
        msgspec.structs.replace(_CLAUDE, cached=frozenset()),
    ),
    (r"anthropic\.", _CLAUDE),
    (r"amazon\.nova-(micro|lite|pro|premier)", _NOVA),
    (r"amazon\.nova", msgspec.structs.replace(_NOVA, thinking="nova")),
    (r"openai\.", Family(thinking="effort")),
    (r"", Family()),
)
"""Patterns of how an id begins, without region and version; the first that fits counts."""


def family_of(model_id: str) -> Family:
    """Return what a model takes. Ids may be those of inference profiles (`eu.…`, `global.…`), or ARNs of both."""
    name = re.sub(r"^(us|us-gov|eu|apac|ap|jp|au|ca|sa|me|af|il|mx|in|global)\.", "", model_id.rpartition("/")[2])
    return next(family for pattern, family in FAMILIES if re.match(pattern, name))


def schema_for(family: Family, tool: str, parameters: str) -> dict[str, Any]:
    """Return a tool's schema as a family takes it.

    Raises:
        InvalidRequest: it does not take it.
    """
    if family.schema == "claude":
        return schema_of(tool, parameters)
    schema = {"type": "object", "properties": {}, **inlined(msgspec.json.decode(parameters))}
    if family.schema == "nova":
        return {name: schema[name] for name in ("type", "properties", "required") if name in schema}
    return schema
