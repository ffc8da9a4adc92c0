"""Runs scenarios through crashes to their end, and says what may differ from a run that nobody disturbed."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from hibernaut.engine.dispatcher import UNKNOWN_EFFECT
from hibernaut.engine.remote import LOST
from hibernaut.errors import StoreBusy
from hibernaut.kernel.chain import verify_chain
from hibernaut.kernel.receipt import Receipt, TurnCommit, decode_receipt
from hibernaut.messages.items import EventItem, Item, ResultItem, TextItem, decode_page
from hibernaut.rap.requests import AskStatus, Invocation, Request
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER, Store
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.testing.faults import FaultPlan, SimulatedCrash
from hibernaut.testing.tool_servers import MemoryToolServers
from tests.crash.life import Life, Scenario, Seen, look
from tests.crash.world import World

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


class Crash(msgspec.Struct, frozen=True):
    """Where a process dies: at an operation of its own count, before it is performed or after."""

    operation: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} operation {self.operation}"


class Course(msgspec.Struct):
    """What became of a scenario."""

    seen: Seen
    """Its root, as it was in the end."""
    world: World
    operations: list[str]
    """Of the last life."""
    unknown: dict[str, str]
    """Calls that were begun and not answered when their process died, and whose tool must not be run again.

    With what is told of them.
    """

    @property
    def pages(self) -> list[list[Item]]:
        return pages_of(self.seen)


def run_course(scenario: Scenario, open_store: OpenStore, crashes: Sequence[Crash] = (), *, fail_at: int = 0) -> Course:
    """Run a scenario through crashes, one in each of the first lives, to its end. Every life has a loop of its own.

    In the life after those the store fails at operation `fail_at`.
    """
    world, unknown = World(), dict[str, str]()
    plans = [FaultPlan(crash_at=crash.operation, after=crash.after) for crash in crashes]
    failing = FaultPlan(fail_at={fail_at: StoreBusy("the disk is busy")} if fail_at else {})
    for number, plan in enumerate([*plans, failing, FaultPlan()], 1):
        died, operations = asyncio.run(_live(number, scenario, world, open_store, plan))
        seen = asyncio.run(read_store(open_store))
        if not died:
            return Course(seen, world, operations, unknown)
        unknown |= left_unknown(seen, world)
    raise AssertionError("the last life had no reason to die")


async def _live(
    number: int, scenario: Scenario, world: World, open_store: OpenStore, plan: FaultPlan
) -> tuple[bool, list[str]]:
    async with open_store() as store:

        def reach(operation: int, _name: str) -> None:
            life.over |= operation == plan.crash_at

        now = world.now + (number - 1) * 2 * DEAD_AFTER
        life = Life(number, world, store, replace(plan, on_operation=reach), now)
        died = False
        try:
            await life.run(scenario, hurried=bool(plan.fail_at))
        except* SimulatedCrash:
            died = True
        except* StoreBusy:
            died = not life.started  # whoever watches over the process starts it again
            assert died
        return died, life.faulty.operations


async def read_store(open_store: OpenStore) -> Seen:
    """Return what a store holds of the tree."""
    async with open_store() as store:
        return await look(store)


def left_unknown(seen: Seen, world: World) -> dict[str, str]:
    """Return the calls of which nobody can tell any more whether they happened, with what is told of them."""
    return {name: told for one in seen.tree.values() for name, told in _left_unknown(one, world).items()}


def _left_unknown(seen: Seen, world: World) -> dict[str, str]:
    repeatable = {tool for (tool,) in world.of("idempotent")}
    answers = {arrived.message_id for arrived in seen.inbox}
    at_work = world.servers.alive if world.servers is not None else set[str]()
    sent = {row.effect.call_id: row.effect for row in seen.effects if row.state == "sent" and row.effect.call_id}
    waited_for = {call.id for call in seen.head.calls.values() if call.state in ("open", "detached")}
    return {
        name: (LOST if effect.server else UNKNOWN_EFFECT).format(tool=effect.tool, server=effect.server)
        for name, effect in sent.items()
        if effect.kind == "invoke" and name in waited_for and effect.tool not in repeatable
        if f"result:{name}" not in answers and name not in at_work
    }


def pages_of(seen: Seen) -> list[list[Item]]:
    """Return the items of a thread, by commit."""
    return [decode_page(row.page) for row in seen.log]


def _input(entry: tuple[str, int]) -> tuple[str, int]:
    """Return an input of a receipt; that it is unknown is what came instead of a result."""
    name, disposition = entry
    return name.replace("unknown:", "result:"), disposition


def check_course(course: Course, plain: Course, *, untimely: bool = False) -> None:
    """Compare a course with the undisturbed one.

    Only this may differ: a call that is `unknown` has that for its result, and what follows from it; times, attempts,
    builds. With `untimely` the course is another one as soon as a call is unknown, and must still be in order.
    """
    for seen in course.seen.tree.values():
        head = seen.head
        rows = [(row.page, row.receipt) for row in seen.log]
        assert verify_chain(rows, head.history, head.receipts, seen.start) == head.version == len(rows)
        assert seen.effects == []
        assert seen.inbox == ()
    _check_family(course.seen)
    _check_effects(course, plain)
    _check_servers(course, plain, untimely=untimely)
    threads, others = course.seen.tree, plain.seen.tree
    if untimely and course.unknown:
        told = [item for seen in threads.values() for item in seen.items if _is_unknown(item, course.unknown)]
        assert len(told) == len(course.unknown)
        assert _last_words(course.seen) == _last_words(plain.seen)
        return
    assert [*threads] == [*others]
    for name, seen in threads.items():
        _check_thread(seen, others[name], course.unknown)


def _check_family(root: Seen) -> None:
    for seen in root.children:
        head, link = seen.head, seen.head.link
        assert link is not None
        above = root.tree[link.parent].head
        assert (head.status != "closed") == (head.thread_id in above.children)
        assert head.status == "closed" or above.status != "closed"


def _check_thread(seen: Seen, plain: Seen, unknown: dict[str, str]) -> None:
    expected = [_expected(item, unknown) for item in _flat(plain)]
    assert _flat(seen) == expected
    assert (seen.head.status, seen.head.reason) == (plain.head.status, plain.head.reason)
    assert seen.head.toolsets == plain.head.toolsets
    if unknown:
        assert _facts(seen) == _facts(plain)
    else:
        same = bool(seen.log) and [row.page for row in seen.log] == [row.page for row in plain.log]
        assert _normal(seen, digests=same) == _normal(plain, digests=same)
        assert [len(page) for page in pages_of(seen)] == [len(page) for page in pages_of(plain)]


def _check_effects(course: Course, plain: Course) -> None:
    idempotent = {tool for (tool,) in plain.world.of("idempotent")}
    done, undisturbed = Counter(map(tuple, course.world.of("did"))), Counter(map(tuple, plain.world.of("did")))
    assert set(undisturbed.values()) <= {1}
    for (tool, call_id), times in done.items():
        assert (tool, call_id) in undisturbed
        assert times == 1 or tool in idempotent
    for tool, call_id in undisturbed:
        assert done[tool, call_id] or call_id in course.unknown


def _check_servers(course: Course, plain: Course, *, untimely: bool) -> None:
    """Check that the servers did what they did in the undisturbed run, and were told what they were told there."""
    if plain.world.servers is None or course.world.servers is None:
        assert course.world.servers is plain.world.servers
        return
    done, undisturbed = _work(course.world.servers), _work(plain.world.servers)
    assert set(undisturbed.values()) == {1} or not undisturbed
    repeatable = {tool for (tool,) in plain.world.of("idempotent")}
    assert not [work for work, times in done.items() if times > 1 and work[1] not in repeatable]
    assert done.keys() <= undisturbed.keys()
    left = undisturbed.keys() - done.keys()
    assert all(work[2] in course.unknown for work in left) or (untimely and course.unknown)
    told, expected = _told(course.world.servers), _told(plain.world.servers)
    assert told <= expected if course.unknown else told == expected


def _work(servers: MemoryToolServers) -> Counter[tuple[str, str, str]]:
    """Count what servers were called for: server, tool and key, which is the id of the call."""
    taken = [one for one in servers.received if isinstance(one.message, Invocation) and one.taken]
    assert all(isinstance(one.message, Invocation) and one.key == one.message.id for one in taken)
    return Counter((one.server, one.message.operation, one.key) for one in taken if isinstance(one.message, Invocation))


def _told(servers: MemoryToolServers) -> set[tuple[str, Request]]:
    """Return what servers were told besides. It may be told twice, when a process dies before it hears the answer."""
    asked = (Invocation, AskStatus)
    return {(one.server, one.message) for one in servers.received if not isinstance(one.message, asked)}


def _last_words(seen: Seen) -> Item:
    return [item for item in _flat(seen) if isinstance(item, TextItem)][-1]


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
    free = {"started", "took", "attempt", "build", "previous"} | (set() if digests else {"history"})
    return [{key: value for key, value in asdict(receipt).items() if key not in free} for receipt in _receipts(seen)]


def _facts(seen: Seen) -> dict[str, object]:
    """Return what the receipts say together, however it is spread over them."""
    receipts = _receipts(seen)
    return {
        "inputs": sorted(_input(entry) for receipt in receipts for entry in receipt.inputs),
        "calls": [name for receipt in receipts for name in receipt.calls],
        "dispatched": [name for receipt in receipts for name in receipt.dispatched],
        "settled": sorted(name for receipt in receipts for name in receipt.settled),
        "turns": [(receipt.turn, receipt.usage) for receipt in receipts if receipt.turn is not TurnCommit.NONE],
    }


def _receipts(seen: Seen) -> list[Receipt]:
    return [decode_receipt(row.receipt) for row in seen.log]


def memory_store() -> OpenStore:
    """Return what opens one store in memory, again and again."""
    store = MemoryStore()

    @asynccontextmanager
    async def open_it() -> AsyncIterator[Store]:
        yield store

    return open_it


def sqlite_store(path: Path) -> OpenStore:
    """Return what opens the store in a file."""

    @asynccontextmanager
    async def open_it() -> AsyncIterator[Store]:
        store = await SqliteStore.open(path)
        try:
            yield store
        finally:
            await store.close()

    return open_it
