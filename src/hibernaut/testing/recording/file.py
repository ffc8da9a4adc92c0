"""The file of a recording: JSON that people can review, the same bytes whenever the same is recorded.

Completions stand in the order of what was asked, line by line, so that it does not matter which of two threads was
faster. Of what was asked only the lines stand there that differ from the completion before.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hibernaut.errors import ConfigurationError
from hibernaut.models.protocol import ModelInfo
from hibernaut.testing.recording.asked import shared
from hibernaut.testing.recording.said import Said

FORMAT: Final = "hibernaut recording"

VERSION: Final = 1

LARGEST: Final = 256 * 1024 * 1024
"""Bytes of a file that is read."""


class Completion(msgspec.Struct, frozen=True):
    """What was said to what was asked."""

    asked: tuple[str, ...]
    said: tuple[Said, ...]


class Contents(msgspec.Struct, frozen=True):
    """What a file holds. `model` is the name of who has said it."""

    model: str
    info: ModelInfo
    completions: Sequence[Completion]


class _Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A completion in a file."""

    as_before: int = 0
    """Lines of the completion before with which what was asked begins."""
    asked: tuple[str, ...]
    said: tuple[Said, ...]


class _Head(msgspec.Struct, frozen=True):
    format: str = ""
    version: int = 0


class _Info(ModelInfo, frozen=True, omit_defaults=True):
    pass


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    version: int
    model: str
    info: _Info
    completions: tuple[_Stored, ...]


def read_contents(path: Path) -> Contents:
    """Read a file.

    Raises:
        ConfigurationError: it cannot be read, or is no recording; the text says which and why.
    """
    try:
        if path.stat().st_size > LARGEST or not path.is_file():
            raise ConfigurationError(f"{path} is no recording: it is no file of at most {LARGEST:,} bytes")
        data = path.read_bytes()
        head = msgspec.json.decode(data, type=_Head)
        if head.format != FORMAT:
            raise ConfigurationError(f'{path} is no recording: it does not say "format": "{FORMAT}"')
        if head.version != VERSION:
            raise ConfigurationError(
                f"{path} is a recording of version {head.version}, and this is a Hibernaut that knows {VERSION}; "
                "record it anew"
            )
        return _unfolded(msgspec.json.decode(data, type=_File))
    except OSError as error:
        raise ConfigurationError(f"the recording {path} cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no recording, or a broken one: {error}") from error
    except IndexError as error:
        raise ConfigurationError(f"{path} is a broken recording: {error}") from error


def write_contents(path: Path, contents: Contents) -> None:
    """Write a file: all of it, or none.

    Raises:
        ConfigurationError: it cannot be written. What was there before still is.
    """
    info = _Info(**msgspec.structs.asdict(contents.info))
    file = _File(FORMAT, VERSION, contents.model, info, _folded(contents.completions))
    data = msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"
    there = path.resolve()  # what a link leads to is replaced, and not the link
    beside = there.with_name(f".{there.name}.{os.getpid()}")
    try:
        there.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(there)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"the recording {path} cannot be written: {error.strerror or error}") from error


def _folded(completions: Sequence[Completion]) -> tuple[_Stored, ...]:
    stored = []
    before: tuple[str, ...] = ()
    # Sorting is stable: what was said to the same request stays in its order.
    for one in sorted(completions, key=lambda completion: completion.asked):
        same = shared(before, one.asked)
        stored.append(_Stored(as_before=same, asked=one.asked[same:], said=one.said))
        before = one.asked
    return tuple(stored)


def _unfolded(file: _File) -> Contents:
    completions = []
    before: tuple[str, ...] = ()
    for number, one in enumerate(file.completions, 1):
        if not 0 <= one.as_before <= len(before):
            raise IndexError(
                f"completion {number} begins with {one.as_before} lines of the one before, which has fewer"
            )
        before = (*before[: one.as_before], *one.asked)
        completions.append(Completion(before, one.said))
    return Contents(file.model, ModelInfo(**msgspec.structs.asdict(file.info)), completions)
