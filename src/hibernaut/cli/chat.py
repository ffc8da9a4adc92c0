"""`hibernaut chat`: a conversation with one agent."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click
from msgspec.structs import replace

from hibernaut.cli import options
from hibernaut.cli.asking import Questions
from hibernaut.cli.editor import Key, Submitted
from hibernaut.cli.failures import ANSWERED, INTERRUPTED, Leave
from hibernaut.cli.following import Follower, until_over
from hibernaut.cli.keyboard import Keyboard, reading_lines
from hibernaut.cli.narration import PROMPT, Narrator
from hibernaut.cli.running import MEMORY, opened, run_async
from hibernaut.cli.screen import Screen
from hibernaut.cli.servers import load_servers
from hibernaut.cli.starting import Setting, check_new, check_old, existing
from hibernaut.cli.terminal import DIM, Output, Printed, is_styled
from hibernaut.cli.tools import load_tools
from hibernaut.engine.answering import as_event, questions_of
from hibernaut.errors import InputRefused
from hibernaut.handle import ThreadHandle
from hibernaut.ids import RandomIds
from hibernaut.kernel.head import decode_head
from hibernaut.messages.events import AgentEvent, Cursor, TextChunk
from hibernaut.messages.parts import plain_text
from hibernaut.messages.text import excerpt
from hibernaut.system import AgentSystem
from hibernaut.tools.results import fit

SHOWN_COMMITS = 16
SHOWN_EVENTS = 24
"""How much of an old conversation is shown when it is taken up again."""

SHOWN_BYTES = 2_000
"""Bytes that are shown of one text of it."""

BUSY = ("ready", "waiting", "retrying")


@click.command(
    epilog=options.examples(
        "hibernaut chat --model echo",
        "hibernaut chat --store agents.db --thread builds --model my.py:model --tools my.py",
    )
)
@options.stores(required=False)
@click.option(
    "--thread", "thread_id", type=options.WORD, metavar="ID", help="Take up this thread; a new one gets this id."
)
@options.models
@options.tools
@options.servers
@options.instructions
@options.authority
@options.tenants
def chat(
    store: str | None,
    thread_id: str | None,
    model: str,
    tools: tuple[str, ...],
    servers: tuple[str, ...],
    instructions: str,
    authority: str | None,
    tenant: str,
) -> None:
    """Talk with an agent.

    You may write while it speaks: what you send interrupts it. Ctrl-C stops it, Ctrl-D leaves. Alt-Enter begins a new
    line, the arrow keys bring back what you said. With --store the conversation is kept: take it up with --thread.

    When a tool asks you something, the number of a choice (or its words) answers it; what else you say is for the
    agent.
    """
    setting = Setting(store or MEMORY, tenant, model, tools, instructions, servers, authority=authority or "")
    interactive = sys.stdin.isatty() and is_styled(sys.stdout)
    output: Output = Screen(_write, PROMPT) if interactive else Printed()
    log = (lambda line: output.line(line, DIM)) if interactive else None
    click.get_current_context().exit(run_async(_chat(setting, thread_id, output), log))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def _chat(setting: Setting, thread_id: str | None, output: Output) -> int:
    tools = load_tools(setting.tools)
    name = thread_id or RandomIds().new("thread")
    reached = load_servers(setting.servers)
    async with opened(setting, tools=tools, run=True, only=[name], servers=reached) as system:
        handle = await existing(system, thread_id)
        if handle is None:
            check_new(setting)
            remarks = []
        else:
            remarks = await check_old(system, handle.thread_id, setting, tools)
        conversation = Conversation(system, setting, handle, name, output)
        with conversation.inputs():
            for remark in remarks:
                output.line(f"note: {remark}", DIM)
            await conversation.hold()
        await conversation.leave()
    return ANSWERED


class Conversation:
    """One person and one thread. A thread that is not there yet is made when the first thing is said to it."""

    def __init__(
        self,
        system: AgentSystem,
        setting: Setting,
        handle: ThreadHandle | None,
        thread_id: str,
        output: Output,
    ) -> None:
        self._system = system
        self._setting = setting
        self._handle = handle
        self._thread_id = thread_id
        self._output = output
        self._narrator = Narrator(output)
        self._questions = Questions(system, self._narrator, output)
        self._keyboard: Keyboard | None = None
        self._in_turns = False
        """Whether each answer is waited for before the next thing is said."""
        self._echoes = False
        """Whether what the user writes is on the screen before it is said."""
        self._wanted: asyncio.Queue[Submitted | Key] = asyncio.Queue()
        self._tasks: asyncio.TaskGroup | None = None
        self._follower: Follower | None = None
        self._following: asyncio.Task[None] | None = None
        self._stopping = False
        self._warned = False

    @contextmanager
    def inputs(self) -> Iterator[None]:
        """Take what the user does, from the keys of a terminal or from lines."""
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self._leave_at_once, 128 + number)
                stack.callback(loop.remove_signal_handler, number)
            if isinstance(self._output, Screen):
                self._keyboard = Keyboard(self._output, _write, self._want)
                stack.enter_context(self._keyboard.reading())
                self._keyboard.show()
            else:
                # Lines that were written beforehand are said one after the other, not all into the first answer.
                self._echoes = sys.stdin.isatty()
                self._in_turns = not self._echoes
                loop.add_signal_handler(signal.SIGINT, self._want, Key.INTERRUPT)
                stack.callback(loop.remove_signal_handler, signal.SIGINT)
                stack.enter_context(reading_lines(self._want))
            yield

    async def hold(self) -> None:
        """Talk until the user leaves."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            if self._handle is not None:
                await self._show_past(self._handle)
            while isinstance(wanted := await self._wanted.get(), Submitted):
                if not await self._questions.take(wanted.text):
                    await self._say(wanted.text)
                if self._in_turns and self._handle is not None:
                    await until_over(self._system, self._handle, wait=False, kept=True)
                    await self._catch_up()
            if self._following is not None:
                self._following.cancel()

    async def leave(self) -> None:
        """Say how to come back, and what is still under way."""
        if self._handle is None:
            return
        if self._setting.store == MEMORY:
            raise Leave(ANSWERED)
        again = self._setting.command("chat", "--thread", self._handle.thread_id)
        print(f"To come back: {again}", file=sys.stderr)
        if (await self._handle.state()).activity in BUSY:
            print("What is under way is finished first; Ctrl-C leaves at once.", file=sys.stderr, flush=True)

    # What the user wants

    def _want(self, wanted: Submitted | Key) -> None:
        if wanted is not Key.INTERRUPT:
            self._wanted.put_nowait(wanted)
        elif self._tasks is not None:
            self._tasks.create_task(self._interrupt())

    def _leave_at_once(self, code: int) -> None:
        async def leave() -> None:
            raise Leave(code)

        if self._tasks is not None:
            self._tasks.create_task(leave())

    async def _say(self, text: str) -> None:
        self._stopping = self._warned = False
        if self._echoes:
            self._narrator.said(plain_text(fit(text)[0]))
        try:
            if self._handle is None:
                self._handle = await self._system.launch(thread_id=self._thread_id, message=text)
            else:
                await self._handle.send(text)
        except InputRefused as error:
            self._output.line(f"Error: {error}", DIM)
        if self._follower is None and self._handle is not None:
            self._follow(self._handle, "")

    async def _interrupt(self) -> None:
        """Stop the agent; if it does nothing, throw the input away; if there is none, leave when asked twice."""
        state = await self._handle.state() if self._handle is not None else None
        busy = state is not None and state.activity in BUSY
        if busy and self._handle is not None and not self._stopping:
            self._stopping = True
            await self._handle.stop("by the user")
        elif self._keyboard is not None and self._keyboard.editor.text:
            self._keyboard.editor.clear()
            self._keyboard.show()
        elif busy or self._warned:
            raise Leave(INTERRUPTED)
        else:
            self._warned = True
            self._output.line("[Ctrl-D leaves]", DIM)

    # What is shown

    async def _show_past(self, handle: ThreadHandle) -> None:
        state = await handle.state()
        for call in state.calls:
            self._narrator.knows(call.call_id, call.tool)
        begin = max(state.version - SHOWN_COMMITS, 0)
        past = [event async for event in handle.events(str(Cursor(begin)), follow=False) if "~" not in event.cursor]
        if begin or len(past) > SHOWN_EVENTS:
            earlier = self._setting.command("threads", "history", handle.thread_id)
            self._output.line(f"… what was before: {earlier}", DIM)
        for event in past[-SHOWN_EVENTS:]:
            self._narrator.tell(_shortened(event))
        self._narrator.end()
        for question in questions_of(decode_head((await self._system.row(handle.thread_id)).head).head):
            self._questions.add(as_event(question))
        self._follow(handle, past[-1].cursor if past else str(Cursor(begin)))

    def _follow(self, handle: ThreadHandle, cursor: str) -> None:
        if self._tasks is not None:
            self._follower = Follower(handle, cursor, self._questions)
            self._following = self._tasks.create_task(self._follower.show())

    async def _catch_up(self) -> None:
        """Show what has happened up to now."""
        if self._tasks is not None and self._following is not None and self._follower is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
            await self._follower.show(follow=False)
            self._following = self._tasks.create_task(self._follower.show())


def _shortened(event: AgentEvent) -> AgentEvent:
    return replace(event, text=excerpt(event.text, SHOWN_BYTES)) if isinstance(event, TextChunk) else event
