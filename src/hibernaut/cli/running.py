"""From the synchronous edge into an agent system and back."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hibernaut.cli.failures import Leave, cause_of, told_in_one_line
from hibernaut.cli.models import NamedModels
from hibernaut.cli.policies import load_authority
from hibernaut.cli.servers import Servers
from hibernaut.cli.starting import Setting
from hibernaut.cli.terminal import fit_for
from hibernaut.cli.tools import Given
from hibernaut.engine.local import MAX_SLICES
from hibernaut.errors import StoreError
from hibernaut.stores.protocol import Store
from hibernaut.system import AgentSystem

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

MEMORY = ":memory:"


def run_async(main: Coroutine[Any, Any, int], log: Callable[[str], None] | None = None) -> int:
    """Run a command's coroutine and return its exit code. What the runtime logs goes to `log`, by default to stderr."""
    handler = _LogLines(log or (lambda line: print(fit_for(sys.stderr, line), file=sys.stderr, flush=True)))
    logger = logging.getLogger("hibernaut")
    logger.addHandler(handler)
    executor = _Executor()
    try:
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(executor)
            try:
                code = runner.run(main)
            except Leave as leave:
                code = leave.code
            except KeyboardInterrupt:
                executor.leave_if_stuck(130)
                raise
            executor.leave_if_stuck(code)
    finally:
        logger.removeHandler(handler)
    return code


@asynccontextmanager
async def opened(
    setting: Setting,
    *,
    store: Store | None = None,
    models: NamedModels | None = None,
    must_exist: bool = False,
    tools: Iterable[Given] = (),
    run: bool = False,
    only: Sequence[str] | None = None,
    all_tenants: bool = False,
    max_slices: int = MAX_SLICES,
    servers: Servers | None = None,
    tracer_provider: "TracerProvider | None" = None,
) -> AsyncIterator[AgentSystem]:
    """Open an agent system on the setting's store, or on one that is open already.

    `models` are those that are found by name, if not the ones that the command knows; they are closed at the end.

    With `only`, its engine runs these threads and leaves all others to whoever has their tools; with `all_tenants`, the
    threads of all tenants, not just of the setting's.

    Errors come out of it as they are, not in groups.

    Raises:
        StoreError: there is no such store and it must exist, or it is in memory and so belongs to no other process.
    """
    if must_exist:
        _check_exists(setting.store)
    models = models or NamedModels(setting.model)
    reached = servers or Servers()
    system = AgentSystem(
        model=models.default or None,
        models=models,
        tools=tools,
        store=store or setting.store,
        instructions=setting.instructions,
        authority=load_authority(setting.authority) if setting.authority else None,
        tenant=setting.tenant,
        run=run,
        only=only,
        all_tenants=all_tenants,
        servers=reached.servers,
        callbacks=reached.callbacks,
        max_slices=max_slices,
        tracer_provider=tracer_provider,
    )
    try:
        async with system:
            yield system
    except BaseExceptionGroup as group:
        raise cause_of(group) from group
    finally:
        await models.close()


def _check_exists(store: str) -> None:
    """Refuse a store that is not there: only what puts something in makes one.

    Raises:
        StoreError: it is not.
    """
    if store == MEMORY:
        raise StoreError("a store in memory lives and dies with one process; name a file")
    if not Path(store).exists():
        raise StoreError(f"there is no store {store}; `hibernaut run`, `chat`, `send` and `serve` make one")


class _Executor(ThreadPoolExecutor):
    """Runs synchronous tools, and knows whether one of them keeps the process from ending."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="hibernaut")
        self._at_work: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(function, *args, **kwargs)
        with self._lock:
            self._at_work.add(future)
        future.add_done_callback(self._over)
        return future

    def _over(self, future: Future[Any]) -> None:
        with self._lock:
            self._at_work.discard(future)

    def leave_if_stuck(self, code: int) -> None:
        """End the process here and now if a function still runs that nobody waits for: a thread cannot be cancelled."""
        with self._lock:
            stuck = bool(self._at_work)
        if stuck:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


class _LogLines(logging.Handler):
    """Writes what the runtime logs: errors that it knows in one line, others with their traceback."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.levelname.lower()}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            if told_in_one_line(error):
                line += f": {' '.join(str(error).split())}"
            else:
                line += "\n" + logging.Formatter().formatException(record.exc_info)
        self._write(line)
