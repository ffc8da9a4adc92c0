"""`hibernaut threads show`: what a thread is, what it waits for and what it holds."""

from typing import Any

import click
import msgspec

from hibernaut.cli.finding import find_thread, launched_with
from hibernaut.cli.money import at_least
from hibernaut.cli.running import opened
from hibernaut.cli.starting import Setting
from hibernaut.cli.threads.group import LONGEST_EXCERPT, log_of, run, say, threads, with_thread
from hibernaut.cli.times import ago, moment
from hibernaut.engine.answering import questions_of
from hibernaut.kernel.head import decode_head
from hibernaut.messages.inputs import Delivered, Timer
from hibernaut.messages.text import shorten
from hibernaut.state import ThreadState
from hibernaut.stores.protocol import EffectRow


@threads.command(short_help="Show what a thread is and what it waits for.")
@with_thread
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(thread: str, store: str, tenant: str, *, as_json: bool) -> None:
    """Show what a thread is, what it waits for and what it holds."""
    run(_show(Setting(store, tenant), thread, as_json=as_json))


async def _show(setting: Setting, given: str, *, as_json: bool) -> None:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        state = await handle.state()
        launch = await launched_with(system, handle.thread_id)
        asked = questions_of(decode_head((await system.row(handle.thread_id)).head).head)
        effects = await system.store.read_effects(handle.thread_id)
        inbox = await system.store.read_inbox(handle.thread_id)
        pages, receipts = 0, 0
        async for row in log_of(system, handle.thread_id):
            pages += len(row.page)
            receipts += len(row.receipt)
        now = system.clock.now()
    sizes = {"head": state.head_bytes, "history": pages, "receipts": receipts}
    timers = [one for one in inbox if one.message is not None and isinstance(one.message.content, Timer)]
    if as_json:
        record = msgspec.to_builtins(state) | {
            "usage": msgspec.structs.asdict(state.usage),
            "model": launch.model,
            "tools": launch.tools,
            "user": launch.user,
            "instructions": launch.instructions,
            "bytes": sizes,
            "timers": [_timer_record(one) for one in timers],
            "asks": asked,
            "effects": [
                {"call_id": row.effect.call_id, "kind": row.effect.kind, "state": row.state} for row in effects
            ],
        }
        click.echo(msgspec.json.encode(record))
        return
    doing = ", frozen" if state.frozen else "" if state.status != "open" else f", {state.activity}"
    facts = [
        ("Thread", state.thread_id),
        ("Title", state.title),
        ("State", f"{state.status}{doing}"),
        ("Reason", state.reason),
        ("Parent", state.parent),
        ("Fork of", state.fork_of),
        ("Is for", shorten(state.purpose, LONGEST_EXCERPT)),
        (
            "Below",
            f"{state.children:,} living {'child' if state.children == 1 else 'children'}" if state.children else "",
        ),
        ("Tenant", state.tenant),
        ("User", launch.user),
        ("Model", launch.model or "whatever the engine's default is"),
        ("Tools", "whatever the engine has" if launch.tools is None else ", ".join(launch.tools)),
        ("Told", shorten(launch.instructions, LONGEST_EXCERPT)),
        ("Made", f"{moment(state.created)} ({ago(state.created, now)})"),
        ("Updated", f"{moment(state.updated)} ({ago(state.updated, now)})"),
        ("Holds", f"{state.items:,} items from {state.version:,} commits; {state.waiting:,} messages in its inbox"),
        ("Awaited", f"by programs, the answer to {', '.join(state.awaited)}" if state.awaited else ""),
        ("Refused", f"{state.refused:,} inputs that were about nothing it has" if state.refused else ""),
        ("Bytes", ", ".join(f"{what} {size:,}" for what, size in sizes.items())),
        ("Tokens", _tokens(state)),
        ("Cost", at_least(state.cost, state.unpriced, state.estimated) if state.cost else ""),
    ]
    for name, value in facts:
        if value:
            say(f"{name:<9}{value}")
    for call in state.calls:
        say(
            f"{'Call':<9}{call.call_id}  {_call_state(call.state, call.call_id, effects)}  {call.tool} {call.arguments}"
        )
    for one in state.subscriptions:
        last = f", the last {one.last_event}" if one.last_event else ""
        say(f"{'Listens':<9}{one.call_id}  {one.at_work:,} events at work, {one.waiting:,} waiting{last}")
    for question in asked:
        choices = ", ".join(f"{number} {choice}" for number, choice in enumerate(question.choices, 1))
        say(f"{'Asks':<9}{question.question_id}  {shorten(question.prompt, LONGEST_EXCERPT)} [{choices}]")
    for letter in timers:
        timer = _timer_record(letter)
        say(f"{'Timer':<9}{timer['purpose']} at {moment(timer['due'])} ({ago(timer['due'], now)}) {timer['call_id']}")


def _tokens(state: ThreadState) -> str:
    told = f"{state.usage.input:,} in ({state.usage.cached:,} cached), {state.usage.output:,} out"
    return f"{told}; {state.estimated:,} of them estimated" if state.estimated else told


def _call_state(state: str, call_id: str, effects: list[EffectRow]) -> str:
    """Return the state of a call, and who works on it."""
    found = [row for row in effects if row.effect.call_id == call_id and row.effect.kind == "invoke"]
    if not found or state not in ("open", "detached", "subscribed"):
        return state
    works = {"pending": "not begun", "sent": "at work", "accepted": "deferred"}[found[0].state]
    return f"{state}, {works}"


def _timer_record(one: Delivered) -> dict[str, Any]:
    content = one.message.content if one.message is not None else None
    if not isinstance(content, Timer):
        return {}
    return {"purpose": content.purpose, "due": content.due, "call_id": content.call_id}
