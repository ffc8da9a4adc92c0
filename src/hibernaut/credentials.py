"""Texts that must not be told: as they are, or by the name of the environment variable that holds them."""

import os
from typing import Final

from hibernaut.errors import ConfigurationError

BY_NAME: Final = "env:"
"""`env:NAME` stands for what the environment variable NAME holds when it is needed."""


def is_named(written: str) -> bool:
    """Return whether a text only names the variable that holds a credential."""
    return written.startswith(BY_NAME)


def check_credential(what: str, written: str) -> None:
    """Check that a text can be a credential, without looking into the environment.

    Raises:
        ConfigurationError: it is blank, or would break the header that it is sent in.
    """
    if not written.strip() or not written.isascii() or not written.isprintable():
        raise ConfigurationError(f"{what} is blank or has other characters than printable ASCII; `env:NAME` reads it")
    if is_named(written) and not written.removeprefix(BY_NAME).strip():
        raise ConfigurationError(f"{what} is {BY_NAME!r} without the name of a variable")


def credential(what: str, written: str) -> str:
    """Return a credential. What is named is read now, so that a variable that changes counts at the next request.

    Raises:
        ConfigurationError: the variable that is named is not set, or holds nothing usable.
    """
    if not is_named(written):
        return written
    name = written.removeprefix(BY_NAME).strip()
    value = os.environ.get(name, "").strip()
    if not value:
        raise ConfigurationError(f"{what} is to be read from the environment variable {name}, which is not set")
    if not value.isascii() or not value.isprintable():
        raise ConfigurationError(f"{what}: the environment variable {name} has other characters than printable ASCII")
    return value
