"""How both sides of the wire answer, as status codes: the table of errors, and what each side makes of an answer.

The table is `ROWS`. An error that it does not name is ours to mend, not the sender's: it is answered with 503, so that
the tool server keeps what it has and comes again.
"""

import email.utils
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from hibernaut.errors import (
    AlreadyAnswered,
    EventMisfit,
    EventNotTaken,
    HibernautError,
    InputRefused,
    MalformedInput,
    StoreError,
    SubscriptionOver,
    ThreadClosed,
    TokenRefused,
    TooLarge,
    UnknownThread,
)
from hibernaut.messages.text import decode, excerpt, shorten
from hibernaut.rap.limits import LIMITS, WireLimits
from hibernaut.rap.requests import Alive
from hibernaut.rap.wire import decode as decode_request

RETRY_AFTER: Final = 5
"""Seconds after which a tool server may come again, unless the error says otherwise."""

RETRY_AFTER_MOST: Final = 3_600
"""Seconds: whoever is told to wait longer comes again after these."""

LONGEST_EXCERPT: Final = 500
"""Bytes of an answer's body that stand in an error result."""

_LONGEST_NAMED: Final = 200
_MOST_DIGITS: Final = 9
_SUCCESS: Final = range(200, 300)
_TROUBLE: Final = 500
_TOO_MANY: Final = 429


class UnknownCall(InputRefused):
    """The thread has no such call, or it is over."""

    code = "unknown_call"

    def __init__(self, thread_id: str, call_id: str) -> None:
        super().__init__(f"thread {thread_id!r} has no call {call_id!r} that waits for anything")
        self.thread_id = thread_id
        self.call_id = call_id


class _ComeAgain(HibernautError):
    def __init__(self, why: str, retry_after: int = RETRY_AFTER) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class TooMany(_ComeAgain):
    """The sender, or the thread, has more waiting already than it may."""

    code = "too_many"


class Unavailable(_ComeAgain):
    """The runtime cannot store anything at this moment."""

    code = "unavailable"


class Row(msgspec.Struct, frozen=True):
    """A row of the table of errors."""

    error: type[HibernautError]
    status: int
    again: bool = False
    """The same body may be taken later: the answer has a `Retry-After`."""


ROWS: Final = (
    Row(MalformedInput, 400),
    Row(InputRefused, 400),
    Row(TokenRefused, 401),
    Row(UnknownThread, 404),
    Row(ThreadClosed, 404),
    Row(UnknownCall, 404),
    Row(AlreadyAnswered, 409),
    Row(TooLarge, 413),
    Row(EventMisfit, 400),
    Row(EventNotTaken, 403),
    Row(SubscriptionOver, 404),
    Row(TooMany, _TOO_MANY, again=True),
    Row(Unavailable, 503, again=True),
    Row(StoreError, 503, again=True),
    Row(HibernautError, 503, again=True),
)
"""What a runtime answers to a callback that it does not take."""

_BY_ERROR: Final = {row.error: row for row in ROWS}
_OWN_FAULT: Final = "this cannot be taken now; come again"


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


TAKEN: Final = Answer(200, b"{}")
"""What a runtime answers when a callback is stored, and a tool server when it has understood."""


def answer_to(error: HibernautError) -> Answer:
    """Return what a callback is answered with that was not taken."""
    row = next(_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _BY_ERROR)
    own = row.again and not isinstance(error, _ComeAgain)
    code, text = (Unavailable.code, _OWN_FAULT) if own else (error.code, str(error))
    answer = Answer(row.status, msgspec.json.encode({"error": code, "message": shorten(text, LONGEST_EXCERPT)}))
    if not row.again:
        return answer
    wait = error.retry_after if isinstance(error, _ComeAgain) else RETRY_AFTER
    return msgspec.structs.replace(answer, headers=(*answer.headers, ("Retry-After", str(wait))))


# What is made of an answer

Fate = Literal["taken", "refused", "again"]


def fate_of_call(status: int | None) -> Fate:
    """Return what an answer to an invocation means: wait for the callback, an error result, or try again.

    A `status` of None: there was no answer. Only 5xx and no answer are tried again.
    """
    if status is None or status >= _TROUBLE:
        return "again"
    return "taken" if status in _SUCCESS else "refused"


def fate_of_callback(status: int | None) -> Fate:
    """Return what an answer to a callback means. 429 says that it would be taken later, as 5xx and no answer do."""
    return "again" if status == _TOO_MANY else fate_of_call(status)


def refusal(tool: str, endpoint: str, status: int, body: bytes) -> str:
    """Return what a model reads of a call that a tool server refused. Clean text."""
    words = excerpt(decode(body[: 8 * LONGEST_EXCERPT]).strip(), LONGEST_EXCERPT)
    said = f":\n{words}" if words else "."
    named, where = shorten(tool, _LONGEST_NAMED), shorten(endpoint, _LONGEST_NAMED)
    return f"Error: {named} was not run: its server at {where} answered with status {status}{said}"


Liveness = Literal["alive", "dead", "unknown"]


def liveness(status: int | None, body: bytes, limits: WireLimits = LIMITS) -> Liveness:
    """Return what an answer to the question for a status means. A `status` of None: there was no answer.

    A refusal or an unusable body means that the call is dead; a server in trouble may still be at work on it.
    """
    if fate_of_call(status) == "again":
        return "unknown"
    if fate_of_call(status) == "refused":
        return "dead"
    try:
        return "alive" if decode_request(Alive, body, limits).alive else "dead"
    except InputRefused:
        return "dead"


def wait_before(headers: Mapping[str, str], now: int) -> int:
    """Return the milliseconds after which one that was told to come again may, 0 if it was not told.

    `headers` have names in lower case; `now` is in milliseconds since 1970.
    """
    written = headers.get("retry-after", "").strip()
    if written.isascii() and written.isdigit():
        seconds = int(written[:_MOST_DIGITS]) if len(written) <= _MOST_DIGITS else RETRY_AFTER_MOST
        return min(seconds, RETRY_AFTER_MOST) * 1_000
    try:
        moment = round(email.utils.parsedate_to_datetime(written).timestamp() * 1_000)
    except (TypeError, ValueError, OverflowError, IndexError):
        return 0
    return min(max(moment - now, 0), RETRY_AFTER_MOST * 1_000)
