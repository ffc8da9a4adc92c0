"""What a server sends for a call, as people read it or as lines of JSON."""

import base64
import binascii
import mimetypes
import sys
from pathlib import Path
from typing import Any, Protocol

import click
import msgspec

from hibernaut.cli.rap.reaching import as_json
from hibernaut.cli.terminal import BOLD, DIM, RED, is_styled, safe, styled
from hibernaut.messages.text import shorten
from hibernaut.rap.callbacks import (
    Callback,
    DiffSegment,
    ImagePart,
    ImageSegment,
    OAuth,
    Result,
    SubscriptionEvent,
    TextPart,
    TextSegment,
    UserChoice,
    ViewUpdate,
    segments,
)

_LONGEST_KIND = 40


class Show(Protocol):
    """Where what comes back is shown."""

    def callback(self, callback: Callback) -> None:
        """Show what came."""
        ...

    def refused(self, kind: str, problem: str) -> None:
        """Say that something came that a runtime refuses. `kind` is "" if it has none."""
        ...

    def answered(self, choice: UserChoice, selected: int) -> None:
        """Say how a question was answered."""
        ...


class Pictures:
    """Pictures, written into a folder if there is one, under names of our own."""

    def __init__(self, folder: Path | None, tool: str) -> None:
        self._folder = folder
        self._tool = tool
        self._count = 0

    def line(self, data: str, media_type: str) -> str:
        """Return a picture as a line, after it has been written."""
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return f"[a picture, {media_type or 'of no type'}, that is not base64]"
        written = ""
        if self._folder is not None:
            path = self._write(self._folder, content, media_type)
            written = f", written to {path}"
        return f"[a picture, {media_type or 'of no type'}, {len(content):,} bytes{written}]"

    def _write(self, folder: Path, content: bytes, media_type: str) -> Path:
        suffix = mimetypes.guess_extension(media_type.partition(";")[0].strip()) or ".bin"
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            self._count += 1
            path = folder / f"{self._tool}-{self._count}{suffix}"
            try:
                with path.open("xb") as file:
                    file.write(content)
            except FileExistsError:
                continue
            return path


class Lines:
    """Text for people."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self._styled = is_styled(sys.stdout)

    def callback(self, callback: Callback) -> None:
        match callback:
            case Result():
                self._result(callback)
            case SubscriptionEvent():
                marks = [name for name in ("associative", "final") if getattr(callback, name)]
                marked = f" ({', '.join(marks)})" if marks else ""
                self._line(f"event{marked}: {callback.text}")
            case OAuth():
                self._line(f"→ authorize it at {callback.auth_url}", BOLD)
            case UserChoice():
                self._line(f"? {callback.prompt}", BOLD)
                for number, choice in enumerate(callback.choices, 1):
                    default = "  (the default)" if number - 1 == callback.default else ""
                    self._line(f"    {number}  {choice}{default}")
            case ViewUpdate():
                self._line(f"view {callback.view_type}: {as_json(callback.content)}", DIM)

    def refused(self, kind: str, problem: str) -> None:
        came = f"a callback of type {shorten(kind, _LONGEST_KIND)!r}" if kind else "something"
        click.echo(f"warning: {safe(came)} came and was {safe(problem)}", err=True)

    def answered(self, choice: UserChoice, selected: int) -> None:
        self._line(f"  answered: {choice.choices[selected]}", DIM)

    def _result(self, result: Result) -> None:
        style = RED if result.is_error else ""
        if not result.content:
            self._line(result.text, style)
        for part in result.content:
            match part:
                case TextPart():
                    self._line(part.text, style)
                case ImagePart():
                    self._line(self._pictures.line(part.data, part.media_type), DIM)
        for segment in segments(result):
            match segment:
                case TextSegment():
                    self._line("for people:", DIM)
                    self._line(segment.content)
                case DiffSegment():
                    self._line(f"for people, a change of {segment.content.path}:", DIM)
                    self._line(segment.content.patch)
                case ImageSegment():
                    picture = self._pictures.line(segment.content.data, segment.content.media_type)
                    self._line(f"for people: {picture}", DIM)
        if result.subscription:
            self._line("subscribed; Ctrl-C ends it", DIM)

    def _line(self, text: str, style: str = "") -> None:
        shown = safe(text.removesuffix("\n"))
        click.echo(styled(shown, style) if self._styled else shown)


class JsonLines:
    """One object a line."""

    def callback(self, callback: Callback) -> None:
        click.echo(as_json(msgspec.to_builtins(callback)))

    def refused(self, kind: str, problem: str) -> None:
        self._own({"type": "refused", "of": kind, "problem": problem})

    def answered(self, choice: UserChoice, selected: int) -> None:
        self._own({"type": "answered", "selected": selected, "choice": choice.choices[selected]})

    def _own(self, fields: dict[str, Any]) -> None:
        click.echo(as_json(fields))
