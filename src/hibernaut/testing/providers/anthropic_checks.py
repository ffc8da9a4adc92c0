"""What the Messages API refuses, as its documentation and its users tell it."""

import base64
import binascii
import hmac
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NoReturn

import msgspec

from hibernaut.testing.providers.forms import form_problem, optional_members

KIB: Final = 1024
MOST_OPTIONAL: Final = 24
BINDING: Final = "thinking-binding-controls-2026-08-01"


class Refused(Exception):
    """The request is refused: the status, the type of the error and what it says."""

    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Known(msgspec.Struct, frozen=True):
    """A model that the API has: what it takes."""

    thinking: frozenset[str] = frozenset()
    """Values of `thinking.type`."""
    efforts: frozenset[str] = frozenset()
    output: int = 64_000
    window: int = 200_000
    bound: bool = False
    """Whether thinking has to stand where it was thought."""
    forms: bool = True
    """Whether answers can be held to a form."""


_LEVELS: Final = frozenset({"low", "medium", "high", "max"})
_ALL: Final = _LEVELS | {"xhigh"}

KNOWN: Final[Mapping[str, Known]] = {
    "claude-3-haiku-20240307": Known(output=4_096, forms=False),
    "claude-3-5-haiku-20241022": Known(output=8_192, forms=False),
    "claude-3-7-sonnet-20250219": Known(frozenset({"enabled", "disabled"}), forms=False),
    "claude-opus-4-1-20250805": Known(frozenset({"enabled", "disabled"}), output=32_000),
    "claude-haiku-4-5-20251001": Known(frozenset({"enabled", "disabled"})),
    "claude-sonnet-4-6": Known(frozenset({"enabled", "disabled", "adaptive"}), _LEVELS, 128_000, 1_000_000),
    "claude-opus-4-8": Known(frozenset({"disabled", "adaptive"}), _ALL, 128_000, 1_000_000),
    "claude-sonnet-5": Known(frozenset({"disabled", "adaptive"}), _ALL, 128_000, 1_000_000),
    "claude-fable-5": Known(frozenset({"adaptive"}), _ALL, 128_000, 1_000_000),
    "claude-opus-5-5": Known(frozenset({"adaptive"}), _ALL, 128_000, 1_000_000, bound=True),
    "claude-sonnet-5-5": Known(frozenset({"adaptive", "between_tools"}), _ALL, 128_000, 1_000_000, bound=True),
    "claude-haiku-5-5": Known(frozenset({"adaptive", "disabled"}), _ALL, 128_000, 1_000_000, bound=True),
}

_FIELDS: Final = frozenset(
    {
        *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "thinking", "output_config"),
        *("metadata", "temperature", "top_p", "top_k", "stop_sequences", "service_tier", "cache_control", "container"),
        *("inference_geo", "anthropic_version"),
    }
)
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_BLOCKS: Final[Mapping[str, tuple[str, frozenset[str], frozenset[str]]]] = {
    "text": ("both", frozenset({"text"}), frozenset({"cache_control", "citations"})),
    "image": ("user", frozenset({"source"}), frozenset({"cache_control"})),
    "tool_result": ("user", frozenset({"tool_use_id"}), frozenset({"content", "is_error", "cache_control"})),
    "tool_use": ("assistant", frozenset({"id", "name", "input"}), frozenset({"cache_control"})),
    "thinking": ("assistant", frozenset({"thinking", "signature"}), frozenset()),
    "redacted_thinking": ("assistant", frozenset({"data"}), frozenset()),
}
"""By type: whose it is, what it must have, what else it may have."""


class Door(msgspec.Struct, frozen=True):
    """What differs between the platforms."""

    image_size: int = 10_000_000
    """Bytes of an image in Base64."""
    addresses: bool = True
    """Whether images may be addresses."""
    forms: bool = True
    """Whether answers can be held to a form."""


class Seal:
    """Signs thinking, and knows its signatures again."""

    def __init__(self, secret: bytes = b"fake") -> None:
        self._secret = secret

    def sign(self, thought: str, place: bytes) -> str:
        """Return the signature of something thought at a place of a history."""
        digest = hmac.new(self._secret, thought.encode(), "sha256").digest()
        return base64.b64encode(digest + place).decode()

    def place(self, thought: str, signature: str) -> bytes | None:
        """Return the place where this was thought; None if the signature is not one of ours for it."""
        try:
            data = base64.b64decode(signature, validate=True)
        except (binascii.Error, ValueError):
            return None
        digest = hmac.new(self._secret, thought.encode(), "sha256").digest()
        return data[32:] if hmac.compare_digest(data[:32], digest) else None


def place_of(body: Mapping[str, Any], messages: Sequence[Any], blocks: Sequence[Any]) -> bytes:
    """Return what stands before the next block of an answer, digested: `blocks` are those that it has already."""
    before = [body.get("system"), body.get("tools"), *messages, blocks]
    return sha256(msgspec.json.encode(_without_marks(before), order="sorted")).digest()[:16]


def _without_marks(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_marks(each) for name, each in value.items() if name != "cache_control"}
    return [_without_marks(each) for each in value] if isinstance(value, list | tuple) else value


class BodyCheck:
    """Checks one body."""

    def __init__(self, body: Any, betas: frozenset[str], known: Known, seal: Seal, door: Door) -> None:
        self._body = body
        self._betas = betas
        self._known = known
        self._seal = seal
        self._door = door
        self._marks = 0
        self._images: list[tuple[str, int]] = []
        self._ids: set[str] = set()

    def run(self, *, counting: bool) -> None:
        """Check it.

        Raises:
            Refused.
        """
        body = self._body
        for name in body:
            if name not in _FIELDS:
                _refuse(f"{name}: Extra inputs are not permitted")
        limit = body.get("max_tokens")
        if not counting:
            if not isinstance(limit, int) or limit < 1:
                _refuse("max_tokens: Field required" if limit is None else "max_tokens: must be at least 1")
            if limit > self._known.output:
                _refuse(f"max_tokens: {limit} > {self._known.output}, which is the maximum of this model")
        self._system()
        self._tools()
        self._output()
        self._thinking(limit)
        self._messages()
        if self._marks > 4:  # noqa: PLR2004  # the API's limit
            _refuse(f"A maximum of 4 blocks with cache_control may be provided. Found {self._marks}.")
        self._all_images()

    # The parts that stay the same

    def _system(self) -> None:
        system = self._body.get("system")
        if system is None or isinstance(system, str):
            return
        if not isinstance(system, list):
            _refuse("system: Input should be a string or a list")
        for place, block in enumerate(system):
            where = f"system.{place}"
            if not isinstance(block, dict) or block.get("type") != "text":
                _refuse(f"{where}: Input should be a text block")
            self._fields(where, block, frozenset({"text"}), frozenset({"cache_control"}))
            self._text(where, block)

    def _tools(self) -> None:
        tools = self._body.get("tools")
        if tools is None:
            return
        names: list[str] = []
        for place, tool in enumerate(tools):
            where = f"tools.{place}.custom"
            if not isinstance(tool, dict):
                _refuse(f"{where}: Input should be an object")
            if not _NAME.fullmatch(str(tool.get("name", ""))):
                _refuse(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
            self._mark(where, tool)
            self._schema(f"{where}.input_schema", tool.get("input_schema"))
            if not isinstance(tool.get("description", ""), str):
                _refuse(f"{where}.description: Input should be a valid string")
            for name in tool.keys() - {"name", "description", "input_schema", "cache_control", "type"}:
                _refuse(f"{where}.{name}: Extra inputs are not permitted")
            names.append(tool["name"])
        if len(set(names)) != len(names):
            _refuse("tools: Tool names must be unique.")
        choice = self._body.get("tool_choice")
        if choice is not None and choice.get("type") not in ("auto", "any", "tool", "none"):
            _refuse("tool_choice.type: not one of auto, any, tool, none")

    def _schema(self, where: str, schema: Any) -> None:
        if not isinstance(schema, dict) or schema.get("type") != "object":
            _refuse(f"{where}.type: Input should be 'object'")
        if schema.keys() & {"oneOf", "allOf", "anyOf"}:
            _refuse(f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level")
        for name in schema.get("properties") or {}:
            if not _PROPERTY.fullmatch(name):
                _refuse(f"{where}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'")

    def _output(self) -> None:
        config = self._body.get("output_config") or {}
        effort = config.get("effort")
        if effort is not None and effort not in self._known.efforts:
            _refuse("output_config.effort: This model does not support this effort level.")
        for name in config.keys() - {"effort", "format"}:
            _refuse(f"output_config.{name}: Extra inputs are not permitted")
        if "format" in config:
            self._form(config["format"])

    def _thinking(self, limit: int | None) -> None:
        thinking = self._body.get("thinking")
        if thinking is None:
            return
        kind = thinking.get("type")
        if kind not in self._known.thinking:
            _refuse(f'"thinking.type.{kind}" is not supported for this model.')
        allowed = {"enabled": {"budget_tokens", "display"}, "adaptive": {"display"}}.get(kind, set())
        if "block_binding" in thinking:
            if BINDING not in self._betas:
                _refuse(f"thinking.block_binding: needs the beta {BINDING}")
            if kind not in ("enabled", "adaptive"):
                _refuse(f"thinking.{kind}.block_binding: Extra inputs are not permitted")
        for name in thinking.keys() - allowed - {"type", "block_binding"}:
            _refuse(f"thinking.{kind}.{name}: Extra inputs are not permitted")
        if kind == "enabled":
            budget = thinking.get("budget_tokens", 0)
            if budget < KIB:
                _refuse("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
            if limit is not None and budget >= limit:
                _refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")

    def _form(self, form: Any) -> None:
        if not self._known.forms or not self._door.forms:
            _refuse("output_config.format: Structured outputs are not supported for this model.")
        if form.keys() != {"type", "schema"} or form["type"] != "json_schema":
            _refuse("output_config.format: Input should be of type 'json_schema' with a schema")
        if problem := form_problem(form["schema"]):
            _refuse(f"output_config.format.{problem}")
        if optional_members(form["schema"]) > MOST_OPTIONAL:
            _refuse(f"output_config.format: Schemas contain too many optional parameters; the limit is {MOST_OPTIONAL}")

    # Messages

    def _messages(self) -> None:
        messages = self._body.get("messages")
        if not isinstance(messages, list) or not messages:
            _refuse("messages: at least one message is required")
        owed: list[str] = []
        for place, message in enumerate(messages):
            where = f"messages.{place}"
            if not isinstance(message, dict) or message.keys() != {"role", "content"}:
                _refuse(f"{where}: Input should have a role and content")
            role = message["role"]
            if role not in ("user", "assistant"):
                _refuse(f"{where}.role: Input should be 'user' or 'assistant'")
            if place == 0 and role != "user":
                _refuse('messages: first message must use the "user" role')
            blocks = self._content(where, role, message["content"])
            owed = self._pairs(where, blocks, owed)
        if owed:
            self._unanswered(f"messages.{len(messages) - 1}", owed)
        if messages[-1]["role"] == "assistant":
            _refuse(
                "This model does not support assistant message prefill. The conversation must end with a user message."
            )
        if self._ids and not self._body.get("tools"):
            _refuse("Requests which include `tool_use` or `tool_result` blocks must define tools.")
        self._first_thought(messages)
        if self._known.bound:
            self._bound(messages)

    def _content(self, where: str, role: str, content: Any) -> list[Any]:
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list) or not content:
            _refuse(f"{where}: all messages must have non-empty content")
        for place, block in enumerate(content):
            self._block(f"{where}.content.{place}", role, block)
        return content

    def _block(self, where: str, role: str, block: Any) -> None:
        kind = str(block.get("type")) if isinstance(block, dict) else ""
        if kind not in _BLOCKS:
            _refuse(f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
        owner, needed, allowed = _BLOCKS[kind]
        if owner not in (role, "both"):
            _refuse(f"{where}: `{kind}` blocks can only be in `{owner}` messages")
        self._fields(where, block, needed, allowed)
        if kind == "text":
            self._text(where, block)
        elif kind == "image":
            self._image(where, block["source"])
        elif kind == "tool_use":
            self._call(where, block)
        elif kind == "tool_result":
            self._result(where, block)
        elif kind == "thinking" and self._seal.place(block["thinking"], block["signature"]) is None:
            _refuse(f"{where}: Invalid `signature` in `thinking` block")
        elif kind == "redacted_thinking" and not block["data"]:
            _refuse(f"{where}: Invalid `data` in `redacted_thinking` block")

    def _fields(self, where: str, block: Mapping[str, Any], needed: frozenset[str], allowed: frozenset[str]) -> None:
        for name in needed - block.keys():
            _refuse(f"{where}.{name}: Field required")
        for name in block.keys() - needed - allowed - {"type"}:
            _refuse(f"{where}.{name}: Extra inputs are not permitted")
        self._mark(where, block)

    def _mark(self, where: str, block: Mapping[str, Any]) -> None:
        mark = block.get("cache_control")
        if mark is None:
            return
        self._marks += 1
        if (
            mark.get("type") != "ephemeral"
            or mark.get("ttl", "5m") not in ("5m", "1h")
            or mark.keys() - {"type", "ttl"}
        ):
            _refuse(f"{where}.cache_control: not a cache control")

    def _text(self, where: str, block: Mapping[str, Any]) -> None:
        text = block["text"]
        if not isinstance(text, str):
            _refuse(f"{where}.text: Input should be a valid string")
        if not text:
            _refuse("messages: text content blocks must be non-empty")
        if not text.strip():
            _refuse("messages: text content blocks must contain non-whitespace text")

    def _call(self, where: str, block: Mapping[str, Any]) -> None:
        if not isinstance(block["id"], str) or not _ID.fullmatch(block["id"]):
            _refuse(f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        if block["id"] in self._ids:
            _refuse("messages: `tool_use` ids must be unique")
        self._ids.add(block["id"])
        if not _NAME.fullmatch(str(block["name"])):
            _refuse(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
        if not isinstance(block["input"], dict):
            _refuse(f"{where}.input: Input should be a valid dictionary")

    def _result(self, where: str, block: Mapping[str, Any]) -> None:
        content = block.get("content", "")
        if isinstance(content, str):
            return
        for place, part in enumerate(content):
            inner = f"{where}.content.{place}"
            if part.get("type") not in ("text", "image"):
                _refuse(f"{inner}: not a block for a result")
            if block.get("is_error") and part["type"] != "text":
                _refuse(f'{where}: all content must be type "text" if "is_error" is true')
            self._block(inner, "user", part)

    def _pairs(self, where: str, blocks: Sequence[Any], owed: list[str]) -> list[str]:
        """Check that a message begins with what the calls before it are owed; return what is owed after it."""
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if owed and kinds[: len(results)] != ["tool_result"] * len(results):
            self._unanswered(where, owed)
        for name in results:
            if name not in owed:
                _refuse(f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {name}.")
        if len(set(results)) != len(results):
            _refuse(f"{where}: each tool_use must have a single result.")
        missing = [name for name in owed if name not in results]
        if missing:
            self._unanswered(where, missing)
        return [block["id"] for block in blocks if block["type"] == "tool_use"]

    def _unanswered(self, where: str, owed: Sequence[str]) -> NoReturn:
        raise Refused(
            f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(owed)}."
        )

    # Thinking

    def _first_thought(self, messages: Sequence[Any]) -> None:
        """Check that a turn that goes on began with thinking, where the model is told how much to think."""
        if (self._body.get("thinking") or {}).get("type") != "enabled":
            return
        last = messages[-1]["content"]
        if isinstance(last, str) or not any(block["type"] == "tool_result" for block in last):
            return
        for place in range(len(messages) - 1, -1, -1):
            content = messages[place]["content"]
            asks = messages[place]["role"] == "user"
            if asks and (isinstance(content, str) or not any(block["type"] == "tool_result" for block in content)):
                first = messages[place + 1]["content"][0]["type"]
                if first not in ("thinking", "redacted_thinking"):
                    _refuse(
                        f"messages.{place + 1}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
                        f"`{first}`. When `thinking` is enabled, a final `assistant` message must start with a "
                        "thinking block (preceding the lastmost set of `tool_use` and `tool_result` blocks)."
                    )
                return

    def _bound(self, messages: Sequence[Any]) -> None:
        binding = (self._body.get("thinking") or {}).get("block_binding") or {}
        if binding.get("prefix_mismatch_behavior") == "drop_block":
            return
        for where, thought, signature, place in self._thoughts(messages):
            if self._seal.place(thought, signature) != place:
                _refuse(
                    f"{where}: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
                )

    def _thoughts(self, messages: Sequence[Any]) -> Iterator[tuple[str, str, str, bytes]]:
        for number, message in enumerate(messages):
            blocks = message["content"] if isinstance(message["content"], list) else []
            for place, block in enumerate(blocks):
                if block["type"] == "thinking":
                    before = place_of(self._body, messages[:number], blocks[:place])
                    yield f"messages.{number}.content.{place}", block["thinking"], block["signature"], before

    def displaced(self) -> int:
        """Return how many blocks of thinking stand where they were not thought."""
        thoughts = self._thoughts(self._body["messages"])
        return sum(self._seal.place(thought, signature) != place for _, thought, signature, place in thoughts)

    # Images

    def _image(self, where: str, source: Any) -> None:
        kind = source.get("type") if isinstance(source, dict) else None
        if kind == "url" and self._door.addresses:
            if not str(source.get("url", "")).startswith("https://"):
                _refuse(f"{where}.source.url: Only HTTPS URLs are supported.")
            self._images.append((where, 0))
            return
        if kind != "base64":
            _refuse(f"{where}.source: not a source of images")
        if len(source["data"]) > self._door.image_size:
            _refuse(f"{where}.source.base64: image exceeds the maximum: {len(source['data'])} bytes")
        try:
            data = base64.b64decode(source["data"], validate=True)
        except (binascii.Error, ValueError):
            _refuse(f"{where}.source.base64.data: The data is not valid base64.")
        found = _kind_of(data)
        if not found:
            _refuse("Could not process image")
        if source.get("media_type") != found:
            _refuse(
                f"{where}.source.base64: The image was specified using the {source.get('media_type')} media type, but "
                f"appears to be a {found} image"
            )
        self._images.append((where, max(_sides(data, found))))

    def _all_images(self) -> None:
        most = 100 if self._known.window <= 200_000 else 600  # noqa: PLR2004  # the API's limits
        if len(self._images) > most:
            _refuse(f"messages: Too many images: {len(self._images)} > {most}")
        side = 2_000 if len(self._images) > 20 else 8_000  # noqa: PLR2004  # the API's limits
        for where, longest in self._images:
            if longest > side:
                _refuse(f"{where}: At least one of the image dimensions exceed max allowed size: {side} pixels")


def _refuse(message: str) -> NoReturn:
    raise Refused(message)


def _kind_of(data: bytes) -> str:
    starts = {b"\x89PNG": "image/png", b"GIF8": "image/gif", b"\xff\xd8\xff": "image/jpeg"}
    for start, kind in starts.items():
        if data.startswith(start):
            return kind
    return "image/webp" if data[8:12] == b"WEBP" else ""


def _sides(data: bytes, kind: str) -> tuple[int, ...]:
    """Return the sides of a picture, where they are easy to find."""
    if kind == "image/png":
        return struct.unpack(">II", data[16:24])
    return struct.unpack("<HH", data[6:10]) if kind == "image/gif" else (0, 0)
