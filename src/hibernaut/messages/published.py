"""The JSON form of input messages that the published runtime uses, so that its senders can talk to ours.

    {"content": {"type": "text", "text": "…"}, "group_id": "…"}
    {"content": {"type": "toolresult", "id": "…", "content": [{"type": "text", "text": "…"}]}, "group_id": "…"}

`metadata`, `synthetic`, `display_as` and `subscription` may be left out; so may `event_id`, under which an event is the
same one however often it is sent, and `sequence` of a `synthetic`. The message id travels beside it. Contents
come as they were sent: whoever stores them cleans them and bounds their size (`hibernaut.tools.results.fit`).
"""

import base64
import binascii
from typing import Any

import msgspec

from hibernaut.codec import to_json
from hibernaut.errors import MalformedInput
from hibernaut.messages.inputs import Event, InputContent, InputMessage, ToolResult, UserText
from hibernaut.messages.parts import Content, Image, Part, Text
from hibernaut.messages.text import clean

IMAGE_TYPES = {
    "jpeg": "image/jpeg",
    "png": "image/png",
    "gif": "image/gif",
    "webp": "image/webp",
    "heic": "image/heic",
    "heif": "image/heif",
    "svg": "image/svg+xml",
}


class _Envelope(msgspec.Struct):
    content: dict[str, Any]
    group_id: str
    metadata: Any = None
    synthetic: dict[str, Any] | str | None = None
    display_as: list[Any] | None = None
    subscription: bool = False


def decode_published(body: bytes | str, message_id: str, sender: str = "api") -> InputMessage:
    """Read one message in the published form.

    Raises:
        MalformedInput: it is none, or of a kind that cannot come this way; the text says what is wrong.
    """
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedInput(f"the message cannot be read: {error}") from None
    if not envelope.group_id:
        raise MalformedInput("group_id is empty")
    metadata = "" if envelope.metadata is None else clean(to_json(envelope.metadata))
    return InputMessage(message_id, clean(envelope.group_id), _content(envelope), sender, metadata)


def _content(envelope: _Envelope) -> InputContent:
    content, synthetic = envelope.content, envelope.synthetic
    if isinstance(synthetic, str):
        synthetic = {"type": "subscription_event", "tool_call_id": synthetic}
    if synthetic is not None:
        return _event(content, synthetic)
    kind = content.get("type")
    if kind == "toolresult":
        display = "" if envelope.display_as is None else clean(to_json(envelope.display_as))
        return ToolResult(_text(content, "id"), _result(content), subscription=envelope.subscription, display=display)
    if kind == "text":
        return UserText(_text(content, "text"))
    if kind == "image":
        return UserText((_image(content),))
    raise MalformedInput(f"content of type {kind!r} is not taken here; text, image and toolresult are")


def _event(content: dict[str, Any], synthetic: dict[str, Any]) -> Event:
    if synthetic.get("type") != "subscription_event":
        kind = synthetic.get("type")
        raise MalformedInput(f"synthetic input of type {kind!r} is the runtime's own and not taken here")
    return Event(
        _text(synthetic, "tool_call_id"),
        _result(content),
        event_id=_text(synthetic, "event_id") if synthetic.get("event_id") is not None else "",
        associative=synthetic.get("associative") is True,
        final=synthetic.get("final") is True,
        sequence=_number(synthetic, "sequence"),
    )


def _result(content: dict[str, Any]) -> Content:
    parts = content.get("content")
    if content.get("type") != "toolresult" or not isinstance(parts, list) or not parts:
        raise MalformedInput("a tool result needs a non-empty list as its content")
    read: list[Part] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            read.append(Text(_text(part, "text")))
        elif kind == "image":
            read.append(_image(part))
        else:
            raise MalformedInput(f"a result part of type {kind!r} is not taken here; text and image are")
    only = read[0]
    return only.text if len(read) == 1 and isinstance(only, Text) else tuple(read)


def _image(part: dict[str, Any]) -> Image:
    name = part.get("media_type")
    media_type = IMAGE_TYPES.get(name, "") if isinstance(name, str) else ""
    data = part.get("data")
    if not isinstance(data, dict):
        raise MalformedInput("an image needs data")
    value = _text(data, "value")
    if data.get("type") == "url":
        return Image(media_type or "image/*", url=value)
    if data.get("type") != "base64":
        raise MalformedInput(f"image data of type {data.get('type')!r} is not taken here; base64 and url are")
    try:
        return Image(media_type or "application/octet-stream", base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        raise MalformedInput("the image is not base64") from None


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise MalformedInput(f"{name!r} must be a number from 0 on")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise MalformedInput(f"{name!r} must be a text")
    return value
