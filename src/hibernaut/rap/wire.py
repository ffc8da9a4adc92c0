"""The messages of the Reactive Agent Protocol as bytes, in both directions, and where they go.

A runtime sends an `Invocation` to a tool server and notices after it; the server acknowledges at once and answers later
with callbacks. Fields that this version does not know are ignored, kinds that it does not know are refused. An
optional field that is null counts as left out. The same value is always written as the same bytes.
"""

import json
from functools import cache
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from hibernaut.errors import MalformedInput
from hibernaut.messages.text import clean, shorten
from hibernaut.rap.callbacks import Callback, OAuth, Result, SubscriptionEvent, UserChoice, ViewUpdate
from hibernaut.rap.limits import LIMITS, WireLimits
from hibernaut.rap.reading import read_object, shown
from hibernaut.rap.requests import (
    Alive,
    AskStatus,
    CancelToolCall,
    CloseThread,
    Invocation,
    Migrate,
    Request,
    Selected,
)

VERSION: Final = "1"
"""The value of the header `RAP-Version`."""

TOOLSET_PATH: Final = "/.well-known/rap-toolset"
CANCEL_PATH: Final = "/cancel_tool_call"
CLOSE_PATH: Final = "/close_thread"
STATUS_PATH: Final = "/tool_call_status"
MIGRATE_PATH: Final = "/migrate"
"""What a tool server serves below its base URL."""

CALLBACK_PATH: Final = "/rap/callback/"
"""What a runtime serves below its public URL; a token follows."""

_CALLBACKS: Final[dict[str, type[Callback]]] = {
    "tool_result": Result,
    "subscription_event": SubscriptionEvent,
    "oauth": OAuth,
    "user_choice": UserChoice,
    "view_update": ViewUpdate,
}
_NAMES: Final[dict[type[Any], str]] = {
    Invocation: "the invocation",
    CancelToolCall: "the cancellation",
    CloseThread: "the closing of a thread",
    AskStatus: "the question for a status",
    Alive: "the status of a call",
    Migrate: "the order to migrate",
    Selected: "the answer to a choice",
}
_LEFT_OUT: Final[dict[type[Any], dict[str, Any]]] = {Invocation: {"call_id": None, "thread_ancestors": None}}

_LONGEST_REASON: Final = 300

R = TypeVar("R", bound=Request)
S = TypeVar("S", bound=msgspec.Struct)


def encode(message: Callback | Request) -> bytes:
    """Write a message.

    Raises:
        MalformedInput: something in it cannot be written: half a character, or a number that is not finite.
    """
    try:
        plain = msgspec.to_builtins(message)
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedInput(f"the message cannot be written as JSON: {error}") from None


def decode_callback(body: bytes, limits: WireLimits = LIMITS) -> Callback:
    """Read what a tool server delivers.

    Raises:
        TooLarge: before anything is parsed.
        MalformedInput: it is no callback, or of an unknown kind; the text says what is wrong.
    """
    fields = read_object(
        body, what="the callback", limit=limits.callback_bytes, setting="callback_bytes", depth=limits.depth
    )
    named = fields.get("type")
    kind = _CALLBACKS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise MalformedInput(f"a callback of type {shown(named)} is not taken here; {', '.join(_CALLBACKS)} are")
    callback = convert(fields, kind, "the callback")
    if isinstance(callback, OAuth):
        check_address("auth_url", callback.auth_url)
    elif isinstance(callback, UserChoice):
        check_address("response_url", callback.response_url)
        if not callback.prompt.strip():
            raise MalformedInput("the prompt of the choice is blank")
        if callback.default >= len(callback.choices):
            raise MalformedInput(
                f"the default is {callback.default}; it numbers a choice, from 0 to {len(callback.choices) - 1}"
            )
    return callback


def decode(kind: type[R], body: bytes, limits: WireLimits = LIMITS) -> R:
    """Read any other message, of the kind that is expected.

    Raises:
        TooLarge: before anything is parsed.
        MalformedInput: it is none; the text says what is wrong.
    """
    setting = "invocation_bytes" if kind is Invocation else "notice_bytes"
    limit: int = getattr(limits, setting)
    fields = read_object(body, what=_NAMES[kind], limit=limit, setting=setting, depth=limits.depth)
    if kind is Invocation and fields.get("arguments") is None:
        fields["arguments"] = {}
    message = convert(_LEFT_OUT.get(kind, {}) | fields, kind, _NAMES[kind])
    if isinstance(message, Invocation):
        check_address("callback_url", message.callback_url)
    return message


def convert(fields: dict[str, Any], kind: type[S], what: str) -> S:
    """Make a value of fields that were read, those that are null and may be left out being left out.

    Raises:
        MalformedInput: they do not fit.
    """
    optional = _optional(kind)
    kept = {name: value for name, value in fields.items() if value is not None or name not in optional}
    try:
        return msgspec.convert(kept, kind)
    except msgspec.ValidationError as error:
        raise MalformedInput(f"{what} does not fit: {shorten(clean(str(error)), _LONGEST_REASON)}") from None


@cache
def _optional(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind) if not field.required)


def check_address(what: str, url: str) -> None:
    """Check that something is an address that a message can be posted to.

    Raises:
        MalformedInput: it is none; the text says why.
    """
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    else:
        if "@" in parts.netloc:
            raise MalformedInput(f"{what} has a user name in it, which hides where it leads")
        named = named and parts.scheme in ("http", "https")
    if not named or not url.isprintable() or " " in url or "\\" in url:
        raise MalformedInput(f"{what} {shown(url)} is not an http or https address")
