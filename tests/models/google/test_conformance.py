"""The Gemini dialect keeps the contract of all models, before a fake that is strict."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.messages.items import ReasoningItem
from hibernaut.models.google.rules import VERTEX, Platform
from hibernaut.models.google.writing import call_data
from hibernaut.models.protocol import Model
from hibernaut.testing.model_conformance import CONTRACT, PLAYED, Check, Subject, name_of
from hibernaut.testing.providers.google import GeminiWire, signed
from hibernaut.testing.providers.server import FakeScript
from tests.models.google.gemini import ALL, BEARER, HEADERS, gemini, offline
from tests.models.histories import request, transcripts, verdict


def of_its_own(platform: Platform) -> tuple[tuple[ReasoningItem, ...], tuple[bytes, ...]]:
    """Return what a platform has signed: beside texts, and with calls."""
    signature = signed(b"of a test", vertex=platform is VERTEX)
    return (ReasoningItem(platform.name, signature.encode()),), (call_data(platform.name, signature),)


def subject(platform: Platform, model_id: str) -> Subject:
    @asynccontextmanager
    async def opened(script: FakeScript) -> AsyncIterator[Model]:
        async with gemini(script, platform, model_id) as model:
            yield model

    own, with_calls = of_its_own(platform)
    own = (*own, ReasoningItem(platform.name, b"", "hm"))
    return Subject(opened, own, (*with_calls, call_data(platform.name, "")), transcripts=20)


@pytest.mark.parametrize("check", [*CONTRACT, *PLAYED], ids=name_of)
@pytest.mark.parametrize("platform,model_id", ALL, ids=lambda value: getattr(value, "name", value))
def test_a_gemini_model_keeps_the_contract(platform: Platform, model_id: str, check: Check) -> None:
    asyncio.run(check(subject(platform, model_id)))


@given(st.sampled_from(ALL), st.data())
def test_a20_every_valid_transcript_is_taken(where: tuple[Platform, str], data: st.DataObject) -> None:
    platform, model_id = where
    wire, headers = GeminiWire(vertex=platform is VERTEX), BEARER if platform is VERTEX else HEADERS
    transcript = data.draw(transcripts(*of_its_own(platform)))
    answer = verdict(wire, offline(platform, model_id), request(*transcript), headers)
    assert answer is None, answer.body
