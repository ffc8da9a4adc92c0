"""SQL in files, every query under a line `-- name: the_name`. Here stands that of the stores, a file for each kind."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


def load_queries(kind: str) -> Mapping[str, str]:
    """Return the queries of `KIND.sql` by name; comments are left out."""
    return read_queries(Path(__file__).parent / f"{kind}.sql")


def read_queries(path: Path) -> Mapping[str, str]:
    """Return the queries of a file by name; comments are left out."""
    text = path.read_text(encoding="utf-8")
    _, *pieces = _NAME.split(text)
    names, bodies = pieces[::2], pieces[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"{path.name} has two queries of the same name")
    return MappingProxyType({name: _statement(body) for name, body in zip(names, bodies, strict=True)})


def _statement(body: str) -> str:
    lines = (line.strip() for line in body.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("--")).removesuffix(";")
