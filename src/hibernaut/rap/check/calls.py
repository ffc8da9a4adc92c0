"""Calls: how they are acknowledged, read and answered, and what becomes of those that cannot be run."""

import msgspec

from hibernaut.rap.callbacks import Result
from hibernaut.rap.check.arguments import unfitting
from hibernaut.rap.check.peer import Call
from hibernaut.rap.check.session import UNKNOWN, Named, Session, is_taken, seconds

_BEYOND_ASCII = "é→日本\U0001f40b"
_REFUSED = range(400, 500)


async def unknown_operation(session: Session) -> None:
    """Call what is not there: nothing runs, and the answer says how errors are told. Finds the call to go on with."""
    call = await session.call((UNKNOWN, {}))
    if await _told(session, "errors.told", call):
        session.sample = (UNKNOWN, {})
        return
    tools = session.callable_tools()
    session.sample = tools[0] if tools else None


async def unfitting_arguments(session: Session) -> None:
    """Call a tool, of those that may be called, with arguments that its schema refuses."""
    if not session.findings.wants("errors.arguments"):
        return
    tools = [tool for name, _ in session.callable_tools() if (tool := session.tool(name))]
    tools.sort(key=lambda tool: not tool.read_only)  # a server that does not look at them runs the tool
    found = next(((tool.name, wrong) for tool in tools if (wrong := unfitting(tool)) is not None), None)
    if found:
        await _told(session, "errors.arguments", await session.call(found))
    elif tools:
        session.findings.not_applicable("errors.arguments", "the schemas of its tools take anything")


async def _told(session: Session, rule: str, call: Call) -> bool:
    """Judge how the error of a call is told, and return whether it was by a callback."""
    refused = call.answered.status in _REFUSED
    seen, by_callback = await session.outcome(call)
    session.findings.judge(rule, refused or by_callback, seen)
    session.findings.judge("errors.by-callback", by_callback, f"{call.sent.operation}: {seen}")
    results = [one.callback for one in call.inbox.deliveries if isinstance(one.callback, Result)]
    if results:
        session.findings.judge("errors.marked", results[0].is_error, f"is_error is {str(results[0].is_error).lower()}")
    return by_callback


async def acknowledgement(session: Session, sample: Named) -> None:
    """Leave the callback without an answer until the call is acknowledged: a server that works first cannot do both."""
    if not session.findings.wants("ack.before-work"):
        return
    inbox = session.receiver.inbox()
    with inbox.held():
        call = await session.make(session.invocation(*sample, inbox), inbox)
    if is_taken(call.answered):
        session.findings.kept("ack.before-work", call.answered.words)
    elif inbox.deliveries:
        session.findings.broken("ack.before-work", "the callback came, and no acknowledgement before it was answered")
    else:
        session.findings.broken("ack.before-work", call.answered.words)


async def optional_fields(session: Session, sample: Named) -> None:
    """Make calls with all that may be there, and without all that may be left out."""
    if not session.findings.wants("ack.nulls"):
        return
    for what, call_id, ancestors, user in (
        ("with nulls, and no headers", None, None, None),
        ("with ancestors and a user", "call_1", ("thread_a", "thread_b"), "anna"),
    ):
        inbox = session.receiver.inbox()
        call = msgspec.structs.replace(
            session.invocation(*sample, inbox), call_id=call_id, thread_ancestors=ancestors, user_id=user
        )
        if not await session.expect("ack.nulls", await session.make(call, inbox, plain=call_id is None), what):
            return


async def unknown_fields(session: Session, sample: Named) -> None:
    """Make a call with fields that nobody knows."""
    if session.findings.wants("unknown-fields.ignored"):
        inbox = session.receiver.inbox()
        extra = {"x_hibernaut_check": {"anything": [1, None]}, "type": "nothing"}
        call = await session.make(session.invocation(*sample, inbox), inbox, extra=extra)
        await session.expect("unknown-fields.ignored", call, "with x_hibernaut_check")


async def utf_8(session: Session, sample: Named) -> None:
    """Make a call whose ids are not ASCII, and see whether they come back."""
    if not session.findings.wants("encoding.utf-8"):
        return
    inbox = session.receiver.inbox()
    plain = session.invocation(*sample, inbox)
    call = msgspec.structs.replace(plain, id=plain.id + _BEYOND_ASCII, group_id=plain.group_id + _BEYOND_ASCII)
    answered = await session.peer.invoke(call, plain.id)  # not looked at in the end: this rule is about its ids
    if not is_taken(answered):
        session.findings.broken("encoding.utf-8", f"a call whose id ends with {_BEYOND_ASCII}: {answered.words}")
        return
    came = await inbox.next(session.settings.called_back_within)
    if came is None:
        within = seconds(session.settings.called_back_within)
        session.findings.broken("encoding.utf-8", f"a call whose id ends with {_BEYOND_ASCII}: nothing for {within}")
        return
    whole = _BEYOND_ASCII in _plain(came.body)
    session.findings.judge("encoding.utf-8", whole, f"sent …{_BEYOND_ASCII}, came back {came.words}")


def _plain(body: bytes) -> str:
    """Return what a body says, escapes or not."""
    try:
        return msgspec.json.encode(msgspec.json.decode(body)).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


async def same_key(session: Session, sample: Named) -> None:
    """Send one call twice under one key."""
    if not session.findings.wants("idempotency.same-key"):
        return
    inbox = session.receiver.inbox()
    sent = session.invocation(*sample, inbox)
    first = await session.make(sent, inbox)
    again = await session.peer.invoke(sent, sent.id)
    if not is_taken(first.answered) or not is_taken(again):
        session.findings.broken("idempotency.same-key", f"{first.answered.words}, then {again.words}")
        return
    if await session.result_of(first) is None:
        session.findings.not_tried("idempotency.same-key", "the call was not answered")
        return
    await inbox.next(session.settings.quiet, lambda one: one.kind == "tool_result", after=1)
    results = sum(one.kind == "tool_result" for one in inbox.deliveries)
    session.findings.judge(
        "idempotency.same-key", results == 1, f"{results} {'result' if results == 1 else 'results'} for one call"
    )


async def answers(session: Session) -> None:
    """Call all that may be called."""
    if not session.findings.wants("call.answers"):
        return
    for name, arguments in session.callable_tools():
        call = await session.call((name, arguments))
        if not is_taken(call.answered):
            session.findings.broken("call.answers", f"{name}: {call.answered.words}")
            continue
        came = await call.inbox.next(
            session.settings.called_back_within, lambda one: one.kind in ("tool_result", "oauth", "user_choice")
        )
        if came is None:
            within = seconds(session.settings.called_back_within)
            session.findings.broken("call.answers", f"{name}: acknowledged, and then nothing for {within}")
        elif came.problem:
            session.findings.not_tried("call.answers", f"{name}: a callback came, and a runtime refuses it")
        elif came.kind == "tool_result":
            session.findings.kept("call.answers", f"{name}: {came.words}")
        else:
            session.findings.not_tried("call.answers", f"{name} asks a person")
            await session.peer.cancel(call.sent.group_id, call.sent.id)
