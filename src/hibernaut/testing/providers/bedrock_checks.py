"""What the Converse API refuses, in the spirit of its words."""

import base64
import binascii
import hashlib
import json
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from hibernaut.testing.providers.forms import form_problem


class Wrong(Exception):  # no error: how a check says what the API would answer
    """Why a request is refused."""


class Known(Struct, frozen=True):
    """A model, and what it takes."""

    cache: frozenset[str] = frozenset()
    status: bool = False
    result_images: bool = False
    reasoning: bool = False
    thinking: str = ""
    plain_schema: bool = False
    forms: bool = False


_EVERYWHERE: Final = frozenset({"tools", "system", "messages"})
_CLAUDE: Final = Known(_EVERYWHERE, status=True, result_images=True, reasoning=True, thinking="budget", forms=True)

MODELS: Final = {
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": _CLAUDE,
    "global.anthropic.claude-opus-4-6-v1": Known(
        _EVERYWHERE, status=True, result_images=True, reasoning=True, thinking="adaptive", forms=True
    ),
    "anthropic.claude-3-haiku-20240307-v1:0": Known(status=True, result_images=True, reasoning=True),
    "us.amazon.nova-pro-v1:0": Known(
        frozenset({"system", "messages"}), status=True, result_images=True, plain_schema=True
    ),
    "global.amazon.nova-2-lite-v1:0": Known(
        frozenset({"system", "messages"}), status=True, result_images=True, thinking="nova", plain_schema=True
    ),
    "openai.gpt-oss-120b-1:0": Known(thinking="effort"),
    "us.meta.llama4-maverick-17b-instruct-v1:0": Known(),
    "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0": _CLAUDE,
}
"""Models that can be asked; `anthropic.claude-sonnet-4-5-…` itself is one that only profiles lead to."""

_PROFILES_ONLY: Final = frozenset({"anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-2-lite-v1:0"})

_TOP: Final = frozenset(
    {
        "additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig", "inferenceConfig",
        "messages", "outputConfig", "performanceConfig", "promptVariables", "requestMetadata", "serviceTier", "system",
        "toolConfig",
    }
)  # fmt: skip
_BLOCKS: Final = frozenset({"text", "image", "toolUse", "toolResult", "cachePoint", "reasoningContent"})
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_MAGIC: Final = {"png": b"\x89PNG", "jpeg": b"\xff\xd8\xff", "gif": b"GIF8", "webp": b"RIFF"}

_MOST_POINTS: Final = 4
_MOST_IMAGES: Final = 20
_LARGEST_IMAGE: Final = 3_932_160
_LONGEST_SIDE: Final = 8_000
_LEAST_BUDGET: Final = 1_024


def check_request(model_id: str, body: Any) -> None:
    """Check what is asked of a model.

    Raises:
        Wrong: the API would not take it.
    """
    if model_id in _PROFILES_ONLY:
        raise Wrong(
            f"Invocation of model ID {model_id} with on-demand throughput isn't supported. Retry your request with the "
            "ID or ARN of an inference profile that contains this model."
        )
    if model_id not in MODELS:
        raise Wrong("The provided model identifier is invalid.")
    _Request(MODELS[model_id]).check(body)


class _Request:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._points = 0

    def check(self, body: Any) -> None:
        _only(body, _TOP, "the request")
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise Wrong("The messages field is empty.")
        self._roles(messages)
        for place, message in enumerate(messages):
            self._message(message, f"messages.{place}")
        called = self._pairs(messages)
        self._tools(body.get("toolConfig"), needed=called)
        self._system(body.get("system", []))
        self._settings(body, messages)
        if self._points > _MOST_POINTS:
            raise Wrong(f"The request has {self._points} cache points, and at most {_MOST_POINTS} are taken.")

    def _roles(self, messages: Sequence[Any]) -> None:
        before = "assistant"
        for message in messages:
            _only(message, {"role", "content"}, "messages")
            role = message.get("role")
            if role not in ("user", "assistant"):
                raise Wrong(f"Value '{role}' at 'messages.role' failed to satisfy constraint: [user, assistant]")
            if before == role:
                if message is messages[0]:
                    raise Wrong("A conversation must start with a user message.")
                raise Wrong("A conversation must alternate between user and assistant roles.")
            before = role
        if before != "user":
            raise Wrong(
                "This model does not support a prefilled answer: the conversation must end with a user message."
            )

    def _message(self, message: Any, where: str) -> None:
        content = message.get("content")
        if not isinstance(content, list) or not content:
            raise Wrong(f"The content field in the Message object at {where} is empty.")
        images = 0
        for place, block in enumerate(content):
            kind, value = _one_of(block, _BLOCKS, f"{where}.content.{place}")
            images += kind == "image"
            self._block(kind, value, message["role"], f"{where}.content.{place}", first=place == 0)
        results = ["toolResult" in block for block in content if "cachePoint" not in block]
        if results != sorted(results, reverse=True):
            raise Wrong(f"{where}: toolResult blocks must stand before all other content")
        if images > _MOST_IMAGES:
            raise Wrong(f"{where}: too many images: {images} > {_MOST_IMAGES}")
        if message["role"] == "assistant" and "reasoningContent" in content[-1]:
            raise Wrong(f"{where}: the final block in an assistant message cannot be `thinking`.")

    def _block(self, kind: str, value: Any, role: str, where: str, *, first: bool) -> None:
        if kind == "text":
            _text(value, where)
        elif kind == "image":
            _image(value, where)
        elif kind == "cachePoint":
            self._point(value, "messages", where, first=first)
        elif kind == "toolResult":
            if role != "user":
                raise Wrong(f"{where}: User messages only can contain toolResult blocks")
            self._result(value, where)
        elif role != "assistant":
            raise Wrong(f"{where}: {kind} blocks can only be specified in assistant messages")
        elif kind == "toolUse":
            _only(value, {"toolUseId", "name", "input"}, where)
            _matches(value.get("toolUseId"), _ID, f"{where}.toolUse.toolUseId")
            _matches(value.get("name"), _NAME, f"{where}.toolUse.name")
            if not isinstance(value.get("input"), dict):
                raise Wrong(f"The format of the value at {where}.toolUse.input is invalid. Provide a json object.")
        else:
            self._reasoning(value, where)

    def _result(self, value: Any, where: str) -> None:
        _only(value, {"toolUseId", "content", "status"}, where)
        content = value.get("content")
        if not isinstance(content, list) or not content:
            raise Wrong(f"The content field at {where}.toolResult cannot be empty.")
        kinds = []
        for place, block in enumerate(content):
            kind, inner = _one_of(block, {"text", "image", "json"}, f"{where}.toolResult.content.{place}")
            kinds.append(kind)
            if kind == "text":
                _text(inner, where)
            elif kind == "image":
                if not self._known.result_images:
                    raise Wrong("This model doesn't support the image content block in a toolResult.")
                _image(inner, where)
        if "status" in value:
            if not self._known.status:
                raise Wrong("This model doesn't support the status field.")
            if value["status"] not in ("success", "error"):
                raise Wrong(f"{where}.toolResult.status: [success, error]")
            if value["status"] == "error" and "image" in kinds:
                raise Wrong(f"{where}: all content must be type text if `is_error` is true")

    def _reasoning(self, value: Any, where: str) -> None:
        if not self._known.reasoning:
            raise Wrong("This model doesn't support the reasoningContent field.")
        kind, inner = _one_of(value, {"reasoningText", "redactedContent"}, where)
        if kind == "redactedContent":
            _base64(inner, where)
            return
        _only(inner, {"text", "signature"}, where)
        mark, _, digest = str(inner.get("signature", "")).rpartition(".")
        wanted = hashlib.sha256(mark.encode() + str(inner.get("text")).encode("utf-8", "replace")).hexdigest()
        if not mark or digest != wanted:
            raise Wrong(f"{where}: Invalid `signature` in `thinking` block")

    def _point(self, value: Any, part: str, where: str, *, first: bool) -> None:
        if value not in ({"type": "default"}, {"type": "default", "ttl": "5m"}, {"type": "default", "ttl": "1h"}):
            raise Wrong(f"{where}.cachePoint: invalid")
        if part not in self._known.cache:
            raise Wrong("You invoked an unsupported model or your request did not allow prompt caching.")
        if first:
            raise Wrong(f"{where}: a cachePoint needs content before it")
        self._points += 1

    def _pairs(self, messages: Sequence[Any]) -> bool:
        """Check that results answer the calls before them; tell whether there are any."""
        seen: set[str] = set()
        owed: list[str] = []
        for place, message in enumerate(messages):
            results = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
            missing = [name for name in owed if name not in results]
            if missing:
                raise Wrong(f"Expected toolResult blocks at messages.{place}.content for the following Ids: {missing}")
            if len(results) > len(owed) or set(results) - set(owed):
                raise Wrong(
                    f"The number of toolResult blocks at messages.{place}.content exceeds the number of toolUse blocks "
                    "of previous turn."
                )
            owed = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
            if len(set(owed)) < len(owed) or seen & set(owed):
                raise Wrong(f"messages.{place}: `tool_use` ids must be unique")
            seen |= set(owed)
        return bool(seen)

    def _tools(self, config: Any, *, needed: bool) -> None:
        if config is None:
            if needed:
                raise Wrong("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
            return
        _only(config, {"tools", "toolChoice"}, "toolConfig")
        if not config.get("tools"):
            raise Wrong("Value at 'toolConfig.tools' failed to satisfy constraint: length greater than or equal to 1")
        names: list[str] = []
        for place, tool in enumerate(config["tools"]):
            where = f"toolConfig.tools.{place}"
            kind, value = _one_of(tool, {"toolSpec", "cachePoint"}, where)
            if kind == "cachePoint":
                self._point(value, "tools", where, first=place == 0)
                continue
            _only(value, {"name", "description", "inputSchema"}, where)
            _matches(value.get("name"), _NAME, f"{where}.toolSpec.name")
            if value.get("description") == "":
                raise Wrong(f"{where}.toolSpec.description: length greater than or equal to 1")
            self._schema(value.get("inputSchema"), where)
            names.append(value["name"])
        if len(set(names)) < len(names):
            raise Wrong("The toolConfig.tools contains duplicate names.")

    def _schema(self, schema: Any, where: str) -> None:
        _only(schema, {"json"}, where)
        value = schema.get("json")
        if not isinstance(value, dict) or value.get("type") != "object":
            raise Wrong(f"The value at {where}.toolSpec.inputSchema.json.type must be one of the following: object.")
        if self._known.plain_schema and value.keys() - {"type", "properties", "required"}:
            raise Wrong(f"{where}: at the top of a schema this model takes only type, properties and required")
        if self._known.thinking in ("budget", "adaptive") and value.keys() & {"anyOf", "oneOf", "allOf"}:
            raise Wrong(f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level")

    def _system(self, system: Any) -> None:
        for place, block in enumerate(system):
            kind, value = _one_of(block, {"text", "cachePoint"}, f"system.{place}")
            if kind == "text":
                _text(value, f"system.{place}")
            else:
                self._point(value, "system", f"system.{place}", first=place == 0)

    def _settings(self, body: Any, messages: Sequence[Any]) -> None:
        config = body.get("inferenceConfig", {})
        _only(config, {"maxTokens", "temperature", "topP", "stopSequences"}, "inferenceConfig")
        limit = config.get("maxTokens", 4_096)
        if not isinstance(limit, int) or limit < 1:
            raise Wrong("Value at 'inferenceConfig.maxTokens' failed to satisfy constraint: at least 1")
        self._form(body.get("outputConfig"))
        fields = body.get("additionalModelRequestFields", {})
        allowed = {
            "": set[str](),
            "budget": {"thinking", "anthropic_beta"},
            "adaptive": {"thinking", "output_config", "anthropic_beta"},
            "nova": {"reasoningConfig"},
            "effort": {"reasoning_effort"},
        }[self._known.thinking]
        _only(fields, allowed, "additionalModelRequestFields")
        thinking = fields.get("thinking", {"type": "disabled"})
        if thinking["type"] == "disabled":
            return
        if thinking["type"] == "adaptive" and self._known.thinking != "adaptive":
            raise Wrong("adaptive thinking is not supported on this model")
        if thinking["type"] == "enabled":
            if not _LEAST_BUDGET <= thinking.get("budget_tokens", 0) < limit:
                raise Wrong("thinking.budget_tokens: at least 1024, and less than `max_tokens`")
            self._began_with_thinking(messages)

    def _form(self, config: Any) -> None:
        if config is None:
            return
        if not self._known.forms:
            raise Wrong("This model doesn't support the outputConfig.textFormat field.")
        _only(config, {"textFormat"}, "outputConfig")
        form = config["textFormat"]
        _only(form, {"type", "structure"}, "outputConfig.textFormat")
        _only(form.get("structure"), {"jsonSchema"}, "outputConfig.textFormat.structure")
        named = form["structure"]["jsonSchema"]
        _only(named, {"schema", "name", "description"}, "outputConfig.textFormat.structure.jsonSchema")
        if form["type"] != "json_schema" or not isinstance(named.get("schema"), str):
            raise Wrong("outputConfig.textFormat: a form has the type json_schema, and a schema as text")
        if problem := form_problem(json.loads(named["schema"])):
            raise Wrong(f"outputConfig.textFormat.{problem}")

    def _began_with_thinking(self, messages: Sequence[Any]) -> None:
        """While calls are being answered, the turn that made them must have begun with thinking."""
        place = len(messages) - 1
        while place > 0 and all("toolResult" in block or "cachePoint" in block for block in messages[place]["content"]):
            place -= 2
        if place == len(messages) - 1:
            return
        first = messages[place + 1]["content"][0]
        if "reasoningContent" not in first:
            raise Wrong("Expected `thinking` or `redacted_thinking`, but found another block.")


def _only(value: Any, allowed: Iterable[str], where: str) -> None:
    if not isinstance(value, dict):
        raise Wrong(f"The format of the value at {where} is invalid.")
    extra = value.keys() - set(allowed)
    if extra:
        raise Wrong(f"{where}: extraneous key {sorted(extra)} is not permitted")


def _one_of(block: Any, kinds: Iterable[str], where: str) -> tuple[str, Any]:
    _only(block, kinds, where)
    if len(block) != 1:
        raise Wrong(f"{where}: the union must have exactly one member")
    kind, value = next(iter(block.items()))
    return kind, value


def _matches(value: Any, pattern: re.Pattern[str], where: str) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Wrong(f"Value '{value}' at '{where}' failed to satisfy constraint: pattern {pattern.pattern}")


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise Wrong(f"The text field in the ContentBlock object at {where} is blank.")


def _base64(value: Any, where: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise Wrong(f"{where}: bytes that are not base64") from None


def _image(value: Any, where: str) -> None:
    _only(value, {"format", "source"}, where)
    magic = _MAGIC.get(value.get("format"))
    if magic is None:
        raise Wrong(f"Value at '{where}.image.format' failed to satisfy constraint: [gif, jpeg, png, webp]")
    _only(value.get("source"), {"bytes"}, where)
    data = _base64(value["source"].get("bytes"), where)
    if not data.startswith(magic):
        raise Wrong("Could not process image")
    if len(data) > _LARGEST_IMAGE:
        raise Wrong("image exceeds 3.75 MB maximum")
    if magic == _MAGIC["png"] and max(struct.unpack_from(">II", data, 16)) > _LONGEST_SIDE:
        raise Wrong("At least one of the image dimensions exceed max allowed size: 8000 pixels")
