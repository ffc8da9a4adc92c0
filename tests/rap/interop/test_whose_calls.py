"""A tool server is shown whose call it is: the credentials of the tenant and the user that the thread works for."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from hibernaut import AgentSystem, ScriptedModel
from hibernaut.errors import ConfigurationError
from hibernaut.rap.servers import HeadersFor, RemoteServer
from hibernaut.reach import Callbacks
from hibernaut.stores.memory import MemoryStore
from tests.engine.scenario import story
from tests.rap.foreign_server import ForeignServer, foreign_server
from tests.rap.interop.parties import obedient

CALLS = 'echo {"text": "hi"}'


def agents(server: ForeignServer, lookup: HeadersFor, **more: Any) -> AgentSystem:
    there = RemoteServer(url=server.url, name="far", headers_for=lookup)
    return AgentSystem(model=ScriptedModel(obedient), servers=[there], callbacks=Callbacks(), **more)


def shown(server: ForeignServer) -> list[str]:
    asked = [
        {name.lower(): value for name, value in one.headers.items()} for one in server.received if one.path == "/invoke"
    ]
    return [headers.get("x-asks", "") for headers in asked]


def test_a30_every_call_has_the_credentials_of_the_tenant_and_user_that_its_thread_works_for() -> None:
    async def lookup(tenant: str, user: str) -> Mapping[str, str]:
        await asyncio.sleep(0)
        return {"X-Asks": f"{tenant}/{user}"}

    async def scenario() -> None:
        store = MemoryStore()
        with foreign_server() as server:
            for tenant, user in (("acme", "ann"), ("acme", "bob"), ("other", "ann")):
                async with agents(server, lookup, store=store, tenant=tenant) as system:
                    agent = await system.launch(thread_id=f"{tenant}-{user}", user=user, message=CALLS)
                    await agent.wait_idle()
                    await agent.send(CALLS, user="somebody else")
                    await agent.wait_idle()
            assert shown(server) == ["acme/ann"] * 2 + ["acme/bob"] * 2 + ["other/ann"] * 2
            rows = [await store.read_log(name) for name in ("acme-ann", "acme-bob", "other-ann")]
            assert b"acme/ann" not in b"".join(row.page + row.receipt for log in rows for row in log)
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "found, words",
    [
        (KeyError("the token is 12345"), "the credentials of user 'ann' cannot be had: KeyError"),
        ({"Content-Length": "7"}, "the header Content-Length is set by the runtime"),
        ({"X-Asks": "two\nlines"}, "other characters than printable ASCII"),
    ],
)
def test_a_call_whose_credentials_cannot_be_had_is_not_posted_and_the_model_is_told_no_secret(
    found: object, words: str
) -> None:
    def lookup(tenant: str, user: str) -> Mapping[str, str]:
        del tenant, user
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, dict)
        return found

    async def scenario() -> None:
        with foreign_server() as server:
            async with agents(server, lookup) as system:
                agent = await system.launch(user="ann", message=CALLS)
                await agent.wait_idle()
                told = (await story(agent))[2]
                assert words in told
                assert "12345" not in told
            assert shown(server) == []

    asyncio.run(scenario())


def test_credentials_of_people_go_over_https_only_unless_the_server_is_on_this_machine() -> None:
    with pytest.raises(ConfigurationError, match="must be https"):
        RemoteServer(url="http://tools.example", headers_for=lambda tenant, user: {"X": tenant + user})
