"""What the page on writing servers says in numbers is what holds."""

import re
from pathlib import Path

import pytest

from hibernaut.rap.kit import calls, delivery, server, state
from hibernaut.rap.limits import LIMITS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "rap-servers.md").read_text(encoding="utf-8")
DAY = 86_400


@pytest.mark.parametrize(
    "said",
    [
        f"up to {LIMITS.callback_bytes // 2**20} MiB",
        f"while {delivery.MOST_WAITING} of its events",
        f"The last {state.MOST_KEPT:,} calls",
        f"for {state.KEPT // DAY // 1_000} days",
        f"after {server.DELIVER_WITHIN // DAY} days (`deliver_within`)",
        f"up to every {delivery.LONGEST_PAUSE // 60_000} minutes",
        f"have {calls.LAST_MOMENTS} seconds to clean up",
        f"or {calls.MOST_RUNNING:,} functions run already",
    ],
)
def test_every_number_is_that_of_the_code(said: str) -> None:
    assert said in " ".join(PAGE.split())


def test_every_example_is_named_and_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
    examples = {f"../examples/rap/{path.name}" for path in (ROOT / "examples" / "rap").glob("*.py")}
    assert examples <= set(links)
