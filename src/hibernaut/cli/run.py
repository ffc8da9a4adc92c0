"""`hibernaut run`: one task, from the command line to its answer."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.asking import Questions
from hibernaut.cli.editor import Key, Submitted
from hibernaut.cli.failures import ANSWERED, ENDED, PARKED, WAITING, Leave
from hibernaut.cli.following import Follower, Teller
from hibernaut.cli.inbox import how_to_answer
from hibernaut.cli.keyboard import reading_lines
from hibernaut.cli.models import NamedModels
from hibernaut.cli.narration import JsonLines, Narrator
from hibernaut.cli.running import MEMORY, opened, run_async
from hibernaut.cli.servers import load_servers
from hibernaut.cli.starting import Setting, check_new, check_old, existing
from hibernaut.cli.terminal import Printed, fit_for
from hibernaut.cli.times import moment
from hibernaut.cli.tools import load_tools
from hibernaut.handle import ThreadHandle
from hibernaut.ids import RandomIds
from hibernaut.messages.events import Cursor, QuestionAsked
from hibernaut.messages.parts import plain_text
from hibernaut.state import ThreadState
from hibernaut.system import AgentSystem
from hibernaut.tools.results import fit

F = TypeVar("F", bound=Callable[..., Any])


class Task(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    text: str
    setting: Setting
    thread_id: str | None
    timeout: float | None
    wait: bool
    as_json: bool

    @property
    def answers(self) -> bool:
        """Whether somebody sits at the terminal who can answer what the agent asks."""
        return self.wait and not self.as_json and sys.stdin.isatty() and sys.stdout.isatty()

    @property
    def kept(self) -> bool:
        """Whether the thread outlives this process."""
        return self.setting.store != MEMORY


def task_options(command: F) -> F:
    """Add what a command takes that gives an agent a task: the parameters of `task_of`."""
    for option in reversed(_TASK_OPTIONS):
        command = option(command)
    return command


_TASK_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("text", metavar="TASK"),
    options.stores(required=False),
    click.option(
        "--thread", "thread_id", type=options.WORD, metavar="ID", help="Go on with this thread; a new one gets this id."
    ),
    options.models,
    options.tools,
    options.servers,
    options.instructions,
    options.authority,
    options.tenants,
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="Leave after so long; with --store the thread goes on waiting.",
    ),
    click.option(
        "--wait/--no-wait",
        default=True,
        help="Stay while the agent sleeps, waits for a deferred call or is put off for long by a provider (the "
        "default), or leave it then (needs --store).",
    ),
    options.json_lines,
)


def task_of(
    *,
    text: str,
    store: str | None,
    thread_id: str | None,
    model: str,
    tools: tuple[str, ...],
    servers: tuple[str, ...],
    instructions: str,
    authority: str | None,
    tenant: str,
    timeout: float | None,
    wait: bool,
    as_json: bool,
) -> Task:
    """Return the task that the command line asks for.

    Raises:
        UsageError: it contradicts itself.
    """
    setting = Setting(store or MEMORY, tenant, model, tools, instructions, servers, authority=authority or "")
    task = Task(options.text_or_stdin(text), setting, thread_id, timeout, wait, as_json)
    if not wait and not task.kept:
        raise click.UsageError("--no-wait needs --store: an agent in memory cannot be left")
    return task


@click.command(
    epilog=options.examples(
        'hibernaut run "Say hello" --model echo',
        'hibernaut run "Fix the build" --model my.py:model --tools my.py',
        "hibernaut run - --store agents.db --thread builds --no-wait < task.txt",
    )
)
@task_options
def run(**given: Any) -> None:
    """Give an agent one task and print what it does.

    TASK is the text, or - to read it from standard input. Without --store the agent lives as long as this command.
    The exit code says how it ended; `hibernaut --help` lists them.
    """
    click.get_current_context().exit(run_async(carry_out(task_of(**given))))


async def carry_out(task: Task, models: NamedModels | None = None) -> int:
    """Give an agent a task, print what it does, and return the exit code. `models`: other ones than `run` has.

    Raises:
        Leave: the time is up.
    """
    setting = task.setting
    tools = load_tools(setting.tools)
    name = task.thread_id or RandomIds().new("thread")
    reached = load_servers(setting.servers)
    async with opened(setting, models=models, tools=tools, run=True, only=[name], servers=reached) as system:
        handle = await existing(system, task.thread_id)
        cursor = ""
        if handle is None:
            check_new(setting)
        else:
            cursor = str(Cursor((await handle.state()).version))
            for note in await check_old(system, handle.thread_id, setting, tools):
                remark(f"note: {note}")
        questions = None if task.as_json else _Asked(system, task)
        teller = JsonLines(sys.stdout) if questions is None else questions
        handle = await _say(system, name, task)
        follower = Follower(handle, cursor, teller)
        answers = questions is not None and task.answers
        try:
            async with asyncio.timeout(task.timeout), AsyncExitStack() as stack:
                if questions is not None and answers:
                    await stack.enter_async_context(questions.answered_here())
                state = await follower.show_until_over(system, wait=task.wait, kept=task.kept, answers=answers)
        except TimeoutError:
            _leave(task, teller, handle, "The time is up")
            raise Leave(WAITING) from None
        except asyncio.CancelledError:
            _leave(task, teller, handle, "Interrupted")
            raise
        teller.end()
        return _end(task, state)


class _Asked(Questions):
    """Shows the events of a task, and what it asks: answered at the terminal, or by somebody who is told how."""

    def __init__(self, system: AgentSystem, task: Task) -> None:
        output = Printed()
        narrator = Narrator(output)
        narrator.said(plain_text(fit(task.text)[0]))
        super().__init__(system, narrator, output)
        self._task = task

    def add(self, event: QuestionAsked) -> None:
        super().add(event)
        if not self._task.answers:
            remark(_how(self._task, event.question_id))

    @asynccontextmanager
    async def answered_here(self) -> AsyncIterator[None]:
        """Take what is written at the terminal for answers."""
        lines: asyncio.Queue[Submitted | Key] = asyncio.Queue()

        async def take() -> None:
            while isinstance(line := await lines.get(), Submitted):
                if not await self.take(line.text) and self.waiting:
                    remark("Type the number of a choice.")

        async with asyncio.TaskGroup() as tasks:
            with reading_lines(lines.put_nowait):
                taking = tasks.create_task(take())
                yield
                taking.cancel()


def _how(task: Task, question_id: str) -> str:
    if not task.kept:
        return "Nobody can answer that here: run it in a terminal, or give --store."
    return f"Answer it with: {how_to_answer(question_id, task.setting)}"


async def _say(system: AgentSystem, name: str, task: Task) -> ThreadHandle:
    if task.thread_id is None:
        return await system.launch(thread_id=name, message=task.text)
    await system.send(name, task.text)
    return await system.thread(name)


def _leave(task: Task, teller: Teller, handle: ThreadHandle, why: str) -> None:
    teller.end()
    if task.kept:
        remark(f"{why}; thread {handle.thread_id} stays as it is. It goes on with: {_serving(task)}")
    else:
        remark(f"{why}; the thread was in memory and is gone. Give --store to keep it.")


def _end(task: Task, state: ThreadState) -> int:
    """Say how it ended, unless it was answered; return the exit code."""
    thread_id = state.thread_id
    if state.status == "parked":
        remark(f"The agent is parked: {state.reason or 'no reason given'}")
        if task.kept:
            again = task.setting.command("run", "your text", "--thread", thread_id)
            resume = task.setting.command("threads", "resume", thread_id)
            remark(f"When that is put right, say something: {again}")
            remark(f"or let it try again: {resume}; {_serving(task)}")
        return PARKED
    if state.status != "open":
        remark(f"The agent is {state.status}{': ' if state.reason else ''}{state.reason}")
        return ENDED
    if state.activity == "idle":
        return ANSWERED
    due = [call.due for call in state.calls if call.state == "open" and call.due]
    tools = ", ".join(call.tool for call in state.calls if call.state == "open" and not call.tool.startswith("sleep"))
    until = f"sleeps until {moment(min(due))}" if due else f"waits for {tools}" if tools else "waits for a word"
    if state.questions:
        until = "waits for an answer"
    if state.activity == "retrying":
        until = "is put off, and tries again when its time has come"
    if task.kept:
        remark(f"Thread {thread_id} {until}. It goes on with: {_serving(task)}")
    else:
        remark(f"The agent {until}, which cannot come to a store in memory. Give --store to keep it.")
    return WAITING


def _serving(task: Task) -> str:
    return task.setting.command("serve", "--local")


def remark(text: str) -> None:
    """Say something about a task beside what it prints."""
    print(fit_for(sys.stderr, text), file=sys.stderr, flush=True)
