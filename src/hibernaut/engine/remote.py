"""Performs what commits owe to tool servers: calls, answers to their questions, and notices.

A call is posted under its request id, which is its idempotency key, until the server takes it or has failed too often.
What comes of it arrives through the inbox like everything else, so nothing of it stays here once it is taken.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Literal, Protocol

import msgspec

from hibernaut.clock import Clock
from hibernaut.codec import sha256
from hibernaut.engine.asking import Retry
from hibernaut.engine.servers import Remote, address_note
from hibernaut.engine.toolsets import Toolsets
from hibernaut.engine.work import Work, work_of
from hibernaut.errors import HibernautError
from hibernaut.kernel.commit import Chosen, Effect
from hibernaut.kernel.head import Call, Head, decode_head
from hibernaut.messages.inputs import Delivered, Event, Settlement, ToolResult
from hibernaut.rap.answers import Fate, fate_of_call, refusal, wait_before
from hibernaut.rap.invocations import callback_url, cancellation, headers, invocation
from hibernaut.rap.limits import CALL_TOKEN_LIFE
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.rap.replies import NoAnswer, Reply
from hibernaut.rap.requests import AskStatus, CloseThread, Invocation, Selected
from hibernaut.rap.servers import headers_for
from hibernaut.stores.protocol import EffectRow, Store
from hibernaut.tools.tokens import KINDS, Grant, sign

logger = logging.getLogger(__name__)

CALL_PAUSES: Final = (1_000, 4_000, 12_000, 40_000)
"""Milliseconds between the tries to post a call, which are one more."""

NOTICE_PAUSES: Final = (1_000, 4_000)
"""The same for a notice, which nobody waits for."""

ANSWER_PAUSE_FIRST: Final = 1_000
ANSWER_PAUSE_MOST: Final = 300_000
"""Milliseconds between the tries to bring a person's answer, doubling."""

ANSWER_LIFE: Final = 24 * 3_600_000
"""Milliseconds after which a person's answer is not brought any more."""

WAIT_MOST: Final = 60_000
"""Milliseconds that a server may ask for between two tries."""

ASK_AT_ONCE: Final = 16
"""Calls that are asked after at the same time."""

UNKNOWN_CALL: Final = (
    "Error: it is unknown whether {tool} was run: its server {server} did not acknowledge the call ({why}). "
    "Check before repeating it."
)
NOT_RUN: Final = "Error: {tool} was not run: its server {server} cannot be reached ({why})."
LOST: Final = (
    "Error: the server {server} that ran {tool} does not know this call any more. It is unknown how far it got; "
    "check before repeating it."
)


class Ending(Protocol):
    """Answers a call whose end nobody knows; a subscription that was confirmed has its last event then."""

    def __call__(self, effect: Effect, thread_id: str, text: str, *, subscription: bool) -> Awaitable[None]:
        """Do it."""
        ...


class _Tried(msgspec.Struct, frozen=True):
    """What came of one try to post a call."""

    fate: Fate | Literal["impossible"]
    why: str
    reached: bool = False
    unheard: bool = False
    """It may have arrived, and nobody answered."""
    wait: int = 0
    """Milliseconds that the server asks for."""
    text: str = ""
    """Of a refusal: what the model reads."""


class RemoteCalls:
    """Performs effects on tool servers."""

    def __init__(
        self,
        remote: Remote,
        toolsets: Toolsets,
        store: Store,
        clock: Clock,
        *,
        retry: Retry,
        refuse: Callable[[Effect, str, str], Awaitable[object]],
        end_unknown: Ending,
        tenant: str | None = None,
    ) -> None:
        """Make one; `retry` does something until the store takes it, `refuse` answers a call with an error.

        With `tenant`, only calls of its threads are looked after.
        """
        self._servers = remote.servers
        self._public = remote.public
        self._keys = remote.keys
        self._moved = remote.moved
        self._headers_for = remote.headers_for
        self._toolsets = toolsets
        self._store = store
        self._clock = clock
        self._retry = retry
        self._refuse = refuse
        self._end_unknown = end_unknown
        self._tenant = tenant

    # Calls

    async def invoke(self, work: Work, *, started: bool) -> None:
        """Post a call until the server takes it. `started`: somebody else may have done so already."""
        effect = work.effect
        toolset = await self._toolsets.toolset(effect.server, work.toolset)
        tool = _tool_of(toolset, effect.tool)
        if toolset is None or tool is None:
            why = f"Error: {effect.tool} was not run: what its server {effect.server} has is not known any more."
            await self._refuse(effect, work.thread_id, why)
        elif not started or await self._is_to_be_repeated(work, toolset, tool):
            await self._post(work, toolset, tool, reached=started)

    async def _is_to_be_repeated(self, work: Work, toolset: Toolset, tool: RemoteTool, why: str = "") -> bool:
        """Find out about a call that may have been posted; False: there is nothing left to do here.

        It is posted again only if that is safe. `why`: nobody answered when it was.
        """
        effect = work.effect
        if toolset.idempotency_keys:
            return await self._is_wanted(work)
        question = AskStatus(work.thread_id, effect.call_id)
        for pause in _paced(effect, CALL_PAUSES):
            try:
                liveness = await self._servers.status(effect.server, question)
            except HibernautError as error:
                await self._give_up(work, str(error), reached=True)
                return False
            if liveness == "alive":
                await self._retry(self._store.accept_effects, [effect.request_id])
                return False
            if liveness == "dead" or _is_harmless(tool) or not pause:
                break
            await self._clock.sleep(pause)
        if not await self._is_wanted(work):
            return False
        if not _is_harmless(tool):
            text = (UNKNOWN_CALL if why else LOST).format(tool=effect.tool, server=effect.server, why=why)
            await self._retry(self._end, effect, work.thread_id, text)
        return _is_harmless(tool)

    async def _post(self, work: Work, toolset: Toolset, tool: RemoteTool, *, reached: bool) -> None:
        effect, unheard, why = work.effect, False, ""
        safe = toolset.idempotency_keys or _is_harmless(tool)
        for pause in _paced(effect, CALL_PAUSES):
            tried = await self._try(work, toolset)
            reached, unheard, why = reached or tried.reached, unheard or tried.unheard, tried.why
            if tried.fate != "again":
                await self._conclude(work, tried, reached=reached, unheard=unheard)
                return
            logger.info("call %s was not taken by %s: %s", effect.call_id, effect.server, why)
            if tried.unheard and not safe and not await self._is_to_be_repeated(work, toolset, tool, why):
                return
            if pause:
                await self._clock.sleep(max(pause, min(tried.wait, WAIT_MOST)))
            if not await self._is_wanted(work):
                return
        await self._give_up(work, why, reached=reached)

    async def _try(self, work: Work, toolset: Toolset) -> _Tried:
        effect = work.effect
        try:
            reply = await self._invoke(work, toolset.endpoint)
        except NoAnswer as error:
            return _Tried("again", str(error), reached=error.reached, unheard=error.reached)
        except HibernautError as error:
            return _Tried("impossible", str(error))
        fate, why = fate_of_call(reply.status), f"status {reply.status}"
        if fate == "refused":
            return _Tried(fate, why, text=refusal(effect.tool, toolset.endpoint, reply.status, reply.body))
        return _Tried(fate, why, reached=True, wait=wait_before(reply.headers, self._clock.now()))

    async def _conclude(self, work: Work, tried: _Tried, *, reached: bool, unheard: bool) -> None:
        """Write down what came of a call. `unheard`: a try before was not answered, and may have begun it."""
        effect = work.effect
        if tried.fate == "taken":
            await self._retry(self._store.accept_effects, [effect.request_id])
        elif tried.fate == "refused" and not unheard:
            await self._refuse(effect, work.thread_id, tried.text)
        elif tried.fate == "impossible" and not reached:
            await self._refuse(effect, work.thread_id, f"Error: {effect.tool} was not run: {tried.why}")
        elif await self._is_wanted(work):
            await self._give_up(work, f"an earlier try was not answered, and now: {tried.why}", reached=True)

    async def _give_up(self, work: Work, why: str, *, reached: bool) -> None:
        """Answer a call that no server has taken. `reached`: one may have begun it all the same."""
        effect = work.effect
        text = (UNKNOWN_CALL if reached else NOT_RUN).format(tool=effect.tool, server=effect.server, why=why)
        if reached:
            await self._retry(self._end, effect, work.thread_id, text)
        else:
            await self._refuse(effect, work.thread_id, text)

    async def _invoke(self, work: Work, endpoint: str) -> Reply:
        """Post a call once, with what says whose it is."""
        effect = work.effect
        sent = headers(effect)
        if (lookup := self._headers_for.get(effect.server)) is not None:
            sent = {**await headers_for(effect.server, lookup, work.tenant, work.user), **sent}
        return await self._servers.invoke(effect.server, self._invocation(work), sent, endpoint)

    def _invocation(self, work: Work) -> Invocation:
        effect = work.effect
        root = work.above[0] if work.above else ""
        grant = Grant(work.thread_id, effect.call_id, self._clock.now() + CALL_TOKEN_LIFE, KINDS, root)
        return invocation(
            effect,
            work.thread_id,
            callback_url(self._public, sign(self._keys, grant)),
            provider_id=effect.provider_id,
            ancestors=work.above,
            user=work.user,
        )

    async def _is_wanted(self, work: Work) -> bool:
        """Tell whether an effect is still owed: its call may have been answered or cancelled meanwhile.

        It is answered as soon as the answer is stored, whenever the thread takes that in.
        """
        # The inbox first: what leaves it from now on shows in the effects that are read after it.
        inbox = await self._retry(self._store.read_inbox, work.thread_id)
        if any(_ends(arrived, work.effect.call_id) for arrived in inbox):
            return False
        rows = await self._retry(self._store.read_effects, work.thread_id)
        is_cancelled = any(_cancels(row.effect, work.effect) for row in rows)
        return not is_cancelled and any(row.effect.request_id == work.effect.request_id for row in rows)

    async def _end(self, effect: Effect, thread_id: str, text: str) -> None:
        call, _ = await self._call(thread_id, effect.call_id)
        subscription = call is not None and call.mode == "subscription"
        # A result that has not ended the call is a confirmation, which its thread may not have taken in yet.
        subscription = subscription or await self._store.knows(thread_id, f"result:{effect.call_id}")
        await self._end_unknown(effect, thread_id, text, subscription=subscription)

    async def _call(self, thread_id: str, call_id: str) -> tuple[Call | None, Head | None]:
        row = await self._store.read_head(thread_id)
        head = decode_head(row.head).head if row is not None else None
        return (head.calls.get(call_id) if head is not None else None), head

    # Answers and notices

    async def answer(self, work: Work) -> None:
        """Bring a person's answer until the server takes it."""
        effect = work.effect
        chosen = msgspec.json.decode(effect.arguments, type=Chosen)
        answer = Selected(effect.call_id, chosen.selected)
        await self._tell(work, lambda: self._servers.select(effect.server, chosen.url, answer), _patient())
        await self._retry(self._store.settle_effects, [effect.request_id])

    async def cancel(self, effect: Effect, thread_id: str) -> None:
        """Tell a server that a call is not wanted any more."""
        notice = cancellation(effect, thread_id)
        await self._tell(
            Work(effect, thread_id), lambda: self._servers.cancel(effect.server, notice), _paced(effect, NOTICE_PAUSES)
        )

    async def close(self, work: Work) -> None:
        """Tell a server that a thread has ended."""
        effect, notice = work.effect, CloseThread(work.thread_id)
        pauses = _paced(effect, NOTICE_PAUSES)
        await self._tell(work, lambda: self._servers.close_thread(effect.server, notice), pauses)
        await self._retry(self._store.settle_effects, [effect.request_id])

    async def _tell(self, work: Work, post: Callable[[], Awaitable[Reply]], pauses: Iterator[int]) -> None:
        """Post something until it is taken, refused, or has failed too often."""
        effect = work.effect
        for pause in pauses:
            wait = 0
            try:
                reply = await post()
            except NoAnswer as error:
                why = str(error)
            except HibernautError as error:
                logger.warning("%s of call %s was not sent: %s", effect.kind, effect.call_id, error)
                return
            else:
                fate = fate_of_call(reply.status)
                if fate == "refused":
                    logger.warning("%s refused the %s of call %s", effect.server, effect.kind, effect.call_id)
                if fate != "again":
                    return
                why, wait = f"status {reply.status}", wait_before(reply.headers, self._clock.now())
            logger.info("the %s of call %s was not taken by %s: %s", effect.kind, effect.call_id, effect.server, why)
            if not pause:
                return
            await self._clock.sleep(max(pause, min(wait, WAIT_MOST)))

    # Calls that have been open for long

    async def look_after(self, before: int) -> None:
        """Ask after the calls that servers have taken before that moment, and answer those that are lost.

        Should the address of callbacks be another one than they were told, they hear of that first.
        """
        if self._moved and await self._tell_address(before):
            await self._store.write_note(address_note(self._tenant), self._public.encode())
            self._moved = False
        after = ""
        silent: set[str] = set()
        while rows := await self._store.accepted_effects(before, after, tenant=self._tenant):
            after = rows[-1].effect.request_id
            asked = [row for row in rows if row.effect.server and row.effect.kind == "invoke"]
            for first in range(0, len(asked), ASK_AT_ONCE):
                await self._ask_after(asked[first : first + ASK_AT_ONCE], silent)

    async def _ask_after(self, rows: Sequence[EffectRow], silent: set[str]) -> None:
        async with asyncio.TaskGroup() as group:
            for row in rows:
                if row.effect.server not in silent:
                    group.create_task(self._ask(row, silent))

    async def _ask(self, row: EffectRow, silent: set[str]) -> None:
        effect = row.effect
        try:
            liveness = await self._servers.status(effect.server, AskStatus(row.thread_id, effect.call_id))
        except HibernautError as error:
            logger.warning("nobody can ask %s after its calls: %s", effect.server, error)
            liveness = "unknown"
        if liveness == "unknown":
            silent.add(effect.server)
        elif liveness == "dead" and await self._is_wanted(Work(effect, row.thread_id)):
            text = LOST.format(tool=effect.tool, server=effect.server)
            await self._retry(self._end, effect, row.thread_id, text)

    async def _tell_address(self, before: int) -> bool:
        """Post calls again, so that their servers learn where callbacks go now; tell whether all have heard of it.

        Only to servers that say that a repeat under the same key is the same call.
        """
        after, all_heard = "", True
        while rows := await self._store.accepted_effects(before, after, tenant=self._tenant):
            after = rows[-1].effect.request_id
            for row in rows:
                if row.effect.server and row.effect.kind == "invoke":
                    all_heard = await self._post_again(row) and all_heard
        return all_heard

    async def _post_again(self, row: EffectRow) -> bool:
        """Post a call that was taken once more, whatever comes of it; tell whether its server has heard."""
        effect = row.effect
        call, head = await self._call(row.thread_id, effect.call_id)
        if call is None or head is None:
            return True
        work = await work_of(self._store, row, head)
        toolset = await self._toolsets.toolset(effect.server, work.toolset)
        if toolset is None or not toolset.idempotency_keys:
            return True
        try:
            reply = await self._invoke(work, toolset.endpoint)
        except HibernautError as error:
            logger.warning("%s does not know the new address of callbacks yet: %s", effect.server, error)
            return False
        return fate_of_call(reply.status) != "again"


def _cancels(effect: Effect, call: Effect) -> bool:
    """Tell whether an effect is the word that a call is not wanted any more."""
    return effect.kind == "cancel" and call.kind == "invoke" and effect.call_id == call.call_id


def _ends(arrived: Delivered, call_id: str) -> bool:
    """Tell whether something that was delivered is the last that is to be heard of a call."""
    content = arrived.message.content if arrived.message is not None else None
    if isinstance(content, ToolResult):
        return content.call_id == call_id and (content.is_error or not content.subscription)
    if isinstance(content, Settlement):
        return content.call_id == call_id
    return isinstance(content, Event) and content.call_id == call_id and content.final


def _is_harmless(tool: RemoteTool) -> bool:
    """Tell whether a call that is done twice is as good as one."""
    return tool.idempotent or tool.read_only


def _tool_of(toolset: Toolset | None, name: str) -> RemoteTool | None:
    return next((tool for tool in toolset.tools if tool.name == name), None) if toolset is not None else None


def _paced(effect: Effect, pauses: Sequence[int]) -> Iterator[int]:
    """Yield the pause after each try, 0 after the last; they differ from call to call, so that not all come at once."""
    jitter = int.from_bytes(sha256(effect.request_id.encode())[:2], "big")
    for pause in pauses:
        yield pause - pause * jitter // (4 * 65_536)
    yield 0


def _patient() -> Iterator[int]:
    """Yield the pauses between the tries to bring an answer."""
    pause = ANSWER_PAUSE_FIRST
    spent = 0
    while spent < ANSWER_LIFE:
        yield pause
        spent += pause
        pause = min(2 * pause, ANSWER_PAUSE_MOST)
    yield 0
