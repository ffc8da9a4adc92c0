"""The root of the `hibernaut` command: finds sub-commands when they are asked for, and ends every command properly.

`hibernaut --help` imports none of them, and nothing of the engine.
"""

import contextlib
import errno
import os
import sys
from typing import NoReturn

import click

from hibernaut.cli.failures import (
    BROKEN_PIPE,
    EXIT_CODES,
    INTERRUPTED,
    Failure,
    Leave,
    cause_of,
    told_in_one_line,
)
from hibernaut.cli.lazy import LazyCommands
from hibernaut.cli.options import examples
from hibernaut.errors import HibernautError

COMMANDS = {
    "demo": ("hibernaut.cli.demo:demo", "Watch an agent wait, die and go on."),
    "run": ("hibernaut.cli.run:run", "Give an agent one task and print what it does."),
    "record": ("hibernaut.cli.record:record", "Give an agent one task, and keep what the model says for tests."),
    "chat": ("hibernaut.cli.chat:chat", "Talk with an agent."),
    "serve": ("hibernaut.cli.serve:serve", "Keep an engine running on a store."),
    "send": ("hibernaut.cli.send:send", "Say something to a thread, whether anybody runs it or not."),
    "deliver": ("hibernaut.cli.deliver:deliver", "Bring the result of a deferred call."),
    "inbox": ("hibernaut.cli.inbox:inbox", "See what waits for a person."),
    "answer": ("hibernaut.cli.inbox:answer", "Answer a question."),
    "threads": ("hibernaut.cli.threads:threads", "See, stop and resume threads."),
    "authority": ("hibernaut.cli.authority:authority", "See, test and change what threads may do."),
    "receipts": ("hibernaut.cli.receipts:receipts", "Show the runtime's own record of a thread."),
    "verify": ("hibernaut.cli.verify:verify", "Check that what is stored is what its receipts say."),
    "stats": ("hibernaut.cli.stats:stats", "See what a store has, and what was counted of it."),
    "effects": ("hibernaut.cli.effects:effects", "See what is owed to the outside, and settle it by hand."),
    "models": ("hibernaut.cli.catalogue:models", "See which models can be named, and what is known of them."),
    "usage": ("hibernaut.cli.usage:usage", "See the tokens that threads have used, and what they have cost."),
    "rap": ("hibernaut.cli.rap:rap", "Tools on other servers: write, check, inspect and call them."),
    "chaos": ("hibernaut.cli.chaos:chaos", "Kill and disturb an agent, and check that nothing is other."),
    "bench": ("hibernaut.cli.bench:bench", "Measure this machine."),
    "completion": ("hibernaut.cli.completion:completion", "Print the completion script of a shell."),
}
"""Where each sub-command is, and what it does in a line."""


class LazyGroup(LazyCommands):
    """The root itself."""

    table = COMMANDS

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BaseExceptionGroup as group:
            _end(ctx, cause_of(group))
        except (HibernautError, Leave, KeyboardInterrupt, BrokenPipeError) as error:
            _end(ctx, error)


def _end(ctx: click.Context, error: BaseException) -> NoReturn:
    """End a command by an error: quietly, in one line, or (a defect) with its traceback."""
    if isinstance(error, Leave):
        ctx.exit(error.code)
    if isinstance(error, KeyboardInterrupt):
        ctx.exit(INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        # Nobody reads any more, and the interpreter must not try to flush at its end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ctx.exit(BROKEN_PIPE)
    if isinstance(error, HibernautError) and told_in_one_line(error):
        raise Failure(error) from error
    raise error


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001  # click calls it so
    if wanted and not ctx.resilient_parsing:
        from hibernaut.version import build

        click.echo(f"hibernaut {build()}")
        ctx.exit()


_USED = examples(
    "hibernaut demo                                        see what that means",
    'hibernaut run "Say hello" --model echo                one task, in memory',
    "hibernaut chat --store agents.db --model echo         a conversation that is kept",
    "hibernaut serve --local --store agents.db --model …   keep agents going",
    "hibernaut threads list --store agents.db              see them",
)


@click.group(cls=LazyGroup, epilog=f"{_USED}\n\n{EXIT_CODES}", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def hibernaut() -> None:
    """Run agents that wait: between two messages an agent is nothing but its stored conversation.

    HIBERNAUT_STORE, HIBERNAUT_MODEL and HIBERNAUT_TENANT stand in for --store, --model and --tenant. With
    HIBERNAUT_DEBUG=1 an error shows where it came from.
    """


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> NoReturn:
    """Run the command and exit."""
    if sys.stdout is None:  # it was closed by whoever started us
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  # a device, open to the end
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    try:
        hibernaut.main(prog_name="hibernaut")
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or what is left would be written once more at the end
        click.echo(f"Error: the output cannot be written: {error.strerror}", err=True)
        sys.exit(1)
    raise AssertionError("click exits")
