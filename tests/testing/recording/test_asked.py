"""What a model was asked, as lines: what counts, what does not, and how a difference is told."""

import pytest

from hibernaut.ids import RandomIds, call_id
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, UserItem
from hibernaut.messages.parts import Image, Text
from hibernaut.messages.tools import ANSWER_TOOL, ToolSpec
from hibernaut.models.protocol import ModelRequest, OutputSpec
from hibernaut.testing.recording.asked import SHOWN, difference, fits, lines_of
from hibernaut.testing.recording.scrubbing import SCRUBBED, Scrubber

CLEAN = Scrubber(environment={})
LOOK = ToolSpec("look", "Look at a place.", '{"type":"object"}')
SLEEP = ToolSpec("sleep", "Rest for some time.", "{}")


def lines(*items: Item, thread_id: str = "t", **more: object) -> tuple[str, ...]:
    fields = {"instructions": "", "tools": (), **more}
    return lines_of(ModelRequest("m", transcript=items, thread_id=thread_id, **fields), CLEAN)  # type: ignore[arg-type]


def test_everything_that_a_model_is_shown_is_a_line_of_its_own() -> None:
    made = call_id(b"salt", 1, 0)
    assert lines(
        UserItem((Text("Look"), Image("image/png", data=b"x"))),
        ReasoningItem("anthropic", b"signed", "Where?"),
        CallItem(made, "look", '{"place":"bed"}', "toolu_1"),
        ResultItem(made, "nothing\nthere", is_error=True),
        instructions="You look.\nTwice.",
        tools=(LOOK,),
        purpose="summary",
    ) == (
        "told You look.",
        "  Twice.",
        "tool look: Look at a place.",
        '  {"type":"object"}',
        "user Look [image/png 2d711642b726b044]",
        "thought Where?",
        'call #1 look {"place":"bed"}',
        "result #1 failed nothing",
        "  there",
        "asked for a summary",
    )


def test_ids_that_are_drawn_count_by_their_order_and_names_that_people_give_as_they_are() -> None:
    one, two = (RandomIds().new("thread") for _ in range(2))
    items = UserItem(f"Ask {two}; you are {one}. Ask {two} again.")
    assert lines(items, thread_id=one) == ("user Ask #1; you are #this. Ask #1 again.",)
    assert lines(UserItem("a bed at home"), thread_id="a") == ("user a bed at home",)


def test_what_is_signed_anew_every_time_does_not_count_nor_does_what_the_runtime_says_of_its_own_tools() -> None:
    assert lines(ReasoningItem("p", b"one", "Hm")) == lines(ReasoningItem("p", b"two", "Hm"))
    assert lines(UserItem("a"), tools=(LOOK, SLEEP)) == lines(UserItem("a"), tools=(LOOK,))


def test_the_form_of_an_answer_counts_and_not_how_a_model_is_held_to_it() -> None:
    form = '{"type":"object","properties":{"value":{"type":"string"}},"required":["value"]}'
    tool = ToolSpec(ANSWER_TOOL, "Give your answer.", form)
    held = lines(UserItem("a"), tools=(LOOK,), output=OutputSpec(form, tool))
    assert held == lines(UserItem("a"), tools=(LOOK, tool))
    assert f"answers as {form}" in held
    assert held != lines(UserItem("a"), tools=(LOOK,))


@pytest.mark.parametrize(
    "asked,words",
    [
        (("a", "b", "x"), "completion 2 there, and differs first in line 3 of what was asked:\n- c\n+ x"),
        (("a", "b"), "completion 2 there, and differs first in line 3 of what was asked:\n- c\n+ (nothing more)"),
        (("a", "b", "c", "d"), "line 4 of what was asked:\n- (nothing more)\n+ d"),
        (("x",), "completion 1 there, and differs first in line 1 of what was asked:\n- a\n+ x"),
    ],
)
def test_a_difference_is_the_first_one_to_the_request_that_begins_most_alike(
    asked: tuple[str, ...], words: str
) -> None:
    assert words in difference(asked, [("a", "z"), ("a", "b", "c")])


def test_a_secret_that_was_scrubbed_is_no_difference() -> None:
    told = difference(("key hunter2", "Tom"), [(f"key {SCRUBBED}", "Tim"), ("key hunter3", "Tom")])
    assert told.endswith("completion 1 there, and differs first in line 2 of what was asked:\n- Tim\n+ Tom")


def test_of_a_long_line_the_place_is_shown_where_it_differs() -> None:
    told = difference(
        ("user " + "x" * 5_000 + "here" + "y" * 5_000,), [("user " + "x" * 5_000 + "there" + "y" * 5_000,)]
    )
    *_, before, now = told.splitlines()
    assert "xthereyy" in before
    assert "xhereyy" in now
    assert before[2] == now[2] == before[-1] == now[-1] == "…"
    assert max(len(before), len(now)) <= SHOWN + 4


@pytest.mark.parametrize(
    "line,recorded,same",
    [
        ("key hunter2 is it", f"key {SCRUBBED} is it", True),
        ("key hunter2", f"key {SCRUBBED} is it", False),
        ("key hunter2 is it", f"{SCRUBBED}", True),
        ("a=1 b=2", f"a={SCRUBBED} b={SCRUBBED}", True),
        ("a=1 c=2", f"a={SCRUBBED} b={SCRUBBED}", False),
        ("ab", f"ab{SCRUBBED}ba", False),
        ("a" * 20_000, f"{SCRUBBED}".join("a" * 200) + "b", False),
    ],
)
def test_a_secret_that_was_scrubbed_may_be_any_other_when_it_is_played_back(
    line: str, recorded: str, same: bool
) -> None:
    assert fits(("told", line), ("told", recorded)) is same
    assert not fits(("told", line, "more"), ("told", recorded))
