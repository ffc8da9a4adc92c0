"""Claude keeps the contract of a model, of every generation and behind every door."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.messages.items import Item
from hibernaut.models.protocol import Model
from hibernaut.testing.model_conformance import CONTRACT, PLAYED, Check, Subject, name_of
from hibernaut.testing.providers.anthropic import AnthropicWire
from hibernaut.testing.providers.server import FakeScript
from tests.models.anthropic.setting import (
    BOUND,
    BUDGET,
    HEADERS,
    KEY,
    MODELS,
    about,
    elsewhere,
    model_at,
    own_reasoning,
    talking,
)
from tests.models.histories import request, transcripts, verdict

WIRE = AnthropicWire(KEY)
OWN = own_reasoning(WIRE)
EFFORTS = st.sampled_from(["", "none", "low", "high"])


@pytest.mark.parametrize("check", [*CONTRACT, *PLAYED], ids=name_of)
@pytest.mark.parametrize("model,effort", [(BUDGET, "high"), (BOUND, "")])
def test_a_model_of_anthropics_keeps_the_contract(check: Check, model: str, effort: str) -> None:
    @asynccontextmanager
    async def opened(script: FakeScript) -> AsyncIterator[Model]:
        async with talking(script, about(model, effort=effort)) as (made, _):
            yield made

    asyncio.run(check(Subject(opened, tuple(OWN), transcripts=15)))


@pytest.mark.parametrize("check", [*CONTRACT, *PLAYED], ids=name_of)
@pytest.mark.parametrize("kind,model", [("vertex", BUDGET), ("bedrock", f"anthropic.{BUDGET}")])
def test_it_keeps_it_behind_other_doors(check: Check, kind: str, model: str) -> None:
    asyncio.run(check(Subject(lambda script: elsewhere(kind, script, model), tuple(OWN), transcripts=5)))


@given(transcripts(OWN), st.sampled_from(MODELS), EFFORTS)
def test_a20_every_valid_transcript_is_taken_by_every_model(transcript: list[Item], name: str, effort: str) -> None:
    model = model_at(of=about(name, effort=effort))
    assert verdict(WIRE, model, request(*transcript), HEADERS) is None
