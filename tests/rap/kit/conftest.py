"""A runtime for every test, behind one listener: to close a listener takes its time."""

from collections.abc import AsyncIterator

import pytest

from tests.rap.kit.runtime import Receiver, Runtime, receiving


@pytest.fixture(scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    """What takes callbacks."""
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
def runtime(receiver: Receiver) -> Runtime:
    """Whoever calls the server and is called back."""
    return receiver.runtime()
