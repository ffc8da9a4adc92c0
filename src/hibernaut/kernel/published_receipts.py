"""Receipts in their published form, version 1 of the resume contract: one JSON object for each round of a slice.

Everything in it follows from what is stored: the receipts, the pages for the names of tools and the digest of the
prompt, and the outbox for what is still under way. Payloads are named by their digests alone, unless they are asked
for. The schema of the form is in `resume_contract_v1.json`, beside this module.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from hibernaut.codec import sha256
from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.commit import Disposition, EffectKind, kind_of_request
from hibernaut.kernel.provenance import Provenance, call_named_by, read_entry
from hibernaut.kernel.receipt import Receipt, TurnCommit, decode_receipt, next_history
from hibernaut.messages.item_records import item_record
from hibernaut.messages.items import CallItem, decode_page, page_prefix

CONTRACT: Final = "v1"
"""The version of the form."""

EffectFate = Literal["none", "pending", "sent", "accepted", "settled", "unknown", "cancelled", "done"]
"""How far an effect is when the receipts are read.

`none`: nothing was sent out for the call yet. `pending`, `sent`, `accepted`: it is in the outbox. `settled`: a receipt
says with which input it ended. `unknown`: it was answered with that nobody knows how it ended. `cancelled`: it is not
wanted any more. `done`: a notice that was brought.
"""

_ASKED: Final = (TurnCommit.COMPLETE, TurnCommit.INTERRUPTED, TurnCommit.FAILED)
_WAITING: Final = (Disposition.DEFERRED, Disposition.HELD)


class Answers(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an input answers, or is about: a call or a question."""

    call: str = ""
    question: str = ""


class PublishedProvenance(msgspec.Struct, frozen=True):
    """Who handed an input in, and what it answers."""

    sender: str
    answers: Answers | None


class PublishedInput(msgspec.Struct, frozen=True):
    """One input, and what became of it in this round."""

    id: str
    disposition: str
    provenance: PublishedProvenance | None
    """None for one that waits, and for one that cannot be read."""
    note: str | msgspec.UnsetType = msgspec.UNSET
    """What there is to say of an event: why it was refused, or that others before it have not come; and of a decision
    that came to nothing, what it was and why."""


class ToolRequest(msgspec.Struct, frozen=True):
    """A call of the turn, or something else that the round owes to the outside."""

    request_id: str
    idempotency_key: str
    kind: EffectKind
    call_id: str
    tool: str
    dispatch: Literal["dispatched", "held"]
    """`held`: this round owes nothing for it. It waits for others, only stands for waiting, or was answered at once."""
    effect_state: EffectFate
    result: str | None
    """Id of the input that it ended with."""


class SettledEffect(msgspec.Struct, frozen=True):
    """An effect that is over with this round, and the input that it ended with."""

    request_id: str
    input: str | None


class OperatorDecision(msgspec.Struct, frozen=True):
    """Something that an operator decided and that this round carried out."""

    action: str
    call: str
    reason: str
    sender: str
    input: str
    message: str | msgspec.UnsetType = msgspec.UNSET
    """The message that waited, if it is about one."""
    before: str | msgspec.UnsetType = msgspec.UNSET
    after: str | msgspec.UnsetType = msgspec.UNSET
    """Digests of what an edited message said before, and says now."""


class PublishedUsage(msgspec.Struct, frozen=True):
    """Tokens of a completion, as the provider counted them; `estimated` of them nobody did."""

    input: int
    output: int
    cached: int
    estimated: int | msgspec.UnsetType = msgspec.UNSET


class PublishedReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """One round of a slice; see `docs/receipts.md` for what each field means."""

    resume_contract: str = CONTRACT
    resume_id: str
    thread_id: str
    thread_version: int
    inputs: list[PublishedInput]
    history_before: str | None
    history_after: str | None
    page: str | None
    authority_snapshot: str | None
    config: str | None
    tools: str | None
    model: str | None
    prompt: str | None
    turn_commit: str
    tool_requests: list[ToolRequest]
    settled: list[SettledEffect]
    retry_count: int
    operator_decision: list[OperatorDecision]
    usage: PublishedUsage | None
    started: int
    took: int
    runtime_build: str
    previous: str | None
    receipt: str
    stored_receipt: bytes
    stored_page: bytes | msgspec.UnsetType = msgspec.UNSET
    items: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class _End(msgspec.Struct, frozen=True):
    fate: EffectFate
    input: str | None = None


class Ends:
    """How the effects of a thread ended, as far as its receipts say; all of them are to be noted, in order."""

    def __init__(self) -> None:
        self._ends: dict[str, _End] = {}

    def note(self, receipt: Receipt) -> None:
        """Take in a receipt."""
        for request in receipt.dispatched:
            if kind_of_request(request) == "cancel":
                self._ends[request.removesuffix(":cancel")] = _End("cancelled")
        for settled in _settled(receipt, _entries(receipt, {}, "", "")):
            by = settled.input or ""
            self._ends[settled.request_id] = _End("unknown" if by.startswith("unknown:") else "settled", settled.input)

    def of(self, request: str, outbox: Mapping[str, EffectFate]) -> _End:
        """Return how far an effect is."""
        kind = kind_of_request(request)
        if request in outbox:
            return _End(outbox[request])
        return self._ends.get(request) or _End("none" if kind == "invoke" else "done")


class Publisher:
    """Brings the receipts of one thread into their published form, in order."""

    def __init__(
        self,
        thread_id: str,
        ends: Ends,
        outbox: Mapping[str, EffectFate],
        *,
        start: bytes = b"",
        model: str = "",
        parent: str = "",
    ) -> None:
        """Make one.

        Args:
            thread_id: the thread.
            ends: how its effects ended.
            outbox: the states of its effects that are not over, by request id.
            start: the digest that its chain of pages starts from.
            model: the model of its launch configuration.
            parent: the thread that made it; "" for a root.
        """
        self._thread_id, self._ends, self._outbox = thread_id, ends, outbox
        self._model, self._parent = model, parent
        self._history = start
        self._tools_of: dict[str, str] = {}
        self._authority = self._config = self._tools = b""
        self._build = ""

    def publish(self, page: bytes, stored: bytes, *, payloads: bool = False) -> PublishedReceipt:
        """Return a receipt in its published form; with `payloads` what its page holds, too.

        Raises:
            StoreCorrupt: the page or the receipt cannot be read.
        """
        receipt = decode_receipt(stored)
        items = decode_page(page)
        self._tools_of.update({item.id: item.name for item in items if isinstance(item, CallItem)})
        before, self._history = self._history, next_history(self._history, page)
        self._authority = receipt.authority or self._authority
        self._config = receipt.config or self._config
        self._tools = receipt.tools or self._tools
        self._build = receipt.build or self._build
        entries = _entries(receipt, self._tools_of, self._thread_id, self._parent)
        prompt = sha256(self._config, self._tools, before, page_prefix(page, receipt.shown))
        return PublishedReceipt(
            resume_id=f"{self._thread_id}@{receipt.version}",
            thread_id=self._thread_id,
            thread_version=receipt.version,
            inputs=[_input(*entry) for entry in entries],
            history_before=named(before),
            history_after=named(receipt.history),
            page=named(sha256(page)) if page else None,
            authority_snapshot=named(self._authority),
            config=named(self._config),
            tools=named(self._tools),
            model=(receipt.model or self._model) if receipt.turn else None,
            prompt=named(prompt) if receipt.turn in _ASKED else None,
            turn_commit=receipt.turn.name.lower(),
            tool_requests=self._requests(receipt),
            settled=_settled(receipt, entries),
            retry_count=receipt.failures,
            operator_decision=_decisions(receipt, entries),
            usage=_usage(receipt),
            started=receipt.started,
            took=receipt.took,
            runtime_build=self._build,
            previous=named(receipt.previous),
            receipt=f"sha256:{sha256(stored).hex()}",
            stored_receipt=stored,
            stored_page=page if payloads else msgspec.UNSET,
            items=[item_record(item) for item in items] if payloads else msgspec.UNSET,
        )

    def _requests(self, receipt: Receipt) -> list[ToolRequest]:
        dispatched = receipt.dispatched
        requests = dict.fromkeys([*receipt.calls, *dispatched])
        return [self._request(name, dispatched=name in dispatched) for name in requests]

    def _request(self, name: str, *, dispatched: bool) -> ToolRequest:
        kind = kind_of_request(name)
        call = name.removesuffix(":cancel") if kind in ("invoke", "cancel") else ""
        end = self._ends.of(name, self._outbox)
        how: Literal["dispatched", "held"] = "dispatched" if dispatched else "held"
        return ToolRequest(name, name, kind, call, self._tools_of.get(call, ""), how, end.fate, end.input)


def named(digest: bytes) -> str | None:
    """Return a digest as the form names it; None for none."""
    return f"sha256:{digest.hex()}" if digest else None


_Taken = tuple[str, Disposition, Provenance | None]
"""An input of a receipt: its id, what became of it, and where it came from, if the receipt says so."""


def _entries(receipt: Receipt, tools: Mapping[str, str], thread_id: str, parent: str) -> list[_Taken]:
    taken: list[_Taken] = []
    for (name, number), entry in zip(receipt.inputs, receipt.origins, strict=True):
        disposition = _disposition(number)
        told = None
        if disposition not in _WAITING:
            told = read_entry(entry, name, tools.get(call_named_by(name), ""), thread_id, parent)
        taken.append((name, disposition, told))
    return taken


def _input(name: str, disposition: Disposition, told: Provenance | None) -> PublishedInput:
    provenance, note = None, ""
    if told is not None:
        answers = Answers(told.call, told.question) if told.call or told.question else None
        provenance = PublishedProvenance(told.sender, answers)
        note = _moot(told, disposition) if told.action else told.reason
    return PublishedInput(name, disposition.name.lower(), provenance, note or msgspec.UNSET)


def _moot(told: Provenance, disposition: Disposition) -> str:
    """Say what an operator had decided that came to nothing, so that its reason is kept, too."""
    if disposition is Disposition.ACCEPTED or not _is_operator(told.sender):
        return ""
    what = " ".join(filter(None, (told.action, told.message or told.call)))
    return f"{what}: {told.reason}" if told.reason else what


def _settled(receipt: Receipt, entries: Iterable[_Taken]) -> list[SettledEffect]:
    by = {told.call: name for name, _, told in entries if told is not None and told.call}
    return [SettledEffect(request, by.get(request)) for request in receipt.settled]


def _decisions(receipt: Receipt, entries: Iterable[_Taken]) -> list[OperatorDecision]:
    edits = iter(receipt.edited)
    return [
        _decision(told, name, edits)
        for name, disposition, told in entries
        if told is not None and told.action and disposition is Disposition.ACCEPTED and _is_operator(told.sender)
    ]


def _decision(told: Provenance, name: str, edits: Iterator[tuple[str, bytes, bytes]]) -> OperatorDecision:
    _, before, after = next(edits, ("", b"", b"")) if told.action == "edit" else ("", b"", b"")
    decision = OperatorDecision(told.action, told.call, told.reason, told.sender, name, told.message or msgspec.UNSET)
    return msgspec.structs.replace(decision, before=named(before) or msgspec.UNSET, after=named(after) or msgspec.UNSET)


def _usage(receipt: Receipt) -> PublishedUsage | None:
    usage = receipt.usage
    if usage is None:
        return None
    return PublishedUsage(usage.input, usage.output, usage.cached, receipt.estimated or msgspec.UNSET)


def _disposition(number: int) -> Disposition:
    try:
        return Disposition(number)
    except ValueError:
        raise StoreCorrupt(f"a receipt cannot be read: there is no disposition {number}") from None


def _is_operator(sender: str) -> bool:
    """Tell whether a command is a person's; threads and the engine send some, too."""
    return not sender.startswith("thread:") and sender != "engine"
