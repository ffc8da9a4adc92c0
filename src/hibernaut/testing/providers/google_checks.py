"""What the Gemini API refuses, in the spirit of its words."""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

SIGNED: Final[Mapping[bool, bytes]] = {False: b"signed by google:", True: b"signed by vertex:"}
"""What every signature begins with that a fake has given, by whether it is of Vertex AI; others are corrupted."""

_NO_SIGNATURE_NEEDED: Final = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")

_CAMEL: Final = re.compile(r"(?<=.)_([a-z0-9])")
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
_OPAQUE: Final = frozenset({"args", "parametersJsonSchema", "properties", "response", "responseJsonSchema"})
"""Members whose own names are the user's."""
_MAGIC: Final[Mapping[str, bytes]] = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/webp": b"RIFF"}


class Wrong(Exception):  # no error: how a check says what the API would answer
    """Why a request is refused."""


def check_request(model: str, body: Any, *, vertex: bool) -> None:
    """Check what is asked of a model.

    Raises:
        Wrong: the API would not take it.
    """
    _Request(model, vertex=vertex).check(body)


class _Request:
    def __init__(self, model: str, *, vertex: bool) -> None:
        self._model = model
        self._vertex = vertex
        self._third = model.startswith("gemini-3")

    def check(self, body: Any) -> None:
        body = _in_camel(body)
        _only(body, _TOP, "the request")
        contents = body.get("contents")
        if not isinstance(contents, list) or not contents:
            raise Wrong("contents is not specified")
        if "systemInstruction" in body:
            self._content(body["systemInstruction"], "system_instruction")
        for place, content in enumerate(contents):
            self._content(content, f"contents[{place}]")
            if content.get("role") not in ("user", "model"):
                raise Wrong("Please use a valid role: user, model.")
        if contents[-1]["role"] != "user":
            raise Wrong("Please ensure that a request of several turns ends with a user role.")
        self._calls(contents)
        self._signatures(contents)
        self._tools(body.get("tools", []))
        if "tools" in body and "responseMimeType" in body.get("generationConfig", {}) and not self._third:
            raise Wrong("Function calling with a response mime type: 'application/json' is unsupported")
        self._config(body.get("generationConfig", {}))

    def _content(self, content: Any, where: str) -> None:
        _only(content, {"role", "parts"}, where)
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts:
            raise Wrong(f"Unable to submit request: {where} must include at least one parts field")
        for place, part in enumerate(parts):
            self._part(part, f"{where}.parts[{place}]")

    def _part(self, part: Any, where: str) -> None:
        _only(part, _PART | _PART_EXTRA, where)
        kinds = sorted(part.keys() & _PART)
        if len(kinds) != 1:
            raise Wrong(f"{where}.data: required oneof field 'data' must have one initialized field, not {kinds}")
        kind, value = kinds[0], part[kinds[0]]
        if kind == "text" and not isinstance(value, str):
            raise Wrong(f"Invalid value at '{where}' (text)")
        if kind == "text" and not value and (self._vertex or "thoughtSignature" not in part):
            raise Wrong("Unable to submit request because it has an empty text parameter.")
        if kind == "inlineData":
            _blob(value, where)
        elif kind == "functionCall":
            self._named(value, {"args"}, where)
            if not isinstance(value.get("args", {}), dict):
                raise Wrong(f"Invalid value at '{where}.function_call.args' (Struct)")
        elif kind == "functionResponse":
            self._response(value, where)
        if "thoughtSignature" in part:
            self._signature(part["thoughtSignature"])

    def _named(self, value: Any, more: set[str], where: str) -> None:
        _only(value, {"name", "id"} | more, where)
        if self._vertex and "id" in value:
            raise Wrong(f"Invalid JSON payload received. Unknown name \"id\" at '{where}': Cannot find field.")
        if not isinstance(value.get("name"), str) or not _FUNCTION.fullmatch(value["name"]):
            raise Wrong(f"{where}: Name cannot be empty, must start with a letter or an underscore, …")

    def _response(self, value: Any, where: str) -> None:
        self._named(value, {"response", "parts"}, where)
        if not isinstance(value.get("response"), dict):
            raise Wrong(f"{where}.function_response.response: [FIELD_INVALID]")
        _no_references(value["response"], where)
        if "parts" in value and not self._third:
            raise Wrong("Multimodal function responses are not supported for this model")
        for part in value.get("parts", ()):
            _only(part, {"inlineData"}, where)
            _blob(part.get("inlineData"), where)

    def _calls(self, contents: Sequence[Any]) -> None:
        made: list[Any] = []
        for content in contents:
            calls = _of_kind(content, "functionCall")
            responses = _of_kind(content, "functionResponse")
            if content["role"] == "user" and calls:
                raise Wrong("Please ensure that function call turns have the role model")
            if len(responses) != len(made):
                raise Wrong(
                    "Please ensure that the number of function response parts is equal to the number of function call "
                    "parts of the function call turn."
                )
            if [each["name"] for each in responses] != [each["name"] for each in made]:
                raise Wrong("Please ensure that function responses have the names of the function calls.")
            if [each.get("id") for each in responses] != [each.get("id") for each in made]:
                raise Wrong("Please ensure that function responses have the ids of the function calls.")
            ids = [each["id"] for each in calls if "id" in each]
            if len(set(ids)) < len(ids):
                raise Wrong("Please ensure that the ids of function calls are unique.")
            if calls and content is contents[0]:
                raise Wrong(
                    "Please ensure that function call turn comes immediately after a user turn or after a function "
                    "response turn."
                )
            made = calls
        if made:
            raise Wrong("Please ensure that function response turn comes immediately after a function call turn.")

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
                raise Wrong(f"Function call `{name}` in the `{place}.` content block is missing a `thought_signature`.")

    def _signature(self, value: Any) -> None:
        if value in _NO_SIGNATURE_NEEDED:
            return
        try:
            data = _bytes(value)
        except (ValueError, AttributeError):
            raise Wrong("Invalid value at 'thought_signature' (TYPE_BYTES), Base64 decoding failed") from None
        if not data.startswith(SIGNED[self._vertex]):
            raise Wrong("Corrupted thought signature.")

    def _tools(self, tools: Any) -> None:
        names: list[str] = []
        for tool in tools:
            _only(tool, {"functionDeclarations", "googleSearch", "codeExecution"}, "tools")
            for declared in tool.get("functionDeclarations", ()):
                _only(declared, {"name", "description", "parameters", "parametersJsonSchema"}, "tools")
                if not _FUNCTION.fullmatch(declared.get("name", "")):
                    raise Wrong(f"Invalid function name {declared.get('name')!r}.")
                if not declared.get("description"):
                    raise Wrong("function_declarations[0].description: missing field.")
                if {"parameters", "parametersJsonSchema"} <= declared.keys():
                    raise Wrong("Only one of parameters and parameters_json_schema may be set.")
                if "parametersJsonSchema" in declared:
                    _json_schema(declared["parametersJsonSchema"])
                if "parameters" in declared:
                    _schema(declared["parameters"])
                names.append(declared["name"])
        if len(set(names)) < len(names):
            raise Wrong("Duplicate function declaration found.")

    def _form(self, config: Any) -> None:
        schema = config.get("responseJsonSchema")
        if schema is None:
            return
        if config.get("responseMimeType") != "application/json":
            raise Wrong("A response schema is supported only with the response mime type 'application/json'.")
        if "responseSchema" in config:
            raise Wrong("Only one of response_schema and response_json_schema may be set.")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise Wrong("response_json_schema: this fake takes only objects.")

    def _config(self, config: Any) -> None:
        _only(config, _CONFIG, "generation_config")
        if config.get("maxOutputTokens", 1) < 1:
            raise Wrong("max_output_tokens must be positive.")
        self._form(config)
        thinking = config.get("thinkingConfig")
        if thinking is None:
            return
        _only(thinking, {"includeThoughts", "thinkingBudget", "thinkingLevel"}, "thinking_config")
        if {"thinkingBudget", "thinkingLevel"} <= thinking.keys():
            raise Wrong("You can only set only one of thinking budget and thinking level.")
        if "2.0" in self._model:
            raise Wrong("Thinking is not enabled for this model.")
        level, budget = thinking.get("thinkingLevel"), thinking.get("thinkingBudget")
        level = level.lower() if isinstance(level, str) else level
        levels = ("low", "medium", "high") if "pro" in self._model else ("minimal", "low", "medium", "high")
        if level is not None and (not self._third or level not in levels):
            raise Wrong("Thinking level is not supported for this model.")
        if budget == 0 and "pro" in self._model:
            raise Wrong("Budget 0 is invalid. This model only works in thinking mode.")
        if budget is not None and not (budget == 0 or 128 <= budget <= 24_576 or budget == -1):  # noqa: PLR2004
            raise Wrong(f"The thinking budget {budget} is invalid. Please choose a value between 128 and 24576.")


def _in_camel(value: Any) -> Any:
    """Return a value with the names that the API writes. It takes those of its protocol buffers, too."""
    if isinstance(value, list):
        return [_in_camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    named = {_CAMEL.sub(lambda found: found[1].upper(), name): each for name, each in value.items()}
    return {name: each if name in _OPAQUE else _in_camel(each) for name, each in named.items()}


def _only(value: Any, allowed: Iterable[str], where: str) -> None:
    if not isinstance(value, dict):
        raise Wrong(f"Invalid value at '{where}'")
    for name in value:
        if name not in allowed:
            raise Wrong(f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field.")


def _of_kind(content: Any, kind: str) -> list[Any]:
    return [part[kind] for part in content["parts"] if kind in part]


def _blob(blob: Any, where: str) -> None:
    _only(blob, {"mimeType", "data"}, where)
    magic = _MAGIC.get(blob.get("mimeType", ""))
    if magic is None:
        raise Wrong(f"Unsupported MIME type: {blob.get('mimeType')}")
    try:
        data = _bytes(blob.get("data", ""))
    except ValueError:
        raise Wrong("Base64 decoding failed") from None
    if not data.startswith(magic):
        raise Wrong("Unable to process input image.")


def _bytes(value: str) -> bytes:
    """Read Base64, of either alphabet."""
    return base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)


def _no_references(value: Any, where: str) -> None:
    if isinstance(value, dict):
        if "$ref" in value:
            raise Wrong(f"{where}: the referenced name `{value['$ref']}` does not match a display_name.")
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        _no_references(part, where)


def _json_schema(schema: Any) -> None:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise Wrong("parameters_json_schema: only an object is supported for the parameters of a function.")
    for each in _schemas(schema):
        if "$ref" in each and each.keys() - {"$ref", "description", "default"}:
            raise Wrong("$ref was set alongside unsupported fields.")


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
            raise Wrong(f"{where}: when using any_of, it must be the only field set.")
        for part in schema["anyOf"]:
            _schema(part, where)
        return
    kind = schema.get("type")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise Wrong(f"{where}: Invalid value at 'type' (google.ai.generativelanguage.Type)")
    _of_type(schema, kind, where)
    for name, part in schema.get("properties", {}).items():
        _schema(part, f"{where}.properties[{name}]")
    for name in schema.get("required", ()):
        if name not in schema.get("properties", {}):
            raise Wrong(f"{where}.required: property is not defined: {name}")


def _of_type(schema: Any, kind: str, where: str) -> None:
    if "enum" in schema and (kind != "string" or not all(isinstance(each, str) and each for each in schema["enum"])):
        raise Wrong(f"{where}.enum: only allowed for STRING type")
    if kind == "string" and schema.get("format", "enum") not in ("enum", "date-time"):
        raise Wrong(f"{where}: only 'enum' and 'date-time' are supported for STRING type")
    if kind == "array":
        if "items" not in schema:
            raise Wrong(f"{where}.items: missing field.")
        _schema(schema["items"], f"{where}.items")
    if kind == "object" and where == "parameters" and not schema.get("properties"):
        raise Wrong(f"{where}.properties: should be non-empty for OBJECT type")
