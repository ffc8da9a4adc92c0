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
)
from hibernaut.models.failures import LONGEST_WORDS, by_status, is_overflow, retry_after, words_of

NOON = 1_800_000_000_000


def said(status: int, body: bytes = b"", **headers: str) -> ModelError:
    return by_status(
        "lab", Refusal(status, {name.replace("_", "-"): value for name, value in headers.items()}, body, NOON)
    )


@pytest.mark.parametrize(
    "status,kind",
    [
        (400, InvalidRequest),
        (401, AuthenticationFailed),
        (402, InvalidRequest),
        (403, AuthenticationFailed),
        (404, InvalidRequest),
        (408, ConnectionLost),
        (409, Overloaded),
        (413, InvalidRequest),
        (418, InvalidRequest),
        (422, InvalidRequest),
        (429, RateLimited),
        (500, Overloaded),
        (502, Overloaded),
        (503, Overloaded),
        (529, Overloaded),
    ],
)
def test_c52_a_status_means_one_kind_of_failure(status: int, kind: type[ModelError]) -> None:
    assert type(said(status)) is kind


def test_c53_an_overflow_is_told_from_other_bad_requests_by_the_providers_words_and_413_is_none() -> None:
    body = b'{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}'
    assert type(said(400, body)) is ContextOverflow
    assert type(said(413, body)) is InvalidRequest
    assert (
        type(said(400, b'{"error":{"message":"messages.0: all messages must have non-empty content"}}'))
        is InvalidRequest
    )


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Input is too long for requested model.",
        "request (4105 tokens) exceeds the available context size (4096 tokens), try increasing n_ctx",
        "too many total text bytes: too many tokens: 210000",
        "context_length_exceeded",
    ],
)
def test_the_ways_in_which_providers_say_that_a_prompt_is_too_long(words: str) -> None:
    assert is_overflow(words)


@pytest.mark.parametrize(
    "body,words",
    [
        (b'{"type":"error","error":{"type":"x","message":"so  it\\nis"}}', "so it is"),
        (b'{"error":"plain"}', "plain"),
        (b'{"message":"flat"}', "flat"),
        (b'[{"error":{"code":400,"message":"in a list"}}]', "in a list"),
        (b'{"detail":[{"loc":["body"],"msg":"field required"}]}', '[{"loc":["body"],"msg":"field required"}]'),
        (b"<html><body>Bad Gateway</body></html>", "<html><body>Bad Gateway</body></html>"),
        (b"\xff\xfe\x00", "\ufffd\ufffd"),
        (b"", ""),
    ],
)
def test_what_a_refusal_says_is_found_wherever_it_stands(body: bytes, words: str) -> None:
    assert words_of(body).strip("\x00") == words


def test_long_words_are_cut() -> None:
    assert len(words_of(b"x" * 100_000)) == LONGEST_WORDS


@pytest.mark.parametrize(
    "headers,wait",
    [
        ({"retry-after": "30"}, 30_000),
        ({"retry-after": "1.5"}, 1_500),
        ({"retry-after-ms": "250", "retry-after": "9"}, 250),
        ({"retry-after": "Fri, 15 Jan 2027 08:01:00 GMT"}, 60_000),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "9" * 400}, 0),
        ({}, 0),
    ],
)
def test_c52_how_long_a_provider_wants_to_be_left_alone(headers: dict[str, str], wait: int) -> None:
    assert retry_after(headers, NOON) == wait
