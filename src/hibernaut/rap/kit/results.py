"""What a function returned or raised, as callbacks: whole and as it was, within the bounds of the wire."""

import base64
from collections.abc import Mapping

from msgspec.structs import replace

from hibernaut.messages.parts import Content, Excerpt, Image, Part
from hibernaut.messages.text import restore
from hibernaut.rap.callbacks import Callback, ImagePart, Result, SubscriptionEvent, TextPart
from hibernaut.rap.limits import LIMITS
from hibernaut.rap.requests import Invocation
from hibernaut.rap.wire import encode
from hibernaut.tools.results import Outcome

_ERROR = "Error: "


def result_of(invocation: Invocation, outcome: Outcome, *, subscription: bool = False) -> bytes:
    """Return the callback that answers a call. One that would be too large is an error that says so."""
    blank = Result(group_id=invocation.group_id, id=invocation.id, call_id=invocation.call_id)
    result = replace(blank, subscription=subscription, is_error=outcome.is_error)
    parts = _parts(outcome)
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, TextPart):
        body = encode(replace(result, text=_marked(only.text, is_error=outcome.is_error)))
    else:
        body = encode(replace(result, content=tuple(parts)))
    if len(body) <= LIMITS.callback_bytes:
        return body
    return encode(replace(blank, text=_too_large("the call was run, but its result", len(body)), is_error=True))


def event_of(
    invocation: Invocation, outcome: Outcome, *, associative: bool, event_id: str, sequence: int, final: bool = False
) -> bytes:
    """Return the callback that tells of an event. The wire carries text only: a picture is a word in brackets."""

    def event(text: str) -> Callback:
        return SubscriptionEvent(
            group_id=invocation.group_id,
            tool_call_id=invocation.id,
            text=text,
            associative=associative,
            final=final,
            event_id=event_id,
            sequence=sequence,
        )

    body = encode(event(_marked(said_by(outcome), is_error=outcome.is_error)))
    return body if len(body) <= LIMITS.callback_bytes else encode(event(_too_large("an event", len(body))))


def said_by(outcome: Outcome) -> str:
    """Return what an event says, as the wire carries it."""
    return "\n".join(
        part.text if isinstance(part, TextPart) else f"[image: {part.media_type}]" for part in _parts(outcome)
    )


def failed(text: str) -> Outcome:
    """Return the outcome of a call that is answered by the server itself."""
    return Outcome(_marked(text, is_error=True), is_error=True)


def _marked(text: str, *, is_error: bool) -> str:
    return _ERROR + text if is_error and not text.startswith(_ERROR) else text


def _too_large(what: str, size: int) -> str:
    return f"{_ERROR}{what} was not sent: it has {size:,} bytes, and at most {LIMITS.callback_bytes:,} are taken"


def _parts(outcome: Outcome) -> list[TextPart | ImagePart]:
    whole = {blob.digest: blob.data for blob in outcome.blobs}
    content: Content = outcome.content
    if isinstance(content, str):
        return [TextPart(restore(content))]
    return [_part(part, whole) for part in content]


def _part(part: Part, whole: Mapping[bytes, bytes]) -> TextPart | ImagePart:
    if isinstance(part, Image):
        if part.url:
            return TextPart(f"[image: {restore(part.url)}]")
        data = whole[part.blob] if part.blob else part.data
        return ImagePart(base64.b64encode(data).decode(), part.media_type)
    if isinstance(part, Excerpt) and part.blob in whole:
        return TextPart(restore(whole[part.blob].decode()))
    return TextPart(restore(part.text))
