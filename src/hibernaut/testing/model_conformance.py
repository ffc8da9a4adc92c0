"""What every model must do, as checks that whoever writes a provider can run against it.

    @pytest.mark.parametrize("check", [*CONTRACT, *PLAYED], ids=name_of)
    def test_it_is_a_model(check: Check) -> None:
        asyncio.run(check(Subject(open_model)))

The checks of `CONTRACT` hold for any model, also for a real one, whatever it answers. Those of `PLAYED` need a model
behind which somebody plays a script: a `FakeProvider` that speaks the provider's wire.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from hibernaut.errors import ModelError
from hibernaut.kernel.turn import Turn, TurnBuffer, TurnCall, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
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
from hibernaut.messages.text import clean
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.models.protocol import Memo, Model, ModelRequest
from hibernaut.models.scripted import call, call_raw, cut, drop, fail, refuse, say, stall, think, turn
from hibernaut.testing.model_transcripts import TEXTS, random_transcript
from hibernaut.testing.providers.server import FakeScript, Played

Opener: TypeAlias = Callable[[FakeScript], AbstractAsyncContextManager[Model]]
"""Opens a model behind which this script is played; one of a real provider does without."""


class Subject(msgspec.Struct, frozen=True):
    """The model that is looked at."""

    open: Opener
    reasoning: tuple[ReasoningItem, ...] = ()
    """Blocks of its own that it may be shown again."""
    call_data: tuple[bytes, ...] = ()
    """What it may have stored with a call."""
    transcripts: int = 50
    """How many random transcripts it is asked with. Those of a real provider cost money."""
    keeps_usage: bool = True
    """Whether it tells input, output and cached tokens apart."""


Check: TypeAlias = Callable[[Subject], Coroutine[Any, Any, None]]
C = TypeVar("C", bound=Check)

CONTRACT: Final[list[Check]] = []
"""What holds for any model."""

PLAYED: Final[list[Check]] = []
"""What holds where the other side says what it is told to say."""

TOOLS: Final = (
    ToolSpec(
        "look", "Looks at a file.", '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'
    ),
    ToolSpec("wait", "", '{"type":"object","properties":{}}'),
)

_HELLO: Final = UserItem("Say hello.")


def name_of(check: Check) -> str:
    """Return the sentence that a check stands for."""
    return getattr(check, "__name__", repr(check))


def _contract(check: C) -> C:
    CONTRACT.append(check)
    return check


def _played(check: C) -> C:
    PLAYED.append(check)
    return check


# Any model


@_contract
async def a_turn_ends_with_its_last_piece(subject: Subject) -> None:
    """Expect `Finish` as the last piece, and no other one."""
    async with subject.open(["Hello."]) as model:
        pieces = await _asked(model)
    _expect(pieces and type(pieces[-1]) is Finish, f"the stream ends with {pieces[-1:]} and not with Finish")
    _expect(sum(type(piece) is Finish for piece in pieces) == 1, "there is one Finish")


@_contract
async def a_turn_tells_what_it_took(subject: Subject) -> None:
    """Count tokens, those from the cache among the input."""
    async with subject.open([turn("Hello.", usage=Usage(12, 3, 4))]) as model:
        usage = _turn(await _asked(model)).usage
    _expect(min(usage.input, usage.output, usage.cached) >= 0, f"{usage} counts below nothing")
    _expect(usage.cached <= usage.input, f"{usage}: what was cached is part of the input")


@_contract
async def calls_are_whole(subject: Subject) -> None:
    """Expect of each call that it begins, goes on and ends once, and that its arguments are a JSON object."""
    prompt = UserItem("Use the tool `look` on the path a.txt, and nothing else.")
    async with subject.open([turn(call("look", path="a.txt"), call("wait"))]) as model:
        pieces = await _asked(model, prompt, tools=TOOLS)
    began: set[int] = set()
    ended: set[int] = set()
    for piece in pieces:
        if type(piece) is CallStarted:
            _expect(piece.index not in began, f"call {piece.index} begins twice")
            _expect(bool(piece.name), "a call has a name")
            began.add(piece.index)
        elif type(piece) is CallDelta or type(piece) is CallEnded:
            _expect(piece.index in began - ended, f"{piece} belongs to no call that is open")
            if type(piece) is CallEnded:
                ended.add(piece.index)
    for part in _turn(pieces).parts:
        if isinstance(part, TurnCall) and part.complete:
            _expect(isinstance(_arguments(part), dict), f"{part.arguments!r} is no JSON object")


@_contract
async def a_call_can_be_answered(subject: Subject) -> None:
    """Show a model what it said, with the results of its calls."""
    prompt = UserItem("Use the tool `look` on the path a.txt, and nothing else.")
    thinks = think("I look.", data=b"block")
    async with subject.open([turn(thinks, "I look. ", call("look", path="a.txt")), "It says hello."]) as model:
        said = _items(_turn(await _asked(model, prompt, tools=TOOLS)))
        answers = [ResultItem(item.id, "hello") for item in said if isinstance(item, CallItem)]
        follow_up: list[Item] = [*answers] or [UserItem("Thank you. Say hello.")]
        pieces = await _asked(model, prompt, *said, *follow_up, tools=TOOLS)
    _expect(type(pieces[-1]) is Finish, "a turn follows the results")


@_contract
async def a_summary_needs_no_tools(subject: Subject) -> None:
    """Have a history with calls in it summarized by a completion that has no tools."""
    history = (_HELLO, CallItem("c1", "look", '{"path":"a.txt"}', "toolu_1"), ResultItem("c1", "hello"))
    async with subject.open(["They looked at a file."]) as model:
        pieces = await _asked(model, *history, UserItem("Summarize."), purpose="summary")
    _expect(type(pieces[-1]) is Finish, "a summary ends")


@_contract
async def streams_at_the_same_time_do_not_mix(subject: Subject) -> None:
    """Run two completions side by side."""
    async with subject.open([turn("Hello.", call("wait"))] * 2) as model:
        both = await asyncio.gather(*[_asked(model, tools=TOOLS) for _ in range(2)])
    for pieces in both:
        _expect(type(pieces[-1]) is Finish, "each ends")


@_contract
async def a_stream_that_is_closed_leaves_the_model_usable(subject: Subject) -> None:
    """Close a stream that has said enough, and ask again."""
    async with subject.open([say("Hello, hello, hello.", chunks=1), "Hello."]) as model:
        async with aclosing(model.stream(_request(_HELLO))) as stream:
            await anext(stream)
        pieces = await _asked(model)
    _expect(type(pieces[-1]) is Finish, "it can be asked again")


@_contract
async def every_valid_transcript_is_taken(subject: Subject) -> None:
    """Ask with whatever a thread may have lived through."""
    async with subject.open(["Hello."] * subject.transcripts) as model:
        for seed in range(subject.transcripts):
            transcript = random_transcript(Random(seed), subject.reasoning, subject.call_data)  # noqa: S311
            try:
                pieces = await _asked(model, *transcript, tools=TOOLS)
            except ModelError as error:
                raise AssertionError(f"the transcript of seed {seed} is refused: {error}\n{transcript}") from error
            _expect(type(pieces[-1]) is Finish, f"the turn after the transcript of seed {seed} ends")


@_contract
async def a_transcript_that_grows_is_taken_at_every_step(subject: Subject) -> None:
    """Use what was made of a transcript again when it is longer."""
    transcript = random_transcript(Random(7), subject.reasoning, subject.call_data)  # noqa: S311
    memo = Memo()
    steps = [
        place
        for place, item in enumerate(transcript, 1)
        if isinstance(item, UserItem | ResultItem) and not _owes(transcript[:place])
    ]
    async with subject.open(["Hello."] * len(steps)) as model:
        for place in steps:
            pieces = await _asked(model, *transcript[:place], tools=TOOLS, memo=memo)
            _expect(type(pieces[-1]) is Finish, f"the turn after {place} items ends")


# A model that somebody plays


@_played
async def what_is_said_arrives_as_it_was_said(subject: Subject) -> None:
    """Say text of any kind, in one piece or in many."""
    for text in TEXTS:
        for chunks in (None, 1, 7):
            async with subject.open([say(text, chunks=chunks)]) as model:
                _same(_turn(await _asked(model)).parts, (TurnText(clean(text)),))


@_played
async def what_is_thought_is_shown_and_can_be_replayed(subject: Subject) -> None:
    """Think aloud, and be shown the block again."""
    async with subject.open([turn(think("Let me ", "see.", data=b"block"), "Done."), "Hello."]) as model:
        pieces = await _asked(model)
        blocks = [piece for piece in pieces if type(piece) is ReasoningBlock]
        shown = "".join([piece.text for piece in pieces if type(piece) is ThinkingDelta])
        if blocks:
            _same(shown or blocks[0].text, "Let me see.")
        said = _items(_turn(pieces))
        pieces = await _asked(model, _HELLO, *said, UserItem("Again."))
    _expect(type(pieces[-1]) is Finish, "the block is taken back")


@_played
async def calls_arrive_whole_and_in_order(subject: Subject) -> None:
    """Say texts and make calls, however they are cut."""
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("look", {"path": TEXTS[3]}),
        ("wait", {}),
        ("look", {"path": TEXTS[5], "n": [1, {"a": None}]}),
    ]
    for chunks in (None, 1, 5):
        made = turn("First ", *[call(name, values) for name, values in wanted], chunks=chunks)
        async with subject.open([made]) as model:
            found = _turn(await _asked(model, tools=TOOLS))
        calls = [part for part in found.parts if isinstance(part, TurnCall)]
        _same([(each.name, _arguments(each), each.complete) for each in calls], [(*each, True) for each in wanted])
        _same(found.parts[0], TurnText("First "))


@_played
async def a_call_without_arguments_is_a_call(subject: Subject) -> None:
    """Send nothing at all to a tool without parameters, as models do."""
    async with subject.open([call_raw("wait")]) as model:
        (made,) = _turn(await _asked(model, tools=TOOLS)).parts
    _expect(isinstance(made, TurnCall) and made.complete and _arguments(made) == {}, f"{made} is a call with {{}}")


@_played
async def a_call_that_the_output_limit_cuts_off_is_not_whole(subject: Subject) -> None:
    """Expect of half a call that it is not complete, or that its arguments show it."""
    async with subject.open([cut("I look. ", call_raw("look", '{"pa'))]) as model:
        found = _turn(await _asked(model, tools=TOOLS))
    _same(found.reason, "length")
    for part in found.parts:
        if isinstance(part, TurnCall):
            _expect(not part.complete or part.arguments == '{"pa', f"{part} is not repaired")


@_played
async def why_a_turn_ends_is_told(subject: Subject) -> None:
    """End because the turn is complete, cut off, or refused."""
    ends: tuple[tuple[Played, StopReason], ...] = (("Hi.", "end"), (cut("Hi"), "length"), (refuse("No."), "refused"))
    for played, reason in ends:
        async with subject.open([played]) as model:
            _same(_turn(await _asked(model)).reason, reason)


@_played
async def tokens_are_told_as_they_were_counted(subject: Subject) -> None:
    """Expect an input that includes what came from the cache."""
    counted = Usage(1_200, 34, 1_000)
    async with subject.open([turn("Hello.", usage=counted)]) as model:
        usage = _turn(await _asked(model)).usage
    _same(usage if subject.keeps_usage else usage.output, counted if subject.keeps_usage else counted.output)


@_played
async def failures_keep_their_kind(subject: Subject) -> None:
    """Expect the type of each, and how long the provider wants to be left alone."""
    failures = (
        RateLimited("slow down", 7_000),
        Overloaded("busy"),
        ContextOverflow("prompt is too long"),
        InvalidRequest("no"),
        AuthenticationFailed("who are you?"),
    )
    for failure in failures:
        async with subject.open([failure]) as model:
            error = await _failure(model)
        _expect(type(error) is type(failure), f"{failure!r} arrives as {error!r}")
        if isinstance(error, RateLimited):
            _same(error.retry_after, 7_000)


@_played
async def a_failure_in_the_middle_is_raised(subject: Subject) -> None:
    """Break off after some of a turn."""
    for failure in (Overloaded("busy"), ConnectionLost("reset")):
        async with subject.open([fail(failure, "one ", "two", after=1)]) as model:
            error = await _failure(model)
        _expect(isinstance(error, Overloaded | ConnectionLost), f"{failure!r} in the middle arrives as {error!r}")


@_played
async def a_stream_without_an_end_is_no_turn(subject: Subject) -> None:
    """Expect no `Finish`, or an error, where the last piece is missing."""
    async with subject.open([drop("half a sen")]) as model:
        pieces: list[StreamPiece] = []
        try:
            pieces = await _asked(model)
        except ModelError:
            return
    _expect(not any(type(piece) is Finish for piece in pieces), "what broke off is not finished")


@_played
async def a_stream_that_stands_still_can_be_given_up(subject: Subject) -> None:
    """Stop waiting for a stream that stands still, and ask again."""
    async with subject.open([stall("one"), "Hello."]) as model:
        stream = model.stream(_request(_HELLO))
        first = await anext(stream)
        while not isinstance(first, TextDelta):
            first = await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await stream.aclose()
        pieces = await _asked(model)
    _expect(type(pieces[-1]) is Finish, "it can be asked again")


# How it is done


def _expect(holds: object, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def _same(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r} where {wanted!r} belongs")


def _request(*transcript: Item, tools: Sequence[ToolSpec] = (), **more: Any) -> ModelRequest:
    return ModelRequest("model", "Be kind.", transcript, tuple(tools), "thread", **more)


async def _asked(model: Model, *transcript: Item, tools: Sequence[ToolSpec] = (), **more: Any) -> list[StreamPiece]:
    stream: AsyncGenerator[StreamPiece, None]
    async with aclosing(model.stream(_request(*(transcript or (_HELLO,)), tools=tools, **more))) as stream:
        return [piece async for piece in stream]


async def _failure(model: Model) -> ModelError:
    try:
        pieces = await _asked(model)
    except ModelError as error:
        return error
    raise AssertionError(f"no error, but {pieces}")


def _turn(pieces: Sequence[StreamPiece]) -> Turn:
    buffer = TurnBuffer()
    buffer.feed_all(pieces)
    _expect(buffer.finish is not None, f"{pieces} is no whole turn")
    return buffer.turn()


def _arguments(made: TurnCall) -> Any:
    return msgspec.json.decode(made.arguments or "{}")


def _items(said: Turn) -> list[Item]:
    items: list[Item] = []
    for number, part in enumerate(said.parts):
        if isinstance(part, TurnText):
            items.append(TextItem(part.text))
        elif isinstance(part, TurnCall):
            items.append(CallItem(f"c{number}", part.name, part.arguments or "{}", part.provider_id, part.data))
        else:
            items.append(ReasoningItem(part.provider, part.data, part.text))
    while items and isinstance(items[-1], ReasoningItem):
        items.pop()
    return items


def _owes(transcript: Sequence[Item]) -> bool:
    calls = sum(isinstance(item, CallItem) for item in transcript)
    return calls > sum(isinstance(item, ResultItem) for item in transcript)
