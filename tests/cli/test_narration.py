"""How events are told."""

from io import StringIO

import pytest

from hibernaut.cli.narration import Narrator
from hibernaut.cli.terminal import Printed
from hibernaut.messages.events import (
    AgentEvent,
    CompletionFinished,
    CompletionStarted,
    Notice,
    SubscriptionEvent,
    Summarized,
    TextChunk,
    ThinkingChunk,
    ToolCall,
    ToolProgress,
    ToolResult,
    TurnDiscarded,
    UserInput,
)

T = "t"
CALL = ToolCall(thread_id=T, cursor="1.1", call_id="c1", tool="build", arguments='{"commit":"abc"}')


def told(*events: AgentEvent, said: str = "") -> str:
    stream = StringIO()
    narrator = Narrator(Printed(stream))
    if said:
        narrator.said(said)
    for event in events:
        narrator.tell(event)
    narrator.end()
    return stream.getvalue()


def text(words: str, cursor: str = "1.1") -> TextChunk:
    return TextChunk(thread_id=T, cursor=cursor, text=words)


@pytest.mark.parametrize(
    "events, expected",
    [
        ([text("Hel"), text("lo")], "Hello\n"),
        ([text("Hello\n")], "Hello\n"),
        ([ThinkingChunk(thread_id=T, text="hm"), text("Hello")], "hm\nHello\n"),
        ([text("So:"), CALL], 'So:\n→ build {"commit":"abc"}\n'),
        ([CALL, ToolProgress(thread_id=T, call_id="c1", text="half")], '→ build {"commit":"abc"}\n· build: half\n'),
        (
            [CALL, ToolResult(thread_id=T, cursor="2.1", call_id="c1", content="it\nfailed", is_error=True)],
            '→ build {"commit":"abc"}\n✗ build: it failed\n',
        ),
        ([ToolResult(thread_id=T, cursor="2.1", call_id="c9", content="ok")], "← c9: ok\n"),
        (
            [
                SubscriptionEvent(
                    thread_id=T, cursor="2.1", call_id="c1", tool="watch", content="up", source="late_result"
                )
            ],
            "⇠ watch (late result): up\n",
        ),
        ([Notice(thread_id=T, cursor="2.1", kind="parked", text="no key")], "— parked: no key\n"),
        ([Notice(thread_id=T, cursor="2.1", kind="empty_turn")], "— empty turn\n"),
        (
            [Summarized(thread_id=T, cursor="2.1", text="…", covers=12, before=12_345, after=2_345)],
            "— compacted: 12,345 -> 2,345 tokens\n",
        ),
        ([text("Hel"), CompletionFinished(thread_id=T, cursor="2.1", interrupted=True)], "Hel\n[interrupted]\n"),
        ([CompletionStarted(thread_id=T, cursor="1.0~1:1"), CompletionFinished(thread_id=T, cursor="1.3")], ""),
        ([UserInput(thread_id=T, cursor="1.1", content="hello", user="ann")], "ann > hello\n"),
        ([UserInput(thread_id=T, cursor="1.1", content="go on", origin="runtime")], ""),
    ],
)
def test_events_are_told_as_text_and_lines(events: list[AgentEvent], expected: str) -> None:
    assert told(*events) == expected


def test_what_is_on_the_screen_already_is_not_repeated_once() -> None:
    hello = UserInput(thread_id=T, cursor="1.1", content="hello")
    assert told(hello, hello, said="hello") == "> hello\n"


@pytest.mark.parametrize("said", ["", "hello"])
def test_after_a_turn_that_broke_off_what_the_user_said_is_not_told_again(said: str) -> None:
    shown = told(
        UserInput(thread_id=T, cursor="0.0~1:1", content="hello"),
        text("Hel", "0.0~1:4"),
        ToolProgress(thread_id=T, call_id="c1", text="half"),
        TurnDiscarded(thread_id=T, cursor="0.0"),
        UserInput(thread_id=T, cursor="1.1", content="hello"),
        Notice(thread_id=T, cursor="1.2", kind="retry", text="in 1 s"),
        UserInput(thread_id=T, cursor="2.1", content="hello"),
        said=said,
    )
    first = "" if said else "> hello\n"
    broken = "Hel\n· c1: half\n[it broke off; what was said since is taken back]\n"
    assert shown == f"{first}{broken}— retry: in 1 s\n> hello\n"


def test_of_a_turn_that_broke_off_before_it_said_anything_nothing_is_taken_back() -> None:
    assert (
        told(
            text("Hel", "1.0~1:1"),
            CompletionFinished(thread_id=T, cursor="1.1"),
            UserInput(thread_id=T, cursor="1.1~1:1", content="hello"),
            CompletionStarted(thread_id=T, cursor="1.1~1:2"),
            TurnDiscarded(thread_id=T, cursor="1.1"),
            Notice(thread_id=T, cursor="2.1", kind="parked", text="no key"),
        )
        == "Hel\n> hello\n— parked: no key\n"
    )


def test_a_long_result_is_one_short_line() -> None:
    shown = told(ToolResult(thread_id=T, cursor="2.1", call_id="c1", content="word " * 100_000))
    assert len(shown) < 600
    assert shown.endswith("…\n")
