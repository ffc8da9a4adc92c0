"""`hibernaut demo`: see an agent sleep, its engine killed, and the agent go on; and one that listens, with a tree."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

AFTER_SIGNAL = 128
"""Added to a signal's number it is the exit code, as shells have it."""

_OPTIONS = (
    click.option("--store", type=click.Path(path_type=Path, dir_okay=False), help="Make the store here, and keep it."),
    click.option("--keep", is_flag=True, help="Keep the folder with the project and the store, and say where it is."),
    click.option(
        "--json", "as_json", is_flag=True, help="Print what was found as JSON; the story goes to standard error."
    ),
)


def _with_options(shortened: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a story its options; `shortened` says what `--fast` does to it."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed((click.option("--fast", is_flag=True, help=shortened), *_OPTIONS)):
            command = option(command)
        return command

    return decorate


@click.group(invoke_without_command=True)
@_with_options("Shorten the builds to half a second.")
@click.pass_context
def demo(ctx: click.Context, /, **options: Any) -> None:
    """See an agent sleep, its engine killed, and the agent go on.

    It takes about ten seconds and needs no key. An agent mends a vulnerable dependency and waits for builds; while it
    waits, its process is killed. Everything that is said is checked: the exit code is 0 only if all of it holds.

    There is a second story: `hibernaut demo tree`.
    """
    if ctx.invoked_subcommand is None:
        from hibernaut.cli.demo.story import tell

        _tell(tell, **options)
    elif any(options.values()):
        raise click.UsageError(f"give the options after `{ctx.invoked_subcommand}`")


@demo.command("tree", short_help="See an agent that listens, and a thread for each event.")
@_with_options("Shorten the work, and the time between two lines, to a fraction of a second.")
def tree_story(**options: Any) -> None:
    """See an agent that listens, and a thread for each event.

    It takes about twelve seconds and needs no key. An agent subscribes to a log and sleeps; its process is killed, and
    lines are written all the same. Each gets a thread of its own, one of them matters, and a person is asked.
    Everything that is said is checked: the exit code is 0 only if all of it holds.
    """
    from hibernaut.cli.demo.tree.story import tell

    _tell(tell, **options)


def _tell(story: Callable[..., object], *, fast: bool, store: Path | None, keep: bool, as_json: bool) -> None:
    import msgspec

    from hibernaut.cli.demo.failure import DemoFailed, DemoInterrupted
    from hibernaut.cli.demo.voice import Voice

    if store is not None and store.exists():
        raise click.BadParameter(f"{store} exists already; the demo makes a store of its own", param_hint="--store")
    try:
        facts = story(Voice(sys.stderr if as_json else sys.stdout), store=store, fast=fast, keep=keep)
    except BrokenPipeError:
        raise
    except (DemoFailed, OSError) as error:
        raise click.ClickException(" ".join(f"the demo stopped: {error}".split())) from error
    except DemoInterrupted as error:
        raise click.exceptions.Exit(AFTER_SIGNAL + error.number) from error
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(facts), indent=2))
