"""The group of the commands about tools on other servers."""

import click

from hibernaut.cli.lazy import LazyCommands

COMMANDS = {
    "serve": ("hibernaut.cli.rap.serve:serve", "Run a tool server that was written with the kit."),
    "check": ("hibernaut.cli.rap.check:check", "Hold a server against the rules of the protocol."),
    "inspect": ("hibernaut.cli.rap.inspect:inspect", "Show the tools of a server."),
    "call": ("hibernaut.cli.rap.call:call", "Call a tool and print what comes back."),
}
"""Where each command is, and what it does in a line."""


class RapGroup(LazyCommands):
    """The group itself."""

    table = COMMANDS


@click.group(cls=RapGroup)
def rap() -> None:
    """Write, check, inspect and call tools on other servers.

    They speak the Reactive Agent Protocol, in any language: a call is acknowledged at once and answered later by a
    POST to a callback URL.
    """
