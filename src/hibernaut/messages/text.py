"""Text that any store, wire and screen can carry, and cuts that leave it readable.

`clean` runs once, at the door: where text enters the runtime. Nothing behind the door calls it again,
because the escape of a literal U+2400 or U+241B grows with every pass (`restore` takes back one pass).
What it returns always encodes to UTF-8 and holds no NUL.

`excerpt` and `shorten` cut. They are for what a model or a person reads, not for what is stored whole.
"""

import codecs
import re
import unicodedata
from typing import Final

REPLACEMENT: Final = "\ufffd"
"""What stands for bytes and code units that are no character."""

NUL_MARK: Final = "\u2400"
"""SYMBOL FOR NULL: stands for a NUL in clean text."""

ESCAPE_MARK: Final = "\u241b"
"""SYMBOL FOR ESCAPE: before a NUL_MARK or an ESCAPE_MARK that was in the text to begin with."""

_PAIR_OR_LONE: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_MARKS: Final = re.compile("[\u2400\u241b]")
_MARKED: Final = re.compile("\u241b([\u2400\u241b])|\u2400")
_BLANKS: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_INK: Final = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]")

# Longest run of combining characters that a cut steps over; beyond it the text is no longer written language.
_CLUSTER_BOUND: Final = 64

# The canonical combining class of the signs that bind the next consonant in Indic scripts.
_VIRAMA: Final = 9

_CONTINUATION: Final = bytes(range(0x80, 0xC0))

# Bytes that head and tail must have between them for an excerpt to be worth its marker.
_LEAST_ROOM: Final = 16

# How far a cut moves to end on a newline: characters, and at most this part of the piece.
_NEWLINE_REACH: Final = 512
_NEWLINE_SHARE: Final = 4


def clean(text: str) -> str:
    """Make text storable everywhere: no lone surrogate, no NUL, and nothing else changed.

    A high and a low surrogate side by side (JSON escapes decoded one by one) become the character they mean;
    any other surrogate becomes U+FFFD. NUL becomes U+2400, and U+2400 and U+241B themselves get U+241B in front,
    so that `restore` can tell them apart. The six characters backslash-u-0000 are not a NUL and stay.

    Returns the same object when nothing is to be done. Not idempotent for text that holds U+2400 or U+241B:
    only the door calls it.
    """
    if not text.isascii():
        text = join_surrogates(text)
        if NUL_MARK in text or ESCAPE_MARK in text:
            text = _MARKS.sub(ESCAPE_MARK + r"\g<0>", text)
    return text.replace("\x00", NUL_MARK) if "\x00" in text else text


def restore(text: str) -> str:
    """Undo what `clean` did to NUL: `restore(clean(t)) == t` for every `t` without surrogates."""
    if NUL_MARK in text or ESCAPE_MARK in text:
        return _MARKED.sub(lambda mark: mark[1] or "\x00", text)
    return text


def join_surrogates(text: str) -> str:
    """Turn surrogate pairs into the characters they mean and every lone surrogate into U+FFFD.

    Returns the same object when there is none. The result always encodes to UTF-8.
    """
    try:
        # Encoding is three times as fast as a regular expression that looks for surrogates.
        text.encode()
    except UnicodeEncodeError:
        return _PAIR_OR_LONE.sub(_joined, text)
    return text


def _joined(found: re.Match[str]) -> str:
    units = found[0]
    if len(units) == 1:
        return REPLACEMENT
    return chr(0x10000 + ((ord(units[0]) - 0xD800) << 10) + (ord(units[1]) - 0xDC00))


def decode(data: bytes) -> str:
    """Read bytes as UTF-8, put U+FFFD where they are not, and `clean` the result. Never fails."""
    return clean(data.decode("utf-8", "replace"))


class Decoder:
    """`decode` for bytes that arrive in pieces, however they are split.

    The pieces that `feed` and `finish` return, joined, equal `decode` of all the bytes.
    """

    __slots__ = ("_utf8",)

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """Return the clean text that is complete so far; up to three bytes are held back for the next piece."""
        return clean(self._utf8.decode(data))

    def finish(self) -> str:
        """Return what was held back (U+FFFD for half a character) and start afresh."""
        rest = clean(self._utf8.decode(b"", final=True))
        self._utf8.reset()
        return rest


def excerpt(text: str, limit: int, *, tail: float = 0.5, whole: str = "") -> str:
    """Keep the head and the tail of a text, with a line between them that says how much is left out.

    Cuts fall on a newline when one is near, else between grapheme clusters. Returns the same object when the
    text fits.

    Args:
        text: clean text (surrogates are tolerated and count three bytes each).
        limit: the most the result may have, in bytes of UTF-8, marker included. Below about 100 there is no room
            for the marker and the result is the head with an ellipsis.
        tail: the part of the room that the tail gets, 0 to 1.
        whole: where the whole text is, for the marker ("blob 3fa9…"). Not cut: keep it short.
    """
    total = _utf8_size(text)
    if total <= limit:
        return text
    widest = _marker(len(text), total, whole)
    room = limit - len(widest.encode()) - 2
    if room < _LEAST_ROOM:
        return _head_with_ellipsis(text, limit)
    tail_room = int(room * min(max(tail, 0.0), 1.0))
    end = _head_end(text, room - tail_room)
    start = _tail_start(text, tail_room)
    missing = text[end:start]
    head, rest = text[:end], text[start:]
    before = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{before}{_marker(len(missing), _utf8_size(missing), whole)}\n{rest}"


def shorten(text: str, limit: int) -> str:
    """Make one line of at most `limit` characters: for titles and previews.

    Newlines, other blanks and control characters become single spaces. What does not fit is cut between grapheme
    clusters and replaced by an ellipsis, which counts. Work and memory follow `limit`, not the text.
    """
    if limit <= 0:
        return ""
    first = _INK.search(text)
    if first is None:
        return ""
    # Blanks may shrink, so look further than the limit, but never at all of a ten megabyte line.
    end = first.start() + limit * 4 + 256
    line = _BLANKS.sub(" ", text[first.start() : end]).strip()
    if len(line) <= limit and _INK.search(text, end) is None:
        return line
    if limit == 1:
        return "…"
    return line[: _boundary_before(line, min(limit - 1, len(line)))].rstrip() + "…"


def _marker(characters: int, size: int, whole: str) -> str:
    where = f"; the whole text: {whole}" if whole else ""
    return f"[… {characters:,} characters ({size:,} bytes) left out here{where} …]"


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _head_with_ellipsis(text: str, limit: int) -> str:
    room = limit - len("…".encode())
    return text[: _boundary_before(text, _characters_in(text, room))] + "…" if room >= 0 else ""


def _head_end(text: str, room: int) -> int:
    """Find where a head of at most `room` bytes ends."""
    end = _characters_in(text, room)
    reach = min(_NEWLINE_REACH, end // _NEWLINE_SHARE)
    newline = text.rfind("\n", end - reach, end)
    return newline + 1 if newline >= 0 else _boundary_before(text, end)


def _tail_start(text: str, room: int) -> int:
    """Find where a tail of at most `room` bytes starts."""
    if room <= 0:
        return len(text)
    sample = text[-room:]
    if sample.isascii():
        start = len(text) - len(sample)
    else:
        data = sample.encode("utf-8", "surrogatepass")[-room:]
        # A character that the cut went through has left up to three continuation bytes in front.
        start = len(text) - len(data.lstrip(_CONTINUATION).decode("utf-8", "surrogatepass"))
    if text[start - 1] == "\n":
        return start
    reach = min(_NEWLINE_REACH, (len(text) - start) // _NEWLINE_SHARE)
    newline = text.find("\n", start, start + reach)
    return newline + 1 if newline >= 0 else _boundary_after(text, start)


def _characters_in(text: str, room: int) -> int:
    """Count the characters from the start that fit into `room` bytes."""
    if room <= 0:
        return 0
    sample = text[:room]
    if sample.isascii():
        return len(sample)
    data = sample.encode("utf-8", "surrogatepass")
    if len(data) <= room:
        return len(sample)
    while data[room] in _CONTINUATION:
        room -= 1
    return len(data[:room].decode("utf-8", "surrogatepass"))


def _boundary_before(text: str, index: int) -> int:
    """Find the last place at or before `index` where text may be cut."""
    for place in range(index, max(0, index - _CLUSTER_BOUND), -1):
        if not _joins(text, place):
            return place
    return 0 if index <= _CLUSTER_BOUND else index - _splits_pair(text, index)


def _boundary_after(text: str, index: int) -> int:
    """Find the first place at or after `index` where text may be cut."""
    for place in range(index, min(len(text), index + _CLUSTER_BOUND)):
        if not _joins(text, place):
            return place
    return len(text) if len(text) - index <= _CLUSTER_BOUND else index + _splits_pair(text, index)


def _splits_pair(text: str, index: int) -> bool:
    return "\ud800" <= text[index - 1] <= "\udbff" and "\udc00" <= text[index] <= "\udfff"


def _joins(text: str, index: int) -> bool:
    """Tell whether the characters around `index` belong together (a close reading of UAX 29 without its tables)."""
    if index <= 0 or index >= len(text):
        return False
    left, right = text[index - 1], text[index]
    if left < "\u0300" and right < "\u0300":
        return left == "\r" and right == "\n"
    if left == ESCAPE_MARK and right in (NUL_MARK, ESCAPE_MARK):
        return _run_before(text, index, ESCAPE_MARK, ESCAPE_MARK) % 2 == 1
    if left < " ":
        return False
    if left == "\u200d" or right == "\u200d":
        return True
    if unicodedata.category(right) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= right <= "\U0001f3ff" or "\U000e0020" <= right <= "\U000e007f":
        return True
    if "\U0001f1e6" <= left <= "\U0001f1ff" and "\U0001f1e6" <= right <= "\U0001f1ff":
        return _run_before(text, index, "\U0001f1e6", "\U0001f1ff") % 2 == 1
    if unicodedata.combining(left) == _VIRAMA and unicodedata.category(right) == "Lo":
        return True
    return _splits_pair(text, index) or _joins_hangul(left, right)


def _run_before(text: str, index: int, first: str, last: str) -> int:
    """Count the characters from `first` to `last` that stand directly before `index`; only the parity is used."""
    start = index
    while start > 0 and first <= text[start - 1] <= last:
        start -= 1
    return index - start


def _joins_hangul(left: str, right: str) -> bool:
    if not "\u1100" <= left <= "\ud7fb":
        return False
    if "\u1100" <= left <= "\u115f" or "\ua960" <= left <= "\ua97c":
        return "\u1100" <= right <= "\u11a7" or "\ua960" <= right <= "\ua97c" or "\uac00" <= right <= "\ud7a3"
    vowel = "\u1160" <= right <= "\u11a7" or "\ud7b0" <= right <= "\ud7c6"
    final = "\u11a8" <= right <= "\u11ff" or "\ud7cb" <= right <= "\ud7fb"
    if "\uac00" <= left <= "\ud7a3":
        return final or (vowel and (ord(left) - 0xAC00) % 28 == 0)
    if "\u1160" <= left <= "\u11a7" or "\ud7b0" <= left <= "\ud7c6":
        return vowel or final
    return final and ("\u11a8" <= left <= "\u11ff" or "\ud7cb" <= left <= "\ud7fb")


def dollars(millionths: int) -> str:
    """Return a sum of money, given in millionths of a US dollar, for people."""
    amount = millionths / 1_000_000
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def duration(milliseconds: int) -> str:
    """Write a length of time for people and models."""
    seconds = milliseconds / 1000
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:g} s"
