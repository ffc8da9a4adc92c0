"""What a model is shown is always something it may be shown, whatever is stored (A20, C01, C03, C04, C05)."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.kernel.transcript import (
    CUT_SHORT,
    EMPTY_CONTENT,
    MISSING_RESULT,
    MISSING_START,
    Transcript,
    TranscriptInvalid,
    Validator,
    validate,
)
from hibernaut.messages.items import (
    EVENT_TOOL,
    CallItem,
    EventItem,
    Item,
    NoticeItem,
    ReasoningItem,
    ResultItem,
    SummaryItem,
    TextItem,
    Unknown,
    UserItem,
)
from hibernaut.messages.parts import Excerpt, Image, Text

THINKING: Item = ReasoningItem("scripted", b"opaque", "I think")
HELLO: Item = UserItem("hello")


def call(call_id: str) -> Item:
    return CallItem(call_id, "read", '{"path":"x"}')


def result(call_id: str, text: str = "content") -> Item:
    return ResultItem(call_id, text)


def missing(call_id: str) -> Item:
    return ResultItem(call_id, MISSING_RESULT, is_error=True)


def shown(history: Sequence[Item]) -> list[Item]:
    transcript = Transcript()
    transcript.extend(history)
    return list(transcript.ready())


def objections(transcript: Sequence[Item]) -> list[str]:
    """What a strict provider would say, found in its own way: by putting messages together."""
    messages: list[tuple[str, list[Item]]] = []
    for item in transcript:
        role = "user" if isinstance(item, UserItem | ResultItem) else "model"
        if not messages or messages[-1][0] != role:
            messages.append((role, []))
        messages[-1][1].append(item)
    found = [] if messages and messages[0][0] == messages[-1][0] == "user" else ["does not begin and end with the user"]
    owed: list[str] = []
    for role, items in messages:
        results = [item.call_id for item in items if isinstance(item, ResultItem)]
        if role == "user" and (results != owed or not all(isinstance(item, ResultItem) for item in items[: len(owed)])):
            found.append(f"{results} for {owed}")
        owed = [item.id for item in items if isinstance(item, CallItem)]
        if isinstance(items[-1], ReasoningItem):
            found.append("ends in reasoning")
    ids = [item.id for item in transcript if isinstance(item, CallItem)]
    if len(ids) != len(set(ids)):
        found.append("a call id twice")
    return found + [f"{item} is out of place" for item in transcript if is_out_of_place(item)]


def is_out_of_place(item: Item) -> bool:
    match item:
        case UserItem(content=content) | ResultItem(content=content):
            parts = [Text(content)] if isinstance(content, str) else content
            return not parts or any(not isinstance(part, Image) and part.text.strip() == "" for part in parts)
        case TextItem(text=text):
            return text.strip() == ""
        case CallItem(name=name):
            return name == ""
        case _:
            return not isinstance(item, ReasoningItem)


IDS = st.sampled_from(["a", "b", "c", "a~1", "a~2"])
TEXTS = st.sampled_from(["", " ", "\n\t\u2003", "one", "two words"])
PARTS = st.builds(Text, TEXTS) | st.builds(Excerpt, TEXTS, st.just(b"digest"), st.just(9)) | st.just(Image("image/png"))
CONTENTS = TEXTS | st.lists(PARTS, max_size=3).map(tuple)
NAMES = st.sampled_from(["read", "read", "read", ""])
SHOWABLE: st.SearchStrategy[Item] = st.one_of(
    st.builds(UserItem, CONTENTS),
    st.builds(TextItem, TEXTS),
    st.just(THINKING),
    st.builds(CallItem, IDS, NAMES),
    st.builds(CallItem, IDS, NAMES),
    st.builds(ResultItem, IDS, CONTENTS),
    st.builds(ResultItem, IDS, CONTENTS),
)
ANY: st.SearchStrategy[Item] = st.one_of(
    SHOWABLE,
    SHOWABLE,
    st.builds(TextItem, TEXTS, st.just(True)),
    st.builds(EventItem, IDS, IDS, st.just("build"), st.just("{}"), CONTENTS),
    st.builds(SummaryItem, TEXTS, st.just(1)),
    st.just(NoticeItem("retry")),
    st.just(Unknown(b"\x92\xa1z\x01")),
)


@st.composite
def turns(draw: st.DrawFn) -> list[list[Item]]:
    """Turns that any provider takes: what the model says with the results of its calls, then perhaps a user text."""
    made: list[list[Item]] = [[HELLO]]
    for number in range(draw(st.integers(0, 4))):
        items: list[Item] = []
        ids: list[str] = []
        for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "call", "call"]), max_size=6)):
            if kind == "call":
                ids.append(f"{number}.{len(ids)}")
                items.append(call(ids[-1]))
            else:
                items.append(TextItem("said") if kind == "text" else THINKING)
        while items and items[-1] is THINKING:
            items.pop()
        items += [result(call_id, f"result of {call_id}") for call_id in ids]
        if not ids or draw(st.booleans()):
            items.append(UserItem(f"text {number}"))
        made.append(items)
    return made


def flat(made: list[list[Item]]) -> list[Item]:
    return [item for items in made for item in items]


@st.composite
def damaged(draw: st.DrawFn) -> list[Item]:
    """A valid transcript with a few faults in it."""
    items = flat(draw(turns()))
    for fault in draw(st.lists(st.sampled_from(["remove", "move", "repeat", "insert"]), max_size=4)):
        place = draw(st.integers(0, len(items)))
        if fault == "insert" or not items:
            items.insert(place, draw(ANY))
            continue
        item = items[place - 1] if fault == "repeat" else items.pop(place - 1)
        if fault != "remove":
            items.insert(draw(st.integers(0, len(items))), item)
    return items


HISTORIES = st.lists(ANY, max_size=14) | damaged()


# Any history


@given(HISTORIES)
def test_a20_whatever_is_stored_the_model_can_be_asked_once_the_user_has_spoken(history: list[Item]) -> None:
    transcript = shown([*history, UserItem("go on")])
    validate(transcript)
    assert objections(transcript) == []


@given(HISTORIES)
def test_a20_whatever_is_stored_the_model_can_be_asked_whenever_it_ends_on_the_users_side(history: list[Item]) -> None:
    transcript = shown(history)
    if transcript and isinstance(transcript[-1], UserItem | ResultItem):
        validate(transcript)
        assert objections(transcript) == []


@given(HISTORIES, st.lists(st.integers(0, 14), max_size=4))
def test_a_history_in_pieces_is_shown_like_the_whole(history: list[Item], cuts: list[int]) -> None:
    transcript = Transcript()
    start = 0
    for end in [*sorted(cuts), len(history)]:
        before = list(transcript.items)
        transcript.ready()
        transcript.extend(history[start:end])
        start = max(start, end)
        assert transcript.items[: len(before)] == before, "what was shown once stays as it is"
    assert transcript.ready() == shown(history)


@given(turns())
def test_a_valid_transcript_comes_out_unchanged(made: list[list[Item]]) -> None:
    history = flat(made)
    assert objections(history) == [], "the premise of this test"
    assert [id(item) for item in shown(history)] == [id(item) for item in history]


@given(HISTORIES)
def test_what_was_repaired_needs_no_further_repair(history: list[Item]) -> None:
    once = shown([*history, UserItem("go on")])
    assert [id(item) for item in shown(once)] == [id(item) for item in once]


@given(turns(), st.data())
def test_results_are_shown_in_the_order_of_their_calls_whatever_order_they_came_in(
    made: list[list[Item]], data: st.DataObject
) -> None:
    history: list[Item] = []
    for items in made:
        results = data.draw(st.permutations([item for item in items if isinstance(item, ResultItem)]))
        history += [results.pop() if isinstance(item, ResultItem) else item for item in items]
    transcript = Transcript()
    transcript.extend(history)
    assert transcript.items == flat(made)


@given(HISTORIES)
def test_nothing_that_was_said_is_lost(history: list[Item]) -> None:
    def spoken(items: Sequence[Item], kind: type[UserItem | TextItem]) -> list[str]:
        texts = (item.content if isinstance(item, UserItem) else item.text for item in items if isinstance(item, kind))
        return [text for text in texts if text in {"one", "two words"}]

    seen = shown(history)
    whole = [msgspec.structs.replace(item, text="") if is_cut_short(item) else item for item in history]
    assert spoken(seen, UserItem) == spoken(history, UserItem)
    assert spoken(seen, TextItem) == spoken(whole, TextItem)
    calls = sum(isinstance(item, CallItem | EventItem) for item in history)
    assert sum(isinstance(item, CallItem) for item in seen) == calls


def is_cut_short(item: Item) -> bool:
    return isinstance(item, TextItem) and item.interrupted


# Calls without results, results without calls


def test_c01_a_call_left_open_by_a_crash_is_answered_as_unknown_and_the_same_after_each_restart() -> None:
    stored = [HELLO, call("t1"), call("t2"), result("t1")]
    second = UserItem("second")
    repaired = [HELLO, call("t1"), call("t2"), result("t1"), missing("t2"), second]
    assert shown([*stored, second]) == repaired
    assert shown([*stored, missing("t2"), second]) == repaired


def test_c03_a_user_text_never_stands_between_a_call_and_its_result() -> None:
    second = UserItem("second")
    assert shown([HELLO, call("t1"), second, result("t1")]) == [HELLO, call("t1"), missing("t1"), second]


def test_c04_a_window_that_begins_with_a_result_is_shown_without_it() -> None:
    assert shown([result("t1"), HELLO, TextItem("hi"), result("t1"), HELLO]) == [HELLO, TextItem("hi"), HELLO]


def test_c05_a_poisoned_history_can_be_compacted() -> None:
    poisoned: list[Item] = [call("t1"), HELLO, result("t9"), THINKING, call("t1"), UserItem(" "), TextItem("")]
    transcript = shown([*poisoned, UserItem("Summarize.", origin="runtime")])
    validate(transcript)
    assert transcript[-1] == UserItem("Summarize.", origin="runtime")


def test_an_open_call_is_answered_for_the_moment_only() -> None:
    transcript = Transcript()
    transcript.extend([HELLO, call("t1"), call("t2"), result("t1")])
    assert transcript.ready() == [*transcript.items, missing("t2")]
    transcript.extend([result("t2")])
    assert transcript.ready() == [HELLO, call("t1"), call("t2"), result("t1"), result("t2")]
    assert transcript.ready() is transcript.items, "no copy is made where nothing is open"


def test_a_result_that_came_early_is_shown_once_its_turn_is_over() -> None:
    history = [HELLO, call("t1"), call("t2"), result("t2")]
    answered = [HELLO, call("t1"), call("t2"), missing("t1"), result("t2")]
    assert shown(history) == answered
    assert shown([*history, TextItem("next turn"), result("t1")]) == [*answered, TextItem("next turn")]


def test_the_first_of_two_results_is_shown() -> None:
    first, second = result("t1", "first"), result("t1", "second")
    assert shown([HELLO, call("t1"), first, second]) == [HELLO, call("t1"), first]
    calls = [HELLO, call("t0"), call("t1"), call("t2")]
    for results in (
        [first, second, result("t0"), result("t2")],
        [first, result("t0"), second, result("t2")],
        [result("t2"), first, second, result("t0")],
    ):
        assert shown([*calls, *results]) == [*calls, result("t0"), first, result("t2")]


def test_a_turn_that_was_settled_leaves_nothing_behind_for_the_next_one() -> None:
    following = [TextItem("then"), call("t3"), call("t4"), result("t3"), result("t4"), TextItem("done")]
    for left in ([result("t1")], [result("t2")]):
        for begins in (0, 1):
            history = [HELLO, call("t1"), call("t2"), *left]
            assert shown([*history, *following[begins:]]) == [*shown(history), *following[begins:]]


def test_calls_with_one_id_are_told_apart_and_get_their_results_in_order() -> None:
    turn = [call("a"), call("a"), result("a", "first"), result("a", "second")]
    other = [call("b"), call("a"), call("a"), result("a", "third"), result("a", "fourth"), result("b", "other")]
    transcript = shown([HELLO, *turn, TextItem("again"), *other])
    validate(transcript)
    calls = [item for item in transcript if isinstance(item, CallItem)]
    answers = {item.call_id: item.content for item in transcript if isinstance(item, ResultItem)}
    assert [answers[item.id] for item in calls] == ["first", "second", "other", "third", "fourth"]
    assert {(item.name, item.arguments) for item in calls} == {("read", '{"path":"x"}')}


@pytest.mark.parametrize("ids", [("a", "a", "a~1", "a~2", "a"), ("a~2", "a", "a"), ("a~3", "a~2", "a", "a")])
def test_the_name_made_for_a_repeated_id_meets_no_other_id(ids: tuple[str, ...]) -> None:
    transcript = shown([HELLO, *(item for name in ids for item in (call(name), result(name)))])
    validate(transcript)
    assert [item.content for item in transcript if isinstance(item, ResultItem)] == ["content"] * len(ids)


def test_a_call_that_names_no_tool_is_shown_under_a_name() -> None:
    transcript = shown([HELLO, CallItem("t1", "", "{}", "theirs", b"signed"), result("t1")])
    validate(transcript)
    assert transcript[1:] == [CallItem("t1", "unnamed", "{}", "theirs", b"signed"), result("t1")]


# Turns


def test_a_turn_keeps_the_order_in_which_the_model_said_it() -> None:
    history = [HELLO, THINKING, call("t1"), TextItem("and"), THINKING, call("t2"), result("t1"), result("t2")]
    assert shown(history) == history


@pytest.mark.parametrize("rest", [[], [HELLO], [TextItem("\n"), HELLO], [THINKING, NoticeItem("empty_turn"), HELLO]])
def test_reasoning_that_led_to_nothing_is_left_out(rest: list[Item]) -> None:
    before: list[Item] = [HELLO, TextItem("hi"), HELLO]
    for ending in (rest, [*rest, HELLO, TextItem("hi")]):
        assert shown([*before, THINKING, *ending]) == [*before, *shown(ending)]


def test_reasoning_after_the_last_call_is_not_moved_to_the_next_turn() -> None:
    calls, results = [HELLO, call("t1"), call("t2")], [result("t1"), result("t2")]
    assert shown([*calls, THINKING, *results, TextItem("hi")]) == [*calls, *results, TextItem("hi")]
    assert shown([*calls, THINKING, result("t2"), TextItem("hi")]) == [
        *calls,
        missing("t1"),
        result("t2"),
        TextItem("hi"),
    ]


def test_reasoning_is_not_taken_for_that_of_an_event() -> None:
    event = EventItem("e1", "t1", "build", "{}", "passed")
    assert THINKING not in shown([HELLO, THINKING, event])


def test_reasoning_goes_with_what_it_led_to_though_a_blank_text_stood_between() -> None:
    assert shown([HELLO, THINKING, TextItem(" "), call("t1"), result("t1")]) == [
        HELLO,
        THINKING,
        call("t1"),
        result("t1"),
    ]


def test_a_history_that_does_not_begin_with_the_user_gets_a_beginning() -> None:
    start = UserItem(MISSING_START, origin="runtime")
    assert shown([NoticeItem("retry"), THINKING, TextItem("hi"), HELLO]) == [start, THINKING, TextItem("hi"), HELLO]
    assert shown([call("t1"), result("t1")]) == [start, call("t1"), result("t1")]
    assert shown([TextItem(""), result("t1"), HELLO]) == [HELLO]


def test_text_that_the_user_cut_short_says_so() -> None:
    assert shown([HELLO, TextItem("Once upon", interrupted=True)])[-1] == TextItem("Once upon" + CUT_SHORT)


# What is not shown as it is stored


def test_an_event_is_shown_as_a_call_and_its_result() -> None:
    event = EventItem("e1", "t1", "build", '{"commit":"a"}', "passed")
    pretended = '{"original_tool_name":"build","original_tool_call_id":"t1","original_args":{"commit":"a"}}'
    assert shown([HELLO, event]) == [HELLO, CallItem("e1", EVENT_TOOL, pretended), ResultItem("e1", "passed")]


def test_an_event_settles_what_was_open_and_never_shares_an_id() -> None:
    event = EventItem("t1", "t0", "build", "{}", "passed")
    transcript = shown([HELLO, call("t1"), event, event, result("t1")])
    validate(transcript)
    assert transcript[2] == missing("t1")
    assert [item.content for item in transcript if isinstance(item, ResultItem)][1:] == ["passed", "passed"]


def test_a_summary_is_not_shown_where_it_is_stored() -> None:
    answered: list[Item] = [HELLO, call("t1"), result("t1"), TextItem("hi")]
    for place in range(len(answered) + 1):
        assert shown([*answered[:place], SummaryItem("They built it.", 9), *answered[place:]]) == answered


def test_notices_and_what_is_unknown_are_not_shown_and_part_nothing() -> None:
    hidden: list[Item] = [NoticeItem("retry"), Unknown(b"\x91\xa1z")]
    history = [HELLO, call("t1"), *hidden, call("t2"), *hidden, result("t1"), *hidden, result("t2")]
    assert shown(history) == [item for item in history if item not in hidden]


@pytest.mark.parametrize("blank", ["", " \n", (), (Text(""), Excerpt("\t", b"digest", 1))])
def test_blank_contents_are_shown_as_empty(blank: str) -> None:
    event = EventItem("e1", "t1", "build", "{}", blank)
    transcript = shown([UserItem(blank, user="ann"), call("t1"), ResultItem("t1", blank, True, "[]"), event])
    assert transcript[0] == UserItem(EMPTY_CONTENT, user="ann")
    assert transcript[2] == ResultItem("t1", EMPTY_CONTENT, True, "[]")
    assert transcript[4] == ResultItem("e1", EMPTY_CONTENT)


def test_blank_parts_are_left_out_beside_others() -> None:
    image = Image("image/png", b"data")
    mixed = (Text(""), image, Text("look"), Text("\n"))
    assert shown([UserItem(mixed)]) == [UserItem((image, Text("look")))]
    assert shown([UserItem((image,))]) == [UserItem((image,))]


# The validator


@given(st.lists(SHOWABLE, max_size=8) | damaged() | turns().map(flat))
def test_a20_the_validator_finds_what_a_strict_provider_would(transcript: list[Item]) -> None:
    if objections(transcript):
        with pytest.raises(TranscriptInvalid):
            validate(transcript)
    else:
        validate(transcript)


@given(turns().map(flat), st.integers(0, 20))
def test_the_validator_takes_a_transcript_in_pieces(transcript: list[Item], cut: int) -> None:
    validator = Validator()
    validator.feed(transcript[:cut])
    validator.feed(transcript[cut:])
    validator.finish()
    with pytest.raises(TranscriptInvalid):
        validator.feed([NoticeItem("retry")])


@pytest.mark.parametrize(
    "transcript,words",
    [
        ([], "it ends on nothing"),
        ([TextItem("hi"), HELLO], "TextItem after nothing"),
        ([call("t1"), result("t1")], "CallItem after nothing"),
        ([result("t1")], "ResultItem after nothing"),
        ([HELLO, TextItem("hi")], "it ends on TextItem"),
        ([HELLO, THINKING], "it ends on ReasoningItem"),
        ([HELLO, THINKING, HELLO], "UserItem after ReasoningItem"),
        ([HELLO, call("t1"), THINKING, result("t1")], "ResultItem after ReasoningItem"),
        ([HELLO, call("t1")], "call t1 has no result"),
        ([HELLO, call("t1"), HELLO], "UserItem before the result of t1"),
        ([HELLO, call("t1"), call("t2"), result("t1"), TextItem("hi")], "TextItem before the result of t2"),
        ([HELLO, call("t1"), call("t2"), result("t1"), call("t3")], "CallItem before the result of t2"),
        ([HELLO, call("t1"), call("t2"), result("t2"), result("t1")], "result of t2 where the one of t1 belongs"),
        ([HELLO, call("t1"), result("t1"), result("t1")], "result of t1 where none belongs"),
        ([HELLO, call("t1"), result("t1"), call("t1"), result("t1")], "call id t1 occurs twice"),
        ([HELLO, CallItem("t1", ""), result("t1")], "CallItem is blank"),
        ([UserItem(" ")], "UserItem is blank"),
        ([UserItem(())], "UserItem is blank"),
        ([UserItem((Text("look"), Text("")))], "UserItem is blank"),
        ([HELLO, TextItem("\n"), HELLO], "TextItem is blank"),
        ([HELLO, call("t1"), result("t1", "")], "ResultItem is blank"),
        ([HELLO, SummaryItem("short", 1), HELLO], "SummaryItem after UserItem"),
    ],
)
def test_the_validator_says_which_rule_is_broken(transcript: list[Item], words: str) -> None:
    with pytest.raises(TranscriptInvalid, match=words):
        validate(transcript)
