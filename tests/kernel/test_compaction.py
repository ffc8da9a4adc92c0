"""The pure rules of compaction: when, where it is cut, what is asked, what is taken for a summary."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hibernaut.kernel import compaction
from hibernaut.kernel.compaction import (
    HEADING,
    Cut,
    Material,
    OwnPage,
    Pressure,
    choose_cut,
    complete,
    facts_of,
    is_due,
    is_request,
    is_worth_it,
    judge,
    pressure_of,
    render,
    shown_summary,
    take_summary,
    task_of,
    window_of,
)
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.head import Call, Child, Head, Link, Pending, Summary
from hibernaut.kernel.limits import ThreadOptions
from hibernaut.kernel.sizes import LEAST_SHOWN, Sizes, fit_item, frame_tokens, item_tokens, items_tokens
from hibernaut.kernel.transcript import Transcript, validate
from hibernaut.kernel.turn import Turn, TurnCall, TurnText
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
from hibernaut.messages.parts import Excerpt, Image, Text, plain_text
from hibernaut.messages.stream import StopReason
from hibernaut.messages.tools import ToolSpec
from tests.kernel.test_transcript import HISTORIES

WORD = "word " * 80
"""100 tokens."""


def draft_of(*items: Item, head: Head | None = None, **options: int) -> Draft:
    draft = Draft(head or Head("t", b"salt", b"config", version=9), ThreadOptions(**options), 0)  # type: ignore[arg-type]
    draft.items += items
    return draft


def pages_of(*pages: Sequence[Item]) -> list[OwnPage]:
    return [OwnPage(version, list(items)) for version, items in enumerate(pages, 1)]


def cut_of(pages: Sequence[Sequence[Item]], *new: Item, before: Sequence[Item] = (), **more: bool) -> Cut | None:
    head = Head("t", b"salt", b"config", version=len(pages))
    return choose_cut(draft_of(*new, head=head), Material(list(before), pages_of(*pages), **more), FULL)


FULL = Pressure(1_000, 1_000, 1_000)
HELLO = UserItem("Hello")


def call(name: str) -> CallItem:
    return CallItem(name, "look")


def result(name: str, text: str = WORD) -> ResultItem:
    return ResultItem(name, text)


# When


@pytest.mark.parametrize("option, known, window", [(0, 0, 0), (0, 9, 9), (5, 0, 5), (5, 9, 5), (9, 5, 5)])
def test_the_window_is_the_smaller_of_what_is_set_and_what_is_known(option: int, known: int, window: int) -> None:
    assert window_of(ThreadOptions(context_window=option), known) == window


def pressed(window: int = 1_000, whole: int = 0, since: int = 0, **head: int | bool) -> Pressure:
    return pressure_of(Head("t", b"", b"", **head), window, whole, since)  # type: ignore[arg-type]


def test_c46_what_the_provider_counted_goes_before_our_estimate_but_not_below_half_of_it() -> None:
    assert pressed(whole=700).tokens == 700
    assert pressed(whole=700, since=50, measured=900).tokens == 950
    assert pressed(whole=700, since=50, measured=400).tokens == 450
    assert pressed(whole=700, since=50, measured=10).tokens == 350


def test_an_overflow_says_how_large_the_window_is_at_most() -> None:
    assert pressed(window=0, whole=700, overflowed=True).window == 700
    assert pressed(window=500, whole=700, overflowed=True).window == 500
    assert pressed(window=900, whole=700, overflowed=True).window == 700
    assert pressed(window=0, whole=700).window == 0


@pytest.mark.parametrize(
    "tokens, head, due",
    [
        (750, {}, False),
        (751, {}, True),
        (900, {"fruitless": 800}, False),
        (901, {"fruitless": 800}, True),
        (10, {"overflowed": True}, True),
        (10, {"overflowed": True, "fruitless": 10}, False),
    ],
)
def test_it_is_due_above_the_threshold_and_c46_not_again_before_there_is_notably_more(
    tokens: int, head: dict[str, int], due: bool
) -> None:
    now = Head("t", b"", b"", **head)  # type: ignore[arg-type]
    assert is_due(now, ThreadOptions(), Pressure(1_000, tokens, tokens)) is due
    if not now.overflowed:
        assert not is_due(now, ThreadOptions(compact_at=0), Pressure(1_000, tokens, tokens))
        assert not is_due(now, ThreadOptions(), Pressure(0, tokens, tokens))


# Where


def test_c50_what_this_round_adds_is_never_covered() -> None:
    cut = cut_of([[HELLO, TextItem(WORD)]], UserItem("Now this"))
    assert cut is not None
    assert cut.items == [HELLO, TextItem(WORD)]
    assert (cut.summary.kept, cut.summary.covers, cut.summary.skip) == (2, 2, 0)
    assert cut.request is None


def test_c50_a_request_that_was_stored_but_not_answered_is_never_covered() -> None:
    pages: list[list[Item]] = [[HELLO, TextItem(WORD)], [UserItem("Now this"), NoticeItem("retry")]]
    cut = cut_of(pages)
    assert cut is not None
    assert cut.items == pages[0]
    assert (cut.summary.kept, cut.summary.skip) == (2, 0)


@pytest.mark.parametrize(
    "pages, new",
    [
        ([], []),
        ([], [HELLO]),
        ([[]], [HELLO]),
        ([[NoticeItem("compacting"), SummaryItem("s", 1)]], [HELLO]),
        ([[HELLO, call("a")]], [result("a")]),
        ([[HELLO, NoticeItem("retry")]], []),
        ([[HELLO, TextItem("Hi")]], []),
    ],
)
def test_there_may_be_nothing_to_cover(pages: list[list[Item]], new: list[Item]) -> None:
    assert cut_of(pages, *new) is None


def test_a_summary_alone_is_not_summarized_again() -> None:
    assert cut_of([[NoticeItem("n")]], HELLO, before=[shown_summary("So far.")], summarized=True) is None
    assert cut_of([[NoticeItem("n")]], HELLO, before=[HELLO, TextItem("Hi")]) is not None


def test_c47_a_long_row_of_calls_is_cut_between_them_though_every_page_holds_half_of_two() -> None:
    pages: list[list[Item]] = [[HELLO, call("c0")]]
    pages += [[result(f"c{number}"), ReasoningItem("p", b"x"), call(f"c{number + 1}")] for number in range(20)]
    cut = cut_of(pages, result("c20"))
    assert cut is not None
    assert isinstance(cut.items[-1], ResultItem)
    assert 0 < cut.kept <= 200
    assert (cut.summary.skip, cut.request) == (1, HELLO)
    assert cut.summary.asked == 1
    again = choose_cut(
        draft_of(result("c20"), head=Head("t", b"", b"", version=21, summary=cut.summary)),
        Material([shown_summary("s")], pages_of(*pages)[-6:], 40, summarized=True),
        Pressure(100, 500, 500),
    )
    assert again is not None
    assert again.summary.asked == 1


def test_the_last_request_is_kept_if_it_is_near() -> None:
    far: list[list[Item]] = [[HELLO, TextItem(WORD * 5)]] * 2
    near: list[list[Item]] = [[UserItem("Build it"), call("a")], [result("a"), call("b")], [result("b"), call("c")]]
    cut = cut_of([*far, *near], result("c"))
    assert cut is not None
    assert cut.summary.kept == 3
    assert cut.request is None


@pytest.mark.parametrize("state", ["open", "queued", "detached"])
def test_a_call_that_is_open_in_history_keeps_everything_behind_it(state: str) -> None:
    head = Head("t", b"", b"", version=3, turn=("b",), calls={"b": Call("b", "look", state=state)})  # type: ignore[arg-type]
    pages = pages_of([HELLO, TextItem(WORD)], [UserItem("Both"), call("a"), call("b")], [result("a")])
    cut = choose_cut(draft_of(head=head), Material([], pages), FULL)
    assert cut is not None
    assert cut.summary.kept == 2


def test_calls_that_never_got_a_result_do_not_keep_it_from_being_cut() -> None:
    cut = cut_of([[HELLO, call("lost")], [HELLO, TextItem(WORD)]], HELLO)
    assert cut is not None
    assert len(cut.items) == 4


def test_a_note_to_go_on_stays_behind_what_it_is_about() -> None:
    pages: list[list[Item]] = [[HELLO, TextItem(WORD)], [HELLO, TextItem("Once up"), UserItem("Go on", "", "runtime")]]
    cut = cut_of(pages)
    assert cut is not None
    assert cut.summary.kept == 2


def test_calls_of_the_parent_that_a_child_answers_stay_with_their_results() -> None:
    assert cut_of([], result("a", "Your task"), before=[HELLO, call("a")]) is None
    pages: list[list[Item]] = [[result("a", "Your task"), TextItem(WORD)]]
    cut = cut_of(pages, HELLO, before=[HELLO, call("a")])
    assert cut is not None
    assert cut.items == [HELLO, call("a"), *pages[0]]


texts = st.sampled_from(["yes", WORD, WORD * 5])
steps = st.one_of(
    st.tuples(st.just("user"), texts),
    st.tuples(st.just("say"), texts),
    st.tuples(st.just("calls"), st.integers(1, 3)),
    st.tuples(st.just("event"), texts),
    st.tuples(st.just("notice"), texts),
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[Item]], list[Item]]:
    """A history as rounds make it: what comes in and what the model says to it share a page."""
    pages: list[list[Item]] = []
    page: list[Item] = []
    for number, (kind, value) in enumerate(draw(st.lists(steps, max_size=25))):
        if kind == "user":
            page.append(UserItem(str(value)))
        elif kind == "event":
            page.append(EventItem(f"e{number}", "c0", "watch", "{}", str(value)))
        elif kind == "notice":
            page.append(NoticeItem("title"))
        elif kind == "say":
            page.append(TextItem(str(value)))
            pages.append(page)
            page = []
        else:
            names = [f"c{number}_{place}" for place in range(int(value))]
            page += [ReasoningItem("p", b"x"), *map(call, names)]
            pages.append(page)
            page = [result(name) for name in names[:-1]] if draw(st.booleans()) else []
            if page:
                pages.append(page)
                page = [result(names[-1])]
            else:
                page = [result(name) for name in names]
    return pages, page


@settings(max_examples=200, deadline=None)
@given(histories(), st.integers(50, 3_000), st.booleans())
def test_wherever_it_is_cut_what_is_shown_is_valid_and_whole(
    history: tuple[list[list[Item]], list[Item]], window: int, inherits: bool
) -> None:
    pages, new = history
    before: list[Item] = [UserItem("Inherited"), TextItem("Yes")] if inherits else []
    head = Head("t", b"", b"", version=len(pages))
    material = Material(before, pages_of(*pages))
    own = [item for page in pages for item in page]
    whole = items_tokens([*before, *own, *new])
    cut = choose_cut(draft_of(*new, head=head), material, Pressure(window, whole, whole))
    if cut is None:
        return
    kept = [item for page in pages_of(*pages) if page.version >= cut.summary.kept for item in page.items]
    kept = kept[cut.summary.skip :]
    assert [*cut.items, *kept] == [*before, *own]
    assert cut.summary.covers == len(cut.items) - len(before)
    assert (cut.tokens, cut.kept) == (items_tokens(cut.items), items_tokens(kept))
    covered_calls = {item.id for item in cut.items if isinstance(item, CallItem)}
    assert not covered_calls & {item.call_id for item in [*kept, *new] if isinstance(item, ResultItem)}
    transcript = Transcript()
    transcript.extend([shown_summary("So far."), *kept, *new])
    shown = transcript.ready()
    if shown and isinstance(shown[-1], UserItem | ResultItem):
        validate(shown)
    # Nothing had to be made up: every result has its call, every call its result, reasoning leads to something.
    assert sum(isinstance(item, ResultItem) for item in shown) == sum(
        isinstance(item, ResultItem | EventItem) for item in [*kept, *new]
    )
    assert sum(isinstance(item, ReasoningItem) for item in shown) == sum(
        isinstance(item, ReasoningItem) for item in [*kept, *new]
    )


def test_it_must_be_worth_it() -> None:
    cut = Cut(Summary(2, 2, 1), [HELLO], 99, 0)
    assert not is_worth_it(cut, Pressure(1_000, 1_000, 1_000))
    assert is_worth_it(cut, Pressure(1_000, 990, 990))


# The request


def test_a_history_is_rendered_with_who_said_what() -> None:
    told = render(
        [
            shown_summary(complete("They met.", [])),
            UserItem("Hello", "ada"),
            UserItem("A note", "", "runtime"),
            TextItem("Well", interrupted=True),
            ReasoningItem("p", b"secret"),
            CallItem("c1", "look", '{"at":"it"}'),
            ResultItem("c1", (Text("seen"), Image("image/png", b"x"))),
            ResultItem("c2", "lost", is_error=True),
            EventItem("e1", "c1", "look", "{}", "moved", "report"),
            NoticeItem("retry", "unseen"),
        ],
        1_000,
    )
    assert told.split("\n\n") == [
        f"The summary so far: {HEADING}",
        "They met.",
        "The user ada: Hello",
        "The runtime: A note",
        "The agent (interrupted): Well",
        'The agent called look (c1): {"at":"it"}',
        "look (c1) answered: seen\n[image: image/png]",
        "A call (c2) failed: lost",
        "There came the report of look (c1): moved",
    ]


@given(st.lists(st.integers(0, 5_000), max_size=60), st.integers(200, 20_000))
def test_a_rendered_history_is_bounded_and_leaves_out_the_middle(sizes: list[int], tokens: int) -> None:
    items = [UserItem(f"<{number}>" + "x" * size) for number, size in enumerate(sizes)]
    told = render(items, tokens)
    assert len(told) <= tokens * 4 + 4_096 + 200
    if items:
        assert "<0>" in told
    if len(items) > 1 and "are left out here …]\n\n" in told:
        assert f"<{len(items) - 1}>" in told
        assert told.count("entries of the history are left out here") == 1


# The summary


@pytest.mark.parametrize(
    "parts, reason, problem",
    [
        ((), "end", "empty"),
        ((TurnText("  \n"),), "end", "empty"),
        ((TurnText("So"), TurnCall("look")), "end", "called a tool"),
        ((TurnText("No."),), "refused", "declined"),
        ((TurnText("So far the"),), "length", "output limit"),
        ((TurnText("x" * 4_000),), "end", "longer than what it would replace"),
        ((TurnText("x" * 3_000),), "end", "quarter of the window"),
        ((TurnText("They met."),), "end", ""),
    ],
)
def test_c48_what_is_no_summary_is_refused(
    parts: tuple[TurnText | TurnCall, ...], reason: StopReason, problem: str
) -> None:
    found = judge(Turn(parts, reason), 1_000, 2_000)
    assert problem in found
    assert bool(found) is bool(problem)


def test_c48_what_must_never_be_forgotten_comes_from_the_head() -> None:
    head = Head(
        "t", b"", b"", title="The roof", link=Link(("root",), "c0", "spawn_thread", '{"instructions":"Count."}')
    )
    calls = [
        Call("c1", "build", '{"commit":"a"}', state="open"),
        Call("c2", "test", state="detached"),
        Call("c3", "watch", '{"branch":"main"}', mode="subscription", state="subscribed"),
        Call("c4", "sleep", mode="rest", state="open", due=1_700_000_000_000),
        Call("c5", "wait", mode="rest", state="open"),
        Call("c6", "old", state="cancelled"),
        Call("c7", "held", state="answered", held=ResultItem("c7", "x")),
        Call("c8", "odd", mode="rest", state="open", due=10**17),
    ]
    head.calls = {one.id: one for one in calls}
    head.children = {
        "kid": Child("c9", "spawn_thread", '{"instructions":"Paint."}'),
        "tmp": Child("c3", "watch", event=True),
    }
    head.questions = {"q1": Pending("c1", "May I?", ("Yes", "No")), "q2": Pending("c1", "Old?", ("Yes",), answer=0)}
    text = "\n".join(facts_of(head, "", EventItem("e", "c3", "watch", "{}", "a push")))
    for word in (
        "The roof",
        "Count.",
        "parent is thread root",
        'c1) {"commit":"a"}',
        "c2)",
        "main",
        "2023-11-14T22:13:20",
    ):
        assert word in text
    for word in (
        "until something comes",
        "Child thread kid",
        "Paint.",
        "thread tmp lives, made for an event of watch",
        "May I?",
    ):
        assert word in text
    assert "event of watch (c3): a push" in text
    for word in ("c6", "c7", "Old?"):
        assert word not in text
    assert "Fix it" in "\n".join(facts_of(head, "Fix it", None))
    assert facts_of(Head("t", b"", b""), "", None) == []
    assert complete("They met.", []) == f"{HEADING}\n\nThey met."


def test_facts_stay_short_however_large_what_they_are_about_is() -> None:
    head = Head("t", b"", b"", link=Link(("root",), "c0", "spawn_thread"))
    head.calls = {f"c{number}": Call(f"c{number}", "watch", "x" * 9_999, state="subscribed") for number in range(50)}
    text = complete("", facts_of(head, "y" * 99_999, UserItem("z" * 99_999)))
    assert len(text) < 2 * compaction.REQUEST_BYTES + 50 * (compaction.FACT_BYTES + 100) + 500


def test_the_task_of_a_child_is_what_it_began_with() -> None:
    link = Link(("root",), "c0", "spawn_thread")
    spawned: list[Item] = [ResultItem("other", "Elsewhere"), ResultItem("c0", "Your task: count")]
    assert task_of(Head("kid", b"", b"", link=link), spawned) == "Your task: count"
    fresh = Link(("root",), "c0", "spawn_thread", fresh=True)
    assert task_of(Head("kid", b"", b"", link=fresh), [UserItem("Do it", "", "runtime"), UserItem("Hi")]) == "Do it"
    event = Link(("root",), "c0", "watch", event=True)
    items: list[Item] = [
        ResultItem("c0", "Elsewhere"),
        UserItem("For this", "", "runtime"),
        EventItem("call_kid", "c0", "watch", "{}", "a push"),
    ]
    assert task_of(Head("kid", b"", b"", link=event), items) == "For this\na push"
    assert task_of(Head("t", b"", b""), items) == ""


def test_a_summary_that_leaves_too_much_is_remembered_as_fruitless() -> None:
    cut = Cut(Summary(10, 9, 5), [HELLO], 500, 400)
    for window, fruitless in ((1_000, 0), (400, True), (0, 0)):
        draft = draft_of(UserItem(WORD))
        draft.head.measured, draft.head.measured_items, draft.head.retry, draft.head.attempts = 9, 9, "retry:3", 2
        take_summary(draft, cut, "They met.", Pressure(window, 900, 900), 7)
        head, item = draft.head, draft.items[-1]
        assert isinstance(item, SummaryItem)
        new = items_tokens([UserItem(WORD)])
        assert (item.covers, item.before, item.after) == (5, 7 + 900 + new, 7 + 400 + new + 6)
        assert head.summary == cut.summary
        assert (head.measured, head.measured_items, head.attempts, head.retry) == (0, 0, 0, "")
        assert bool(head.fruitless) is bool(fruitless)
        assert draft.dropped == ("retry:3",)


# Sizes


items = st.one_of(
    st.builds(UserItem, st.text(max_size=3_000), st.just(""), st.sampled_from(["", "runtime"])),
    st.builds(ResultItem, st.just("c"), st.text("ab", max_size=9_000)),
    st.builds(TextItem, st.text(max_size=3_000)),
    st.builds(EventItem, st.just("e"), st.just("c"), st.just("t"), st.just("{}"), st.text("ab", max_size=9_000)),
    st.builds(NoticeItem, st.just("title")),
)


@given(st.lists(items, max_size=20), st.lists(items, max_size=3), st.integers(0, 20), st.integers(0, 2_000))
def test_the_running_estimate_is_that_of_the_items(own: list[Item], inherited: list[Item], mark: int, cap: int) -> None:
    sizes = Sizes()
    sizes.mark(mark)
    sizes.inherit(inherited)
    for item in own:
        sizes.extend([item])
    assert sizes.shown() == items_tokens([*inherited, *own])

    def capped(counted: Sequence[Item]) -> int:
        def cut(item: Item) -> bool:
            return (
                bool(cap) and not isinstance(item, TextItem) and not (isinstance(item, UserItem) and item.origin != "")
            )

        return sum(min(item_tokens(item), max(cap, 256)) if cut(item) else item_tokens(item) for item in counted)

    if cap == 0 or cap >= 256:
        assert sizes.shown(cap) == capped([*inherited, *own])
        if 0 < mark <= len(own):
            assert sizes.since(mark, cap) == capped(own[mark:])
    assert sizes.since(mark + 1, cap) == sizes.shown(cap)


def test_the_mark_may_be_where_the_count_stands() -> None:
    sizes = Sizes(5)
    sizes.inherit([UserItem(WORD)])
    sizes.mark(5)
    sizes.extend([UserItem(WORD)])
    assert sizes.since(5) == items_tokens([UserItem(WORD)])
    sizes.mark(5)
    assert sizes.since(5) == items_tokens([UserItem(WORD)])
    sizes.mark(3)
    assert sizes.since(3) == sizes.shown()


def test_every_kind_of_item_has_its_size() -> None:
    assert item_tokens(UserItem((Text("x" * 400), Image("image/png", b"x" * 9_999)))) == 4 + 100 + 1_500
    assert item_tokens(UserItem("é" * 400)) == 4 + 200
    assert item_tokens(CallItem("c", "look", "x" * 400, "", b"y" * 40)) == 4 + 1 + 100 + 10
    assert item_tokens(ReasoningItem("p", b"x" * 400, "y" * 40)) == 4 + 100
    assert item_tokens(ReasoningItem("p", b"", "y" * 400)) == 4 + 100
    assert item_tokens(SummaryItem("s" * 400, 1)) == 0
    assert frame_tokens("x" * 400, [ToolSpec("look", "y" * 396, "{}")]) == 100 + 100 + 4


@given(st.text("ab\n", min_size=2_000, max_size=9_000), st.integers(LEAST_SHOWN, 400))
def test_a18_an_item_that_is_too_large_is_shown_as_head_and_tail(text: str, cap: int) -> None:
    for item in (UserItem(f"HEAD{text}TAIL"), ResultItem("c", f"HEAD{text}TAIL")):
        shown = fit_item(item, cap)
        assert shown == fit_item(item, cap)
        assert isinstance(shown, UserItem | ResultItem)
        assert item_tokens(shown) <= cap + 4
        words = plain_text(shown.content)
        assert words.startswith("HEAD")
        assert words.endswith("TAIL")
        assert "kept in this thread's history" in words
        assert fit_item(item, 99_999) is item


def test_a18_the_parts_of_an_item_share_its_room_and_images_stay() -> None:
    image = Image("image/png", b"x")
    item = ResultItem("c", (Text("a" * 8_000), image, Excerpt("b" * 8_000, b"blob", 99_999), Text("small")))
    shown = fit_item(item, 500)
    assert isinstance(shown, ResultItem)
    assert isinstance(shown.content, tuple)
    first, second, third, last = shown.content
    assert (second, last) == (image, Text("small"))
    assert isinstance(first, Text)
    assert isinstance(third, Excerpt)
    assert (third.blob, third.size) == (b"blob", 99_999)
    assert len(first.text) + len(third.text) <= 2_000


def test_a18_what_the_model_and_the_runtime_wrote_stays_whole() -> None:
    for item in (TextItem("x" * 9_999), CallItem("c", "t", "x" * 9_999), shown_summary("x" * 9_999)):
        assert fit_item(item, 100) is item


def test_items_are_shown_shorter_until_all_of_them_fit() -> None:
    sizes = Sizes()
    sizes.extend([ResultItem(f"c{number}", "x" * 8_000) for number in range(20)])
    assert sizes.cap_for(4_000, 99_999) == 4_000
    assert sizes.shown(sizes.cap_for(4_000, 6_000)) <= 6_000
    assert sizes.cap_for(4_000, 1) == LEAST_SHOWN - 2 or sizes.cap_for(4_000, 1) <= LEAST_SHOWN


def test_a_request_is_what_a_person_says_or_an_event() -> None:
    assert [
        is_request(one) for one in (HELLO, shown_summary("s"), EventItem("e", "c", "t", "{}", "x"), TextItem("x"))
    ] == [
        True,
        False,
        True,
        False,
    ]


@settings(deadline=None)
@given(HISTORIES, st.integers(1, 6), st.lists(st.sampled_from([HELLO, result("t1"), NoticeItem("n")]), max_size=2))
def test_c05_however_damaged_a_history_is_it_can_be_compacted_and_stays_valid(
    history: list[Item], size: int, new: list[Item]
) -> None:
    pages = [history[at : at + size] for at in range(0, len(history), size)]
    cut = cut_of(pages, *new)
    if cut is None:
        return
    kept = [item for page in pages_of(*pages) if page.version >= cut.summary.kept for item in page.items]
    transcript = Transcript()
    transcript.extend([shown_summary("So far."), *kept[cut.summary.skip :], *new, HELLO])
    validate(transcript.ready())
    validate([UserItem(compaction.ASK.format(history=render(cut.items, 500)), origin="runtime")])
