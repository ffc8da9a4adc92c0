"""Callbacks over real connections: what is stored, what is refused and with which answer, and what nobody can lose."""

import asyncio
import base64
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hibernaut.codec import sha256
from hibernaut.errors import ConfigurationError, StoreFull
from hibernaut.kernel.authority import Authority
from hibernaut.kernel.commit import Blob, NewThread
from hibernaut.kernel.event_policy import EventPolicy
from hibernaut.kernel.head import Call
from hibernaut.messages.inputs import Event, InputMessage, Question, ToolResult
from hibernaut.rap.answers import ROWS
from hibernaut.rap.arrivals import SIGNED, UNSIGNED
from hibernaut.rap.exchange import Exchange
from hibernaut.rap.invocations import callback_url
from hibernaut.rap.limits import WireLimits
from hibernaut.rap.receiver import LARGE_BODY, CallbackReceiver
from hibernaut.rap.refusals import LOG_EVERY, LOG_LINES
from hibernaut.stores import memory
from hibernaut.stores.letters import SHORT
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import MOST_VIEWS, Outcome, Store, ViewRow
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.faults import FaultPlan, FaultyStore
from hibernaut.tools import results
from hibernaut.tools.tokens import Grant, KeyRing, sign
from tests.rap.receiving import KEYS, START, Receiving, event, grant, receiving, result, thread, token, view
from tests.store_conformance.scenario import after, claim_one, everything

CHOICE = {
    "type": "user_choice",
    "group_id": "t",
    "id": "call_a",
    "prompt": "Which?",
    "choices": ["a", "b"],
    "response_url": "https://tools.example/r",
}
OAUTH = {"type": "oauth", "group_id": "t", "id": "call_a", "auth_url": "https://login.example/o"}


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "agents.db")
    yield made
    await made.close()


def request(body: bytes = b"", *lines: str, path: str = "", method: str = "POST", length: int | None = None) -> bytes:
    """Return a request as bytes; a line with the name of a header that is there already replaces it."""
    headers = {"host": "127.0.0.1", "content-type": "application/json", "connection": "close"}
    headers["content-length"] = str(len(body) if length is None else length)
    given = [tuple(line.split(": ", 1)) for line in lines]
    headers = {name: value for name, value in headers.items() if name not in {name.lower() for name, _ in given}}
    written = [f"{name}: {value}" for name, value in (*headers.items(), *given) if value]
    head = "\r\n".join([f"{method} {path or '/rap/callback/' + token()} HTTP/1.1", *written])
    return head.encode() + b"\r\n\r\n" + body


def answered(answer: bytes) -> tuple[int, str]:
    """Return the status and the error of one answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body).get("error", "")


BODY = json.dumps(result()).encode()


async def test_every_kind_is_stored_and_answered_with_200(store: Store) -> None:
    told: list[tuple[str, str, str]] = []
    async with receiving(store, on_view=lambda *what: told.append(what)) as there:
        for body in (result(), event(), OAUTH, CHOICE, view()):
            reply = await there.post(body)
            assert (reply.status, reply.body) == (200, b"{}")
        inbox = [one.message for one in await store.read_inbox("t") if one.message]
        assert [type(message.content) for message in inbox] == [ToolResult, Event, Question, Question]
        assert {message.sender for message in inbox} == {SIGNED}
        assert isinstance(inbox[2].content, Question)
        assert inbox[2].content.prompt == "build needs your authorization"
        assert await store.read_views("t") == [ViewRow("plan", '{"steps":2}', START)]
        assert told == [("t", "plan", '{"steps":2}')]
        assert dict(there.receiver.counts) == {"taken": 5}


async def test_a27_what_is_forged_foreign_expired_or_oversized_changes_nothing_and_is_counted(store: Store) -> None:
    async with receiving(store, limits=WireLimits(callback_bytes=1_000)) as there:
        await store.create([thread("other")], [], START)
        before = await everything(store)
        forged = sign(KeyRing([b"another secret of 16"]), grant())
        narrow = sign(KEYS, Grant("t", "call_a", START + 1, ("oauth",)))
        assert await there.status(result(), forged) == (401, "token_refused")
        assert await there.status(result(), token()[:-1]) == (401, "token_refused")
        assert await there.status(result(), "x" * 3_000) == (401, "token_refused")
        assert await there.status(result(), token(name="other")) == (401, "token_refused")
        assert await there.status(event(), token()) == (401, "token_refused")
        assert await there.status(view("other"), token()) == (401, "token_refused")
        assert await there.status(result(), narrow) == (401, "token_refused")
        assert await there.status(result(), token(expires=START)) == (401, "token_refused")
        assert await there.status(result(text="x" * 1_000)) == (413, "too_large")
        assert await everything(store) == before
        assert await store.read_views("other") == []
        assert dict(there.receiver.counts) == {"taken": 0, "token_refused": 8, "too_large": 1}


async def test_a28_what_a_page_in_a_browser_can_send_is_refused() -> None:
    async with receiving(MemoryStore(), allow_unsigned_loopback=True) as there:
        refused = {
            "text": (request(BODY, "Content-Type: text/plain"), (415, "content_type_refused")),
            "form": (request(BODY, "Content-Type: application/x-www-form-urlencoded"), (415, "content_type_refused")),
            "no type": (request(BODY, "Content-Type: "), (415, "content_type_refused")),
            "two types": (
                request(BODY, "Content-Type: application/json", "Content-Type: text/plain"),
                (415, "content_type_refused"),
            ),
            "latin": (request(BODY, "Content-Type: application/json; charset=latin-1"), (415, "content_type_refused")),
            "packed": (request(BODY, "Content-Encoding: gzip"), (415, "content_type_refused")),
            "origin": (request(BODY, "Origin: https://evil.example"), (403, "origin_refused")),
            "no origin": (request(BODY, "Origin: null"), (403, "origin_refused")),
            "own origin": (request(BODY, f"Origin: {there.there.url}"), (403, "origin_refused")),
            "rebound": (request(BODY, "Host: evil.example"), (421, "host_refused")),
            "rebound port": (request(BODY, f"Host: 127.0.0.1.evil.example:{there.there.port}"), (421, "host_refused")),
            "hosts": (request(BODY, "Host: localhost", "Host: evil.example"), (400, "host_refused")),
        }
        for path in ("/rap/callback", f"/rap/callback/{token()}"):
            found = {
                name: answered(await there.raw(data.replace(b"/rap/callback/" + token().encode(), path.encode())))
                for name, (data, _) in refused.items()
            }
            assert found == {name: expected for name, (_, expected) in refused.items()}
        assert await there.inbox() == []


async def test_what_is_not_for_the_receiver_is_refused_before_anything_is_read() -> None:
    async with receiving(MemoryStore(), limits=WireLimits(callback_bytes=1_000), body_within=30) as there:

        async def asked(*lines: str, path: str = "", method: str = "POST", length: int = 900) -> tuple[int, str]:
            """Announce a body that never comes: what is judged by it would not be answered."""
            answer = await asyncio.wait_for(
                there.raw(request(b"", *lines, path=path, method=method, length=length)), 10
            )
            return answered(answer)

        assert await asked(method="GET") == await asked(method="PUT") == (405, "method_refused")
        assert await asked(path="/elsewhere") == await asked(path="/rap/callback/a/b") == (404, "unknown_path")
        assert await asked("Host: example.com") == (421, "host_refused")
        assert await asked("Origin: null") == (403, "origin_refused")
        assert await asked("Content-Type: text/plain") == (415, "content_type_refused")
        assert await asked(length=1_001) == (413, "too_large")
        assert await asked(path="/rap/callback/forged") == (401, "token_refused")
        assert await asked(path=f"/rap/callback/{token(expires=START)}") == (401, "token_refused")
        assert await asked(path="/rap/callback/") == (401, "token_refused")
        assert b"\r\nallow: POST\r\n" in await there.raw(request(method="DELETE"))


async def test_a_public_name_and_a_path_before_it_are_taken_where_they_are_meant() -> None:
    store = MemoryStore()
    async with receiving(store, hosts=["Agents.example", "[::1]:99"]) as there:
        path = f"/some/where/rap/callback/{token()}"
        for host, status in (("agents.EXAMPLE:443", 200), ("[::1]:99", 200), ("[::1]:98", 421), ("127.0.0.1", 421)):
            assert answered(await there.raw(request(BODY, f"Host: {host}", path=path)))[0] == status
    async with receiving(store, hosts=None) as there:
        assert answered(await there.raw(request(BODY, "Host: any.example")))[0] == 409


SCHEMA_TEXT = b'{"type":"object","required":["sky"]}'
SCHEMA = Blob(sha256(SCHEMA_TEXT), SCHEMA_TEXT)
DAY = 86_400_000


def strict() -> NewThread:
    """Return a thread that takes events of one tool only, within a day and of 100 bytes."""
    calls = {
        "call_j": Call("call_j", "forecast", server="ci", state="subscribed", event_schema=SCHEMA.digest, since=START),
        "call_s": Call("call_s", "watch", server="ci", state="subscribed", since=START),
        "call_o": Call("call_o", "forecast", server="ci", state="subscribed", since=START - DAY),
    }
    policy = EventPolicy(tools=("forecast",), servers=("ci",), lifetime=86_400, max_bytes=100)
    return thread("strict", calls, Authority(events=policy))


async def test_every_row_of_the_table_of_errors_is_answered(store: Store) -> None:
    async with receiving(store) as there:
        await store.create([thread("closed"), thread("full"), strict()], [], START)
        await store.put([], START, blobs=[SCHEMA])
        await store.put([InputMessage("m", "closed", Event("call_s", "x"))], START)
        claim = await claim_one(store)
        await store.commit(claim, after(claim, status="closed"))
        for number in range(MOST_VIEWS):
            await store.put_view("full", str(number), "", START)
        await there.post(result())
        rows = [
            await there.status(b"{", token()),
            await there.status(result(), token("call_s")),
            await there.status(result(name="nobody")),
            await there.status(result(name="closed")),
            await there.status(result("call_never")),
            await there.status(result(text="another")),
            await there.status(result(text="x" * 8_388_608)),
            await there.status(event("call_j", "strict", text="{}")),
            await there.status(event("call_s", "strict")),
            await there.status(event("call_o", "strict")),
            await there.status(view("full")),
        ]
        assert (
            rows
            == [
                (row.status, row.error.code)
                for row in ROWS
                if row.error.code not in ("input_refused", "store", "error")
            ][: len(rows)]
        )
        assert (await there.post(view("full"))).headers["retry-after"] == "5"
        assert await there.status(event("call_x")) == (404, "unknown_call")
        assert await there.status(result("call_h")) == (404, "unknown_call")
        assert await there.status(result("call_x")) == (200, "")
        assert await there.status(view("closed")) == (404, "thread_closed")
        assert await there.status(view("nobody")) == (404, "unknown_thread")


async def test_a_thread_for_which_too_many_events_wait_takes_results_and_asks_events_to_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "MOST_WAITING", SHORT)
    async with receiving(MemoryStore()) as there:
        for number in range(SHORT):
            await there.post(event(event_id=str(number)))
        reply = await there.post(event(event_id="one more"))
        assert (reply.status, reply.headers["retry-after"]) == (429, "5")
        assert await there.status(event(event_id="3")) == (200, "")
        assert await there.status(result()) == (200, "")
        assert len(await there.inbox()) == SHORT + 1


async def test_a_store_that_fails_is_answered_so_that_the_server_comes_again() -> None:
    inner = MemoryStore()
    failing = FaultyStore(inner, FaultPlan(fail_at={3: StoreFull("no room at /secret/place")}))
    async with receiving(failing) as there:
        reply = await there.post(result())
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
        assert b"secret" not in reply.body
        assert await there.inbox() == []
        assert await there.status(result()) == (200, "")
        assert dict(there.receiver.counts) == {"taken": 1, "store_full": 1}


class Broken(MemoryStore):
    async def put(
        self,
        messages: Sequence[InputMessage],
        now: int,
        *,
        due: int = 0,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        raise ZeroDivisionError("a defect")


async def test_a_defect_is_logged_with_its_traceback_and_answered_without_a_word_about_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: str) -> None:
        raise ZeroDivisionError("a defect")

    async with receiving(Broken(), on_view=fail) as there:
        reply = await there.post(result())
        assert (reply.status, json.loads(reply.body)["error"]) == (503, "unavailable")
        assert b"defect" not in reply.body
        assert "ZeroDivisionError: a defect" in caplog.text
        assert await there.status(view()) == (200, "")
        assert dict(there.receiver.counts) == {"taken": 1, "defect": 1}


async def test_a_body_in_chunks_is_read_no_further_than_its_bound() -> None:
    async with receiving(MemoryStore(), limits=WireLimits(callback_bytes=1_000), body_within=300) as there:
        head = request(b"", "Content-Length: ", "Transfer-Encoding: chunked")
        chunk = b"1f4\r\n" + b" " * 500 + b"\r\n"
        assert answered(await there.raw(head + 3 * chunk)) == (413, "too_large")
        small = b"%x\r\n" % len(BODY[:20]) + BODY[:20] + b"\r\n" + b"%x\r\n" % len(BODY[20:]) + BODY[20:] + b"\r\n"
        assert answered(await there.raw(head + small + b"0\r\n\r\n")) == (200, "")
        assert await there.inbox() == ["result:call_a"]


async def test_a_body_that_dribbles_in_is_given_up() -> None:
    async with receiving(MemoryStore(), body_within=50) as there:
        assert answered(await there.raw(request(BODY[:10], length=len(BODY)))) == (503, "unavailable")
        assert await there.inbox() == []


async def test_a_sender_that_hangs_up_in_its_body_is_counted_and_nothing_is_stored() -> None:
    async with receiving(MemoryStore()) as there:
        _, writer = await asyncio.open_connection(there.there.host, there.there.port)
        writer.write(request(BODY[:10], length=len(BODY)))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        while "broken_off" not in there.receiver.counts:  # noqa: ASYNC110  # it is said nowhere else
            await asyncio.sleep(0)
        assert await there.inbox() == []


async def test_what_cannot_be_read_is_refused_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "LARGEST_CONTENT", 2 * LARGE_BODY)
    picture = {"type": "image", "data": base64.b64encode(bytes(2 * LARGE_BODY + 1)).decode(), "mediaType": "image/png"}
    cases: dict[str, tuple[Any, int, str]] = {
        "no base64": (result(content=[{"type": "image", "data": "%%%"}]), 400, "is not base64"),
        "deep": (b'{"type":"view_update","content":' + b"[" * 99 + b"]" * 99 + b"}", 400, "64 levels"),
        "twice": (b'{"type":"tool_result","type":"oauth"}', 400, "twice"),
        "unknown": ({**result(), "type": "new"}, 400, "'new'"),
        "no json": (b"<html>", 400, "not JSON"),
        "no utf": (b'{"type":"\xff"}', 400, "UTF-8"),
        "script": ({**OAUTH, "auth_url": "javascript:alert(1)"}, 400, "auth_url"),
        "large": (result(content=[picture]), 413, "bytes"),
    }
    async with receiving(MemoryStore()) as there:
        for body, status, words in cases.values():
            reply = await there.post(body, token())
            assert reply.status == status
            assert words in json.loads(reply.body)["message"]
        assert await there.inbox() == []


async def test_a_result_that_is_sent_again_is_taken_and_a_second_one_is_not(store: Store) -> None:
    async with receiving(store) as there:
        assert [await there.status(result()) for _ in range(3)] == [(200, "")] * 3
        assert await there.status(result(text="another")) == (409, "already_answered")
        claim = await claim_one(store)
        await store.commit(claim, after(claim, head=thread(calls={}).head))
        assert await there.status(result()) == (200, "")
        assert await there.status(result(text="another")) == (409, "already_answered")
        assert await there.inbox() == []
    async with receiving(store) as there:
        assert await there.status(result()) == (409, "already_answered")


async def test_questions_and_events_with_ids_are_taken_again_and_kept_once(store: Store) -> None:
    async with receiving(store) as there:
        bodies = (OAUTH, CHOICE, event(event_id="e1"), event(event_id="e2", final=True))
        for body in bodies * 2:
            assert await there.status(body) == (200, "")
        assert len(await there.inbox()) == 4
        claim = await claim_one(store)
        await store.commit(claim, after(claim, head=thread(calls={}).head))
        for body in bodies:
            assert await there.status(body) == (200, "")
        assert await there.status(event(event_id="e3")) == (404, "unknown_call")
        assert await there.inbox() == []


async def test_two_equal_events_are_two_and_under_one_key_they_are_one(store: Store) -> None:
    async with receiving(store) as there:
        for headers in ({}, {}, {"Idempotency-Key": "k"}, {"Idempotency-Key": "k"}, {"Idempotency-Key": "l"}):
            assert await there.status(event(), headers=headers) == (200, "")
        assert len(await there.inbox()) == 4


class Slow(MemoryStore):
    """It stores at once, and says so when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.stored, self.may_say = asyncio.Event(), asyncio.Event()

    async def put(
        self,
        messages: Sequence[InputMessage],
        now: int,
        *,
        due: int = 0,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        outcomes = await super().put(messages, now, due=due, blobs=blobs, tenant=tenant)
        self.stored.set()
        await self.may_say.wait()
        return outcomes


async def lose_an_event(there: Receiving, store: Slow) -> None:
    """Post an event and hang up before it is answered."""
    _, writer = await asyncio.open_connection(there.there.host, there.there.port)
    path = f"/rap/callback/{token('call_s')}"
    writer.write(request(json.dumps(event()).encode(), path=path))
    await store.stored.wait()
    writer.close()
    await writer.wait_closed()
    while not there.receiver._deliveries._doubtful:  # noqa: ASYNC110  # it is said nowhere else
        await asyncio.sleep(0)
    store.may_say.set()


async def test_an_event_whose_sender_hung_up_before_the_answer_is_one_when_it_comes_again() -> None:
    store, clock = Slow(), ManualClock(START)
    async with receiving(store, clock) as there:
        await lose_an_event(there, store)
        assert await there.status(event()) == (200, "")
        assert len(await there.inbox()) == 1
        assert await there.status(event()) == (200, "")
        assert len(await there.inbox()) == 2


async def test_messages_are_kept_in_the_order_in_which_they_came_even_before_a_subscription_is_confirmed(
    store: Store,
) -> None:
    async with receiving(store) as there:
        for body in (event("call_a", event_id="early"), result(subscription=True), event("call_a", event_id="late")):
            assert await there.status(body) == (200, "")
        assert await there.inbox() == ["event:call_a:early", "result:call_a", "event:call_a:late"]


async def test_a_stopped_thread_keeps_what_comes(store: Store) -> None:
    async with receiving(store) as there:
        await store.put([InputMessage("m", "t", Event("call_s", "x"))], START)
        claim = await claim_one(store)
        await store.commit(claim, after(claim, head=claim.head, status="stopped"))
        assert await there.status(result()) == (200, "")
        assert await there.inbox() == ["result:call_a"]


async def test_servers_on_this_machine_may_do_without_a_token_where_that_is_allowed() -> None:
    async with receiving(MemoryStore(), allow_unsigned_loopback=True) as there:
        for path in ("/rap/callback", "/rap/callback/"):
            assert answered(await there.raw(request(BODY, path=path))) == (200, "")
        (one,) = await there.store.read_inbox("t")
        assert one.message is not None
        assert one.message.sender == UNSIGNED
        for header in ("X-Forwarded-For: 203.0.113.9", "Forwarded: for=203.0.113.9"):
            passed_on = request(BODY, header, path="/rap/callback")
            assert answered(await there.raw(passed_on)) == (401, "token_refused")
        assert await there.status(result(), "forged") == (401, "token_refused")
    with pytest.raises(ConfigurationError, match="allow_unsigned_loopback"):
        CallbackReceiver(MemoryStore(), KEYS, ManualClock(), hosts=None, allow_unsigned_loopback=True)


async def test_health_is_told_with_what_was_counted() -> None:
    async with receiving(MemoryStore()) as there, Exchange() as exchange:
        await there.post(result())
        await there.post(result(), "forged")
        reply = await exchange.get(f"{there.there.url}/rap/health")
        assert (reply.status, json.loads(reply.body)) == (
            200,
            {"ok": True, "keys": KEYS.newest, "taken": 1, "token_refused": 1},
        )
        assert (await exchange.post(f"{there.there.url}/rap/health", b"{}")).status == 405
        stranger = request(method="GET", path="/rap/health").replace(b"127.0.0.1", b"evil.example")
        assert answered(await there.raw(stranger))[0] == 421


async def test_the_log_tells_of_refusals_but_not_of_each_and_never_what_was_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(START)
    with caplog.at_level(logging.INFO, "hibernaut"):
        async with receiving(MemoryStore(), clock) as there:
            for _ in range(LOG_LINES + 5):
                await there.post({**result(), "type": "a secret"}, token())
            clock.advance(LOG_EVERY)
            await there.post(b"{}", token(expires=START + 1))
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("hibernaut")]
    assert len(lines) == LOG_LINES + 2
    assert lines[0] == "a callback from 127.0.0.1 for call call_a of thread t was refused: 400 malformed_input"
    assert lines[-2:] == [
        "5 more callbacks were refused",
        "a callback from 127.0.0.1 for call call_a of thread t was refused: 401 token_refused",
    ]
    assert not any(secret in caplog.text for secret in ("a secret", token(), token(expires=START + 1)))


async def test_what_one_process_takes_is_seen_by_another_that_has_the_file_open(tmp_path: Path) -> None:
    store, other = await SqliteStore.open(tmp_path / "agents.db"), await SqliteStore.open(tmp_path / "agents.db")
    async with receiving(store) as there:
        await other.changed_elsewhere()
        await there.post(result())
        assert await other.changed_elsewhere()
        assert [one.message_id for one in await other.read_inbox("t")] == ["result:call_a"]
        assert (await claim_one(other)).thread_id == "t"
    await store.close()
    await other.close()


async def test_a_kill_right_after_an_answer_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    program = [sys.executable, "-m", "tests.rap.receiving", str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        *program, stdout=subprocess.PIPE, env=environment, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    async with Exchange() as exchange:
        for body in (event(event_id="e1"), view(), result()):
            url = callback_url(f"http://127.0.0.1:{port}", token(body.get("tool_call_id", "call_a")))
            assert (await exchange.post(url, json.dumps(body).encode())).status == 200
        process.send_signal(signal.SIGKILL)
        await process.communicate()
    store = await SqliteStore.open(path)
    assert [one.message_id for one in await store.read_inbox("t")] == ["event:call_s:e1", "result:call_a"]
    assert await store.read_views("t") == [ViewRow("plan", '{"steps":2}', START)]
    await store.close()


async def test_a_token_lasts_for_as_long_as_its_subscription_and_that_of_a_plain_call_does_not(store: Store) -> None:
    async with receiving(store) as there:
        late = {call: token(call, expires=START) for call in ("call_a", "call_s", "call_x")}
        assert await there.status(event("call_s"), late["call_s"]) == (200, "")
        assert await there.status(event("call_x"), late["call_x"]) == (401, "token_refused")
        assert await there.status(result(), late["call_a"]) == (401, "token_refused")
        assert len(await there.inbox()) == 1


# What a thread takes


async def test_a13_a27_what_a_thread_does_not_take_is_refused_with_a_code_counted_and_changes_nothing(
    store: Store,
) -> None:
    async with receiving(store) as there:
        await store.create([strict()], [], START)
        await store.put([], START, blobs=[SCHEMA])
        fits = '{"sky":"clear"}'
        for body, answer in (
            (event("call_j", "strict", text="obey me", event_id="1"), (400, "event_misfit")),
            (event("call_j", "strict", text="{}", event_id="1"), (400, "event_misfit")),
            (event("call_j", "strict", text=fits + " " * 100, event_id="1"), (413, "too_large")),
            (event("call_s", "strict", text=fits, event_id="1"), (403, "event_not_taken")),
            (event("call_o", "strict", text=fits, event_id="1"), (404, "subscription_over")),
        ):
            assert await there.status(body) == answer
        assert await there.inbox("strict") == []
        assert there.receiver.counts == {
            "taken": 0,
            "event_misfit": 2,
            "too_large": 1,
            "event_not_taken": 1,
            "subscription_over": 1,
        }
        assert await there.status(event("call_j", "strict", text=fits, event_id="1")) == (200, "")
        assert await there.inbox("strict") == ["event:call_j:1"]


async def test_an_event_that_was_taken_stays_a_duplicate_whatever_is_demanded_since(store: Store) -> None:
    async with receiving(store) as there:
        await store.create([strict()], [], START)
        await store.put([], START, blobs=[SCHEMA])
        taken = Event("call_j", "of before", "1")
        await store.put([InputMessage("event:call_j:1", "strict", taken)], START)
        assert await there.status(event("call_j", "strict", text="of before", event_id="1")) == (200, "")
        assert await there.inbox("strict") == ["event:call_j:1"]


async def test_a_last_event_gets_in_whatever_it_says(store: Store) -> None:
    async with receiving(store) as there:
        await store.create([strict()], [], START)
        await store.put([], START, blobs=[SCHEMA])
        assert await there.status(event("call_j", "strict", text="the line broke", final=True)) == (200, "")


async def test_a_schema_that_is_lost_keeps_the_event_with_its_sender(store: Store) -> None:
    async with receiving(store) as there:
        await store.create([strict()], [], START)
        assert await there.status(event("call_j", "strict", text='{"sky":"clear"}')) == (503, "unavailable")
