"""What the log tells of callbacks that were refused."""

import logging

import pytest

from hibernaut.rap.refusals import Tally


def test_the_first_refusal_of_a_peer_and_reason_is_a_warning_and_what_repeats_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    tally = Tally()
    for code, status in (("token_refused", 401), ("token_refused", 401), ("too_large", 413), ("broken_off", 0)):
        tally.refuse(code, status, "127.0.0.1", None, 0)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "a callback from 127.0.0.1 was refused: 401 token_refused"),
        ("INFO", "a callback from 127.0.0.1 was refused: 401 token_refused"),
        ("WARNING", "a callback from 127.0.0.1 was refused: 413 too_large"),
        ("INFO", "a callback from 127.0.0.1 was refused: 0 broken_off"),
    ]
