"""What the runtime would refuse is refused, with its status and words, and kept for the report."""

from typing import Any

import msgspec
import pytest

from hibernaut.clock import SystemClock
from hibernaut.rap.check.receiver import Receiver
from hibernaut.rap.exchange import Exchange
from hibernaut.rap.limits import LIMITS
from hibernaut.rap.listening import listening
from hibernaut.rap.requests import Invocation

IDS = {"group_id": "t", "id": "c"}
CHOICE = {"type": "user_choice", **IDS, "prompt": "?", "choices": ["a"], "response_url": "https://a.example/"}


def picture(data: str) -> dict[str, Any]:
    return {"type": "tool_result", **IDS, "content": [{"type": "image", "data": data}]}


@pytest.mark.parametrize(
    "body, status, kind, words",
    [
        (picture("!!!"), 400, "tool_result", "the picture '!!!' is not base64"),
        (picture("evil1"), 400, "tool_result", "is not base64"),
        ({"type": "oauth", **IDS, "auth_url": "http://a.example/"}, 400, "oauth", "must begin with https://"),
        ({**CHOICE, "default": 1}, 400, "user_choice", "the default is 1; it numbers a choice"),
        ({**CHOICE, "id": "other"}, 401, "user_choice", "for another call"),
        ({"type": "nothing"}, 400, "nothing", "a callback of type 'nothing' is not taken here"),
        (b"[" * 100_000, 400, "", "nested deeper than 64 levels"),
        (b'{"type":' + b"[" * 100_000, 400, "", "nested deeper than 64 levels"),
        (b"x" * (LIMITS.callback_bytes + 1), 413, "", "callback_bytes"),
    ],
)
async def test_what_the_runtime_refuses_is_refused_and_kept(body: Any, status: int, kind: str, words: str) -> None:
    receiver = Receiver(SystemClock())
    async with listening(receiver) as here, Exchange(verify=False) as exchange:
        receiver.public = here.url
        inbox = receiver.inbox()
        receiver.expect(inbox, Invocation("look", {}, "c", None, inbox.url, "t", None))
        answered = await exchange.post(inbox.url, body if isinstance(body, bytes) else msgspec.json.encode(body))
        good = await exchange.post(inbox.url, msgspec.json.encode({"type": "tool_result", **IDS, "text": "x"}))
    refused, taken = inbox.deliveries
    assert (answered.status, refused.status, refused.kind, refused.callback) == (status, status, kind, None)
    assert refused.problem.startswith(f"refused with {status}: ")
    assert words in refused.problem
    assert (good.status, taken.problem, taken.kind) == (200, "", "tool_result")
