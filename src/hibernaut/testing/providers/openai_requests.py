"""What the fakes of OpenAI's APIs have in common: how they refuse, and what both take for tools and images."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec

from hibernaut.errors import ModelError
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
    Refused,
)
from hibernaut.testing.providers.forms import form_problem
from hibernaut.testing.providers.wire import Asked, Raw

JSON: Final = {"content-type": "application/json"}

LARGEST_IMAGE: Final = 20 * 1024 * 1024
LARGEST_BODY: Final = 50 * 1024 * 1024
MOST_TOOLS: Final = 128

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DATA_URL: Final = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+=*)")
_SIGNATURES: Final = {
    "image/png": (b"\x89PNG",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}

FAILURES: Final[Mapping[type[ModelError], tuple[int, str, str]]] = {
    RateLimited: (429, "rate_limit_exceeded", "requests"),
    Overloaded: (503, "server_error", "server_error"),
    ConnectionLost: (408, "timeout", "timeout"),
    ContextOverflow: (400, "context_length_exceeded", "invalid_request_error"),
    AuthenticationFailed: (401, "invalid_api_key", "invalid_request_error"),
    Refused: (400, "invalid_prompt", "invalid_request_error"),
    InvalidRequest: (400, "invalid_value", "invalid_request_error"),
}
"""Status, code and type of the errors."""


class NotTaken(Exception):
    """The API does not take a request."""

    def __init__(self, message: str, param: str = "", code: str = "invalid_value", status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


def refuse(message: str, param: str = "", code: str = "invalid_value", status: int = 400) -> NoReturn:
    """Raise `NotTaken`."""
    raise NotTaken(message, param, code, status)


def error_body(message: str, kind: str, code: str | None, param: str | None = None) -> bytes:
    """Return an error as the body of an answer."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def refusal(error: NotTaken) -> Raw:
    """Return the answer that says what is not taken."""
    kind = "invalid_request_error"
    return Raw(error.status, JSON, error_body(str(error), kind, error.code or None, error.param or None))


def failed_with(error: ModelError) -> tuple[int, str, str]:
    """Return status, code and type of a failure."""
    for kind, known in FAILURES.items():
        if isinstance(error, kind):
            return known
    return 500, "server_error", "server_error"


def failure(error: ModelError) -> Raw:
    """Return the answer with which a completion fails from the start."""
    status, code, kind = failed_with(error)
    wait = getattr(error, "retry_after", 0)
    headers = {**JSON, "retry-after-ms": str(wait)} if wait else JSON
    return Raw(status, headers, error_body(str(error), kind, code))


def check_key(asked: Asked, key: str) -> None:
    """Check that whoever asks has the key, if there is one."""
    shown = asked.headers.get("authorization", "").removeprefix("Bearer ") or asked.headers.get("api-key", "")
    if key and shown != key:
        refuse("The key that was given is not right.", code="invalid_api_key", status=401)


def check_tools(tools: Any, *, nested: bool) -> None:
    """Check the functions of a request, each in a member `function` or not."""
    if not isinstance(tools, list) or not tools:
        refuse("An empty array is too short: leave it out.", "tools", "empty_array")
    if len(tools) > MOST_TOOLS:
        refuse(f"The array is too long: {len(tools)}, at most {MOST_TOOLS}.", "tools", "array_above_max_length")
    for number, tool in enumerate(tools):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            refuse("The type of a tool is unknown.", f"tools[{number}].type")
        function = tool.get("function") if nested else tool
        if not isinstance(function, dict) or not _NAME.fullmatch(str(function.get("name", ""))):
            refuse("The name does not match its pattern.", f"tools[{number}].name")
        if not nested and not isinstance(function.get("strict"), bool):
            refuse("Without `strict` all would have to be required.", f"tools[{number}].strict")
        _check_parameters(function["name"], function.get("parameters"), function.get("strict") is True)


def check_form(form: Any, param: str) -> None:
    """Check the form that an answer is to have: its type, its name and its schema."""
    if form.get("type") != "json_schema" or not _NAME.fullmatch(str(form.get("name", ""))):
        refuse("A form has the type `json_schema` and a name.", param)
    if form.get("strict") is not True:
        refuse("This fake takes only forms that are strict.", f"{param}.strict")
    if problem := form_problem(form.get("schema"), complete=True):
        refuse(f"Invalid schema for the form of the answer: {problem}.", f"{param}.schema", "invalid_json_schema")


def _check_parameters(name: str, schema: Any, strict: bool) -> None:  # noqa: FBT001  # inside
    param, code = f"schema of {name}", "invalid_function_parameters"
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        refuse("A schema must be one of an object.", param, code)
    for word in ("oneOf", "anyOf", "allOf", "enum", "not"):
        if word in schema:
            refuse(f"A schema may not have {word!r} at its top.", param, code)
    _check_schema(schema, param, strict)


def _check_schema(schema: Any, param: str, strict: bool) -> None:  # noqa: FBT001  # inside
    if isinstance(schema, list):
        for each in schema:
            _check_schema(each, param, strict)
    if not isinstance(schema, dict):
        return
    kind, code = schema.get("type"), "invalid_function_parameters"
    kinds = kind if isinstance(kind, list) else [kind]
    if "array" in kinds and "items" not in schema:
        refuse("The schema of an array lacks `items`.", param, code)
    properties = schema.get("properties")
    if strict and "object" in kinds:
        if schema.get("additionalProperties") is not False:
            refuse("`additionalProperties` has to be false.", param, code)
        if set(schema.get("required", ())) != set(properties or ()):
            refuse("`required` has to name every property.", param, code)
    for name, value in schema.items():
        inner = value.values() if name in ("properties", "$defs") and isinstance(value, dict) else [value]
        for each in inner:
            _check_schema(each, param, strict)


def check_function(name: Any, arguments: Any, param: str) -> None:
    """Check a call of long ago."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse("The name does not match its pattern.", f"{param}.name")
    if not isinstance(arguments, str):
        refuse("The arguments are no string.", f"{param}.arguments", "invalid_type")
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        refuse("The arguments are no JSON.", f"{param}.arguments")
    if not isinstance(value, dict):
        refuse("The arguments are no object.", f"{param}.arguments")


def check_image(url: Any, param: str) -> None:
    """Check that an image can be looked at."""
    if isinstance(url, str) and url.startswith("https://"):
        return
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        refuse("The image is no data URL of a type that is taken.", param, "invalid_image_url")
    if len(found[2]) > LARGEST_IMAGE:
        refuse("The image is too large.", param, "image_too_large")
    try:
        data = base64.b64decode(found[2], validate=True)
    except binascii.Error:
        refuse("The image is no base64.", param, "invalid_base64_image")
    if not data.startswith(_SIGNATURES[found[1]]):
        refuse("The image is not what it is said to be.", param, "unsupported_image_media_type")
    if found[1] == "image/gif" and data.count(b"\x21\xf9\x04") > 1:
        refuse("The image moves.", param, "invalid_image_format")
