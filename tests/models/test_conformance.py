"""Every model keeps the same contract, the scripted one included."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from hibernaut.models.protocol import Model
from hibernaut.models.scripted import Playable, ScriptedModel
from hibernaut.testing.model_conformance import CONTRACT, PLAYED, Check, Subject, name_of
from hibernaut.testing.providers.server import FakeScript


@asynccontextmanager
async def scripted(script: FakeScript) -> AsyncIterator[Model]:
    assert not callable(script)
    turns: Sequence[Playable] = [played for played in script if isinstance(played, Playable)]
    yield ScriptedModel(turns)


@pytest.mark.parametrize("check", [*CONTRACT, *PLAYED], ids=name_of)
def test_the_scripted_model_keeps_the_contract(check: Check) -> None:
    asyncio.run(check(Subject(scripted)))
