"""Lists of models, counts of tokens, and the doors behind which the API stands."""

import asyncio

import pytest

from hibernaut.auth import Bearer, Headers
from hibernaut.messages.items import CallItem, ResultItem, UserItem
from hibernaut.messages.stream import Finish
from hibernaut.models.anthropic.dialect import AnthropicDialect
from hibernaut.models.anthropic.platforms import BEDROCK, VERTEX
from hibernaut.models.dialect import CountingDialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import AuthenticationFailed, InvalidRequest, Overloaded
from hibernaut.models.http_provider import HttpProvider
from hibernaut.models.protocol import ModelInfo
from hibernaut.testing.providers.anthropic import AnthropicWire, VertexWire
from hibernaut.testing.providers.server import FakeProvider
from hibernaut.testing.providers.wire import Asked, Raw
from tests.models.anthropic.setting import BOUND, BUDGET, HEADERS, KEY, MODELS, about, elsewhere, model_at, talking
from tests.models.histories import request

HELLO = request(UserItem("hello"))


def test_all_models_are_listed_page_by_page_with_what_is_known_of_them() -> None:
    async def scenario() -> None:
        async with FakeProvider(AnthropicWire(KEY)) as fake:
            endpoint = Endpoint(
                "anthropic", fake.url, auth=Headers(HEADERS), headers={"anthropic-version": "2023-06-01"}
            )
            provider = HttpProvider(endpoint, AnthropicDialect())
            found = await provider.models()
            assert [model.id for model in found] == MODELS
            (known,) = [model for model in found if model.id == BOUND]
            assert known.info == ModelInfo(1_000_000, 128_000, reasoning=True, prompt_cache=True)
            assert known.name == BOUND.title()
            await provider.close()

    asyncio.run(scenario())


def test_a_list_may_say_little_of_its_models() -> None:
    found, more = AnthropicDialect().listed(b'{"data":[{"id":"glm-7"}]}')
    assert [(model.id, model.name, model.info) for model in found] == [("glm-7", "", ModelInfo(prompt_cache=True))]
    assert more == ""


def test_tokens_are_counted_before_they_are_paid_for() -> None:
    async def scenario() -> None:
        history = (UserItem("hello"), CallItem("c1", "look"), ResultItem("c1", "hi"))
        async with talking([], about(BUDGET, effort="high")) as (model, fake):
            assert await model.count_tokens(HELLO) > 20
            assert await model.count_tokens(request(*history)) > await model.count_tokens(request(*history, tools=()))
            assert fake.asked == []
            wrong = model_at(fake.url, about("claude-nine"))
            with pytest.raises(InvalidRequest):
                await wrong.count_tokens(HELLO)
            await wrong._endpoint.close()

    asyncio.run(scenario())


class _Elsewhere(AnthropicWire):
    def check(self, asked: Asked) -> Raw | None:
        return Raw(200, body=b'{"tokens":1}')


def test_an_answer_that_is_no_count_is_said_to_be_none() -> None:
    async def scenario() -> None:
        async with talking([], wire=_Elsewhere(KEY)) as (model, _):
            with pytest.raises(Overloaded, match="no count of tokens"):
                await model.count_tokens(HELLO)

    asyncio.run(scenario())


def test_the_dialect_is_one_that_counts() -> None:
    assert isinstance(AnthropicDialect(), CountingDialect)


# Doors


def test_behind_google_cloud_the_model_stands_in_the_path_and_the_version_in_the_body() -> None:
    sent = AnthropicDialect(VERTEX).request(
        about("claude-opus-4-5@20251101"), HELLO, AnthropicDialect().writer(about())
    )
    assert sent.path == "/claude-opus-4-5@20251101:streamRawPredict"
    assert sent.body.startswith(b'{"anthropic_version":"vertex-2023-10-16","max_tokens":')
    assert b'"model"' not in sent.body
    assert sent.headers == {}
    assert AnthropicDialect(VERTEX).request(about("a/../b?c"), HELLO, AnthropicDialect().writer(about())).path == (
        "/a%2F..%2Fb%3Fc:streamRawPredict"
    )


@pytest.mark.parametrize("kind", ["vertex", "bedrock"])
@pytest.mark.parametrize("model", [BUDGET, BOUND])
def test_models_answer_and_count_behind_every_door(kind: str, model: str) -> None:
    async def scenario() -> None:
        name = f"anthropic.{model}" if kind == "bedrock" else model
        async with elsewhere(kind, ["hi"], name, effort="low") as made:
            assert [piece async for piece in made.stream(HELLO)][-1] == Finish()
            assert await made.count_tokens(HELLO) > 20  # type: ignore[attr-defined]  # an HttpModel

    asyncio.run(scenario())


def test_there_is_no_list_where_the_door_has_none() -> None:
    async def scenario() -> None:
        for platform in (VERTEX, BEDROCK):
            provider = HttpProvider(Endpoint("x", "http://127.0.0.1:9"), AnthropicDialect(platform))
            with pytest.raises(InvalidRequest, match="no list"):
                await provider.models()

    asyncio.run(scenario())


def test_a_wrong_token_is_told_behind_another_door() -> None:
    async def scenario() -> None:
        async with FakeProvider(VertexWire("right")) as fake:
            provider = HttpProvider(Endpoint("vertex", fake.url, auth=Bearer("wrong")), AnthropicDialect(VERTEX))
            with pytest.raises(AuthenticationFailed, match="vertex answers 401"):
                await anext(provider.model(about()).stream(HELLO))
            await provider.close()

    asyncio.run(scenario())
