"""`hibernaut completion`: what a shell needs to complete our commands and options."""

import click
from click.shell_completion import get_completion_class

from hibernaut.cli import options

_INSTALL = {
    "bash": 'Add this line to ~/.bashrc:  eval "$(hibernaut completion bash)"',
    "zsh": 'Add this line to ~/.zshrc:  eval "$(hibernaut completion zsh)"',
    "fish": "Run once:  hibernaut completion fish > ~/.config/fish/completions/hibernaut.fish",
}


@click.command(epilog=options.examples('eval "$(hibernaut completion bash)"'))
@click.argument("shell", type=click.Choice(list(_INSTALL)))
def completion(shell: str) -> None:
    """Print the completion script of a shell, and how to install it."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"click knows no completion for {shell}")
    root = click.get_current_context().find_root().command
    script = kind(root, {}, "hibernaut", "_HIBERNAUT_COMPLETE").source()
    click.echo(f"# {_INSTALL[shell]}\n{script}")
