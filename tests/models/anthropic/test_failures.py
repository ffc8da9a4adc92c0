"""What Anthropic's refusals mean."""

import asyncio
from typing import Any

import msgspec
import pytest

from hibernaut.errors import ModelError
from hibernaut.messages.items import UserItem
from hibernaut.models.anthropic.dialect import AnthropicDialect
from hibernaut.models.dialect import Refusal
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.testing.providers.anthropic import AnthropicWire
from hibernaut.testing.providers.wire import Raw
from tests.models.anthropic.setting import BUDGET, KEY, about, talking
from tests.models.histories import request


def failure(status: int, body: Any, **headers: str) -> ModelError:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return AnthropicDialect().failure(Refusal(status, headers, raw))


def said(kind: str, message: str = "words") -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


@pytest.mark.parametrize(
    "status,kind,error,retryable",
    [
        (400, "invalid_request_error", InvalidRequest, False),
        (401, "authentication_error", AuthenticationFailed, False),
        (402, "billing_error", InvalidRequest, False),
        (403, "permission_error", AuthenticationFailed, False),
        (404, "not_found_error", InvalidRequest, False),
        (413, "request_too_large", InvalidRequest, False),
        (429, "rate_limit_error", RateLimited, True),
        (500, "api_error", Overloaded, True),
        (504, "timeout_error", Overloaded, True),
        (529, "overloaded_error", Overloaded, True),
        (400, "overloaded_error", Overloaded, True),
    ],
)
def test_c52_a_type_says_what_an_error_means(status: int, kind: str, error: type[ModelError], retryable: bool) -> None:
    found = failure(status, said(kind))
    assert type(found) is error
    assert found.retryable is retryable
    assert str(found) == f"anthropic answers {status}: words ({kind})"


@pytest.mark.parametrize(
    "status,body,error",
    [
        (400, b'{"error":{"message":"x"}}', InvalidRequest),
        (401, b"", AuthenticationFailed),
        (403, b'{"Message":"no access"}', AuthenticationFailed),
        (408, b"", ConnectionLost),
        (413, b"<html>too large</html>", InvalidRequest),
        (429, b'[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"quota"}}]', RateLimited),
        (429, said("something_new"), RateLimited),
        (502, b"<html>bad gateway</html>", Overloaded),
        (529, b"", Overloaded),
        (503, b'{"type":"error","error":null}', Overloaded),
    ],
)
def test_where_no_type_is_known_the_status_says_it(status: int, body: Any, error: type[ModelError]) -> None:
    assert type(failure(status, body)) is error


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 180000 + 64000 > 200000, decrease input length",
    ],
)
def test_c53_a_prompt_that_is_too_long_is_told_from_a_body_that_is_too_large(words: str) -> None:
    assert type(failure(400, said("invalid_request_error", words))) is ContextOverflow
    assert type(failure(413, said("request_too_large", "Request exceeds the maximum size"))) is InvalidRequest


def test_how_long_to_wait_is_taken_from_the_headers() -> None:
    found = failure(429, said("rate_limit_error"), **{"retry-after": "3600"})
    assert isinstance(found, RateLimited)
    assert found.retry_after == 3_600_000
    busy = failure(529, said("overloaded_error"), **{"retry-after": "2"})
    assert isinstance(busy, Overloaded)
    assert busy.retry_after == 2_000


def test_long_words_are_shortened() -> None:
    assert len(str(failure(400, said("invalid_request_error", "x" * 10_000)))) < 700


@pytest.mark.parametrize(
    "key,model,error",
    [
        (KEY, "claude-nine", InvalidRequest),
        ("another", BUDGET, AuthenticationFailed),
    ],
)
def test_an_unknown_model_and_a_wrong_key_are_told(key: str, model: str, error: type[ModelError]) -> None:
    async def scenario() -> None:
        async with talking(["hi"], about(model), wire=AnthropicWire(key)) as (asked, fake):
            with pytest.raises(error):
                await anext(asked.stream(request(UserItem("hello"))))
            assert len(fake.refused) == 1

    asyncio.run(scenario())


def test_an_answer_that_breaks_off_within_a_refusal_is_still_one() -> None:
    async def scenario() -> None:
        async with talking([Raw(429, {"retry-after": "3"}, b'{"type":"error","err')]) as (model, _):
            with pytest.raises(RateLimited) as caught:
                await anext(model.stream(request(UserItem("hello"))))
            assert caught.value.retry_after == 3_000

    asyncio.run(scenario())
