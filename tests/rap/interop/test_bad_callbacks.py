"""Callbacks that a running system does not take: nothing of it changes, and they are counted."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from hibernaut.rap.exchange import Exchange
from hibernaut.system import AgentSystem
from hibernaut.tools.tokens import KINDS, Grant, KeyRing, sign
from tests.engine.scenario import story
from tests.rap.interop.bad import BadServer, Fields, event, result
from tests.rap.interop.parties import agents, owed, read, tell, until_owed

LIMIT = 8 * 1024 * 1024


class Door(NamedTuple):
    """A system with calls in every state, by the names of their threads, and what knocks at it."""

    system: AgentSystem
    file: Path
    calls: dict[str, Fields]
    keys: KeyRing
    exchange: Exchange
    bad: BadServer

    def new_call(self) -> Fields:
        """Return the call that was posted last."""
        return self.bad.calls[-1]

    def token(self, name: str, expires: int = 2**50) -> str:
        """Sign a token for a call."""
        call = self.calls[name]
        return sign(self.keys, Grant(call["group_id"], call["id"], expires, KINDS))

    async def post(self, url: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Post a callback; return the status and the code of the error."""
        written = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = await self.exchange.post(url, written, headers)
        return reply.status, json.loads(reply.body).get("error", "")

    async def counts(self) -> dict[str, int]:
        """Return what the receiver says that it has counted."""
        reply = await self.exchange.get(self.system.callbacks + "/rap/health")
        return {name: count for name, count in json.loads(reply.body).items() if name not in ("ok", "keys")}

    def everything(self) -> dict[str, list[Any]]:
        """Return all that the store holds, but for whether the engine lives, and what was counted."""
        with apsw.Connection(str(self.file), flags=apsw.SQLITE_OPEN_READONLY) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            found = {table: list(connection.execute(f'SELECT * FROM "{table}"')) for table in tables}
        connection.close()
        del found["engine"], found["sqlite_sequence"], found["counted"]
        return found


@pytest.fixture(scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    """One thread has an open call, another one too, one an answered one, one a subscription that is over."""
    bad, file = BadServer(), tmp_path_factory.mktemp("door") / "agents.db"
    async with bad.running() as there, agents(there.url, store=file) as system, Exchange() as exchange:
        handles = {name: await tell(system, "echo") for name in ("open", "other", "answered", "over")}
        for handle in handles.values():
            await until_owed(handle, "invoke: accepted")
        calls = {call["group_id"]: call for call in bad.calls}
        found = {name: calls[handle.thread_id] for name, handle in handles.items()}
        door = Door(system, file, found, KeyRing([await system.store.secret()]), exchange, bad)
        over, answered = found["over"], found["answered"]
        for callback in (
            result(over, "subscribed", subscription=True),
            event(over, "last", event_id="1", final=True),
            result(answered, "done"),
        ):
            url = next(call["callback_url"] for call in (over, answered) if call["group_id"] == callback["group_id"])
            assert await door.post(url, callback) == (200, "")
        await read(handles["over"], "event: echo last [final]", "says: I read: last")
        await read(handles["answered"], "says: I read: done")
        await system.wait_idle()
        yield door


def at_door(door: Door, name: str = "open", /, **more: Any) -> dict[str, Any]:
    """Return the callback of a call as it must be, but for some fields."""
    return {**result(door.calls[name], "x"), **more}


def picture(data: str) -> dict[str, Any]:
    return {"content": [{"type": "image", "data": data, "mediaType": "image/png"}]}


Knock = Callable[[Door], object]

BODIES: list[tuple[str, int, str, Knock]] = [
    ("nothing", 400, "malformed_input", lambda _: b""),
    ("no JSON", 400, "malformed_input", lambda _: b"{not JSON"),
    ("an unknown type", 400, "malformed_input", lambda door: at_door(door, type="tool_dance")),
    ("no type", 400, "malformed_input", lambda door: at_door(door, type=None)),
    ("another thread", 401, "token_refused", lambda door: at_door(door, "other")),
    ("no such thread", 401, "token_refused", lambda door: at_door(door, group_id="nobody")),
    ("no such call", 401, "token_refused", lambda door: at_door(door, id="call_nothing")),
    ("a blank id", 400, "malformed_input", lambda door: at_door(door, id="")),
    ("no base64", 400, "malformed_input", lambda door: at_door(door, **picture("!!! none !!!"))),
    (
        "a large picture",
        413,
        "too_large",
        lambda door: at_door(door, **picture(base64.b64encode(bytes(LIMIT)).decode())),
    ),
    ("a large text", 413, "too_large", lambda door: at_door(door, text="x" * LIMIT)),
    ("many parts", 400, "malformed_input", lambda door: at_door(door, content=[{"type": "text", "text": ""}] * 101)),
    ("an unknown part", 400, "malformed_input", lambda door: at_door(door, content=[{"type": "video"}])),
    ("no choices", 400, "malformed_input", lambda door: at_door(door, type="user_choice", prompt="?", choices=[])),
    (
        "a script to go to",
        400,
        "malformed_input",
        lambda door: at_door(door, type="oauth", auth_url="javascript:alert()"),
    ),
]
"""What comes under the token of the open call, and what it is answered with."""


@pytest.mark.parametrize("status, code, knock", [case[1:] for case in BODIES], ids=[case[0] for case in BODIES])
async def test_what_cannot_be_meant_changes_nothing(status: int, code: str, knock: Knock, door: Door) -> None:
    before, counted = door.everything(), await door.counts()
    assert await door.post(door.calls["open"]["callback_url"], knock(door)) == (status, code)
    assert door.everything() == before
    assert await door.counts() == {**counted, code: counted.get(code, 0) + 1}


@pytest.mark.parametrize(
    "headers, status, code",
    [
        ({"Content-Type": "text/plain"}, 415, "content_type_refused"),
        ({"Content-Encoding": "gzip"}, 415, "content_type_refused"),
        ({"Origin": "https://evil.example"}, 403, "origin_refused"),
        ({"Host": "evil.example"}, 421, "host_refused"),
    ],
)
async def test_what_comes_in_a_way_that_it_must_not_changes_nothing(
    headers: dict[str, str], status: int, code: str, door: Door
) -> None:
    before, counted = door.everything(), await door.counts()
    assert await door.post(door.calls["open"]["callback_url"], at_door(door), headers) == (status, code)
    assert door.everything() == before
    assert await door.counts() == {**counted, code: counted.get(code, 0) + 1}


@pytest.mark.parametrize(
    "token",
    [
        lambda _: "",
        lambda _: "h2.nonsense",
        lambda door: door.token("other"),
        lambda door: door.token("open", expires=1),
        lambda door: door.token("open")[:-1],
        lambda door: sign(KeyRing([b"the secret of another runtime"]), Grant("t", "c", 2**50, KINDS)),
    ],
    ids=["none", "nonsense", "of another thread", "expired", "cut", "of another runtime"],
)
async def test_what_comes_under_another_token_changes_nothing(token: Callable[[Door], str], door: Door) -> None:
    before, counted = door.everything(), await door.counts()
    url = f"{door.system.callbacks}/rap/callback/{token(door)}"
    assert await door.post(url, at_door(door)) == (401, "token_refused")
    assert door.everything() == before
    assert await door.counts() == {**counted, "token_refused": counted.get("token_refused", 0) + 1}


@pytest.mark.parametrize(
    "name, callback, status, code",
    [
        ("answered", lambda call: result(call, "done"), 200, ""),
        ("answered", lambda call: result(call, "something else"), 409, "already_answered"),
        ("answered", lambda call: event(call, "x", event_id="1"), 404, "unknown_call"),
        ("over", lambda call: event(call, "last", event_id="1", final=True), 200, ""),
        ("over", lambda call: event(call, "one more", event_id="2"), 404, "unknown_call"),
        ("over", lambda call: event(call, "one more without an id"), 404, "unknown_call"),
    ],
)
async def test_what_comes_again_or_after_the_last_changes_nothing(
    name: str, callback: Callable[[Fields], Fields], status: int, code: str, door: Door
) -> None:
    before, counted, call = door.everything(), await door.counts(), door.calls[name]
    assert await door.post(call["callback_url"], callback(call)) == (status, code)
    assert door.everything() == before
    told = code or "taken"
    assert await door.counts() == {**counted, told: counted.get(told, 0) + 1}


async def test_an_event_before_the_confirmation_waits_for_it(door: Door) -> None:
    handle = await tell(door.system, "echo")
    await until_owed(handle, "invoke: accepted")
    call = door.new_call()
    assert await door.post(call["callback_url"], event(call, "early", event_id="1")) == (200, "")
    await door.system.wait_idle()
    assert (await story(handle))[1:] == ["calls: echo {}"]
    assert await door.post(call["callback_url"], result(call, "it begins", subscription=True)) == (200, "")
    await read(handle, "result: it begins", "event: echo early", "says: I read: early")
    assert (await handle.state()).refused == 0
    assert await owed(handle) == ["invoke: accepted"]
