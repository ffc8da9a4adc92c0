"""Pieces become a turn, however they are cut; what is not complete is told apart (A24, C51, C53)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.kernel.turn import Turn, TurnBuffer, TurnCall, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Finish,
    ReasoningBlock,
    StopReason,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)

BLOCK = ReasoningBlock("scripted", b"opaque", "I think")


def fed(*pieces: StreamPiece) -> TurnBuffer:
    buffer = TurnBuffer()
    for piece in pieces:
        buffer.feed(piece)
    return buffer


def said(turn: Turn) -> list[object]:
    """The parts of a turn, each as a plain value."""
    return [
        part.text
        if isinstance(part, TurnText)
        else (part.name, part.arguments, part.complete)
        if isinstance(part, TurnCall)
        else part
        for part in turn.parts
    ]


def test_a_turn_has_its_parts_in_the_order_in_which_they_began() -> None:
    buffer = fed(
        *(ThinkingDelta("I "), ThinkingDelta("think"), BLOCK, TextDelta("Let me "), TextDelta("look.")),
        *(CallStarted(0, "read"), CallDelta(0, '{"path":'), CallDelta(0, '"x"}'), CallEnded(0)),
        *(TextDelta("And"), BLOCK, TextDelta("that."), CallStarted(1, "write"), CallEnded(1), Finish()),
    )
    assert said(buffer.turn()) == [
        BLOCK,
        "Let me look.",
        ("read", '{"path":"x"}', True),
        "And",
        BLOCK,
        "that.",
        ("write", "", True),
    ]


@pytest.mark.parametrize("reason", ["end", "length", "refused"])
def test_a_turn_says_why_it_ended_and_what_it_took(reason: StopReason) -> None:
    turn = fed(TextDelta("said"), Finish(reason, Usage(7, 3, 5))).turn()
    assert (turn.reason, turn.usage) == (reason, Usage(7, 3, 5))


def test_a_call_keeps_what_the_provider_gave_with_it() -> None:
    (call,) = fed(CallStarted(0, "read", "toolu_1"), CallEnded(0, b"signature"), Finish()).turn().parts
    assert call == TurnCall("read", "toolu_1", [], b"signature", complete=True)


def test_calls_that_are_written_at_the_same_time_are_told_apart() -> None:
    buffer = fed(
        *(CallStarted(0, "read"), CallStarted(1, "write"), CallDelta(1, "{1"), CallDelta(0, "{0")),
        *(CallDelta(1, "}"), CallEnded(1), CallDelta(0, "}"), CallEnded(0), Finish()),
    )
    assert said(buffer.turn()) == [("read", "{0}", True), ("write", "{1}", True)]


def test_an_index_can_be_used_again_once_its_call_has_ended() -> None:
    buffer = fed(CallStarted(0, "a"), CallEnded(0), CallStarted(0, "b"), CallDelta(0, "{}"), CallEnded(0), Finish())
    assert said(buffer.turn()) == [("a", "", True), ("b", "{}", True)]


def test_c53_half_a_call_is_never_complete() -> None:
    half: list[StreamPiece] = [CallStarted(0, "python"), CallDelta(0, '{"code":"pri')]
    assert said(fed(*half, Finish("length")).turn()) == [("python", '{"code":"pri', False)]
    again: list[StreamPiece] = [CallStarted(0, "python"), CallDelta(0, "{}"), CallEnded(0)]
    assert said(fed(*half, *again, Finish()).turn()) == [("python", '{"code":"pri', False), ("python", "{}", True)]


def test_pieces_of_a_call_that_never_began_or_has_ended_are_ignored() -> None:
    stray: list[StreamPiece] = [CallDelta(3, "x"), CallEnded(3)]
    call: list[StreamPiece] = [CallStarted(0, "a"), CallDelta(0, "{}"), CallEnded(0)]
    assert said(fed(*stray, *call, CallDelta(0, "x"), CallEnded(0), Finish()).turn()) == [("a", "{}", True)]


def test_what_comes_after_the_last_piece_is_ignored() -> None:
    buffer = fed(TextDelta("done"), Finish("end", Usage(1)), TextDelta(" not"), CallStarted(0, "a"), Finish("refused"))
    assert said(buffer.turn()) == ["done"]
    assert buffer.finish == Finish("end", Usage(1))
    buffer.feed_all([TextDelta(" never"), TextDelta(" at all")])
    assert said(buffer.turn()) == ["done"]


def test_an_empty_text_begins_nothing() -> None:
    assert fed(TextDelta(""), BLOCK, TextDelta(""), CallStarted(0, "a"), Finish()).turn().parts[0] == BLOCK
    assert fed(TextDelta(""), Finish()).turn().parts == ()


def test_a_turn_without_its_last_piece_is_no_turn() -> None:
    buffer = fed(TextDelta("half"))
    assert buffer.finish is None
    with pytest.raises(ValueError, match="not complete"):
        buffer.turn()


def test_of_an_interrupted_turn_only_the_visible_text_stays() -> None:
    buffer = fed(
        BLOCK, TextDelta("One "), TextDelta("two"), CallStarted(0, "a"), CallEnded(0), TextDelta("three"), BLOCK
    )
    turn = buffer.interrupted()
    assert (said(turn), turn.reason, turn.usage) == (["One two", "three"], "interrupted", Usage())
    assert buffer.visible() == "One twothree"


def test_what_was_kept_of_an_interrupted_turn_does_not_grow() -> None:
    buffer = fed(TextDelta("kept"))
    turn = buffer.interrupted()
    buffer.feed(TextDelta(" not kept"))
    assert said(turn) == ["kept"]


@given(st.lists(st.sampled_from(["text", "arguments", "other"]), max_size=8), st.data())
def test_a_turn_does_not_depend_on_how_it_was_cut_into_pieces(kinds: list[str], data: st.DataObject) -> None:
    def cut(text: str) -> Sequence[str]:
        ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
        return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]

    whole: list[StreamPiece] = []
    small: list[StreamPiece] = []
    for index, kind in enumerate(kinds):
        if kind == "text":
            whole.append(TextDelta("some text"))
            small += map(TextDelta, cut("some text"))
        elif kind == "arguments":
            whole += [CallStarted(index, "read"), CallDelta(index, '{"path":"x"}'), CallEnded(index)]
            deltas = [CallDelta(index, piece) for piece in cut('{"path":"x"}')]
            small += [CallStarted(index, "read"), *deltas, CallEnded(index)]
        else:
            whole.append(BLOCK)
            small.append(BLOCK)
    assert said(fed(*small, Finish()).turn()) == said(fed(*whole, Finish()).turn())


PIECES: st.SearchStrategy[StreamPiece] = st.sampled_from(
    [
        *(TextDelta("a"), TextDelta("b"), TextDelta(""), BLOCK, ThinkingDelta("hm")),
        *(
            CallStarted(0, "read"),
            CallDelta(0, "{}"),
            CallEnded(0),
            CallStarted(1, "write"),
            CallDelta(1, "["),
            Finish(),
        ),
    ]
)


@given(st.lists(st.lists(PIECES, max_size=8), max_size=4))
def test_pieces_that_are_fed_together_make_the_same_turn_as_one_by_one(batches: list[list[StreamPiece]]) -> None:
    together = TurnBuffer()
    for batch in batches:
        together.feed_all(batch)
    one_by_one = fed(*(piece for batch in batches for piece in batch))
    for buffer in (together, one_by_one):
        buffer.feed(Finish())
    assert together.turn() == one_by_one.turn()
