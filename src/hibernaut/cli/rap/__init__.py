"""`hibernaut rap`: tools on other servers."""

from hibernaut.cli.rap.group import rap

__all__ = ["rap"]
