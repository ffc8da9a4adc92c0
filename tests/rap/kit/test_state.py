"""The state file: what is done together costs one sync, fails alone, and is done even if nobody waits for it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hibernaut.errors import StoreError
from hibernaut.rap.kit.transactions import Transactions


def make(connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS n (n INTEGER CHECK (n < 10))")


def put(*numbers: int) -> Callable[[apsw.Connection], int]:
    def work(connection: apsw.Connection) -> int:
        for number in numbers:
            connection.execute("INSERT INTO n VALUES (?)", (number,))
        return len(numbers)

    return work


def held(path: Path) -> list[int]:
    connection = apsw.Connection(str(path))
    numbers = [row[0] for row in connection.execute("SELECT n FROM n ORDER BY n")]
    connection.close()
    return numbers


async def test_work_that_fails_is_undone_and_fails_alone(tmp_path: Path) -> None:
    transactions = Transactions(str(tmp_path / "n.db"), make)
    await transactions.opened()
    results = await asyncio.gather(
        *(transactions.run(put(*numbers)) for numbers in ((1, 2), (3, 99), (4,))), return_exceptions=True
    )
    await transactions.close()
    assert (results[0], results[2], isinstance(results[1], StoreError)) == (2, 1, True)
    assert held(tmp_path / "n.db") == [1, 2, 4]


async def test_what_was_begun_is_done_although_its_caller_was_cancelled(tmp_path: Path) -> None:
    transactions = Transactions(str(tmp_path / "n.db"), make)
    await transactions.opened()
    writing = asyncio.create_task(transactions.run(put(1)))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait([writing])
    assert writing.cancelled()
    await transactions.close()
    assert held(tmp_path / "n.db") == [1]


async def test_a_file_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    transactions = Transactions(str(tmp_path / "no" / "n.db"), make)
    with pytest.raises(StoreError, match=r"n\.db"):
        await transactions.opened()
    await transactions.close()
