"""What a tool server delivers to a runtime, after it has acknowledged a call."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hibernaut.rap.limits import (
    LONGEST_ADDRESS,
    LONGEST_CHOICE,
    LONGEST_EVENT_ID,
    LONGEST_ID,
    LONGEST_NAME,
    LONGEST_QUESTION,
    MOST_CHOICES,
    MOST_PARTS,
)
from hibernaut.rap.reading import LARGEST_INTEGER

Id = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
Address = Annotated[str, Meta(min_length=1, max_length=LONGEST_ADDRESS)]
Number = Annotated[int, Meta(ge=0, le=LARGEST_INTEGER)]


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A text in a result."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="image", rename="camel"):
    """A picture in a result, in base64."""

    data: str
    media_type: str = ""


class _Callback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    group_id: Id


class Result(_Callback, frozen=True, kw_only=True, omit_defaults=True, tag="tool_result"):
    """A call is answered; with `subscription` it goes on and will bring events. A `content` that is not empty counts.

    `display_as` are segments for people; a client shows the first kind that it knows (`segments`).
    """

    id: Id
    call_id: str | None = None
    text: str = ""
    content: Annotated[tuple[TextPart | ImagePart, ...], Meta(max_length=MOST_PARTS)] = ()
    display_as: Annotated[tuple[dict[str, Any], ...], Meta(max_length=MOST_PARTS)] = ()
    subscription: bool = False
    is_error: bool = False


class SubscriptionEvent(_Callback, frozen=True, kw_only=True, omit_defaults=True, tag="subscription_event"):
    """Something happened that a subscription watches for."""

    tool_call_id: Id
    text: str
    associative: bool = False
    final: bool = False
    event_id: Annotated[str, Meta(max_length=LONGEST_EVENT_ID)] = ""
    sequence: Number = 0


class OAuth(_Callback, frozen=True, kw_only=True, omit_defaults=True, tag="oauth"):
    """A person has to authorize something at `auth_url` before the call can go on."""

    id: Id
    call_id: str | None = None
    auth_url: Address


class UserChoice(_Callback, frozen=True, kw_only=True, omit_defaults=True, tag="user_choice"):
    """A call asks a person. The answer is posted to `response_url`. `choice_id` tells several questions apart."""

    id: Id
    call_id: str | None = None
    prompt: Annotated[str, Meta(min_length=1, max_length=LONGEST_QUESTION)]
    choices: Annotated[
        tuple[Annotated[str, Meta(max_length=LONGEST_CHOICE)], ...], Meta(min_length=1, max_length=MOST_CHOICES)
    ]
    default: Number = 0
    response_url: Address
    choice_id: Annotated[str, Meta(max_length=LONGEST_ID)] = ""


class ViewUpdate(_Callback, frozen=True, kw_only=True, omit_defaults=True, tag="view_update"):
    """What people see beside the conversation, of one kind, is now this. No model sees it."""

    view_type: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    content: Any


Callback = Result | SubscriptionEvent | OAuth | UserChoice | ViewUpdate


class TextSegment(msgspec.Struct, frozen=True, tag="text"):
    """A text for people."""

    content: str


class Diff(msgspec.Struct, frozen=True):
    """A change of one file, as a unified diff."""

    path: str
    patch: str


class DiffSegment(msgspec.Struct, frozen=True, tag="diff"):
    """A change for people."""

    content: Diff


class Picture(msgspec.Struct, frozen=True, rename="camel"):
    """A picture in base64."""

    data: str
    media_type: str


class ImageSegment(msgspec.Struct, frozen=True, tag="image"):
    """A picture for people."""

    content: Picture


Segment = TextSegment | DiffSegment | ImageSegment


def segments(result: Result) -> list[Segment]:
    """Return the display segments of kinds that this version knows, in order."""
    known: list[Segment] = []
    for written in result.display_as:
        try:
            known.append(msgspec.convert(written, Segment))
        except msgspec.ValidationError:
            continue
    return known


def written_segments(*shown_as: Segment) -> tuple[dict[str, Any], ...]:
    """Return display segments as `Result.display_as` takes them."""
    return tuple(map(msgspec.to_builtins, shown_as))
