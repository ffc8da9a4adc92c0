"""What providers say in the conversations with them: one table for all."""

from collections.abc import Mapping
from typing import Final

from hibernaut.messages.events import Usage
from hibernaut.messages.stream import CallDelta, CallEnded, CallStarted, Finish
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.models.scripted import call, call_raw, cut, drop, fail, pieces, refuse, say, think, turn
from hibernaut.testing.model_transcripts import TEXTS
from hibernaut.testing.providers.server import Played
from hibernaut.testing.providers.wire import Raw

_SIDE_BY_SIDE: Final = (
    CallStarted(0, "look"),
    CallStarted(1, "look"),
    CallDelta(0, '{"pa'),
    CallDelta(1, '{"path":'),
    CallDelta(0, 'th":"a.txt"}'),
    CallDelta(1, '"b.txt"}'),
    CallEnded(0),
    CallEnded(1),
    Finish("end", Usage(20, 10)),
)

WHOLE: Final[Mapping[str, Played]] = {
    "a text": turn("Hello."),
    "a text of every kind": say(*TEXTS[:4], "\u2028, \u200b, \x01\x1b[0m\x7f", *TEXTS[5:]),
    "a text letter by letter": say(TEXTS[5], chunks=1),
    "what was counted": turn("Hello.", usage=Usage(1_200, 34, 1_000)),
    "a thought": turn(think("Let me ", "see.", data=b"1"), "Done.", usage=Usage(50, 30)),
    "a hidden thought": turn(think(data=b"hidden"), "Done."),
    "thoughts in a row": turn(think("Let me see.", data=b"1"), think(data=b"hidden"), "Done."),
    "a call": turn(call("look", path=TEXTS[5], more=[1, 2.5, -3e30, None, True, {"": {}}])),
    "a call without arguments": call("wait"),
    "a call of which nothing is said": call_raw("wait"),
    "a call letter by letter": turn(call("look", path=TEXTS[3]), chunks=1),
    "calls in a row": turn("I look. ", call("look", path="a"), call("wait"), call("look", path="b")),
    "calls side by side": pieces(_SIDE_BY_SIDE),
    "thoughts between calls": turn(
        think("First a.", data=b"1"), call("look", path="a"), think("Then b.", data=b"2"), call("look", path="b")
    ),
    "everything": turn(
        think("Let me see.", data=b"1"),
        think(data=b"hidden"),
        "I look at both.",
        call("look", path="a"),
        call("look", path="b"),
        usage=Usage(1_200, 34, 1_000),
    ),
}
"""Turns that are gone on with."""

LAST: Final[Mapping[str, Played]] = {
    "nothing at all": turn(),
    "a text that is cut off": cut("I look at b", usage=Usage(10, 64)),
    "a call that is cut off": cut("I look. ", call_raw("look", '{"pa')),
    "the second of two calls is cut off": cut(call("look", path="a"), call_raw("look", '{"pa')),
    "a refusal": refuse("No."),
    "a stream without an end": drop("half a sen"),
}
"""Turns after which nothing can be sent back as it is."""

FAILURES: Final[Mapping[str, Played]] = {
    "too many requests": RateLimited("slow down", 7_000),
    "too busy": Overloaded("busy"),
    "too long a prompt": ContextOverflow("prompt is too long"),
    "a wrong request": InvalidRequest("no"),
    "a wrong key": AuthenticationFailed("who are you?"),
    "too busy in the middle": fail(Overloaded("busy"), "one ", "two", after=1),
    "a connection that breaks": fail(ConnectionLost("reset"), "one ", "two", after=1),
    "seconds with a fraction": Raw(429, {"content-type": "text/html", "retry-after": "0.5"}, b""),
    "milliseconds": Raw(503, {"content-type": "text/html", "retry-after-ms": "1500", "retry-after": "9"}, b""),
}

STATUSES: Final = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529)
"""What a gateway answers that knows nothing of the API behind it."""


def gateway(status: int) -> Raw:
    """Return such an answer."""
    return Raw(status, {"content-type": "text/html", "retry-after": "3"}, b"<html>Sorry.</html>")
