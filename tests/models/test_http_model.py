"""What all models behind HTTP have in common: connections, limits, silence, and servers that are no API at all."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.messages.items import UserItem
from hibernaut.messages.stream import Finish, StreamPiece
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import ConnectionLost, InvalidRequest, Throttled
from hibernaut.models.http_model import HttpModel
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.servers import server_of
from hibernaut.models.protocol import About, ModelRequest
from hibernaut.models.scripted import say, stall
from hibernaut.models.throttle import Throttle
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.providers.openai_chat import ChatWire
from hibernaut.testing.providers.server import FakeProvider
from hibernaut.testing.providers.wire import Raw

REQUEST = ModelRequest("p:m", "", [UserItem("Hello")], (), "t")


def model_at(endpoint: Endpoint) -> HttpModel:
    return HttpModel(endpoint, ChatDialect(server_of("vllm")), About("m"))


async def pieces_of(model: HttpModel) -> list[StreamPiece]:
    return [piece async for piece in model.stream(REQUEST)]


def with_fake(*script: object, scenario: Callable[[FakeProvider], Awaitable[None]]) -> None:
    async def run() -> None:
        async with FakeProvider(ChatWire("vllm"), script) as fake:  # type: ignore[arg-type]  # turns, errors, answers
            await scenario(fake)

    asyncio.run(run())


def test_one_connection_serves_completion_after_completion() -> None:
    async def scenario(fake: FakeProvider) -> None:
        endpoint = Endpoint("lab", fake.url)
        for _ in range(5):
            assert isinstance((await pieces_of(model_at(endpoint)))[-1], Finish)
        assert fake.connections == 1
        await endpoint.close()

    with_fake(*["Hello."] * 5, scenario=scenario)


def test_a_server_that_says_nothing_more_is_given_up() -> None:
    async def scenario(fake: FakeProvider) -> None:
        endpoint = Endpoint("lab", fake.url, silent_for=50)
        with pytest.raises(ConnectionLost, match=r"lab has sent nothing for 0\.05 s"):
            await pieces_of(model_at(endpoint))
        await fake.left.wait()
        await endpoint.close()

    with_fake(stall(say("Let me")), scenario=scenario)


@pytest.mark.parametrize(
    "answer,words",
    [
        (
            Raw(200, {"content-type": "text/html"}, b"<h1>It works!</h1>"),
            "answers with text/html where a stream belongs",
        ),
        (
            Raw(
                200,
                {"content-type": "text/html"},
                b"<!DOCTYPE html>\n<head><title>\nWelcome \n</title><style>p{}</style>",
            ),
            r"is this the base URL of its API\? It says: Welcome$",
        ),
        (Raw(200, {"content-type": "text/html"}, b"<html>" + b"x" * 100_000), "It says: <html>xxx"),
        (Raw(204, {}), r"answers 204 with something unnamed where a stream belongs; .* It says nothing$"),
        (Raw(302, {"location": "https://elsewhere.example"}), "redirects are not followed"),
        (
            Raw(404, {"content-type": "text/plain"}, b"404 page not found"),
            r"lab at http://127.* answers 404 with text/plain where a stream belongs; is this the base URL",
        ),
        (
            Raw(404, {"content-type": "application/json"}, b'{"error":"no such model"}'),
            r"answers 404: no such model$",
        ),
        (Raw(413, {"content-type": "text/html"}, b"<html><head><title>413 Too Large</title>"), "413: 413 Too Large$"),
    ],
)
def test_a_server_that_is_no_api_is_told_from_one_that_fails(answer: Raw, words: str) -> None:
    async def scenario(fake: FakeProvider) -> None:
        endpoint = Endpoint("lab", fake.url)
        with pytest.raises(InvalidRequest, match=words):
            await pieces_of(model_at(endpoint))
        await endpoint.close()

    with_fake(answer, scenario=scenario)


@pytest.mark.parametrize(
    "url,kind",
    [
        ("http://127.0.0.1:9", ConnectionLost),
        ("http://there.is.no.such.host.invalid", ConnectionLost),
        ("http://\u00fc..example", ConfigurationError),
    ],
)
def test_an_address_at_which_nobody_is_fails_in_words(url: str, kind: type[Exception]) -> None:
    async def run() -> None:
        endpoint = Endpoint("lab", url)
        with pytest.raises(kind, match="lab"):
            await pieces_of(model_at(endpoint))
        await endpoint.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "url,words",
    [
        ("ftp://127.0.0.1", "the url of lab, 'ftp://127.0.0.1', is not an http or https address"),
        ("http://", "is not an http or https address"),
        ("127.0.0.1:8000/v1", "is not an http or https address"),
        ("http://a b/v1", "is not an http or https address"),
        ("http://a\n.example", "is not an http or https address"),
        ("http://127.0.0.1:99999/v1", "the url of lab cannot be read: Port out of range 0-65535"),
        ("http://127.0.0.1:0/v1", "is not an http or https address"),
        ("http://[::1/v1", "the url of lab cannot be read: "),
        ("https://me:secret@lab.example/v1", "the url of lab has a user name in it, which is not sent"),
        ("https://lab.example/v1?key=secret", "the url of lab is a base: it has no query and no fragment"),
    ],
)
def test_what_is_no_base_url_is_refused_at_once_and_nothing_secret_is_repeated(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Endpoint("lab", url)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_https_spoken_to_a_plain_server_is_a_connection_that_fails() -> None:
    async def scenario(fake: FakeProvider) -> None:
        endpoint = Endpoint("lab", fake.url.replace("http:", "https:"))
        with pytest.raises(ConnectionLost):
            await pieces_of(model_at(endpoint))
        await endpoint.close()

    with_fake("Hello.", scenario=scenario)


def test_what_our_own_limits_do_not_allow_is_not_even_asked() -> None:
    async def scenario(fake: FakeProvider) -> None:
        clock = ManualClock()
        endpoint = Endpoint("lab", fake.url, throttle=Throttle(requests_per_minute=1), clock=clock)
        await pieces_of(model_at(endpoint))
        with pytest.raises(Throttled) as held_up:
            await pieces_of(model_at(endpoint))
        assert not held_up.value.counted
        assert len(fake.asked) == 1
        clock.advance(held_up.value.retry_after)
        await pieces_of(model_at(endpoint))
        await endpoint.close()

    with_fake("Hello.", "Again.", scenario=scenario)


def test_a_slot_is_free_again_when_a_completion_is_given_up() -> None:
    async def scenario(fake: FakeProvider) -> None:
        endpoint = Endpoint("lab", fake.url, throttle=Throttle(concurrency=1))
        stream = model_at(endpoint).stream(REQUEST)
        await anext(stream)
        await stream.aclose()
        await fake.left.wait()
        assert isinstance((await pieces_of(model_at(endpoint)))[-1], Finish)
        await endpoint.close()

    with_fake(stall(say("Let me")), "Hello.", scenario=scenario)
