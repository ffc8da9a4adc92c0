"""What the page on the protocol says of errors, limits and messages is what holds."""

import re
from pathlib import Path

import msgspec
import pytest

from hibernaut.rap import limits
from hibernaut.rap.answers import ROWS
from hibernaut.rap.callbacks import Callback
from hibernaut.rap.requests import Request

PAGE = (Path(__file__).parents[2] / "docs" / "rap.md").read_text(encoding="utf-8")
OWN_FAULT = {"StoreError", "HibernautError"}
CONSTANTS = {name: value for name, value in vars(limits).items() if name.isupper() and isinstance(value, int)}


def test_the_table_of_errors_is_that_of_the_code() -> None:
    documented = re.findall(r"^\| (\d+) \| `(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    expected = [(str(row.status), row.error.code, row.error.__name__) for row in ROWS]
    assert documented == [row for row in expected if row[2] not in OWN_FAULT]


def test_every_bound_is_documented_with_its_default() -> None:
    section = PAGE.partition("## Limits\n")[2].partition("\n## ")[0]
    documented = re.findall(r"`(\w+)` \| ([\d,]+)(?: \w+)? \|$", section, re.MULTILINE)
    assert {name: int(value.replace(",", "")) for name, value in documented} == (
        CONSTANTS | msgspec.structs.asdict(limits.LIMITS)
    )


@pytest.mark.parametrize("message", [*Callback.__args__, *Request.__args__])
def test_every_message_is_documented(message: type[msgspec.Struct]) -> None:
    assert f"`{message.__name__}`" in PAGE
