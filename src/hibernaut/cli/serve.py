"""`hibernaut serve`: an engine that runs on a store, or the front door of one, until it is told to stop."""

import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from hibernaut.cli import options
from hibernaut.cli.exposing import PATH, exposed
from hibernaut.cli.failures import ANSWERED
from hibernaut.cli.narration import in_a_line
from hibernaut.cli.running import MEMORY, opened, run_async
from hibernaut.cli.servers import address, load_servers
from hibernaut.cli.starting import Setting
from hibernaut.cli.stopping import stop_signals
from hibernaut.cli.terminal import DIM, columns, cut, fit_for, is_styled, safe, styled
from hibernaut.cli.times import clock_time, moment
from hibernaut.cli.tools import load_tools
from hibernaut.cli.tracing import tracer_provider
from hibernaut.engine.local import MAX_SLICES
from hibernaut.garbage import collect_seldom
from hibernaut.kernel.commit import SliceCommit
from hibernaut.kernel.feed import stored_events
from hibernaut.kernel.head import Standing, decode_head, registry_of
from hibernaut.kernel.receipt import decode_receipt
from hibernaut.messages.events import AgentEvent, CompletionFinished, TextChunk, ToolCall, ToolResult
from hibernaut.messages.items import decode_page
from hibernaut.messages.text import shorten
from hibernaut.reach import ANYWHERE, Callbacks
from hibernaut.stores.protocol import Round
from hibernaut.stores.sqlite import SqliteStore
from hibernaut.system import AgentSystem
from hibernaut.tools.tool import Tool

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

LINES_A_SECOND = 50
"""Lines about threads that are printed in a second; what is above is counted."""

REMEMBERED_CALLS = 10_000
"""Open calls whose tool is remembered, so that their results can be told by its name."""

LONGEST_LINE = 160
"""Characters of what is told of one event where no terminal says how much room there is."""


@click.command(
    epilog=options.examples(
        "hibernaut serve --local --store agents.db --model my.py:model --tools my.py",
        "hibernaut serve --local --store agents.db --model my.py:model --server https://tools.example.com",
        "hibernaut serve --local --store agents.db --model my.py:model --metrics 9464",
        "hibernaut serve --inbox-only --store agents.db --listen 0.0.0.0:7411",
    )
)
@click.option("--local", is_flag=True, help="Run the engine in this process.")
@click.option("--inbox-only", is_flag=True, help="Run no engine: only take callbacks, for whoever runs one.")
@options.stores(required=True)
@options.models
@options.tools
@options.servers
@options.listen
@options.public
@options.metrics
@options.traces
@click.option(
    "--max-slices", type=click.IntRange(1), default=MAX_SLICES, show_default=True, help="Slices at the same time."
)
@click.option("--quiet", is_flag=True, help="Print only warnings.")
def serve(
    store: str,
    model: str,
    tools: tuple[str, ...],
    servers: tuple[str, ...],
    listen: str | None,
    public: str | None,
    metrics: str | None,
    max_slices: int,
    *,
    traces: bool | None,
    local: bool,
    inbox_only: bool,
    quiet: bool,
) -> None:
    """Keep an engine running on a store until Ctrl-C or SIGTERM.

    It runs the threads of all tenants, with the model and the tools that each was launched with: models are found by
    their name, tools must be given. --model is for threads that name none. Several may run on one store. A store names
    code, so serve only stores you trust.

    With --server or --listen it takes the callbacks of tool servers. With --inbox-only it does nothing else: they are
    stored, and read by the engine that runs on the store then or later.

    The first signal lets running slices end; a second one stops at once, and loses nothing either.
    """
    if local == inbox_only:
        raise click.UsageError("say what runs here: an engine (--local), or only the front door (--inbox-only)")
    if inbox_only and (servers or model or tools):
        raise click.UsageError("--inbox-only runs nothing: it takes no --model, --tools or --server")
    if store == MEMORY:
        raise click.UsageError("serve needs a file as its store: nobody else could reach one in memory")
    if metrics is not None:
        address(metrics)
    setting = Setting(store, model=model, tools=tools, servers=servers, listen=listen or "", public=public or "")
    if inbox_only:
        serving = _receive(setting, metrics, quiet=quiet)
    else:
        serving = _serve(setting, max_slices, metrics, tracer_provider(_warn, wanted=traces), quiet=quiet)
    click.get_current_context().exit(run_async(serving, _warn))


async def _receive(setting: Setting, metrics: str | None, *, quiet: bool) -> int:
    reached = load_servers((), setting.listen, setting.public)
    reached = replace(reached, callbacks=reached.callbacks or Callbacks())
    journal = Journal(quiet=quiet)
    if reached.callbacks and reached.callbacks.host in ANYWHERE and not reached.callbacks.public:
        _warn(f"warning: no tool server can be told {reached.callbacks.host}; say with --public where it is reached")
    with stop_signals() as stopping:
        async with opened(setting, servers=reached) as system:
            journal.say(
                f"taking callbacks for {setting.store} at {system.callbacks} (process {os.getpid()}); Ctrl-C stops"
            )
            async with _exposed(system, metrics, journal):
                await stopping.wait()
        journal.say("stopped")
    return ANSWERED


async def _serve(
    setting: Setting, max_slices: int, metrics: str | None, traced: "TracerProvider | None", *, quiet: bool
) -> int:
    reached = load_servers(setting.servers, setting.listen, setting.public)
    tools = load_tools(setting.tools)
    names = [tool.name if isinstance(tool, Tool) else tool.__name__ for tool in tools]
    journal = Journal(quiet=quiet)
    with stop_signals() as stopping:
        store = await WatchedStore.open(setting.store)
        store.journal = journal
        try:
            async with opened(
                setting,
                store=store,
                tools=tools,
                run=True,
                all_tenants=True,
                max_slices=max_slices,
                servers=reached,
                tracer_provider=traced,
            ) as system:
                journal.say(
                    f"serving {setting.store} (process {os.getpid()}, model {setting.model or 'none'}, "
                    f"{'own tools' if reached.servers else 'tools'} {', '.join(names) or 'none'}); Ctrl-C stops"
                )
                if system.callbacks:
                    journal.say(
                        f"tool servers: {', '.join(system.servers) or 'none'}; callbacks come to {system.callbacks}"
                    )
                collect_seldom()
                async with _exposed(system, metrics, journal):
                    await stopping.wait()
                journal.say("stopping: running slices end first; Ctrl-C again stops at once")
        finally:
            await store.close()
        journal.say(f"stopped after {system.completions:,} completions")
    return ANSWERED


@asynccontextmanager
async def _exposed(system: AgentSystem, metrics: str | None, journal: "Journal") -> AsyncIterator[None]:
    if metrics is None:
        yield
        return
    async with exposed(system.metrics, *address(metrics)) as place:
        journal.say(f"metrics are at {place.url}{PATH}")
        yield


class WatchedStore(SqliteStore):
    """A store that tells a journal of every commit that this process makes."""

    journal: "Journal | None" = None

    async def commit_all(self, rounds: Sequence[Round]) -> list[Exception | None]:
        refused = await super().commit_all(rounds)
        if self.journal is not None:
            for one, error in zip(rounds, refused, strict=True):
                if error is None:
                    self.journal.note(one.commit, one.claim.head)
        return refused


class Journal:
    """Prints what commits did, a line for each thing, and never more than a person could read."""

    def __init__(self, *, quiet: bool, seconds: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._seconds = seconds
        self._tools: dict[str, str] = {}
        self._recent: deque[float] = deque(maxlen=LINES_A_SECOND)
        self._left_out = 0

    def say(self, text: str) -> None:
        """Print a line about the engine itself."""
        if not self._quiet:
            _tell(text)

    def note(self, commit: SliceCommit, before: bytes) -> None:
        """Print what a commit did; `before` is the head that its slice began with."""
        if self._quiet:
            return
        if len(self._recent) == LINES_A_SECOND and self._seconds() - self._recent[0] < 1:
            self._left_out += 1
            return
        if self._left_out:
            _tell(f"… {self._left_out:,} more commits, too many to be told one by one")
            self._left_out = 0
        for line in self._lines(commit, before):
            self._recent.append(self._seconds())
            _tell(f"{commit.thread_id}  {line}")

    def _lines(self, commit: SliceCommit, before: bytes) -> list[str]:
        lines: list[str] = []
        said = ""
        calls = registry_of(before).calls
        for event in stored_events(commit.thread_id, decode_page(commit.page), decode_receipt(commit.receipt)):
            if isinstance(event, TextChunk):
                said += event.text
            elif isinstance(event, CompletionFinished) and said:
                lines.append(_answer(event, said))
            elif line := in_a_line(event, LONGEST_LINE, self._tool_of(event, calls)):
                lines.append(line)
        return [*(shorten(line, LONGEST_LINE) for line in lines), *_rest(commit)]

    def _tool_of(self, event: AgentEvent, calls: Mapping[str, Standing]) -> str:
        if isinstance(event, ToolCall):
            if len(self._tools) >= REMEMBERED_CALLS:
                del self._tools[next(iter(self._tools))]
            self._tools[event.call_id] = event.tool
        elif isinstance(event, ToolResult):
            known = calls.get(event.call_id)
            return self._tools.pop(event.call_id, known.tool if known else "")
        return ""


def _answer(event: CompletionFinished, said: str) -> str:
    tokens = event.usage.input + event.usage.output
    spent = f" ({tokens:,} tokens)" if tokens else ""
    return f"{'interrupted' if event.interrupted else 'said'}{spent}: {said}"


def _rest(commit: SliceCommit) -> list[str]:
    """Return a line about the thread's sleep if it sleeps now."""
    head = decode_head(commit.head).head
    resting = [call for name in head.turn if (call := head.calls[name]).mode == "rest"]
    if not resting or len(resting) < len(head.turn):
        return []
    due = [call.due for call in resting if call.due]
    return [f"sleeps until {moment(min(due)) if due else 'something comes'}"]


def _tell(text: str) -> None:
    now = clock_time(time.time_ns() // 1_000_000)
    terminal = sys.stdout.isatty()
    line = cut(safe(text), columns() - len(now) - 2) if terminal else text
    print(f"{styled(now, DIM) if is_styled(sys.stdout) else now}  {line}", flush=True)


def _warn(line: str) -> None:
    print(fit_for(sys.stderr, line), file=sys.stderr, flush=True)
