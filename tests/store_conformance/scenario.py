"""What the conformance tests are written with: small threads, messages and commits, and views of all that is stored."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from hibernaut.codec import sha256
from hibernaut.kernel.commit import Effect, NewThread, Outgoing, SliceCommit
from hibernaut.kernel.head import Status
from hibernaut.messages.inputs import Command, Delivered, Event, InputMessage, Timer, ToolResult, UserText
from hibernaut.stores.protocol import Claim, Owner, Store

StoreFactory = Callable[[], Coroutine[Any, Any, Store]]

START = 1_700_000_000_000

ANNA = Owner("engine_anna")
BERT = Owner("engine_bert")


def run(open_store: StoreFactory, scenario: Callable[[Store], Awaitable[None]]) -> None:
    """Play a scenario on a fresh store, which lives inside one event loop."""

    async def main() -> None:
        store = await open_store()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


def new_thread(thread_id: str = "t", *, tenant: str = "", created: int = START, body: bytes = b"config") -> NewThread:
    return NewThread(thread_id, tenant, b"head 0 of " + thread_id.encode(), sha256(body), body, created)


def user(message_id: str, thread_id: str = "t") -> InputMessage:
    return InputMessage(message_id, thread_id, UserText("hello"))


def result(message_id: str, thread_id: str = "t") -> InputMessage:
    return InputMessage(message_id, thread_id, ToolResult("call_1", "42"))


def event(message_id: str, thread_id: str = "t") -> InputMessage:
    return InputMessage(message_id, thread_id, Event("call_1", "it rained"))


def timer(
    message_id: str, thread_id: str = "t", purpose: Literal["sleep", "deadline", "retry"] = "retry"
) -> InputMessage:
    return InputMessage(message_id, thread_id, Timer(purpose, START))


def command(
    message_id: str, thread_id: str = "t", action: Literal["stop", "resume", "close"] = "resume"
) -> InputMessage:
    return InputMessage(message_id, thread_id, Command(action))


def invoke(request_id: str) -> Effect:
    return Effect(request_id, "invoke", request_id, "look_up")


def names(messages: Sequence[Delivered]) -> list[str]:
    return [message.message_id for message in messages]


def after(claim: Claim, **fields: Any) -> SliceCommit:
    """Return the commit of a round: unless told otherwise, all that the claim handed over is consumed."""
    version = claim.version + 1
    commit = SliceCommit(
        claim.thread_id,
        version,
        b"head %d" % version,
        b"page %d" % version,
        b"receipt %d" % version,
        "open",
        consumed=tuple(names(claim.messages)),
        at=START,
    )
    return replace(commit, **fields)


async def claim_one(store: Store, now: int = START, owner: Owner = ANNA, thread_id: str | None = None) -> Claim:
    """Claim what must be the only ready thread (or this one)."""
    claims = await store.claim(owner, now, 10, threads=None if thread_id is None else [thread_id])
    assert len(claims) == 1
    return claims[0]


async def is_ready(store: Store, thread_id: str = "t", now: int = START) -> bool:
    """Tell whether a thread is ready, and leave it so."""
    claims = await store.claim(Owner("engine_probe"), now, 1, threads=[thread_id])
    for claim in claims:
        await store.release(claim)
    return bool(claims)


async def a_thread(store: Store, *messages: InputMessage, status: Status = "open", thread_id: str = "t") -> None:
    """Make a thread that has the status and these messages in its inbox."""
    await store.create([new_thread(thread_id)], [], START)
    if status != "open":
        first = command("into the status", thread_id, "stop")
        await store.put([first], START)
        claim = await claim_one(store, thread_id=thread_id)
        await store.commit(claim, after(claim, status=status))
    await store.put(messages, START)


async def owe(store: Store, *request_ids: str, owner: Owner = ANNA, thread_id: str = "t", now: int = START) -> None:
    """Let an engine commit effects for a thread."""
    await store.create([new_thread(thread_id)], [user("for " + " ".join(request_ids), thread_id)], now)
    claim = await claim_one(store, now, owner, thread_id)
    await store.commit(claim, after(claim, effects=tuple(map(invoke, request_ids)), at=now))


async def everything(store: Store, now: int = START) -> dict[str, object]:
    """Return all that a store tells of what it keeps."""
    rows = await store.list_threads(limit=1_000)
    return {
        "threads": rows,
        "logs": [await store.read_log(row.thread_id) for row in rows],
        "inboxes": [await store.read_inbox(row.thread_id) for row in rows],
        "effects": await store.read_effects(),
        "next due": await store.next_due(now),
    }


def sent_to(*messages: InputMessage, due: int = 0) -> tuple[Outgoing, ...]:
    return tuple(Outgoing(message, due) for message in messages)
