"""Streams without an end, in either framing."""

import asyncio

import pytest

from hibernaut.messages.items import UserItem
from hibernaut.models import frames
from hibernaut.models.errors import InvalidRequest, OutputTruncated
from hibernaut.models.protocol import Model
from hibernaut.models.scripted import say
from hibernaut.testing.providers.wire import Raw
from tests.models.bedrock.converse import bedrock
from tests.models.google.gemini import gemini
from tests.models.histories import request


async def _said(model: Model) -> str:
    return str([piece async for piece in model.stream(request(UserItem("Hello.")))])


@pytest.mark.parametrize("opened", [gemini, bedrock])
def test_a_stream_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch, opened: type) -> None:
    monkeypatch.setattr(frames, "LARGEST_ANSWER", 20_000)

    async def scenario() -> None:
        async with opened([say("word " * 10_000, chunks=100)]) as model:
            with pytest.raises(OutputTruncated, match="no end: more than 20,000"):
                await _said(model)

    asyncio.run(scenario())


@pytest.mark.parametrize("opened", [gemini, bedrock])
def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch, opened: type) -> None:
    monkeypatch.setattr(frames, "LARGEST_EVENT", 20_000)

    async def scenario() -> None:
        async with opened([say("word " * 10_000)]) as model:
            with pytest.raises(OutputTruncated, match="an event of the answer has no end: more than 20,000 bytes"):
                await _said(model)

    asyncio.run(scenario())


def test_what_is_sent_instead_is_sent_once() -> None:
    answer = Raw(
        400, body=b'{"error":{"code":400,"message":"Corrupted thought signature.","status":"INVALID_ARGUMENT"}}'
    )

    async def scenario() -> None:
        async with gemini([answer, answer, "Hi."]) as model:
            with pytest.raises(InvalidRequest, match="Corrupted"):
                await _said(model)
            assert "Hi." in await _said(model)

    asyncio.run(scenario())
