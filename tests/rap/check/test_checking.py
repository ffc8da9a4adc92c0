"""A server that is as it must be keeps every rule; one with a fault breaks the rule that is about it, and no other."""

import asyncio

import msgspec
import pytest

from hibernaut.rap.check.checking import check
from hibernaut.rap.check.findings import Finding, Report
from hibernaut.rap.check.rules import RULES
from hibernaut.rap.check.session import Settings
from tests.rap.check.tool_server import ToolServer

SETTINGS = Settings(
    slow=(("slow", {}),),
    subscribe=(("watch", {"count": 10, "every": 0.1}),),
    choose=(("confirm", {}),),
    acknowledged_within=3_000,
    called_back_within=4_000,
    quiet=1_000,
)

MUSTS = {
    "hidden": "discovery.wellknown",
    "nameless": "discovery.manifest",
    "bad schema": "discovery.schemas",
    "plain text": "content-type",
    "works first": "ack.before-work",
    "no nulls": "ack.nulls",
    "needs a key": "ack.nulls",
    "closed": "unknown-fields.ignored",
    "latin-1": "encoding.utf-8",
    "other ids": "echo.ids",
    "silent": "errors.told",
    "crashes": "errors.told",
    "silent on arguments": "errors.arguments",
    "never answers": "call.answers",
    "shapeless": "callbacks.shape",
    "gives up": "callbacks.retry",
    "insists": "callbacks.stop",
    "strict cancel": "cancel.always-200",
    "strict close": "close.always-200",
    "always alive": "status.unknown",
    "never alive": "status.alive",
    "unconfirmed": "subscription.confirms",
    "foreign events": "subscription.events",
    "after the end": "subscription.final-is-last",
    "deaf": "subscription.cancel-stops",
    "no choices": "choice.shape",
    "no answers": "choice.accepts-answer",
}
"""What is wrong with a server, and the one rule of level MUST that it breaks."""

ALSO = {"plain text": ["callbacks.shape"]}
"""A runtime refuses these for the same reason, so that their callbacks count for nothing."""

OTHERS = {
    "refuses": "errors.by-callback",
    "unmarked": "errors.marked",
    "hurries": "callbacks.retry-after",
    "forgetful": "idempotency.same-key",
    "stubborn": "cancel.stops",
    "no event ids": "subscription.event-ids",
    "other events": "subscription.event-schema",
}


LONG = ("subscription", "choice", "status", "cancel")
"""Areas of rules that are about calls that stay open."""

WAITING = ("callbacks.retry", "callbacks.retry-after", "callbacks.stop", "idempotency.same-key")
"""Rules that take their time."""


def settings_for(rule: str) -> Settings:
    """What a fault is tried with: its neighbours, since all of it would take the table three times as long."""
    if rule.startswith(LONG):
        only = [one.id for one in RULES if one.id.startswith(LONG)]
        return msgspec.structs.replace(SETTINGS, only=tuple(only))
    only = [one.id for one in RULES if one.id not in WAITING or rule in WAITING]
    return msgspec.structs.replace(SETTINGS, slow=(), subscribe=(), choose=(), only=tuple(only))


async def checked(fault: str, rule: str) -> Report:
    async with ToolServer(fault).running() as server:
        return await check(server.url, settings_for(rule))


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Several at once: half the time of a check is waiting."""
    room = asyncio.Semaphore(20)
    faults = MUSTS | OTHERS

    async def one(fault: str) -> Report:
        async with room:
            return await checked(fault, faults[fault])

    async def all_of_them() -> list[Report]:
        return await asyncio.gather(*map(one, faults))

    return dict(zip(faults, asyncio.run(all_of_them()), strict=True))


def broken(report: Report, level: str = "") -> list[str]:
    return [one.rule.id for one in report.of("broken") if level in ("", one.rule.level)]


@pytest.mark.parametrize("fault, rule", MUSTS.items())
def test_a_fault_breaks_the_rule_that_is_about_it_and_no_other(
    fault: str, rule: str, reports: dict[str, Report]
) -> None:
    report = reports[fault]
    assert broken(report, "MUST") == [rule, *ALSO.get(fault, ())], report.of("broken")
    assert not report.passed


@pytest.mark.parametrize("fault, rule", OTHERS.items())
def test_what_is_only_better_is_reported_and_passes(fault: str, rule: str, reports: dict[str, Report]) -> None:
    report = reports[fault]
    assert broken(report) == [rule], report.of("broken")
    assert report.passed


def test_there_is_a_fault_for_every_rule() -> None:
    assert {*MUSTS.values(), *OTHERS.values()} == {rule.id for rule in RULES}
    assert {*MUSTS.values()} == {rule.id for rule in RULES if rule.level == "MUST"}


async def test_a_server_that_is_as_it_must_be_keeps_every_rule() -> None:
    told: list[Finding] = []
    async with ToolServer().running() as server:
        report = await check(server.url, SETTINGS, told.append)
    assert [(one.rule.id, one.seen) for one in report.findings if one.outcome != "kept"] == []
    assert [one.rule for one in report.findings] == list(RULES)
    assert report.passed
    assert {one.rule.id for one in told} == {rule.id for rule in RULES}
    assert (report.name, report.server) == ("numbers", server.url)
    assert "deploy" not in server.runs
