"""What must hold at the end of a course, by itself and beside the undisturbed one.

Only this may differ from the undisturbed course: a call that is unknown has that for its result, and what follows from
it; times, attempts, builds.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from msgspec.structs import asdict, replace

from hibernaut.engine.dispatcher import UNKNOWN_EFFECT
from hibernaut.engine.remote import LOST
from hibernaut.kernel.commit import Disposition
from hibernaut.kernel.receipt import Receipt, TurnCommit, decode_receipt
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem, EventItem, Item, NoticeItem, ResultItem, TextItem
from hibernaut.rap.requests import AskStatus, Invocation, Request
from hibernaut.testing.canonical import canonical
from hibernaut.testing.courses import Course, pages_of
from hibernaut.testing.report import Divergence, Kind
from hibernaut.testing.seen import Seen
from hibernaut.testing.tool_servers import MemoryToolServers

LONGEST_SHOWN = 200
"""Characters of what is shown of a value that differs."""


def judge(course: Course, plain: Course | None = None) -> list[Divergence]:
    """Return all that is not as it must be in a course, compared with the undisturbed one if there is one."""
    found = [*course.broken, *[Divergence(cast("Kind", kind), text) for kind, text in course.world.of("divergence")]]
    if any(one.kind in ("stuck", "error", "verify") for one in found):
        return found  # it is not over, or cannot be read, so that all the rest would differ too
    found += _disorder(course)
    if plain is not None and not (course.stalled and course.unknown):
        found += _differences(course, plain) if course.exact else _differences(canonical(course), canonical(plain))
    return found


# By itself


def _disorder(course: Course) -> Iterator[Divergence]:
    repeatable = {tool for (tool,) in course.world.of("repeatable")}
    for seen in course.seen.tree.values():
        yield from _inputs_of(seen, course)
        yield from _calls_of(seen, course)
        yield from _stops_of(seen)
    for kind in ("began", "did"):
        for (tool, call_id), times in Counter(map(tuple, course.world.of(kind))).items():
            if times > 1 and tool not in repeatable:
                yield Divergence("repeat", f"{tool} was run {times} times for {call_id}")
    yield from _family_of(course.seen)


def _inputs_of(seen: Seen, course: Course) -> Iterator[Divergence]:
    """Check that every input that was accepted has one disposition, or waits still."""
    name = seen.head.thread_id
    final = Counter(
        [message for receipt in _receipts(seen) for message, given in receipt.inputs if given not in _NOT_FINAL]
    )
    waiting = {arrived.message_id for arrived in seen.inbox}
    for message in {message for thread, message in course.world.of("accepted") if thread == name}:
        if not final[message] and message not in waiting:
            yield Divergence("lost input", f"{message} was accepted by {name}, and no receipt says what became of it")
    for message, times in final.items():
        if times > 1:
            yield Divergence("repeat", f"{message} was taken in {times} times by {name}")


_NOT_FINAL = (Disposition.DEFERRED, Disposition.HELD, Disposition.DUPLICATE)


def _calls_of(seen: Seen, course: Course) -> Iterator[Divergence]:
    """Check that every call has one result, that it was begun if it says so, and is called unknown only if it is."""
    calls = {item.id: item for item in seen.items if isinstance(item, CallItem)}
    answers = Counter(item.call_id for item in seen.items if isinstance(item, ResultItem))
    for call_id, call in calls.items():
        if answers[call_id] != 1 and not (call_id in seen.head.turn and not answers[call_id]):
            yield Divergence("history", f"{call.name} ({call_id}) has {answers[call_id]} results")
    for item in seen.items:
        if isinstance(item, ResultItem) and item.call_id in calls and item.call_id not in course.unknown:
            call = calls[item.call_id]
            if item.content in (UNKNOWN_EFFECT.format(tool=call.name), *_lost(call.name, course)):
                yield Divergence("unknown", f"{call.name} ({call.id}) is called unknown, though it was not begun")

    yield from _mistaken(calls, seen, course)


def _mistaken(calls: dict[str, CallItem], seen: Seen, course: Course) -> Iterator[Divergence]:
    """Find results that a tool has returned for another call."""
    returned: dict[str, set[str]] = {}
    for call_id, content in course.world.of("returned"):
        returned.setdefault(content, set()).add(call_id)
    for item in seen.items:
        if isinstance(item, ResultItem) and item.call_id in calls and isinstance(item.content, str):
            owners = returned.get(item.content)
            if owners is not None and item.call_id not in owners and calls[item.call_id].name in _run(course):
                yield Divergence("effects", f"the call {item.call_id} has the result of {sorted(owners)}")


def _run(course: Course) -> set[str]:
    return {tool for tool, _ in course.world.of("began")}


def _stops_of(seen: Seen) -> Iterator[Divergence]:
    """Check that nothing is said and called by a thread that is stopped."""
    stopped = False
    for item in seen.items:
        if isinstance(item, NoticeItem) and item.kind in ("stopped", "resumed"):
            stopped = item.kind == "stopped"
        elif stopped and isinstance(item, TextItem | CallItem):
            yield Divergence("stop", f"{seen.head.thread_id} went on, though it was stopped")
            return


def _lost(tool: str, course: Course) -> list[str]:
    names = course.world.servers.names if course.world.servers is not None else ()
    return [LOST.format(tool=tool, server=name) for name in names]


def _family_of(root: Seen) -> Iterator[Divergence]:
    for seen in root.children:
        head, link = seen.head, seen.head.link
        if link is None or link.parent not in root.tree:
            yield Divergence("family", f"{head.thread_id} has no parent")
            continue
        above = root.tree[link.parent].head
        if (head.status != "closed") != (head.thread_id in above.children):
            yield Divergence("family", f"{link.parent} does not know whether its child {head.thread_id} lives")
        if head.status != "closed" and above.status == "closed":
            yield Divergence("family", f"{head.thread_id} outlives its parent {link.parent}")


# Beside the undisturbed one


def _differences(course: Course, plain: Course) -> Iterator[Divergence]:
    untimely = bool(plain.world.of("untimely")) and bool(course.unknown)
    yield from _work_of_tools(course, plain)
    yield from _work_of_servers(course, plain, untimely=untimely)
    threads, others = course.seen.tree, plain.seen.tree
    if untimely:
        told = [item for seen in threads.values() for item in seen.items if _is_unknown(item, course.unknown)]
        if len(told) > len(course.unknown):  # less, if an operator ended one first
            yield Divergence("history", f"{len(course.unknown)} calls are unknown, and {len(told)} are told to be")
        if _last_words(course.seen) != _last_words(plain.seen):
            yield _differ("history", "the last words", _last_words(plain.seen), _last_words(course.seen))
        for name, seen in threads.items():
            if left := [*_left(seen)]:
                yield Divergence("left over", f"{name}: {left}")
        return
    if [*threads] != [*others]:
        yield _differ("family", "the threads", [*others], [*threads])
        return
    for name, seen in threads.items():
        yield from _difference(name, seen, others[name], course.unknown, exact=course.exact)


def _difference(name: str, seen: Seen, plain: Seen, unknown: dict[str, str], *, exact: bool) -> Iterator[Divergence]:
    expected, items = [_expected(item, unknown) for item in _flat(plain)], _flat(seen)
    if unknown:
        expected, items = _before_unknown(expected, unknown), _before_unknown(items, unknown)
    if items != expected:
        place = next((n for n, pair in enumerate(zip(items, expected, strict=False)) if pair[0] != pair[1]), None)
        place = min(len(items), len(expected)) if place is None else place
        yield _differ("history", f"item {place + 1} of {name}", expected[place : place + 1], items[place : place + 1])
    if (seen.head.status, seen.head.reason) != (plain.head.status, plain.head.reason):
        yield _differ("history", f"the status of {name}", plain.head.status, f"{seen.head.status} {seen.head.reason}")
    if seen.head.toolsets != plain.head.toolsets:
        yield Divergence("servers", f"{name} has other tools of servers")
    if _left(seen) != _left(plain):
        yield _differ("left over", f"what waits in {name}", sorted(_left(plain)), sorted(_left(seen)))
    if unknown or not exact:
        yield from _other_facts(name, seen, plain, exact=exact)
        return
    same = bool(seen.log) and [row.page for row in seen.log] == [row.page for row in plain.log]
    written, others = _normal(seen, digests=same), _normal(plain, digests=same)
    for number, (one, other) in enumerate(zip(written, others, strict=False), 1):
        for field in one:
            if one[field] != other[field]:
                yield _differ("receipts", f"{field} of receipt {number} of {name}", other[field], one[field])
    if len(written) != len(others):
        yield _differ("receipts", f"the receipts of {name}", len(others), len(written))
    if [len(page) for page in pages_of(seen)] != [len(page) for page in pages_of(plain)]:
        yield Divergence("receipts", f"the commits of {name} have other sizes")


def _before_unknown(items: Sequence[Item], unknown: dict[str, str]) -> list[Item]:
    """Return what is the same whatever a model makes of a result that is unknown.

    In the thread that is told so all up to there; in others what happened, but not in which words.
    """
    told = next((place for place, item in enumerate(items) if _is_unknown(item, unknown)), None)
    return [_wordless(item) for item in items] if told is None else [*items[: told + 1]]


def _wordless(item: Item) -> Item:
    if isinstance(item, TextItem):
        return replace(item, text="")
    return replace(item, content="") if isinstance(item, EventItem) else item


def _left(seen: Seen) -> set[str]:
    """Return what waits: inputs, and effects that are owed."""
    return {arrived.message_id for arrived in seen.inbox} | {row.effect.request_id for row in seen.effects}


def _work_of_tools(course: Course, plain: Course) -> Iterator[Divergence]:
    for kind in ("began", "did"):
        done = Counter(map(tuple, course.world.of(kind)))
        undisturbed = Counter(map(tuple, plain.world.of(kind)))
        for tool, call_id in done.keys() - undisturbed.keys():
            yield Divergence("effects", f"{tool} was run for {call_id}, and without a crash it would not have been")
        for tool, call_id in undisturbed.keys() - done.keys():
            if call_id not in course.unknown:
                yield Divergence("effects", f"{tool} was not run for {call_id}")


def _work_of_servers(course: Course, plain: Course, *, untimely: bool) -> Iterator[Divergence]:
    """Check that the servers did what they did in the undisturbed run, and were told what they were told there."""
    if plain.world.servers is None or course.world.servers is None:
        return
    done, undisturbed = _work(course.world.servers), _work(plain.world.servers)
    repeatable = {tool for (tool,) in plain.world.of("repeatable")}
    for (server, tool, key), times in done.items():
        if times > 1 and tool not in repeatable:
            yield Divergence("repeat", f"{server} was called {times} times for {tool} ({key})")
    for server, tool, key in done.keys() - undisturbed.keys():
        yield Divergence("servers", f"{server} was called for {tool} ({key}), which it would not have been")
    for server, tool, key in undisturbed.keys() - done.keys():
        if key not in course.unknown and not untimely:
            yield Divergence("servers", f"{server} was not called for {tool} ({key})")
    told, expected = _told(course.world.servers), _told(plain.world.servers)
    if more := told - expected:
        yield Divergence("servers", f"servers were told more: {_shown(more)}")
    if not course.unknown and (less := expected - told):
        yield Divergence("servers", f"servers were not told: {_shown(less)}")


def _work(servers: MemoryToolServers) -> Counter[tuple[str, str, str]]:
    """Count what servers were called for: server, tool and key, which is the id of the call."""
    taken = [(one, one.message) for one in servers.received if isinstance(one.message, Invocation) and one.taken]
    return Counter((one.server, call.operation, one.key) for one, call in taken)


def _told(servers: MemoryToolServers) -> set[tuple[str, Request]]:
    """Return what servers were told besides. It may be told twice, when a process dies before it hears the answer."""
    asked = (Invocation, AskStatus)
    return {(one.server, one.message) for one in servers.received if not isinstance(one.message, asked)}


def _last_words(seen: Seen) -> Item | None:
    said = [item for item in _flat(seen) if isinstance(item, TextItem)]
    return said[-1] if said else None


_LATE = re.compile(r" It was noticed .* late\.")


def _flat(seen: Seen) -> list[Item]:
    return [_punctual(item) for item in seen.items]


def _punctual(item: Item) -> Item:
    if isinstance(item, ResultItem) and isinstance(item.content, str):
        return replace(item, content=_LATE.sub("", item.content))
    return item


def _expected(item: Item, unknown: dict[str, str]) -> Item:
    if isinstance(item, ResultItem | EventItem) and item.call_id in unknown:
        content = unknown[item.call_id]
        if isinstance(item, EventItem):
            return replace(item, content=content)
        return ResultItem(item.call_id, content, is_error=True)
    return item


def _is_unknown(item: Item, unknown: dict[str, str]) -> bool:
    return isinstance(item, ResultItem | EventItem) and item.content in unknown.values()


def _normal(seen: Seen, *, digests: bool) -> list[dict[str, object]]:
    """Return the receipts without what may differ."""
    free = {"started", "took", "attempt", "build", "previous", "estimated"} | (set() if digests else {"history"})
    return [
        {key: value for key, value in asdict(receipt).items() if key not in free} | {"usage": _counted(receipt)}
        for receipt in _receipts(seen)
    ]


def _counted(receipt: Receipt) -> Usage | None:
    """Return what a whole completion took; of one that was cut short that is an estimate, by how far it came."""
    return receipt.usage if receipt.turn is TurnCommit.COMPLETE else None


_FACTS: dict[str, Callable[[Sequence[Receipt]], object]] = {
    "inputs": lambda receipts: sorted(_input(entry) for receipt in receipts for entry in receipt.inputs),
    "calls": lambda receipts: [name for receipt in receipts for name in receipt.calls],
    "dispatched": lambda receipts: [name for receipt in receipts for name in receipt.dispatched],
    "settled": lambda receipts: sorted(name for receipt in receipts for name in receipt.settled),
    "turns": lambda receipts: [(one.turn, _counted(one)) for one in receipts if one.turn is not TurnCommit.NONE],
}
"""What receipts say together, however it is spread over them."""


def _other_facts(name: str, seen: Seen, plain: Seen, *, exact: bool) -> Iterator[Divergence]:
    receipts, others = _receipts(seen), _receipts(plain)
    if not exact:
        receipts, others = [_of_effect(one) for one in receipts], [_of_effect(one) for one in others]
    for fact, read in _FACTS.items():
        if read(receipts) != read(others):
            yield _differ("receipts", f"the {fact} of {name}", read(others), read(receipts))


def _of_effect(receipt: Receipt) -> Receipt:
    """Return a receipt with those inputs alone that had an effect; who came too late had none.

    The ids of some end in the version of the head at which they were made, which is another one after other rounds.
    """
    effective = [(_VERSION.sub("", name), given) for name, given in receipt.inputs if given in _EFFECTIVE]
    return replace(receipt, inputs=tuple(effective))


_VERSION = re.compile(r":[0-9]+$")


_EFFECTIVE = (Disposition.ACCEPTED, Disposition.ROUTED, Disposition.SURFACED)


def _input(entry: tuple[str, int]) -> tuple[str, int]:
    """Return an input of a receipt; that it is unknown is what came instead of a result."""
    name, disposition = entry
    return name.replace("unknown:", "result:"), disposition


def _receipts(seen: Seen) -> list[Receipt]:
    return [decode_receipt(row.receipt) for row in seen.log]


def _differ(kind: Kind, what: str, expected: object, found: object) -> Divergence:
    return Divergence(kind, f"{what}: {_shown(found)} instead of {_shown(expected)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
