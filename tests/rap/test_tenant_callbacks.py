"""A callback reaches the call that its token is for and nothing else: no other tenant's, and no later thread's."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hibernaut.rap.exchange import Exchange
from hibernaut.rap.invocations import callback_url
from hibernaut.reach import Callbacks
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Store
from hibernaut.stores.sqlite import SqliteStore
from tests.engine.scenario import system
from tests.rap.receiving import START, event, receiving, result, thread, token, view
from tests.store_conformance.scenario import everything
from tests.tenancy import belongings, both


def choice(call: str = "call_a", name: str = "t") -> dict[str, Any]:
    words = {"prompt": "Which?", "choices": ["a", "b"], "response_url": "https://tools.example/r"}
    return {"type": "user_choice", "group_id": name, "id": call, **words}


def oauth(call: str = "call_a", name: str = "t") -> dict[str, Any]:
    return {"type": "oauth", "group_id": name, "id": call, "auth_url": "https://login.example/o"}


def every_kind(call: str, name: str) -> list[dict[str, Any]]:
    """Return a callback of each kind about a call."""
    return [
        result(call, name),
        event(call, name, event_id="e1"),
        event(call, name),
        oauth(call, name),
        choice(call, name),
        view(name),
    ]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "agents.db")
    yield made
    await made.close()


async def test_a_token_of_one_tenants_call_opens_no_other_tenants_even_of_the_same_call_id(store: Store) -> None:
    await store.create([replace(thread("t"), tenant="acme"), replace(thread("o"), tenant="other")], [], START)
    async with receiving(store) as there:
        before = await everything(store)
        for call in ("call_a", "call_s", "call_h"):
            for given in (token(call, "o"), token(call, "o2"), token("call_never", "t"), token("call_never", "o")):
                for body in every_kind(call, "t"):
                    status, why = await there.status(body, given)
                    assert (status, why) in ((401, "token_refused"), (404, "unknown_call")), (body, why)
        assert await everything(store) == before
        assert await store.read_views("t") == []
        assert not there.receiver.counts.get("taken")
        assert await there.status(result(), token()) == (200, "")


@asynccontextmanager
async def posting(store: Store) -> AsyncIterator[Any]:
    """Receive callbacks for a store, as `hibernaut serve --inbox-only` does; gives what posts one under a token."""
    async with (
        system([], store=store, run=False, callbacks=Callbacks()) as house,
        Exchange() as exchange,
    ):

        async def post(body: dict[str, Any], given: str) -> tuple[int, str]:
            reply = await exchange.post(callback_url(house.callbacks, given), json.dumps(body).encode(), None)
            return reply.status, json.loads(reply.body).get("error", "")

        yield post


@pytest.mark.parametrize("heir", ["acme", "other"])
async def test_a_token_of_a_thread_that_was_deleted_opens_none_that_has_its_id_later(store: Store, heir: str) -> None:
    async with both(store) as world, posting(store) as post:
        await (await world.acme.thread("t")).delete()
        client = world.acme if heir == "acme" else world.other
        await client.launch(thread_id="t", message="Mine.")
        before = await belongings(store, heir)
        for body in every_kind(world.calls["ask_outside"], "t"):
            status, why = await post(body, world.token)
            assert (status, why) in ((401, "token_refused"), (404, "unknown_call"))
        assert await belongings(store, heir) == before


async def test_a_token_opens_its_call_where_its_tree_comes_back(store: Store) -> None:
    async with both(store) as world, posting(store) as post:
        agent = await world.acme.thread("t")
        await agent.freeze()
        file = io.BytesIO()
        await world.acme.export("t", file)
        await agent.delete()
        assert await post(result(world.calls["ask_outside"], "t"), world.token) == (404, "unknown_thread")
        file.seek(0)
        await world.acme.import_(file)
        assert await post(result(world.calls["ask_outside"], "t"), world.token) == (200, "")


async def test_a_token_of_another_store_opens_nothing_unless_its_secret_came_along_and_then_only_its_call(
    store: Store,
) -> None:
    async with both(MemoryStore()) as elsewhere:
        given, call, secret = elsewhere.token, elsewhere.calls["ask_outside"], await elsewhere.store.secret()
    async with both(store) as world:
        before = await belongings(store, "acme")
        async with posting(store) as post:
            assert await post(result(call, "t"), given) == (401, "token_refused")
        await store.keep_secret(secret)
        async with posting(store) as post:
            for body in every_kind(call, "t"):
                status, why = await post(body, given)
                assert (status, why) in ((401, "token_refused"), (404, "unknown_call"))
            assert await post(result(world.calls["ask_outside"], "t"), given) == (401, "token_refused")
        assert await belongings(store, "acme") == before
