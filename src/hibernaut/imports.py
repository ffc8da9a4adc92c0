"""Finding what a user names: `module`, `module:name`, `path/to/file.py` or `path/to/file.py:name`."""

import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from hibernaut.errors import ConfigurationError

_FILE = re.compile(r"(.+\.py)(?::(.*))?", re.DOTALL)
_MOST_SUGGESTED = 10


class NoModule(ConfigurationError):
    """There is no module of that name."""


def split(name: str) -> tuple[str, str]:
    """Return the place (a module, or a file by its absolute path) and what is named in it, "" for nothing."""
    file = _FILE.fullmatch(name)
    if file:
        return str(Path(file[1]).absolute()), file[2] or ""
    place, _, attribute = name.partition(":")
    return place, attribute


def load(place: str) -> ModuleType:
    """Import a module or a file.

    Raises:
        NoModule: there is no module of that name.
        ConfigurationError: it is not there, or fails when it is imported.
    """
    return _load_file(Path(place)) if place.endswith(".py") else _load_module(place)


def find(place: str, path: Sequence[str]) -> Any:
    """Return what stands in a module or file under these attributes, one in the other.

    Raises:
        ConfigurationError: there is no such thing.
    """
    found: Any = load(place)
    for name in path:
        if not hasattr(found, name):
            names = [other for other in vars(found) if not other.startswith("_")] if hasattr(found, "__dict__") else []
            raise ConfigurationError(f"{place} has no {name!r}; it has: {_some(names)}")
        found = getattr(found, name)
    return found


def _load_module(name: str) -> ModuleType:
    _look_in(Path.cwd())
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(
            f"{name!r} is no module; name one as in `package.module:name`, or a file that ends in .py"
        )
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise NoModule(f"there is no module {error.name!r} here or on the Python path") from error
        raise _failed(name, error) from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error


def _load_file(path: Path) -> ModuleType:
    for known in list(sys.modules.values()):
        if getattr(known, "__file__", None) == str(path):
            return known
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"{path.stem}@{path}"
    spec = spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ConfigurationError(f"there is no file {path}")
    module = module_from_spec(spec)
    _look_in(path.parent)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _failed(str(path), error) from error
    return module


def _look_in(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _failed(place: str, error: BaseException) -> ConfigurationError:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, SyntaxError):
        where = ""
    return ConfigurationError(f"{place} cannot be imported: {type(error).__name__}: {error}{where}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SUGGESTED} more" if len(names) > _MOST_SUGGESTED else ""
    return (", ".join(names[:_MOST_SUGGESTED]) or "nothing") + more
