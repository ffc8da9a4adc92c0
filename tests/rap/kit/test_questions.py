"""Tools that ask people: through the runtime, with an address that nobody can guess, for as long as it takes."""

import asyncio
import re
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from hibernaut import ToolContext
from hibernaut.errors import AlreadyAnswered
from hibernaut.rap import ToolServer
from hibernaut.rap.answers import UnknownCall
from tests.rap.kit.runtime import HeardClock, Runtime


def a_desk(clock: HeardClock | None = None, state: Path | str = ":memory:") -> ToolServer:
    async def redirect(request: Request) -> PlainTextResponse:
        granted = await server.grant(request.query_params["state"])
        return PlainTextResponse(f"Thank you, {granted.user}.")

    server = ToolServer("desk", clock=clock, state=state, routes=[Route("/oauth", redirect)])

    @server.tool(idempotent=True)
    async def approve(context: ToolContext) -> str:
        """Have it approved, twice."""
        first = await context.ask("Deploy?", ["yes", "no"], default=1, timeout=60)
        return f"{first}, {await context.ask('Sure?', ['yes', 'no'], default=1)}"

    @server.tool
    async def mail(context: ToolContext) -> str:
        """Read mail."""
        url = f"https://login.example/authorize?state={server.oauth_state(context)}"
        return f"authorized: {await context.authorize(url, timeout=60)}"

    return server


async def test_a_person_is_asked_and_the_tool_goes_on_with_the_answer(runtime: Runtime) -> None:
    async with runtime.calling(a_desk()):
        await runtime.call("approve")
        (first,) = await runtime.gets()
        assert {name: first[name] for name in ("type", "group_id", "id", "prompt", "choices", "default")} == {
            "type": "user_choice",
            "group_id": "t1",
            "id": "c1",
            "prompt": "Deploy?",
            "choices": ["yes", "no"],
            "default": 1,
        }
        assert re.fullmatch(re.escape(runtime.server) + r"/rap/response/[0-9a-z]{32}", first["response_url"])
        answers = [
            (first["response_url"], {"id": "c1", "selected": 0}, 200),
            (first["response_url"], {"id": "c1", "selected": 0}, 200),
            (first["response_url"], {"id": "c1", "selected": 1}, 409),
            (first["response_url"], {"id": "c2", "selected": 0}, 400),
            (first["response_url"], {"id": "c1", "selected": 2}, 400),
            (first["response_url"][:-1] + "_", {"id": "c1", "selected": 0}, 404),
        ]
        for url, body, status in answers:
            assert (await runtime.post(url, body)).status == status
        second = (await runtime.gets(2))[1]
        assert second["choice_id"] != first["choice_id"]
        assert (await runtime.post(second["response_url"], {"id": "c1", "selected": 1})).status == 200
        assert (await runtime.gets(3))[2]["text"] == "yes, no"
        assert (await runtime.post(second["response_url"], {"id": "c1", "selected": 1})).status == 200
        assert (await runtime.post(second["response_url"], {"id": "c1", "selected": 0})).status == 409


async def test_where_nobody_answers_in_time_the_default_counts(runtime: Runtime) -> None:
    clock = HeardClock()
    async with runtime.calling(a_desk(clock)):
        await runtime.call("approve")
        (first,) = await runtime.gets()
        clock.advance(60_000)
        assert (await runtime.gets(2))[1]["prompt"] == "Sure?"
        assert (await runtime.post(first["response_url"], {"id": "c1", "selected": 0})).status == 409
        await runtime.post(runtime.taken[1]["response_url"], {"id": "c1", "selected": 0})
        assert (await runtime.gets(3))[2]["text"] == "no, yes"


async def test_a_question_that_the_runtime_does_not_take_fails_the_tool(runtime: Runtime) -> None:
    async with runtime.calling(a_desk()):
        runtime.answers = [400]
        await runtime.call("approve")
        (answer,) = await runtime.gets()
    assert answer["text"] == (
        "Error: The question was not asked: the runtime did not take it (it was answered with status 400)."
    )


async def test_a_question_of_a_call_that_was_cancelled_takes_no_answer(runtime: Runtime) -> None:
    async with runtime.calling(a_desk()):
        await runtime.call("approve")
        (first,) = await runtime.gets()
        await runtime.cancel()
        assert (await runtime.post(first["response_url"], {"id": "c1", "selected": 0})).status == 404


async def test_an_authorization_comes_back_to_the_author_s_own_route(runtime: Runtime) -> None:
    clock, server = HeardClock(), a_desk()
    async with runtime.calling(server):
        await runtime.call("mail", user_id="Ann")
        (asked,) = await runtime.gets()
        assert (asked["type"], asked["id"]) == ("oauth", "c1")
        url = asked["auth_url"]
        state = url.partition("state=")[2]
        assert re.fullmatch("[0-9a-z]{32}", state)
        page = await runtime.exchange.get(f"{runtime.server}/oauth?state={state}")
        assert (page.status, page.body) == (200, b"Thank you, Ann.")
        assert (await runtime.gets(2))[1]["text"] == "authorized: True"
        with pytest.raises(UnknownCall):
            await server.grant("made up")
        with pytest.raises(AlreadyAnswered):
            await server.deny(state)
    server = a_desk(clock)
    async with runtime.calling(server):
        await runtime.call("mail", name="c2")
        denied = (await runtime.gets(3))[2]["auth_url"].partition("state=")[2]
        assert (await server.deny(denied)).call_id == "c2"
        assert (await runtime.gets(4))[3]["text"] == "authorized: False"
        await runtime.call("mail", name="c3")
        await runtime.gets(5)
        clock.advance(60_000)
        assert (await runtime.gets(6))[5]["text"] == "authorized: False"


async def test_answers_outlive_the_server_and_only_what_was_not_asked_is_asked(
    runtime: Runtime, tmp_path: Path
) -> None:
    state = tmp_path / "desk.db"
    async with runtime.calling(a_desk(state=state)):
        await runtime.call("approve")
        first = (await runtime.gets())[0]
        await runtime.post(first["response_url"], {"id": "c1", "selected": 0})
        second = (await runtime.gets(2))[1]
    async with runtime.calling(a_desk(state=state)), asyncio.timeout(10):
        moved = runtime.server + second["response_url"].removeprefix(second["response_url"].partition("/rap/")[0])
        assert (await runtime.post(moved, {"id": "c1", "selected": 1})).status == 200
        assert (await runtime.gets(3))[2]["text"] == "yes, no"
        assert len(runtime.taken) == 3
