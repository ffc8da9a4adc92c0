"""What happens to effects inside a transaction, from their beginning until they are settled."""

from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Any

import apsw

from hibernaut.stores.protocol import Owner
from hibernaut.stores.sqlite.claims import DeadFinder, engine_of
from hibernaut.stores.sqlite.transaction import Transaction


def start_effects(tx: Transaction, several: Sequence[tuple[Owner, Sequence[str]]]) -> list[list[str]]:
    """Mark effects as begun."""
    begun: list[list[str]] = []
    for engine_id, same in groupby(several, lambda one: one[0].engine_id):
        wanted = [names for _, names in same]
        started = _start(tx, {name for names in wanted for name in names}, engine_id)
        for names in wanted:
            mine = [name for name in dict.fromkeys(names) if name in started]
            started.difference_update(mine)  # whoever comes later has not begun it
            begun.append(mine)
    return begun


def _start(tx: Transaction, names: Collection[str], engine_id: str) -> set[str]:
    """Mark those effects as begun that this engine holds and that are not yet; return them."""
    texts = tuple([name.encode() for name in names])
    pending = tx.rows("pending_among", (apsw.carray(texts), engine_id)) if texts else []
    if pending:
        tx.run("start_effects", (apsw.carray(array("q", [number for number, _ in pending])),))
    return {name for _, name in pending}


def accept_effects(tx: Transaction, request_ids: Iterable[str]) -> None:
    """Mark effects as accepted."""
    tx.many("accept_effect", [(request_id,) for request_id in request_ids])


def settle_effects(tx: Transaction, request_ids: Iterable[str], thread_id: str | None) -> None:
    """Remove effects."""
    if thread_id is None:
        for request_id in request_ids:
            tx.run("settle_effect", (request_id,))
    elif (found := tx.first("find_status", (thread_id,))) is not None:
        for request_id in request_ids:
            tx.run("settle_effect_of", (request_id, found[0]))


def adopt_effects(
    tx: Transaction,
    owner: Owner,
    now: int,
    limit: int,
    threads: Sequence[str] | None,
    tenant: str | None,
    find_dead: DeadFinder,
) -> list[Any]:
    """Take over effects of dead engines; return their rows as they were."""
    engine, _ = engine_of(tx, owner, now)
    adopted: list[Any] = []
    for dead in find_dead(tx, "performers", engine, now):
        left = max(limit - len(adopted), 0)
        if threads is None:
            adopted += tx.rows("unfinished_effects", (dead, left, tenant))
        else:
            names = apsw.carray(tuple({name.encode() for name in threads}))
            adopted += tx.rows("unfinished_effects_among", (dead, left, tenant, names)) if threads else []
    for row in adopted:
        tx.run("adopt_effect", (row[0], engine))
    return sorted(adopted)
