"""Groups of commands that are found by a table, so that help and completion import none of them."""

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import click
from click.shell_completion import CompletionItem


class LazyCommands(click.Group):
    """A group that imports a sub-command when it is asked for."""

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Where each sub-command is (`module:name`), and what it does in a line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in self.table.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]
