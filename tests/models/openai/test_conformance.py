"""Both of OpenAI's APIs, and every server that speaks the Chat API, keep the contract of models."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import pytest

from hibernaut.messages.items import ReasoningItem
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.http_provider import HttpProvider
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.responses import ResponsesDialect
from hibernaut.models.openai.servers import SERVERS, server_of
from hibernaut.models.protocol import About, Model
from hibernaut.testing.model_conformance import CONTRACT, PLAYED, Check, Subject, name_of
from hibernaut.testing.providers.openai_chat import MANNERS, ChatWire
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeProvider, FakeScript
from hibernaut.testing.providers.wire import FakeWire

Opener = Callable[[FakeScript], AbstractAsyncContextManager[Model]]


def opener(wire: FakeWire, dialect: Dialect, model_id: str = "gpt-5") -> Opener:
    @asynccontextmanager
    async def opened(script: FakeScript) -> AsyncIterator[Model]:
        async with FakeProvider(wire, script) as fake:
            provider = HttpProvider(Endpoint("fake", fake.url), dialect)
            yield provider.model(About(model_id))
            await provider.close()

    return opened


def sealed(wire: ResponsesWire) -> ReasoningItem:
    block = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": wire.seal(b"hm")}
    return ReasoningItem("openai", msgspec.json.encode(block))


@pytest.mark.parametrize("check", [*CONTRACT, *PLAYED], ids=name_of)
def test_the_responses_api_keeps_the_contract(check: Check) -> None:
    wire = ResponsesWire()
    asyncio.run(check(Subject(opener(wire, ResponsesDialect()), (sealed(wire),))))


@pytest.mark.parametrize("check", CONTRACT, ids=name_of)
def test_a_model_that_does_not_reason_keeps_it_too(check: Check) -> None:
    wire = ResponsesWire()
    asyncio.run(check(Subject(opener(wire, ResponsesDialect(), "gpt-4.1"), (sealed(wire),))))


@pytest.mark.parametrize("server", MANNERS)
@pytest.mark.parametrize("check", [*CONTRACT, *PLAYED], ids=name_of)
def test_every_server_of_the_chat_api_keeps_the_contract(check: Check, server: str) -> None:
    own: tuple[ReasoningItem, ...] = ()
    thinking = SERVERS[server].thinking
    if thinking:
        value: object = [{"type": "reasoning.text", "text": "hm"}] if thinking.endswith("details") else "hm"
        own = (ReasoningItem(f"openai-chat/{server}", msgspec.json.encode({thinking: value}), "hm"),)
    dialect = ChatDialect(server_of(server))
    asyncio.run(check(Subject(opener(ChatWire(server), dialect, "a-mistral"), own)))
