"""What a tool returned, as content that a thread can keep.

This is a door: text is cleaned here, and nobody cleans it again. What is large goes to blobs, and an excerpt with its
head and its tail stays in the thread. Content that comes from elsewhere, such as a user's or a delivered result, goes
through `fit` as well.
"""

import inspect
import math
import os
from typing import Any

import msgspec

from hibernaut.codec import sha256
from hibernaut.errors import InputRefused, MalformedInput, TooLarge, ToolError
from hibernaut.kernel.commit import Blob
from hibernaut.kernel.limits import EXCERPT, INLINE_CONTENT, LARGEST_CONTENT
from hibernaut.messages.parts import Content, Excerpt, Image, Part, Text
from hibernaut.messages.text import clean, excerpt, join_surrogates

DONE = "Done."
"""What a model reads of a tool that returned nothing."""

MOST_PARTS = 100
"""Parts of one content; every one of them may leave an excerpt in the thread."""

LONGEST_ERROR = 4_096
"""Bytes of the text of an error that a model reads."""

_SHOWN_CAUSES = 5


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How a call ended: the content of its result, and the blobs that must be stored before it."""

    content: Content
    is_error: bool = False
    blobs: tuple[Blob, ...] = ()


def outcome(value: object) -> Outcome:
    """Return what a model reads of the value that a tool returned. Never fails: what cannot be kept is an error."""
    try:
        content, blobs = fit(_content(value))
    except InputRefused as error:
        return Outcome(f"The tool ran, but its result was not kept: {error}.", is_error=True)
    except Exception as error:  # noqa: BLE001  # the value's own code runs when it is written as JSON
        text = f"The tool ran, but its result, a {type(value).__qualname__}, cannot be written as text"
        return Outcome(f"{text}. {failure(error).content}", is_error=True)
    return Outcome(content, blobs=blobs)


def failure(error: BaseException) -> Outcome:
    """Return what a model reads of the error that a tool raised: its kind and its text, never a traceback."""
    if isinstance(error, ToolError) and (text := _text_of(error)):
        return Outcome(excerpt(clean(text), LONGEST_ERROR), is_error=True)
    causes = _causes(error)
    text = "\n".join(f"Error: {_describe(cause)}" for cause in causes[:_SHOWN_CAUSES])
    if len(causes) > _SHOWN_CAUSES:
        text += f"\nand {len(causes) - _SHOWN_CAUSES} more errors"
    return Outcome(excerpt(clean(text), LONGEST_ERROR), is_error=True)


def fit(content: Content) -> tuple[Content, tuple[Blob, ...]]:
    """Clean a content and make it small enough to be carried along.

    A content of up to `INLINE_CONTENT` bytes stays as it is. Of a larger one, each text and image above `EXCERPT` bytes
    goes to a blob: of a text an excerpt stays, of an image the digest.

    Raises:
        TooLarge: it has more than `LARGEST_CONTENT` bytes.
        MalformedInput: it has too many parts, or one that names a blob.
    """
    if isinstance(content, str):
        text = clean(str.__str__(content))  # a subclass, such as an enum of texts, could not be stored
        if len(text) * 4 <= INLINE_CONTENT or (size := _utf8_size(text)) <= INLINE_CONTENT:
            return text, ()
        _check_size(size)
        part, blob = _spill_text(text)
        return (part,), (blob,)
    if len(content) > MOST_PARTS:
        raise MalformedInput(f"a content has at most {MOST_PARTS} parts, and this one has {len(content)}")
    parts = tuple(map(_clean_part, content))
    size = sum(map(_part_size, parts))
    if size <= INLINE_CONTENT:
        return parts, ()
    _check_size(size)
    blobs: dict[bytes, Blob] = {}
    return tuple(_spill(part, blobs) for part in parts), tuple(blobs.values())


def _check_size(size: int) -> None:
    if size > LARGEST_CONTENT:
        raise TooLarge("the content", size, LARGEST_CONTENT, "LARGEST_CONTENT")


def _clean_part(part: Part) -> Text | Image:
    """Clean a part.

    Raises:
        MalformedInput: it names a blob: whoever knows a digest need not have a right to what it is of.
    """
    if isinstance(part, Text):
        return Text(clean(part.text))
    if isinstance(part, Excerpt) or part.blob:
        raise MalformedInput("a part of the content only names a blob; hand in the text or the image itself")
    return Image(clean(part.media_type), bytes(part.data), url=clean(part.url))


def _part_size(part: Text | Image) -> int:
    if isinstance(part, Image):
        return len(part.data) + len(part.url)
    return _utf8_size(part.text)


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _spill(part: Text | Image, blobs: dict[bytes, Blob]) -> Part:
    left: Part
    if isinstance(part, Image):
        if len(part.data) <= EXCERPT:
            return part
        blob = Blob(sha256(part.data), part.data)
        left = msgspec.structs.replace(part, data=b"", blob=blob.digest)
    elif _utf8_size(part.text) <= EXCERPT:
        return part
    else:
        left, blob = _spill_text(part.text)
    blobs[blob.digest] = blob
    return left


def _spill_text(text: str) -> tuple[Excerpt, Blob]:
    data = text.encode()
    blob = Blob(sha256(data), data)
    return Excerpt(excerpt(text, EXCERPT, whole=f"blob {blob.digest.hex()}"), blob.digest, len(data)), blob


def _content(value: object) -> Content:
    """Return a value as content that is not clean yet."""
    if type(value) is str:
        return value
    if value is None:
        return DONE
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, Part):
        return (value,)
    if isinstance(value, list | tuple) and any(isinstance(part, Part) for part in value):
        return tuple(part if isinstance(part, Part) else Text(_text(part)) for part in value)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise MalformedInput("the function returned something to be awaited; make it `async def` and await it there")
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # the plain text of a subclass, such as an enum of texts
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        written = _encode(value)
    except UnicodeEncodeError:
        written = _encode(_without_surrogates(msgspec.to_builtins(value, enc_hook=_simplify)))
    return written.decode()


def _simplify(value: Any) -> Any:
    """Return a value that msgspec does not know as one that it does."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(type(value), "model_dump"):  # a pydantic model
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__qualname__} is nothing that JSON can write")


_encode = msgspec.json.Encoder(enc_hook=_simplify).encode


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(child) for child in value]
    return value


def _describe(error: BaseException) -> str:
    text = _text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text_of(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001  # the error is foreign code, and so is its `__str__`
        return ""


def _causes(error: BaseException) -> list[BaseException]:
    """Return the errors that a group holds, however deep: a group itself says nothing of what went wrong."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [cause for part in error.exceptions for cause in _causes(part)]
