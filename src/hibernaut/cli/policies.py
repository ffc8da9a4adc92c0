"""Authorities as the command line gives them: files in TOML."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hibernaut.errors import ConfigurationError
from hibernaut.kernel.authority import Authority, check_authority

_TABLES: Final = ("rules", "events", "children", "within")
"""The parts of an authority that have headings of their own in a file."""


def load_authority(path: str) -> Authority:
    """Read an authority from a file.

    Raises:
        ConfigurationError: it cannot be read or meant; the text says what is wrong with it.
    """
    try:
        return check_authority(msgspec.toml.decode(Path(path).read_bytes(), type=Authority))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is no authority: {error}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def written(authority: Authority) -> str:
    """Return an authority as it stands in a file."""
    return "\n".join(_table(msgspec.to_builtins(authority), ())).strip()


def _table(fields: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield a table of TOML: first its plain values, then the tables in it."""
    tables = {name: value for name, value in fields.items() if name in _TABLES}
    yield from (f"{name} = {_inline(value)}" for name, value in fields.items() if name not in tables)
    for name, value in tables.items():
        heading = ".".join((*path, name))
        for one in value if isinstance(value, list | tuple) else ():
            yield from ("", f"[[{heading}]]", *_table(one, (*path, name)))
        if isinstance(value, dict):
            yield from ("", f"[{heading}]", *_table(value, (*path, name)))


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_inline(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
