"""Where a benchmark keeps its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hibernaut.errors import ConfigurationError


@contextmanager
def temporary_folder(directory: str | None = None) -> Iterator[Path]:
    """Give a folder of its own in a directory, by default the system's for temporary files; it is removed in the end.

    Raises:
        ConfigurationError: none can be made there.
    """
    try:
        made = TemporaryDirectory(dir=directory)
    except OSError as error:
        where = directory or "the folder for temporary files"
        raise ConfigurationError(f"nothing can be written in {where}: {error.strerror}") from error
    with made as name:
        yield Path(name)
