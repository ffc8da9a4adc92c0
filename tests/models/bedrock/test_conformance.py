"""The Converse dialect keeps the contract of all models, before a fake that is strict."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import botocore.loaders
import botocore.model
import botocore.validate
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.messages.items import Item, ReasoningItem
from hibernaut.models.protocol import Model
from hibernaut.testing.model_conformance import CONTRACT, PLAYED, Check, Subject, name_of
from hibernaut.testing.providers.bedrock import ConverseWire
from hibernaut.testing.providers.server import FakeScript
from tests.models.bedrock.converse import ALL, BEARER, CLAUDE, REDACTED, THOUGHT, bedrock, offline
from tests.models.histories import posted, request, transcripts, verdict

OWN = (
    ReasoningItem("bedrock", THOUGHT, "hm"),
    ReasoningItem("bedrock", REDACTED),
    ReasoningItem("bedrock", b'{"reasoningText":{"text":"not signed"}}', "not signed"),
    ReasoningItem("bedrock", b"\xff", "damaged"),
)


@pytest.mark.parametrize("check", [*CONTRACT, *PLAYED], ids=name_of)
@pytest.mark.parametrize("model_id", ALL)
def test_a_model_of_bedrock_keeps_the_contract(model_id: str, check: Check) -> None:
    @asynccontextmanager
    async def opened(script: FakeScript) -> AsyncIterator[Model]:
        async with bedrock(script, model_id) as model:
            yield model

    asyncio.run(check(Subject(opened, OWN, transcripts=15)))


@given(st.sampled_from(ALL), st.sampled_from(["", "none", "low", "high"]), transcripts(OWN))
def test_a20_every_valid_transcript_is_taken(model_id: str, effort: str, transcript: list[Item]) -> None:
    answer = verdict(ConverseWire(), offline(model_id, effort=effort), request(*transcript), BEARER)
    assert answer is None, answer.body


@functools.cache
def published() -> botocore.model.ServiceModel:
    return botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2"))


@given(transcripts(OWN))
def test_every_body_is_of_the_shape_that_amazon_publishes(transcript: list[Item]) -> None:
    body = msgspec.json.decode(posted(offline(), request(*transcript), BEARER).raw)
    shape = published().operation_model("ConverseStream").input_shape
    report = botocore.validate.ParamValidator().validate({"modelId": CLAUDE, **body}, shape)
    assert not report.has_errors(), report.generate_report()
