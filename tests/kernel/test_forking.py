"""Where a history can be forked: between two turns, with no call open."""

import pytest

from hibernaut.errors import MalformedInput
from hibernaut.kernel.forking import Place, fork_at
from hibernaut.kernel.head import Fork, Head, Summary
from hibernaut.kernel.transcript import Transcript, validate
from hibernaut.messages.items import (
    CallItem,
    EventItem,
    Item,
    NoticeItem,
    ReasoningItem,
    ResultItem,
    SummaryItem,
    TextItem,
    UserItem,
)

HEAD = Head("t", b"saltsalt", bytes(32))

PAGES: list[list[Item]] = [
    [UserItem("Go"), ReasoningItem("p", b"x"), TextItem("I will."), CallItem("a", "build"), CallItem("b", "check")],
    [ResultItem("a", "built")],
    [],
    [ResultItem("b", "fine"), NoticeItem("title", "T"), ReasoningItem("p", b"y"), TextItem("Done.")],
    [EventItem("e", "a", "build", "{}", "a push"), TextItem("Seen.")],
]
"""Item numbers: 1–5, 6, none, 7–10, 11–12."""


def places(inherited: list[Item] | None = None) -> list[int]:
    found = []
    for number in range(13):
        try:
            fork_at(HEAD, inherited or [], PAGES, number)
        except MalformedInput:
            continue
        found.append(number)
    return found


def test_a_fork_never_stands_inside_a_turn_or_between_a_call_and_its_result() -> None:
    assert places() == [0, 1, 7, 8, 10, 11, 12]


def test_what_is_shared_is_valid_once_the_note_of_the_fork_follows() -> None:
    own = [item for page in PAGES for item in page]
    for number in places():
        transcript = Transcript()
        transcript.extend([*own[:number], UserItem("You are a fork.", origin="runtime")])
        assert transcript.ready() is transcript.items
        validate(transcript.items)


@pytest.mark.parametrize(
    "items, version, more, owes",
    [(0, 0, 0, False), (1, 0, 1, True), (7, 3, 1, True), (8, 3, 2, True), (10, 4, 0, False), (12, 5, 0, False)],
)
def test_a_place_is_a_number_of_pages_and_of_items_of_the_next(items: int, version: int, more: int, owes: bool) -> None:
    assert fork_at(HEAD, [], PAGES, items) == Place(Fork("t", version, more), items, owes)


def test_unless_it_is_told_a_fork_shares_as_much_as_it_can() -> None:
    assert fork_at(HEAD, [], PAGES, None).items == 12
    assert fork_at(HEAD, [], PAGES[:2], None).items == 1
    assert fork_at(HEAD, [], [], None) == Place(Fork("t"), 0, owes=False)


@pytest.mark.parametrize(
    "items, told",
    [
        (4, "stands inside a turn, or between a call and its result. Fork it after item 1 or 7"),
        (9, "stands inside a turn, or between a call and its result. Fork it after item 8 or 10"),
        (13, "it has not so many items. Fork it after item 12"),
    ],
)
def test_the_nearest_places_are_named_where_there_is_none(items: int, told: str) -> None:
    with pytest.raises(MalformedInput, match=told):
        fork_at(HEAD, [], PAGES, items)


def test_a_child_is_forked_only_once_the_calls_that_it_inherits_are_answered() -> None:
    inherited: list[Item] = [UserItem("Go"), CallItem("x", "spawn_thread")]
    with pytest.raises(MalformedInput, match="a call that it inherits is open"):
        fork_at(HEAD, inherited, [], None)
    seed: list[Item] = [ResultItem("x", "You are a child."), TextItem("Yes.")]
    assert fork_at(HEAD, inherited, [seed], None) == Place(Fork("t", 1), 2, owes=False)
    assert fork_at(HEAD, inherited, [seed], 1) == Place(Fork("t", 0, 1), 1, owes=True)


def test_a_summary_goes_along_only_where_it_stands_in_what_is_shared() -> None:
    pages: list[list[Item]] = [
        [UserItem("One"), TextItem("1")],
        [SummaryItem("Counted.", 2)],
        [UserItem("Two"), TextItem("2")],
    ]
    head = Head("t", b"saltsalt", bytes(32), summary=Summary(2, 2, 2))
    assert fork_at(head, [], pages, 3).fork.summary == head.summary
    assert fork_at(head, [], pages, 5).fork.summary == head.summary
    assert fork_at(head, [], pages, 2).fork.summary is None
