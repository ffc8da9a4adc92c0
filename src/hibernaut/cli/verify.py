"""`hibernaut verify`: whether what is stored of threads is what their receipts say."""

import asyncio
import multiprocessing
import sys
from collections.abc import AsyncGenerator
from concurrent.futures import ProcessPoolExecutor
from contextlib import aclosing

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.failures import ANSWERED, UNVERIFIED
from hibernaut.cli.finding import find_thread
from hibernaut.cli.running import opened, run_async
from hibernaut.cli.starting import Setting
from hibernaut.engine.audit_all import BATCH, Broken, Tally, audit_batch, audit_file, batches
from hibernaut.errors import VerificationFailed
from hibernaut.stores.protocol import Store
from hibernaut.system import AgentSystem


@click.command(
    epilog=options.examples(
        "hibernaut verify builds --store agents.db",
        "hibernaut verify --all --store agents.db --json",
        "hibernaut verify --all-tenants --jobs 8 --store agents.db",
    )
)
@click.argument("thread", type=options.WORD, required=False)
@click.option("--all", "everything", is_flag=True, help="Check every thread of this tenant.")
@click.option("--all-tenants", is_flag=True, help="Check every thread of the store.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that check; more than one pays where there are idle processors and many threads.",
)
@options.stores(required=True)
@options.tenants
@options.json_lines
def verify(
    thread: str | None,
    store: str,
    tenant: str,
    jobs: int,
    *,
    everything: bool,
    all_tenants: bool,
    as_json: bool,
) -> None:
    """Check what is stored of a thread against its receipts, and fail on any difference.

    THREAD is an id or enough of its beginning. Recomputed are the digests of all pages and receipts, their order, the
    head, where a child's history begins, and what is owed to the outside. Of a thread that does not hold, the first
    difference is named: its version, and whether it is a page, a receipt, the order, the head or an effect. Threads may
    go on meanwhile.
    """
    if (thread is not None) + everything + all_tenants != 1:
        raise click.UsageError("name a THREAD, or give --all or --all-tenants")
    setting = Setting(store, tenant)
    if thread is not None:
        main = _verify(setting, thread, as_json=as_json)
    else:
        main = _verify_all(setting, None if all_tenants else tenant, jobs, as_json=as_json)
    click.get_current_context().exit(run_async(main))


async def _verify(setting: Setting, given: str, *, as_json: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        handle = await find_thread(system, given)
        try:
            audited = await system.audit(handle.thread_id)
        except VerificationFailed as error:
            if not as_json:
                raise
            _tell(Broken(handle.thread_id, error.kind, error.version, str(error)), as_json=True)
            _sum_up(Tally(1, broken=(Broken(handle.thread_id, error.kind, error.version, str(error)),)), as_json=True)
            return UNVERIFIED
    if as_json:
        _sum_up(Tally(1, audited.receipts, audited.effects), as_json=True)
    else:
        click.echo(f"verified: {audited.receipts} receipts of {handle.thread_id}")
    return ANSWERED


async def _verify_all(setting: Setting, tenant: str | None, jobs: int, *, as_json: bool) -> int:
    async with opened(setting, must_exist=True) as system:
        length = await _count(system.store, tenant) if sys.stderr.isatty() else 0
        total = Tally()
        with click.progressbar(length=length, label="checking", file=sys.stderr, hidden=not length) as bar:
            tallies = _in_processes(system, tenant, jobs) if jobs > 1 else _here(system, tenant)
            async with aclosing(tallies):
                async for tally in tallies:
                    for broken in tally.broken:
                        _tell(broken, as_json=as_json)
                    bar.update(tally.threads)
                    total += tally
    _sum_up(total, as_json=as_json)
    return UNVERIFIED if total.broken else ANSWERED


async def _count(store: Store, tenant: str | None) -> int:
    number, before = 0, None
    while rows := await store.list_threads(tenant, limit=BATCH, before=before):
        number += len(rows)
        before = (rows[-1].updated, rows[-1].thread_id)
    return number


async def _here(system: AgentSystem, tenant: str | None) -> AsyncGenerator[Tally, None]:
    async for rows in batches(system.store, tenant):
        yield await audit_batch(system.store, rows)


async def _in_processes(system: AgentSystem, tenant: str | None, jobs: int) -> AsyncGenerator[Tally, None]:
    """Check batches in processes, as many at a time as there are: memory stays bounded."""
    path = getattr(system.store, "path", "")
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        under_way: set[asyncio.Future[Tally]] = set()
        async for rows in batches(system.store, tenant):
            under_way.add(loop.run_in_executor(pool, audit_file, path, rows))
            if len(under_way) > jobs:
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    yield one.result()
        for one in asyncio.as_completed(under_way):
            yield await one


def _tell(broken: Broken, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(broken))
    else:
        click.echo(f"Error: {broken.thread_id}: version {broken.version}, {broken.kind}: {broken.problem}", err=True)


def _sum_up(tally: Tally, *, as_json: bool) -> None:
    failed = len(tally.broken)
    if as_json:
        numbers = {"threads": tally.threads, "receipts": tally.receipts, "effects": tally.effects, "broken": failed}
        click.echo(msgspec.json.encode(numbers))
    else:
        click.echo(f"verified: {tally.receipts} receipts of {tally.threads - failed} threads; {failed} threads failed")
