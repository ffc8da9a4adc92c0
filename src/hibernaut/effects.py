"""Effects for operators: what is owed to the outside, how it stands, and how a call is answered by hand."""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from typing import Final

import msgspec

from hibernaut.doors import check_name, refuse
from hibernaut.engine.core import RECONCILE
from hibernaut.engine.dispatcher import Dispatcher
from hibernaut.engine.live import LiveFeed
from hibernaut.engine.servers import Remote
from hibernaut.errors import AlreadyAnswered, ConfigurationError, MalformedInput, UnknownEffect
from hibernaut.ids import Ids, RandomIds
from hibernaut.kernel.commit import Effect
from hibernaut.kernel.head import Head, decode_head
from hibernaut.messages.inputs import InputMessage, Settlement, ToolResult
from hibernaut.messages.parts import Content
from hibernaut.messages.text import clean
from hibernaut.part import SystemPart
from hibernaut.stores.owners import this_owner
from hibernaut.stores.protocol import EffectRow, EffectState, Outcome
from hibernaut.tools.results import fit
from hibernaut.tools.tool import AnyTool

UNKNOWN_BY_HAND: Final = (
    "An operator has looked after this call: it is unknown whether {tool} was run ({reason}). "
    "Check before repeating it."
)


class OwedEffect(msgspec.Struct, frozen=True):
    """One effect in the outbox, and what becomes of it."""

    effect: Effect
    thread_id: str
    state: EffectState
    """`pending`: certainly not begun. `sent`: begun, or about to be. `accepted`: whoever works on it will answer."""
    created: int
    """When its round was committed, milliseconds since 1970."""
    owner: str
    """The engine that works on it, or did; "" for none."""
    owner_lives: bool
    outlook: str
    """What an engine does with it, in a sentence."""

    @property
    def is_uncertain(self) -> bool:
        """Whether nobody knows if it happened: it was begun, and the engine that began it is dead."""
        return self.state == "sent" and not self.owner_lives


class HandlesEffects(SystemPart):
    """The part of an `AgentSystem` that shows what is owed to the outside, and lets operators decide."""

    _ids: Ids
    _remote: Remote | None
    _tools: Mapping[str, AnyTool]

    @property
    @abstractmethod
    def feed(self) -> LiveFeed: ...

    async def effects(self, thread_id: str | None = None) -> list[OwedEffect]:
        """Return what this tenant's threads, or one of them, owe to the outside, oldest first.

        Raises:
            UnknownThread: this tenant has no such thread.
        """
        if thread_id is not None:
            await self.row(thread_id)
        living = set(await self.store.living_engines(self.clock.now()))
        tenants: dict[str, bool] = {}
        found: list[OwedEffect] = []
        for row in await self.store.read_effects(thread_id):
            if row.thread_id not in tenants:
                thread = await self.store.read_head(row.thread_id)
                tenants[row.thread_id] = thread is not None and thread.tenant == self.tenant
            if tenants[row.thread_id]:
                found.append(self._owed(row, lives=row.owner in living))
        return found

    async def effect(self, request_id: str) -> OwedEffect:
        """Return one effect, by its request id; `call_` may be left out.

        Raises:
            UnknownEffect: this tenant's threads owe no such one.
        """
        names = (request_id, f"call_{request_id}")
        for owed in await self.effects():
            if owed.effect.request_id in names:
                return owed
        raise UnknownEffect(request_id)

    async def reconcile(self) -> bool:
        """Have tool servers asked now after the calls that they have taken, as an engine does at start.

        Without an engine on the store, those of this tenant's threads.
        A call that its server does not know any more is answered: it is unknown how far it got. Returns whether that
        is done when this returns; else it is stored as a wish, which a running engine carries out.

        Raises:
            ConfigurationError: no engine runs on the store, and this system knows no tool servers.
        """
        now = self.clock.now()
        if await self.store.living_engines(now):
            await self.store.write_note(RECONCILE, f"{now} {RandomIds().new('wish')}".encode())
            return False
        if self._remote is None:
            raise ConfigurationError(
                "no engine runs on this store, and no tool servers are given: start an engine, or name the servers"
            )
        from hibernaut.engine.toolsets import Toolsets  # noqa: PLC0415  # most programs have no tool servers

        async with asyncio.TaskGroup() as tasks:
            dispatcher = Dispatcher(
                self.store,
                this_owner(self._ids),
                self._tools,
                self.feed,
                self.clock,
                tasks,
                keeps=False,
                remote=self._remote,
                toolsets=Toolsets(self._remote.servers, self.store),
                tenant=self.tenant,
            )
            await dispatcher.ask_servers(now + 1)
        return True

    async def settle(self, request_id: str, result: Content | None, *, reason: str, user: str = "") -> str:
        """Answer a call by hand, durably; `result` None: it is unknown how it ended. Returns the message id.

        The receipt says who did so and why. Should the call's own result come all the same, it is shown as an event.

        Raises:
            UnknownEffect. MalformedInput: it is no call that waits for a result, or there is no reason.
            AlreadyAnswered: its result is there. ThreadClosed. TooLarge.
        """
        why = clean(reason).strip()
        if not why:
            raise MalformedInput("say why: whoever reads the receipts will want to know")
        if user:
            check_name("user", user)
        owed = await self.effect(request_id)
        effect, thread_id = owed.effect, owed.thread_id
        if effect.kind != "invoke":
            raise MalformedInput(f"{effect.request_id} tells whoever works on a call something; it has no answer")
        inbox = await self.store.read_inbox(thread_id)
        for one in inbox:
            content = one.message.content if one.message is not None else None
            if isinstance(content, ToolResult | Settlement) and content.call_id == effect.call_id:
                raise AlreadyAnswered(f"the result of {effect.call_id} is there; the thread has not taken it in yet")
        head = decode_head((await self.row(thread_id)).head).head
        _check_waits(head, effect)
        fitted, blobs = fit(UNKNOWN_BY_HAND.format(tool=effect.tool, reason=why) if result is None else result)
        content = Settlement(effect.call_id, fitted, is_error=result is None, reason=why, user=user)
        sender = f"operator:{user}" if user else "operator"
        message = InputMessage(f"settled:{effect.call_id}", thread_id, content, sender)
        (outcome,) = await self.store.put([message], self.clock.now(), blobs=blobs, tenant=self.tenant)
        if outcome is Outcome.DUPLICATE:
            raise AlreadyAnswered(f"{effect.call_id} was answered by hand already")
        refuse(outcome, thread_id)
        return message.message_id

    def _owed(self, row: EffectRow, *, lives: bool) -> OwedEffect:
        owner = row.owner if row.state != "accepted" else ""
        outlook = _outlook(row, self._tools.get(row.effect.tool), lives=lives)
        return OwedEffect(row.effect, row.thread_id, row.state, row.created, owner, lives and bool(owner), outlook)


def _check_waits(head: Head, effect: Effect) -> None:
    """Refuse to answer a call by hand that waits for no result."""
    call = head.calls.get(effect.call_id)
    if call is not None and call.state == "subscribed":
        raise MalformedInput(f"{effect.call_id} is a subscription, which has no result; cancel it")
    if call is None or call.state not in ("open", "detached") or call.held is not None:
        raise AlreadyAnswered(f"the thread waits for no result of {effect.call_id} any more")


def _outlook(row: EffectRow, tool: AnyTool | None, *, lives: bool) -> str:
    """Return what an engine does with an effect."""
    effect = row.effect
    if row.state == "accepted":
        if effect.server and effect.kind == "invoke":
            return f"{effect.server} works on it and will answer; it is asked at an engine's start and then every hour"
        return "it waits for its answer, from whoever was given its token or its question"
    if lives:
        return "its engine begins it" if row.state == "pending" else "its engine works on it"
    if effect.kind != "invoke":
        return "the next engine brings it"
    if row.state == "pending":
        return "it was not begun; the next engine begins it"
    if effect.server:
        return (
            f"the next engine that knows {effect.server} sends it again under the same key if the server says that "
            "this is safe; else it asks the server after it, and repeats it only if the tool is idempotent"
        )
    if tool is None:
        return "the next engine runs it again if its tool says that this is safe; else it answers that it is unknown"
    safe = tool.resumable if tool.mode == "subscription" else tool.idempotent
    return "the next engine runs it again" if safe else "the next engine answers that it is unknown whether it happened"
