"""`hibernaut rap call`: one call of one tool, and what comes back."""

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from hibernaut.cli import options
from hibernaut.cli.asking import chosen
from hibernaut.cli.failures import ANSWERED, REFUSED
from hibernaut.cli.rap.reaching import (
    NO_ANSWER,
    arguments_of,
    authorized,
    called_back,
    headers_of,
    run,
    server,
)
from hibernaut.cli.rap.showing import JsonLines, Lines, Pictures, Show
from hibernaut.cli.terminal import safe
from hibernaut.clock import SystemClock
from hibernaut.errors import ConfigurationError, MalformedInput
from hibernaut.ids import RandomIds
from hibernaut.rap.answers import refusal
from hibernaut.rap.callbacks import OAuth, Result, SubscriptionEvent, UserChoice, ViewUpdate
from hibernaut.rap.check.peer import Peer
from hibernaut.rap.check.receiver import Delivery, Receiver
from hibernaut.rap.check.session import is_taken
from hibernaut.rap.listening import listening
from hibernaut.rap.manifest import ToolsetRefused, read_manifest
from hibernaut.rap.requests import Invocation
from hibernaut.tools.arguments import JSON

PATIENCE = 60.0
"""Seconds until something must have come for a call, unless somebody says otherwise."""

_CODES = """\
\b
Exit codes:
    0  the result; of a subscription: its last event, or as many as were asked for
    1  an error result, or the call was refused
    2  the command line or the arguments are not right, or nobody can answer a question
    3  the server cannot be reached, or nothing came in time
  130  interrupted by Ctrl-C; the call is cancelled
"""
_USED = options.examples(
    'hibernaut rap call http://127.0.0.1:8800 add \'{"a": 1, "b": 2}\'',
    "hibernaut rap call http://127.0.0.1:8800 draw @arguments.json --save pictures",
    "hibernaut rap call http://127.0.0.1:8800 watch --events 3 --json",
    "hibernaut rap call http://127.0.0.1:8800 deploy --answer yes",
)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. `timeout` is in seconds."""

    url: str
    tool: str
    arguments: dict[str, JSON]
    headers: dict[str, str]
    listen: tuple[str, int]
    public_url: str
    timeout: float | None
    events: int | None
    answers: tuple[str, ...]
    check: bool


@click.command(epilog=f"{_USED}\n\n{_CODES}")
@server
@click.argument("tool", type=options.WORD)
@click.argument("arguments", default="{}", metavar="[JSON|@FILE|-]")
@authorized
@called_back
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    help="How long to wait for whatever comes next. Left out: 60 for a result, for ever for an event.",
)
@click.option("--events", type=click.IntRange(1), metavar="N", help="Leave a subscription after so many events.")
@click.option(
    "--answer", multiple=True, metavar="N", help="Answer the next question so, by number or words. Repeatable."
)
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write pictures there.")
@click.option("--no-check", is_flag=True, help="Send arguments that do not fit the tool's schema, too.")
@options.json_lines
def call(
    url: str,
    tool: str,
    arguments: str,
    bearer: str | None,
    header: tuple[tuple[str, str], ...],
    listen: tuple[str, int],
    public_url: str,
    timeout: float | None,
    events: int | None,
    answer: tuple[str, ...],
    save: Path | None,
    *,
    no_check: bool,
    as_json: bool,
) -> None:
    """Call TOOL of the server at URL and print what comes back, until it is over.

    Questions are asked on the terminal. A call that is left before it is over is cancelled.
    """
    wish = Wish(
        url=url,
        tool=tool,
        arguments=arguments_of(arguments),
        headers=headers_of(bearer, header),
        listen=listen,
        public_url=public_url,
        timeout=timeout,
        events=events,
        answers=answer,
        check=not no_check,
    )
    run(_call(wish, JsonLines() if as_json else Lines(Pictures(save, tool))))


async def _call(wish: Wish, show: Show) -> int:
    receiver = Receiver(SystemClock())
    async with Peer(wish.url, wish.headers) as peer:
        await _find(peer, wish)
        async with listening(receiver, *wish.listen) as here:
            receiver.public = wish.public_url or here.url
            return await Conversation(peer, receiver, wish, show).run()


async def _find(peer: Peer, wish: Wish) -> None:
    """Find out where the tool is called, and check that it is there and takes the arguments.

    Raises:
        ToolsetRefused: the server cannot be used, or it leads calls to where it may not.
        ConfigurationError: it has no such tool, or the arguments do not fit.
    """
    answered = await peer.manifest()
    if not is_taken(answered):
        raise ToolsetRefused([f"there is no manifest: {answered.words}"])
    toolset = read_manifest(answered.body)
    if problem := await peer.check_endpoint(toolset.endpoint):
        raise ToolsetRefused([problem])
    peer.endpoint = toolset.endpoint
    tool = next((tool for tool in toolset.tools if tool.name == wish.tool), None)
    if tool is None:
        there = ", ".join(each.name for each in toolset.tools)
        raise ConfigurationError(f"{toolset.name} has no tool {wish.tool!r}; it has: {there}")
    problems = tool.problems(wish.arguments) if wish.check else []
    if problems:
        raise ConfigurationError(
            f"the arguments do not fit (--no-check sends them all the same): {'; '.join(problems)}"
        )


class Conversation:
    """One call, from the invocation to its end."""

    def __init__(self, peer: Peer, receiver: Receiver, wish: Wish, show: Show) -> None:
        self._peer = peer
        self._inbox = receiver.inbox()
        self._wish = wish
        self._show = show
        self._answers = list(wish.answers)
        self._events = 0
        self._refused = 0
        self._code: int | None = None
        self._subscribed = False
        ids = RandomIds()
        self._sent = Invocation(
            wish.tool, wish.arguments, ids.new("call"), ids.new("provider"), self._inbox.url, ids.new("thread"), None
        )
        receiver.expect(self._inbox, self._sent)

    async def run(self) -> int:
        """Make the call and see it through; return the exit code. One that is not over in the end is cancelled."""
        try:
            return await self._make() or await self._follow()
        except asyncio.CancelledError:
            click.echo("interrupted; the call is cancelled", err=True)
            raise
        finally:
            if self._code is None:
                await self._peer.cancel(self._sent.group_id, self._sent.id)

    async def _make(self) -> int:
        """Send the invocation, and return 0 if it was acknowledged."""
        answered = await self._peer.invoke(self._sent, self._sent.id)
        if answered.status is None:
            click.echo(f"Error: {safe(answered.why)}", err=True)
            return NO_ANSWER
        if not is_taken(answered):
            self._code = REFUSED
            click.echo(safe(refusal(self._wish.tool, self._peer.endpoint, answered.status, answered.body)), err=True)
            return REFUSED
        return ANSWERED

    async def _follow(self) -> int:
        place = 0
        while self._code is None:
            within = self._wish.timeout or (None if self._subscribed else PATIENCE)
            delivery = await self._inbox.next(None if within is None else round(within * 1_000), after=place)
            if delivery is None:
                what = "nothing that is taken" if self._refused else "nothing"
                click.echo(f"Error: {what} came within {within:g} s; the call is cancelled", err=True)
                return NO_ANSWER
            place += 1
            await self._take(delivery)
            if self._wish.events is not None and self._events >= self._wish.events:
                return ANSWERED
        return self._code

    async def _take(self, delivery: Delivery) -> None:
        callback = delivery.callback
        if callback is None:
            self._refused += 1
            self._show.refused(delivery.kind, delivery.problem)
            return
        self._show.callback(callback)
        match callback:
            case Result():
                self._subscribed = callback.subscription
                if not callback.subscription:
                    self._code = REFUSED if callback.is_error else ANSWERED
            case SubscriptionEvent():
                self._events += 1
                if callback.final:
                    self._code = ANSWERED
            case UserChoice():
                await self._answer(callback)
            case OAuth() | ViewUpdate():
                pass

    async def _answer(self, choice: UserChoice) -> None:
        selected = await self._selected(choice)
        answered = await self._peer.answer(choice.response_url, self._sent.id, selected)
        if not is_taken(answered):
            what = "not given" if answered.status is None else "not taken"
            raise MalformedInput(f"the answer was {what}: {answered.words}")
        self._show.answered(choice, selected)

    async def _selected(self, choice: UserChoice) -> int:
        if self._answers:
            try:
                return chosen(choice.choices, self._answers.pop(0))
            except MalformedInput as error:
                raise ConfigurationError(str(error)) from error
        if not sys.stdin.isatty():
            raise ConfigurationError("the call asks a person, and there is no terminal; give --answer")
        while True:
            try:
                line = await asyncio.to_thread(input, f"  1 to {len(choice.choices)}, or Enter for the default: ")
            except EOFError:
                click.echo()  # the question has no line break of its own
                raise ConfigurationError("nobody answered the question") from None
            if not line.strip():
                return choice.default
            try:
                return chosen(choice.choices, line)
            except MalformedInput as error:
                click.echo(f"  {safe(str(error))}", err=True)
