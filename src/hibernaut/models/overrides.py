"""What people say of a request, over what the runtime says."""

from collections.abc import Mapping
from typing import Any


def merged(own: Mapping[str, Any], given: Any) -> Any:
    """Return a value in which what is given wins, member by member where both are objects."""
    if not isinstance(given, Mapping):
        return given
    result = dict(own)
    for name, value in given.items():
        result[name] = merged(own[name], value) if isinstance(own.get(name), Mapping) else value
    return result
