"""The `hibernaut` command."""

from hibernaut.cli.root import main

__all__ = ["main"]
