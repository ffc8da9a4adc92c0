"""What must hold of the tree: every line of the log has one thread, each thread one line, and every receipt fits."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from hibernaut.cli.demo.failure import check
from hibernaut.cli.demo.tree.log import Line
from hibernaut.handle import ThreadHandle
from hibernaut.ids import child_of
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.head import decode_head
from hibernaut.messages.inputs import Event, event_message
from hibernaut.messages.items import EventItem
from hibernaut.messages.parts import plain_text
from hibernaut.system import AgentSystem


class Reached(msgspec.Struct, frozen=True):
    """A line of the log and the one thread that it reached."""

    text: str
    event_id: str
    """The byte after the line."""
    thread: str
    summarized: bool
    """The thread began with a summary of what its parent knew, instead of all of it."""


class Expected(msgspec.Struct, frozen=True):
    """A line of the log, the message that brings it, and the thread that it must get."""

    line: Line
    message: str
    thread: str


async def expected(system: AgentSystem, thread: str, call_id: str, lines: Sequence[Line]) -> list[Expected]:
    """Derive, from nothing but the log and the subscription, which thread each line must get."""
    salt = decode_head((await system.row(thread)).head).head.salt
    found = []
    for line in lines:
        message = event_message(thread, Event(call_id, line.text, f"{line.end}"), "").message_id
        found.append(Expected(line, message, child_of(salt, message)[0]))
    return found


async def prove_reached(system: AgentSystem, agent: ThreadHandle, call_id: str, lines: Sequence[Line]) -> list[Reached]:
    """Return which thread each line has reached.

    Raises:
        DemoFailed: a line has reached none or several, or a thread has been given something else.
    """
    wanted = await expected(system, agent.thread_id, call_id, lines)
    routed = Counter(
        message
        for receipt in await agent.receipts()
        for message, disposition in receipt.inputs
        if disposition == Disposition.ROUTED
    )
    for one in wanted:
        times = routed.pop(one.message, 0)
        check(times == 1, f"the line that ends at byte {one.line.end} was given to {times} threads: {one.line.text}")
    check(not routed, f"a thread was made for what is no line of the log: {', '.join(routed)}")
    made = {state.thread_id for state in (await agent.tree()) if state.for_event}
    check(made == {one.thread for one in wanted}, f"{len(made)} threads were made for {len(wanted)} lines")
    return [await _prove_given(system, one) for one in wanted]


async def _prove_given(system: AgentSystem, wanted: Expected) -> Reached:
    child = await system.thread(wanted.thread)
    given = [plain_text(item.content) for item in await child.history() if isinstance(item, EventItem)]
    check(
        given == [wanted.line.text],
        f"the thread of the line that ends at byte {wanted.line.end} was given: {'; '.join(given) or 'nothing'}",
    )
    link = decode_head((await system.row(wanted.thread)).head).head.link
    summarized = link is not None and link.summary is not None
    return Reached(wanted.line.text, f"{wanted.line.end}", wanted.thread, summarized)


async def prove_receipts(system: AgentSystem, agent: ThreadHandle) -> dict[str, int]:
    """Verify the receipts of every thread of the tree; return how many each has.

    Raises:
        VerificationFailed: naming the first that does not fit.
    """
    verified = {}
    for state in await agent.tree():
        verified[state.thread_id] = await system.verify(state.thread_id)
        check(
            verified[state.thread_id] == state.version,
            f"there is not one receipt for every commit of {state.thread_id}",
        )
    return verified
