"""`hibernaut demo`: see an agent sleep, its engine killed, and the agent go on."""

import sys
from pathlib import Path

import click

AFTER_SIGNAL = 128
"""Added to a signal's number it is the exit code, as shells have it."""


@click.command()
@click.option("--fast", is_flag=True, help="Shorten the builds to half a second.")
@click.option("--store", type=click.Path(path_type=Path, dir_okay=False), help="Make the store here, and keep it.")
@click.option("--keep", is_flag=True, help="Keep the folder with the project and the store, and say where it is.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON; the story goes to standard error.")
def demo(*, fast: bool, store: Path | None, keep: bool, as_json: bool) -> None:
    """See an agent sleep, its engine killed, and the agent go on.

    It takes about ten seconds and needs no key. An agent mends a vulnerable dependency and waits for builds; while it
    waits, its process is killed. Everything that is said is checked: the exit code is 0 only if all of it holds.
    """
    import msgspec

    from hibernaut.cli.demo.failure import DemoFailed, DemoInterrupted
    from hibernaut.cli.demo.story import tell
    from hibernaut.cli.demo.voice import Voice

    if store is not None and store.exists():
        raise click.BadParameter(f"{store} exists already; the demo makes a store of its own", param_hint="--store")
    try:
        facts = tell(Voice(sys.stderr if as_json else sys.stdout), store=store, fast=fast, keep=keep)
    except BrokenPipeError:
        raise
    except (DemoFailed, OSError) as error:
        raise click.ClickException(" ".join(f"the demo stopped: {error}".split())) from error
    except DemoInterrupted as error:
        raise click.exceptions.Exit(AFTER_SIGNAL + error.number) from error
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(facts), indent=2))
