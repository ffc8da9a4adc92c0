"""The Gemini API (`streamGenerateContent` and the list of models), of Google AI or of Vertex AI, seen from its side."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Finish,
    ReasoningBlock,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    Overloaded,
    RateLimited,
    RetryableModelError,
)
from hibernaut.testing.providers.wire import Asked, Raw

KEY: Final = "a-key-for-gemini"

MODELS: Final = (
    "gemini-3-pro-preview",
    "gemini-3.5-flash",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.0-flash",
    "text-embedding-004",
)

SIGNED: Final = b"signed by gemini:"
"""What every signature begins with that the fake has given; others are corrupted."""

_NO_SIGNATURE_NEEDED: Final = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")

_LARGEST: Final = 20 * 1024 * 1024
_PAGE: Final = 4

_PATH: Final = re.compile(
    r"(?:/v1beta|/v1/projects/[^/]+/locations/[^/]+/publishers/google)?/models/([^/:?]+):streamGenerateContent\?alt=sse"
)
_FUNCTION: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")

_TOP: Final = frozenset(
    {"contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "generationConfig", "cachedContent"}
)
_PART: Final = frozenset({"text", "inlineData", "fileData", "functionCall", "functionResponse"})
_PART_EXTRA: Final = frozenset({"thought", "thoughtSignature"})
_CONFIG: Final = frozenset(
    {
        "candidateCount", "frequencyPenalty", "maxOutputTokens", "presencePenalty", "responseJsonSchema",
        "responseMimeType", "responseSchema", "seed", "stopSequences", "temperature", "thinkingConfig", "topK", "topP",
    }
)  # fmt: skip
_SCHEMA: Final = frozenset(
    {
        "anyOf", "default", "description", "enum", "example", "format", "items", "maximum", "maxItems", "maxLength",
        "maxProperties", "minimum", "minItems", "minLength", "minProperties", "nullable", "pattern", "properties",
        "propertyOrdering", "required", "title", "type",
    }
)  # fmt: skip
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object"})
_MAGIC: Final[Mapping[str, bytes]] = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/webp": b"RIFF"}


class _Wrong(Exception):  # no error: how a check says what the API would answer
    pass


class GeminiWire:
    """Speaks as the Gemini API does.

    Args:
        vertex: whether as Vertex AI: with a bearer token, and without ids of calls.
        key: the key or token that is taken.
    """

    def __init__(self, *, vertex: bool = False, key: str = KEY) -> None:
        self._vertex = vertex
        self._key = key

    @property
    def stream_type(self) -> str:
        """Server-sent events."""
        return "text/event-stream"

    def check(self, asked: Asked) -> Raw | None:
        """Answer what asks for no turn, and refuse what the API refuses."""
        denied = self._denied(asked)
        if denied is not None:
            return denied
        if asked.method == "GET" and re.match(r"(/v1beta)?/models(\?|$)", asked.path) and not self._vertex:
            return _listed(asked.path)
        found = _PATH.fullmatch(asked.path)
        if asked.method != "POST" or found is None:
            return Raw(404, {"content-type": "text/html"}, b"<html>404. That is all we know.</html>")
        if found[1] not in MODELS or found[1] == "text-embedding-004":
            return _error(404, "NOT_FOUND", f"models/{found[1]} is not found, or has not this method.")
        if len(asked.raw) > _LARGEST:
            return _error(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes.")
        try:
            _Request(found[1], vertex=self._vertex).check(asked.body)
        except _Wrong as wrong:
            return _error(400, "INVALID_ARGUMENT", str(wrong))
        return None

    def refuse(self, error: ModelError) -> Raw:
        """Return a `google.rpc.Status`."""
        code, status, details = _as_status(error)
        return _error(code, status, _in_words(error), details)

    def encoder(self, asked: Asked) -> "_Encoder":
        """Return what writes a turn as pieces of a candidate."""
        found = _PATH.fullmatch(asked.path)
        model = found[1] if found else MODELS[0]
        return _Encoder(model, with_ids=not self._vertex)

    def _denied(self, asked: Asked) -> Raw | None:
        if self._vertex:
            if asked.headers.get("authorization") == f"Bearer {self._key}":
                return None
            return _error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        given = asked.headers.get("x-goog-api-key")
        if given is None:
            return _error(403, "PERMISSION_DENIED", "Callers without an identity are not allowed here.")
        if given != self._key:
            reason = {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "API_KEY_INVALID",
                "domain": "googleapis.com",
            }
            return _error(400, "INVALID_ARGUMENT", "The API key is not valid.", [reason])
        return None


# What it refuses


class _Request:
    def __init__(self, model: str, *, vertex: bool) -> None:
        self._model = model
        self._vertex = vertex
        self._third = model.startswith("gemini-3")

    def check(self, body: Any) -> None:
        _only(body, _TOP, "the request")
        contents = body.get("contents")
        if not isinstance(contents, list) or not contents:
            raise _Wrong("contents is not specified")
        if "systemInstruction" in body:
            self._content(body["systemInstruction"], "system_instruction")
        for place, content in enumerate(contents):
            self._content(content, f"contents[{place}]")
            if content.get("role") not in ("user", "model"):
                raise _Wrong("Please use a valid role: user, model.")
        if contents[-1]["role"] != "user":
            raise _Wrong("Please ensure that a request of several turns ends with a user role.")
        self._calls(contents)
        self._signatures(contents)
        self._tools(body.get("tools", []))
        self._config(body.get("generationConfig", {}))

    def _content(self, content: Any, where: str) -> None:
        _only(content, {"role", "parts"}, where)
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts:
            raise _Wrong(f"Unable to submit request: {where} must include at least one parts field")
        for place, part in enumerate(parts):
            self._part(part, f"{where}.parts[{place}]")

    def _part(self, part: Any, where: str) -> None:
        _only(part, _PART | _PART_EXTRA, where)
        kinds = sorted(part.keys() & _PART)
        if len(kinds) != 1:
            raise _Wrong(f"{where}.data: required oneof field 'data' must have one initialized field, not {kinds}")
        kind, value = kinds[0], part[kinds[0]]
        if kind == "text" and not isinstance(value, str):
            raise _Wrong(f"Invalid value at '{where}' (text)")
        if kind == "text" and not value and (self._vertex or "thoughtSignature" not in part):
            raise _Wrong("Unable to submit request because it has an empty text parameter.")
        if kind == "inlineData":
            _blob(value, where)
        elif kind == "functionCall":
            self._named(value, {"args"}, where)
            if not isinstance(value.get("args", {}), dict):
                raise _Wrong(f"Invalid value at '{where}.function_call.args' (Struct)")
        elif kind == "functionResponse":
            self._response(value, where)
        if "thoughtSignature" in part:
            _signature(part["thoughtSignature"])

    def _named(self, value: Any, more: set[str], where: str) -> None:
        _only(value, {"name", "id"} | more, where)
        if self._vertex and "id" in value:
            raise _Wrong(f"Invalid JSON payload received. Unknown name \"id\" at '{where}': Cannot find field.")
        if not isinstance(value.get("name"), str) or not _FUNCTION.fullmatch(value["name"]):
            raise _Wrong(f"{where}: Name cannot be empty, must start with a letter or an underscore, …")

    def _response(self, value: Any, where: str) -> None:
        self._named(value, {"response", "parts"}, where)
        if not isinstance(value.get("response"), dict):
            raise _Wrong(f"{where}.function_response.response: [FIELD_INVALID]")
        _no_references(value["response"], where)
        if "parts" in value and not self._third:
            raise _Wrong("Multimodal function responses are not supported for this model")
        for part in value.get("parts", ()):
            _only(part, {"inlineData"}, where)
            _blob(part.get("inlineData"), where)

    def _calls(self, contents: Sequence[Any]) -> None:
        made: list[Any] = []
        for content in contents:
            calls = _of_kind(content, "functionCall")
            responses = _of_kind(content, "functionResponse")
            if content["role"] == "user" and calls:
                raise _Wrong("Please ensure that function call turns have the role model")
            if len(responses) != len(made):
                raise _Wrong(
                    "Please ensure that the number of function response parts is equal to the number of function call "
                    "parts of the function call turn."
                )
            if [each["name"] for each in responses] != [each["name"] for each in made]:
                raise _Wrong("Please ensure that function responses have the names of the function calls.")
            if [each.get("id") for each in responses] != [each.get("id") for each in made]:
                raise _Wrong("Please ensure that function responses have the ids of the function calls.")
            ids = [each["id"] for each in calls if "id" in each]
            if len(set(ids)) < len(ids):
                raise _Wrong("Please ensure that the ids of function calls are unique.")
            if calls and content is contents[0]:
                raise _Wrong(
                    "Please ensure that function call turn comes immediately after a user turn or after a function "
                    "response turn."
                )
            made = calls
        if made:
            raise _Wrong("Please ensure that function response turn comes immediately after a function call turn.")

    def _signatures(self, contents: Sequence[Any]) -> None:
        """Within the current turn the first call of each step must be signed."""
        if not self._third:
            return
        for place in range(len(contents) - 1, -1, -1):
            content = contents[place]
            if content["role"] == "user" and any("functionResponse" not in part for part in content["parts"]):
                return
            calls = [part for part in content["parts"] if "functionCall" in part]
            if calls and "thoughtSignature" not in calls[0]:
                name = calls[0]["functionCall"]["name"]
                raise _Wrong(
                    f"Function call `{name}` in the `{place}.` content block is missing a `thought_signature`."
                )

    def _tools(self, tools: Any) -> None:
        names: list[str] = []
        for tool in tools:
            _only(tool, {"functionDeclarations", "googleSearch", "codeExecution"}, "tools")
            for declared in tool.get("functionDeclarations", ()):
                _only(declared, {"name", "description", "parameters", "parametersJsonSchema"}, "tools")
                if not _FUNCTION.fullmatch(declared.get("name", "")):
                    raise _Wrong(f"Invalid function name {declared.get('name')!r}.")
                if not declared.get("description"):
                    raise _Wrong("function_declarations[0].description: missing field.")
                if {"parameters", "parametersJsonSchema"} <= declared.keys():
                    raise _Wrong("Only one of parameters and parameters_json_schema may be set.")
                if "parametersJsonSchema" in declared:
                    _json_schema(declared["parametersJsonSchema"])
                if "parameters" in declared:
                    _schema(declared["parameters"])
                names.append(declared["name"])
        if len(set(names)) < len(names):
            raise _Wrong("Duplicate function declaration found.")

    def _config(self, config: Any) -> None:
        _only(config, _CONFIG, "generation_config")
        if config.get("maxOutputTokens", 1) < 1:
            raise _Wrong("max_output_tokens must be positive.")
        thinking = config.get("thinkingConfig")
        if thinking is None:
            return
        _only(thinking, {"includeThoughts", "thinkingBudget", "thinkingLevel"}, "thinking_config")
        if {"thinkingBudget", "thinkingLevel"} <= thinking.keys():
            raise _Wrong("You can only set only one of thinking budget and thinking level.")
        if "2.0" in self._model:
            raise _Wrong("Thinking is not enabled for this model.")
        level, budget = thinking.get("thinkingLevel"), thinking.get("thinkingBudget")
        levels = ("low", "medium", "high") if "pro" in self._model else ("minimal", "low", "medium", "high")
        if level is not None and (not self._third or level not in levels):
            raise _Wrong("Thinking level is not supported for this model.")
        if budget == 0 and "pro" in self._model:
            raise _Wrong("Budget 0 is invalid. This model only works in thinking mode.")
        if budget is not None and not (budget == 0 or 128 <= budget <= 24_576 or budget == -1):  # noqa: PLR2004
            raise _Wrong(f"The thinking budget {budget} is invalid. Please choose a value between 128 and 24576.")


def _only(value: Any, allowed: Iterable[str], where: str) -> None:
    if not isinstance(value, dict):
        raise _Wrong(f"Invalid value at '{where}'")
    for name in value:
        if name not in allowed:
            raise _Wrong(f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field.")


def _of_kind(content: Any, kind: str) -> list[Any]:
    return [part[kind] for part in content["parts"] if kind in part]


def _blob(blob: Any, where: str) -> None:
    _only(blob, {"mimeType", "data"}, where)
    magic = _MAGIC.get(blob.get("mimeType", ""))
    if magic is None:
        raise _Wrong(f"Unsupported MIME type: {blob.get('mimeType')}")
    try:
        data = base64.b64decode(blob.get("data", ""), validate=True)
    except (binascii.Error, ValueError):
        raise _Wrong("Base64 decoding failed") from None
    if not data.startswith(magic):
        raise _Wrong("Unable to process input image.")


def _signature(value: Any) -> None:
    if value in _NO_SIGNATURE_NEEDED:
        return
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise _Wrong("Invalid value at 'thought_signature' (TYPE_BYTES), Base64 decoding failed") from None
    if not data.startswith(SIGNED):
        raise _Wrong("Corrupted thought signature.")


def _no_references(value: Any, where: str) -> None:
    if isinstance(value, dict):
        if "$ref" in value:
            raise _Wrong(f"{where}: the referenced name `{value['$ref']}` does not match a display_name.")
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        _no_references(part, where)


def _json_schema(schema: Any) -> None:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise _Wrong("parameters_json_schema: only an object is supported for the parameters of a function.")
    for each in _schemas(schema):
        if "$ref" in each and each.keys() - {"$ref", "description", "default"}:
            raise _Wrong("$ref was set alongside unsupported fields.")


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from _schemas(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _schemas(value)


def _schema(schema: Any, where: str = "parameters") -> None:
    _only(schema, _SCHEMA, where)
    if "anyOf" in schema:
        if len(schema) > 1:
            raise _Wrong(f"{where}: when using any_of, it must be the only field set.")
        for part in schema["anyOf"]:
            _schema(part, where)
        return
    kind = schema.get("type")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise _Wrong(f"{where}: Invalid value at 'type' (google.ai.generativelanguage.Type)")
    _of_type(schema, kind, where)
    for name, part in schema.get("properties", {}).items():
        _schema(part, f"{where}.properties[{name}]")
    for name in schema.get("required", ()):
        if name not in schema.get("properties", {}):
            raise _Wrong(f"{where}.required: property is not defined: {name}")


def _of_type(schema: Any, kind: str, where: str) -> None:
    if "enum" in schema and (kind != "string" or not all(isinstance(each, str) and each for each in schema["enum"])):
        raise _Wrong(f"{where}.enum: only allowed for STRING type")
    if kind == "string" and schema.get("format", "enum") not in ("enum", "date-time"):
        raise _Wrong(f"{where}: only 'enum' and 'date-time' are supported for STRING type")
    if kind == "array":
        if "items" not in schema:
            raise _Wrong(f"{where}.items: missing field.")
        _schema(schema["items"], f"{where}.items")
    if kind == "object" and where == "parameters" and not schema.get("properties"):
        raise _Wrong(f"{where}.properties: should be non-empty for OBJECT type")


# What it answers


class _Encoder:
    """Writes a turn as pieces of a candidate. A signature comes with the call or the text that it leads to."""

    def __init__(self, model: str, *, with_ids: bool) -> None:
        self._model = model
        self._with_ids = with_ids
        self._signs = model.startswith("gemini-3")
        self._calls: dict[int, tuple[CallStarted, list[str]]] = {}
        self._made = 0
        self._signature = ""
        self._thought = False

    def feed(self, piece: StreamPiece) -> Iterable[bytes]:
        """Return the events that say this."""
        if isinstance(piece, TextDelta):
            yield self._event({"text": piece.text})
        elif isinstance(piece, ThinkingDelta):
            self._thought = True
            yield self._event({"text": piece.text, "thought": True})
        elif isinstance(piece, ReasoningBlock):
            self._signature = signed(piece.data)
        elif isinstance(piece, CallStarted):
            self._calls[piece.index] = (piece, [])
        elif isinstance(piece, CallDelta):
            self._calls[piece.index][1].append(piece.arguments)
        elif isinstance(piece, CallEnded):
            yield self._call(*self._calls.pop(piece.index), piece.data)
        elif isinstance(piece, Finish):
            yield self._finished(piece)

    def failed(self, error: ModelError) -> bytes | None:
        """Return an event with an error in it."""
        if isinstance(error, ConnectionLost):
            return None
        code, status, details = _as_status(error)
        return _sse({"error": {"code": code, "message": str(error), "status": status, "details": details}})

    def _call(self, started: CallStarted, pieces: Sequence[str], data: bytes) -> bytes:
        call: dict[str, Any] = {"name": started.name}
        if self._with_ids:
            call["id"] = started.provider_id or f"call{self._made}"
        if "".join(pieces).strip():
            call["args"] = json.loads("".join(pieces))
        signature = signed(data) if data else self._signature
        if not signature and self._signs and not self._made:
            signature = signed(b"step")
        self._signature = ""
        self._made += 1
        return self._event({"functionCall": call, **({"thoughtSignature": signature} if signature else {})})

    def _finished(self, piece: Finish) -> bytes:
        reason = {"end": "STOP", "length": "MAX_TOKENS", "refused": "SAFETY"}[piece.reason]
        last = {"text": "", "thoughtSignature": self._signature} if self._signature else {"text": ""}
        return self._event(last, reason, piece.usage)

    def _event(self, part: Mapping[str, Any], reason: str = "", usage: Usage | None = None) -> bytes:
        candidate: dict[str, Any] = {"content": {"parts": [part], "role": "model"}, "index": 0}
        event: dict[str, Any] = {"candidates": [candidate], "modelVersion": self._model, "responseId": "r1"}
        if reason:
            candidate["finishReason"] = reason
            event["usageMetadata"] = self._counted(usage or Usage())
        return _sse(event)

    def _counted(self, usage: Usage) -> dict[str, int]:
        thoughts = usage.output // 3 if self._thought else 0
        counted = {
            "promptTokenCount": usage.input,
            "candidatesTokenCount": usage.output - thoughts,
            "totalTokenCount": usage.input + usage.output,
        }
        if thoughts:
            counted["thoughtsTokenCount"] = thoughts
        if usage.cached:
            counted["cachedContentTokenCount"] = usage.cached
        return counted


def signed(data: bytes) -> str:
    """Return a signature as the fake gives them."""
    return base64.b64encode(SIGNED + data).decode()


def _sse(value: Any) -> bytes:
    # Escaped as ASCII: half a surrogate pair can be said so.
    return b"data: " + json.dumps(value).encode() + b"\r\n\r\n"


def _as_status(error: ModelError) -> tuple[int, str, list[Any]]:
    wait = error.retry_after if isinstance(error, RetryableModelError) else 0
    details = (
        [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait / 1_000:g}s"}] if wait else []
    )
    if isinstance(error, RateLimited):
        return 429, "RESOURCE_EXHAUSTED", details
    if isinstance(error, ConnectionLost):
        return 499, "CANCELLED", details
    if isinstance(error, Overloaded | RetryableModelError):
        return 503, "UNAVAILABLE", details
    if isinstance(error, AuthenticationFailed):
        return 403, "PERMISSION_DENIED", details
    return 400, "INVALID_ARGUMENT", details


def _in_words(error: ModelError) -> str:
    if isinstance(error, ContextOverflow):
        return "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    return str(error)


def _error(code: int, status: str, message: str, details: Sequence[Any] = ()) -> Raw:
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    if details:
        error["details"] = list(details)
    return Raw(code, body=msgspec.json.encode({"error": error}))


def _listed(path: str) -> Raw:
    token = re.search(r"pageToken=(\d+)", path)
    begin = int(token[1]) if token else 0
    models = [
        {
            "name": f"models/{model}",
            "displayName": model.replace("-", " ").title(),
            "inputTokenLimit": 1_048_576,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": ["embedContent"]
            if "embedding" in model
            else ["generateContent", "countTokens"],
            **({"thinking": True} if "2.0" not in model else {}),
        }
        for model in MODELS[begin : begin + _PAGE]
    ]
    more = {"nextPageToken": str(begin + _PAGE)} if begin + _PAGE < len(MODELS) else {}
    return Raw(body=msgspec.json.encode({"models": models, **more}))
