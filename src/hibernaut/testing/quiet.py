"""Silence about what is meant to fail."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Let the runtime log nothing meanwhile: failures are made on purpose, and a report says which of them mattered."""
    logger = logging.getLogger("hibernaut")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
