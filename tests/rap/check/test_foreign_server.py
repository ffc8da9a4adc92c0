"""A check of a server that has never heard of us."""

import pytest

from hibernaut.rap.check.checking import check
from hibernaut.rap.check.session import Settings
from tests.rap.foreign_server import foreign_server

SETTINGS = Settings(
    tools=(("echo", {"text": "x"}), ("picture", {})),
    slow=(("later", {"seconds": 30}),),
    subscribe=(("tick", {"count": 5, "seconds": 0.1}),),
    choose=(("choose", {}),),
    acknowledged_within=3_000,
    called_back_within=3_000,
    quiet=300,
)


async def test_what_it_does_and_does_not_do_is_found() -> None:
    with foreign_server() as server:
        report = await check(server.url, SETTINGS)
    broken = {one.rule.id: one.seen for one in report.of("broken")}
    assert broken.pop("errors.by-callback").startswith("hibernaut_check_no_such_tool: status 404")
    assert broken == {}
    assert report.of("not tried") == []


@pytest.mark.parametrize(
    "mode, rule, seen",
    [
        ("early", "ack.before-work", "the callback came, and no acknowledgement before it was answered"),
        ("manifest-redirect", "discovery.wellknown", "status 30"),
        ("manifest-bomb", "discovery.wellknown", "its manifest is compressed"),
    ],
)
async def test_its_bad_days_are_found(mode: str, rule: str, seen: str) -> None:
    with foreign_server() as server:
        settings = Settings(only=(rule,), acknowledged_within=500)
        report = await check(f"{server.url}/{mode}", settings)
    assert [(one.rule.id, one.outcome) for one in report.findings] == [(rule, "broken")]
    assert report.findings[0].seen.startswith(seen)
