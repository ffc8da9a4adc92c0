"""What a check is told to do, and what it leaves alone."""

import socket

import pytest

from hibernaut.errors import ConfigurationError, MalformedInput
from hibernaut.rap.check.checking import check
from hibernaut.rap.check.session import Settings
from hibernaut.rap.exchange import NoAnswer
from tests.rap.check.tool_server import ToolServer

QUICK = Settings(acknowledged_within=1_500, called_back_within=1_500, quiet=50)


async def test_a_server_that_is_not_there_is_no_finding() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(NoAnswer):
            await check(f"http://127.0.0.1:{held.getsockname()[1]}", QUICK)


@pytest.mark.parametrize("base", ["ftp://tools.example", "http://anna@tools.example", "tools.example"])
async def test_what_is_no_address_is_refused(base: str) -> None:
    with pytest.raises(MalformedInput, match="the server's address"):
        await check(base, QUICK)


async def test_a_rule_and_a_tool_that_are_not_there_are_named() -> None:
    async with ToolServer().running() as server:
        with pytest.raises(ConfigurationError, match=r"no rule 'echo'; there are: discovery\.wellknown, "):
            await check(server.url, Settings(only=("echo",)))
        with pytest.raises(ConfigurationError, match="no tool 'walk'; it has: add, deploy, slow"):
            await check(server.url, Settings(subscribe=(("walk", {}),)))


async def test_only_the_rules_that_are_asked_for_are_reported_and_only_what_is_named_is_called() -> None:
    async with ToolServer().running() as server:
        settings = Settings(tools=(("deploy", {}),), only=("call.answers", "discovery.manifest"))
        report = await check(server.url, settings)
        runs = server.runs
    assert [(one.rule.id, one.outcome) for one in report.findings] == [
        ("discovery.manifest", "kept"),
        ("call.answers", "kept"),
    ]
    assert sorted(runs) == ["add", "deploy"]


async def test_what_is_not_named_is_not_tried_and_the_report_says_what_to_name() -> None:
    async with ToolServer().running() as server:
        report = await check(server.url, Settings(only=("subscription.events", "choice.shape", "cancel.stops")))
    assert [(one.rule.id, one.outcome, one.seen.split()[-1]) for one in report.findings] == [
        ("cancel.stops", "not tried", "--slow"),
        ("subscription.events", "not tried", "--subscribe"),
        ("choice.shape", "not tried", "--choose"),
    ]


async def test_where_no_unknown_operation_is_answered_a_tool_that_may_be_called_stands_in() -> None:
    async with ToolServer("refuses").running() as server:
        report = await check(server.url, Settings(only=("echo.ids", "callbacks.stop"), quiet=50))
    assert [one.outcome for one in report.findings] == ["kept", "kept"]
    assert set(server.runs) == {"add"}


async def test_when_the_time_is_up_the_rest_was_not_tried() -> None:
    async with ToolServer("silent").running() as server:
        report = await check(server.url, Settings(deadline=400, called_back_within=60_000))
    assert report.passed
    assert {one.seen for one in report.of("not tried")} == {"the time of the whole check was up"}
    assert [one.rule.id for one in report.of("kept")][:1] == ["discovery.wellknown"]


async def test_credentials_go_to_the_origin_that_they_are_for_and_nowhere_else() -> None:
    async with ToolServer().running() as other, ToolServer("elsewhere").running() as server:
        server.endpoint = f"{other.url}/call"
        headers = {"Authorization": "Bearer secret"}
        only = ("discovery.manifest", "errors.told", "cancel.always-200")
        report = await check(server.url, Settings(headers=headers, only=only, quiet=50))
        plain = await check(server.url, Settings(only=only, quiet=50))
    assert server.authorized_by[:1] == ["Bearer secret"]
    assert set(other.authorized_by) == {""}
    assert [one.outcome for one in report.findings] == ["broken", "not tried", "kept"]
    assert "at another origin than its url; credentials are not sent there" in report.findings[0].seen
    assert plain.passed


async def test_an_endpoint_that_the_runtime_refuses_is_refused_and_nothing_is_sent_there() -> None:
    async with ToolServer("elsewhere").running() as server:
        server.endpoint = "http://169.254.169.254/latest"
        report = await check(server.url, Settings(only=("discovery.manifest", "errors.told"), quiet=50))
    assert [one.outcome for one in report.findings] == ["broken", "not tried"]
    assert report.findings[0].seen.endswith(
        "is further inside this machine or network than the server may lead; `RemoteServer(trust_endpoint=True)` "
        "allows it, or `trust_endpoint = true` in a .toml file"
    )


async def test_a_server_that_works_before_it_acknowledges_is_told_from_a_slow_one() -> None:
    async with ToolServer("works first").running() as server:
        settings = Settings(only=("ack.before-work",), acknowledged_within=300)
        report = await check(server.url, settings)
    assert [one.seen for one in report.findings] == ["the callback came, and no acknowledgement before it was answered"]


async def test_a_server_is_left_without_open_calls() -> None:
    async with ToolServer("deaf").running() as server:
        settings = Settings(
            slow=(("slow", {}),),
            subscribe=(("watch", {}),),
            called_back_within=300,
            quiet=50,
            only=("cancel.stops", "subscription.events", "subscription.cancel-stops"),
        )
        await check(server.url, settings)
        assert server.open == 0
