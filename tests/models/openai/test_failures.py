"""What a refusal means, by its code, its type, its words, its status and its headers."""

from typing import Any

import msgspec
import pytest

from hibernaut.errors import ModelError
from hibernaut.models.dialect import Refusal
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
    Refused,
    RetryableModelError,
)
from hibernaut.models.openai.failures import failure_in_stream, failure_of


def meant(status: int, body: Any, **headers: str) -> ModelError:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return failure_of("p", Refusal(status, {name.replace("_", "-"): value for name, value in headers.items()}, raw))


def error(message: str = "no", **members: Any) -> dict[str, Any]:
    return {"error": {"message": message, **members}}


@pytest.mark.parametrize(
    "status,body,kind",
    [
        # OpenAI
        (400, error("too long", code="context_length_exceeded"), ContextOverflow),
        (400, error("flagged", code="invalid_prompt"), Refused),
        (400, error("bad", type="invalid_request_error", code="invalid_value"), InvalidRequest),
        (401, error("Incorrect API key", code="invalid_api_key"), AuthenticationFailed),
        (403, error("Country not supported", code="unsupported_country_region_territory"), AuthenticationFailed),
        (404, error("does not exist", code="model_not_found"), InvalidRequest),
        (413, b"<html>too large</html>", InvalidRequest),
        (429, error("quota", type="insufficient_quota", code="insufficient_quota"), InvalidRequest),
        (429, error("slow down", type="requests", code="rate_limit_exceeded"), RateLimited),
        (429, error("Request too large for gpt-5 on tokens per min", code="rate_limit_exceeded"), ContextOverflow),
        (500, error("oops", type="server_error"), Overloaded),
        (503, error("busy", code="slow_down"), RateLimited),
        (529, b"", Overloaded),
        (408, error("late"), ConnectionLost),
        # Azure
        (400, error("filtered", code="content_filter", innererror={"code": "ResponsibleAIPolicyViolation"}), Refused),
        (400, error("filtered", code="x", innererror={"code": "ResponsibleAIPolicyViolation"}), Refused),
        (401, {"statusCode": 401, "message": "Access denied"}, AuthenticationFailed),
        (404, error("deployment missing", code="DeploymentNotFound"), InvalidRequest),
        # OpenRouter
        (402, error("Insufficient credits", code=402), InvalidRequest),
        (403, error("flagged", code=403, metadata={"reasons": ["violence"]}), Refused),
        (200, error("Provider returned error", code=502), Overloaded),
        (200, error("Rate limited", code=429), RateLimited),
        (200, error("No such model", code=404), InvalidRequest),
        # Local servers
        (400, {"object": "error", "message": "maximum context length is 4096 tokens", "code": 400}, ContextOverflow),
        (400, error("is longer than the maximum model length of 4096"), ContextOverflow),
        (
            400,
            error("the request exceeds the available context size", type="exceed_context_size_error"),
            ContextOverflow,
        ),
        (400, {"error": "context length of only 4096 tokens"}, ContextOverflow),
        (404, {"error": "model 'x' not found"}, InvalidRequest),
        (500, error("Jinja Exception: roles must alternate", code=500, type="server_error"), Overloaded),
        (503, error("Loading model", code=503, type="unavailable_error"), Overloaded),
        # Mistral, Groq
        (422, {"object": "error", "message": {"detail": [{"type": "extra_forbidden"}]}}, InvalidRequest),
        (
            400,
            {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"},
            ContextOverflow,
        ),
        (413, error("Request too large for model `x`", code="rate_limit_exceeded", type="tokens"), ContextOverflow),
        (498, error("flex capacity", code="capacity_exceeded"), InvalidRequest),
        # No API at all
        (502, b"<html><body>Bad gateway</body></html>", Overloaded),
        (404, b"\xff\xfe not found", InvalidRequest),
        (400, b"", InvalidRequest),
        (400, b"[]", InvalidRequest),
        (400, b"null", InvalidRequest),
        (401, error("your context window is locked"), AuthenticationFailed),
    ],
)
def test_a_refusal_means_what_its_provider_means(status: int, body: Any, kind: type[ModelError]) -> None:
    assert type(meant(status, body)) is kind


def test_the_providers_words_are_told() -> None:
    assert "no such model" in str(meant(404, error("no such model")))


@pytest.mark.parametrize(
    "headers,message,wait",
    [
        ({"retry_after": "3600"}, "x", 3_600_000),
        ({"retry_after_ms": "120"}, "x", 120),
        ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "1m30s"}, "x", 90_000),
        (
            {
                "x_ratelimit_remaining_requests": "5",
                "x_ratelimit_reset_requests": "1h",
                "x_ratelimit_remaining_tokens": "0",
                "x_ratelimit_reset_tokens": "120ms",
            },
            "x",
            120,
        ),
        ({}, "Please try again in 6.5s. Visit", 6_500),
        ({}, "Please try again in 1h2m.", 3_720_000),
        ({"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "soon"}, "x", 0),
        ({}, "slow down", 0),
    ],
)
def test_a_provider_says_how_long_it_wants_to_be_left_alone(headers: dict[str, str], message: str, wait: int) -> None:
    for status, code in ((429, "rate_limit_exceeded"), (429, ""), (503, "")):
        found = meant(status, error(message, code=code), **headers)
        assert isinstance(found, RetryableModelError)
        assert found.retry_after == wait


def test_an_error_in_a_stream_needs_no_status() -> None:
    assert type(failure_in_stream("p", {"message": "x"})) is Overloaded
    assert type(failure_in_stream("p", {"message": "x", "code": "401"})) is AuthenticationFailed
    assert type(failure_in_stream("p", "maximum context length is 1")) is ContextOverflow
    assert type(failure_in_stream("p", None)) is Overloaded
