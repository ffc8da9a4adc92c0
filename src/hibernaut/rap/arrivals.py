"""What a tool server delivered, as what a thread takes in.

This is a door: texts are cleaned here, once, and what is large goes to blobs. The ids of messages follow from what was
delivered, so that the same delivery twice is one input: a result by its call, an authorization by its call and
address, a choice by its choice id, an event by its event id. What has no id of its own goes by what it says, or (an
event) by the identity that its receiver gives the delivery.
"""

import base64
import binascii
from typing import Final

import msgspec

from hibernaut.codec import sha256, to_json
from hibernaut.errors import MalformedInput
from hibernaut.ids import asked_id
from hibernaut.kernel.commit import Blob
from hibernaut.messages.inputs import Event, InputMessage, Question, ToolResult, event_message
from hibernaut.messages.parts import Content, Image, Part, Text
from hibernaut.messages.text import clean
from hibernaut.rap.callbacks import (
    Callback,
    ImagePart,
    OAuth,
    Result,
    SubscriptionEvent,
    TextPart,
    UserChoice,
    ViewUpdate,
)
from hibernaut.rap.reading import shown
from hibernaut.tools.context import AUTHORIZED, address
from hibernaut.tools.results import fit
from hibernaut.tools.tokens import Grant, Kind

SIGNED: Final = "rap"
"""The sender of what came under a callback token."""

UNSIGNED: Final = "rap:unsigned"
"""The sender of what a server on this machine delivered without one."""

_UNKNOWN_PICTURE: Final = "application/octet-stream"


class Arrival(msgspec.Struct, frozen=True):
    """An input, and the blobs that must be stored before it."""

    message: InputMessage
    blobs: tuple[Blob, ...] = ()


class View(msgspec.Struct, frozen=True):
    """What people see beside a thread, of one kind, is now this (JSON text). It is no input and wakes nobody."""

    thread_id: str
    view_type: str
    content: str


def scope_of(callback: Callback) -> tuple[Kind, str, str | None]:
    """Return of what kind a callback is, and for which thread and call; a view names no call."""
    match callback:
        case Result():
            return "tool_result", callback.group_id, callback.id
        case SubscriptionEvent():
            return "subscription_event", callback.group_id, callback.tool_call_id
        case OAuth():
            return "oauth", callback.group_id, callback.id
        case UserChoice():
            return "user_choice", callback.group_id, callback.id
        case ViewUpdate():
            return "view_update", callback.group_id, None


def arrive(callback: Callback, grant: Grant | None, tool: str = "the tool", delivery: str = "") -> Arrival | View:
    """Turn a callback into an input for its thread.

    Args:
        callback: what was delivered.
        grant: what its token allows; None for a sender that is trusted without one.
        tool: what is called, for the words that a person is asked to authorize something with.
        delivery: the identity of this delivery, which an event without an id of its own goes by.

    Raises:
        TokenRefused: the grant is not for this.
        MalformedInput: a picture is not base64, an address is none that a person could be sent to, or an event has
            neither an id nor a `delivery`.
        TooLarge: the content is more than a thread takes.
    """
    if grant is not None:
        grant.check(*scope_of(callback))
    sender = UNSIGNED if grant is None else SIGNED
    match callback:
        case Result():
            return _result(callback, sender)
        case SubscriptionEvent():
            return _event(callback, sender, delivery)
        case OAuth():
            return _authorization(callback, sender, tool)
        case UserChoice():
            return _choice(callback, sender)
        case ViewUpdate():
            return View(clean(callback.group_id), clean(callback.view_type), clean(to_json(callback.content)))


def _result(result: Result, sender: str) -> Arrival:
    call = clean(result.id)
    content, blobs = fit(_content(result))
    display = clean(to_json(result.display_as)) if result.display_as else ""
    answer = ToolResult(call, content, result.is_error, result.subscription, display)
    return Arrival(InputMessage(f"result:{call}", clean(result.group_id), answer, sender), blobs)


def _content(result: Result) -> Content:
    parts = tuple(map(_part, result.content))
    if not parts:
        return result.text
    only = parts[0]
    return only.text if len(parts) == 1 and isinstance(only, Text) else parts


def _part(part: TextPart | ImagePart) -> Part:
    if isinstance(part, TextPart):
        return Text(part.text)
    try:
        data = base64.b64decode(part.data, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedInput(f"the picture {shown(part.data)} is not base64") from None
    return Image(part.media_type or _UNKNOWN_PICTURE, data)


def _event(event: SubscriptionEvent, sender: str, delivery: str) -> Arrival:
    if not event.event_id and not delivery:
        raise MalformedInput("the event has no event_id, and its delivery no identity")
    content, blobs = fit(event.text)
    happened = Event(
        clean(event.tool_call_id),
        content,
        clean(event.event_id) or f"delivery:{delivery}",
        event.associative,
        event.final,
        event.sequence,
    )
    return Arrival(event_message(clean(event.group_id), happened, sender), blobs)


def _authorization(asked: OAuth, sender: str, tool: str) -> Arrival:
    url = address(asked.auth_url)
    question = Question(
        asked_id(clean(asked.group_id), clean(asked.id), sha256(b"oauth|", url.encode())),
        clean(asked.id),
        f"{tool} needs your authorization",
        AUTHORIZED,
        AUTHORIZED.index("Cancel"),
        url=url,
    )
    return _question(asked.group_id, question, sender)


def _choice(asked: UserChoice, sender: str) -> Arrival:
    if asked.choice_id:
        identity = sha256(b"choice|", asked.choice_id.encode())
    else:
        said = [asked.prompt, asked.choices, asked.default, asked.response_url]
        identity = sha256(b"words|", to_json(said).encode())
    question = Question(
        asked_id(clean(asked.group_id), clean(asked.id), identity),
        clean(asked.id),
        clean(asked.prompt),
        tuple(map(clean, asked.choices)),
        asked.default,
        reply_url=asked.response_url,
    )
    return _question(asked.group_id, question, sender)


def _question(thread_id: str, question: Question, sender: str) -> Arrival:
    return Arrival(InputMessage(f"ask:{question.question_id}", clean(thread_id), question, sender))
