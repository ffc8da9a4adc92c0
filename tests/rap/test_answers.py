"""The table of errors, row by row, and what each side makes of an answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.errors import (
    AlreadyAnswered,
    ConfigurationError,
    HibernautError,
    InputRefused,
    MalformedInput,
    StoreBusy,
    StoreFull,
    ThreadClosed,
    TokenRefused,
    TooLarge,
    UnknownQuestion,
    UnknownThread,
)
from hibernaut.rap.answers import (
    RETRY_AFTER,
    RETRY_AFTER_MOST,
    ROWS,
    Fate,
    Liveness,
    TooMany,
    Unavailable,
    UnknownCall,
    answer_to,
    fate_of_call,
    fate_of_callback,
    liveness,
    refusal,
    wait_before,
)
from hibernaut.rap.limits import WireLimits

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    "error, status, code",
    [
        (MalformedInput("no"), 400, "malformed_input"),
        (InputRefused("no"), 400, "input_refused"),
        (UnknownQuestion("q"), 400, "unknown_question"),
        (TokenRefused("no"), 401, "token_refused"),
        (UnknownThread("t"), 404, "unknown_thread"),
        (ThreadClosed("t"), 404, "thread_closed"),
        (UnknownCall("t", "c"), 404, "unknown_call"),
        (AlreadyAnswered("no"), 409, "already_answered"),
        (TooLarge("the callback", 2, 1, "callback_bytes"), 413, "too_large"),
    ],
)
def test_a27_a_refused_callback_is_answered_with_its_row_of_the_table(
    error: HibernautError, status: int, code: str
) -> None:
    answer = answer_to(error)
    assert answer.status == status
    assert json.loads(answer.body) == {"error": code, "message": str(error)}
    assert dict(answer.headers) == {"Content-Type": "application/json"}
    assert fate_of_callback(answer.status) == "refused"


@pytest.mark.parametrize(
    "error, status, code, wait",
    [
        (TooMany("the thread has 4,096 events waiting", 30), 429, "too_many", "30"),
        (TooMany("the thread has 4,096 events waiting"), 429, "too_many", str(RETRY_AFTER)),
        (Unavailable("starting"), 503, "unavailable", str(RETRY_AFTER)),
        (Unavailable("starting", 1), 503, "unavailable", "1"),
    ],
)
def test_one_that_may_come_again_is_told_when(error: HibernautError, status: int, code: str, wait: str) -> None:
    answer = answer_to(error)
    assert (answer.status, dict(answer.headers)["Retry-After"]) == (status, wait)
    assert json.loads(answer.body) == {"error": code, "message": str(error)}
    assert fate_of_callback(answer.status) == "again"


@pytest.mark.parametrize("error", [StoreBusy("/secret/path"), StoreFull("/secret/path"), ConfigurationError("/secret")])
def test_what_is_wrong_with_the_runtime_itself_is_not_told(error: HibernautError) -> None:
    answer = answer_to(error)
    assert answer.status == 503
    assert json.loads(answer.body) == {"error": "unavailable", "message": "this cannot be taken now; come again"}
    assert dict(answer.headers)["Retry-After"] == str(RETRY_AFTER)


def test_every_row_is_reached_by_its_own_error() -> None:
    assert len({row.error for row in ROWS}) == len(ROWS)
    assert {row.status for row in ROWS} == {400, 401, 403, 404, 409, 413, 429, 503}
    assert [row.status for row in ROWS if row.again] == [429, 503, 503, 503]


def test_the_words_of_an_answer_are_bounded() -> None:
    assert len(answer_to(MalformedInput("x" * 100_000)).body) < 1_000


@pytest.mark.parametrize(
    "status, of_call, of_callback",
    [
        (200, "taken", "taken"),
        (202, "taken", "taken"),
        (204, "taken", "taken"),
        (301, "refused", "refused"),
        (400, "refused", "refused"),
        (401, "refused", "refused"),
        (404, "refused", "refused"),
        (409, "refused", "refused"),
        (413, "refused", "refused"),
        (429, "refused", "again"),
        (500, "again", "again"),
        (503, "again", "again"),
        (599, "again", "again"),
        (None, "again", "again"),
    ],
)
def test_a36_only_trouble_is_tried_again(status: int | None, of_call: Fate, of_callback: Fate) -> None:
    assert (fate_of_call(status), fate_of_callback(status)) == (of_call, of_callback)


def test_a_model_reads_which_tool_was_refused_with_what_status_and_why() -> None:
    assert refusal("build", "https://s.example/run", 404, b" no such tool\n") == (
        "Error: build was not run: its server at https://s.example/run answered with status 404:\nno such tool"
    )
    assert refusal("build", "https://s.example/run", 400, b"").endswith("answered with status 400.")


@given(st.binary(max_size=2_000), st.text(max_size=300))
def test_a22_the_words_of_a_refusing_server_are_clean_and_bounded(body: bytes, tool: str) -> None:
    text = refusal(tool.encode("utf-8", "replace").decode(), "https://s.example", 400, body)
    assert len(text.encode()) < 2_000
    assert "\x00" not in text.partition("\n")[2]


@pytest.mark.parametrize(
    "status, body, expected",
    [
        (200, b'{"alive":true}', "alive"),
        (200, b'{"alive":true,"since":4}', "alive"),
        (200, b'{"alive":false}', "dead"),
        (200, b'{"alive":1}', "dead"),
        (200, b'{"alive":"yes"}', "dead"),
        (200, b"{}", "dead"),
        (200, b"", "dead"),
        (200, b"\xff", "dead"),
        (200, b" " * 1_000, "dead"),
        (302, b"", "dead"),
        (404, b'{"alive":true}', "dead"),
        (500, b'{"alive":false}', "unknown"),
        (None, b"", "unknown"),
    ],
)
def test_a_call_is_dead_when_its_server_does_not_know_it_and_unknown_when_it_cannot_say(
    status: int | None, body: bytes, expected: Liveness
) -> None:
    assert liveness(status, body, WireLimits(notice_bytes=999)) == expected


@pytest.mark.parametrize(
    "written, milliseconds",
    [
        ("0", 0),
        ("7", 7_000),
        (" 7 ", 7_000),
        ("999999", RETRY_AFTER_MOST * 1_000),
        ("9" * 10_000, RETRY_AFTER_MOST * 1_000),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10_000),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
        ("Tue, 14 Nov 2099 22:13:10 GMT", RETRY_AFTER_MOST * 1_000),
        ("-5", 0),
        ("soon", 0),
        ("٣", 0),
        ("", 0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(written: str, milliseconds: int) -> None:
    assert wait_before({"retry-after": written}, NOW) == milliseconds


def test_without_retry_after_there_is_nothing_to_wait_for() -> None:
    assert wait_before({}, NOW) == 0


@given(st.text(max_size=40))
def test_a22_any_retry_after_is_a_bounded_wait(written: str) -> None:
    assert 0 <= wait_before({"retry-after": written}, NOW) <= RETRY_AFTER_MOST * 1_000
