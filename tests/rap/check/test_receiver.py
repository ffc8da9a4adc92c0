"""What the runtime would refuse is refused, with its status and words, and kept for the report."""

import asyncio
from typing import Any

import msgspec
import pytest

from hibernaut.clock import SystemClock
from hibernaut.rap.check.receiver import Delivery, Receiver
from hibernaut.rap.exchange import Exchange
from hibernaut.rap.limits import LIMITS
from hibernaut.rap.listening import listening
from hibernaut.rap.requests import Invocation

IDS = {"group_id": "t", "id": "c"}
CHOICE = {"type": "user_choice", **IDS, "prompt": "?", "choices": ["a"], "response_url": "https://a.example/"}


def picture(data: str) -> dict[str, Any]:
    return {"type": "tool_result", **IDS, "content": [{"type": "image", "data": data}]}


CASES: list[tuple[Any, int, str, str]] = [
    (picture("!!!"), 400, "tool_result", "the picture '!!!' is not base64"),
    (picture("evil1"), 400, "tool_result", "is not base64"),
    ({"type": "oauth", **IDS, "auth_url": "http://a.example/"}, 400, "oauth", "must begin with https://"),
    ({**CHOICE, "default": 1}, 400, "user_choice", "the default is 1; it numbers a choice"),
    ({**CHOICE, "id": "other"}, 401, "user_choice", "for another call"),
    ({"type": "nothing"}, 400, "nothing", "a callback of type 'nothing' is not taken here"),
    (b"[" * 100_000, 400, "", "nested deeper than 64 levels"),
    (b'{"type":' + b"[" * 100_000, 400, "", "nested deeper than 64 levels"),
    (b"x" * (LIMITS.callback_bytes + 1), 413, "", "callback_bytes"),
]


@pytest.fixture(scope="module")
def came() -> list[tuple[int, Delivery, Delivery]]:
    """For each case the status of the answer, what was kept, and what was kept of a good result after it."""

    async def deliver() -> list[tuple[int, Delivery, Delivery]]:
        receiver, kept = Receiver(SystemClock()), []
        async with listening(receiver) as here, Exchange(verify=False) as exchange:
            receiver.public = here.url
            for body, *_ in CASES:
                inbox = receiver.inbox()
                receiver.expect(inbox, Invocation("look", {}, "c", None, inbox.url, "t", None))
                sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
                answered = await exchange.post(inbox.url, sent)
                await exchange.post(inbox.url, msgspec.json.encode({"type": "tool_result", **IDS, "text": "x"}))
                refused, good = inbox.deliveries
                kept.append((answered.status, refused, good))
        return kept

    return asyncio.run(deliver())


@pytest.mark.parametrize("case", range(len(CASES)))
def test_what_the_runtime_refuses_is_refused_and_kept(case: int, came: list[tuple[int, Delivery, Delivery]]) -> None:
    _, status, kind, words = CASES[case]
    answered, refused, good = came[case]
    assert (answered, refused.status, refused.kind, refused.callback) == (status, status, kind, None)
    assert refused.problem.startswith(f"refused with {status}: ")
    assert words in refused.problem
    assert (good.status, good.problem, good.kind) == (200, "", "tool_result")
