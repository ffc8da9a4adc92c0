"""The second half of a round: what the model said becomes items, calls and effects, or a failure becomes a retry."""

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from hibernaut.codec import sha256
from hibernaut.errors import ConfigurationError, ModelError
from hibernaut.ids import call_id
from hibernaut.kernel import outputs, questions
from hibernaut.kernel.dispatch import dispatch
from hibernaut.kernel.draft import Draft
from hibernaut.kernel.ending import close
from hibernaut.kernel.family import FamilyMatter, carry_out, finish
from hibernaut.kernel.forms import Given, Output
from hibernaut.kernel.head import Call, CallMode
from hibernaut.kernel.limits import BACKOFF_FIRST, BACKOFF_MOST, RETRY_AFTER_MOST
from hibernaut.kernel.turn import Turn, TurnCall, TurnPart, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem, ReasoningItem, TextItem, UserItem
from hibernaut.messages.parts import Content
from hibernaut.messages.stream import ReasoningBlock
from hibernaut.messages.tools import ANSWER_TOOL

GO_ON = "[The output limit cut your answer off here. Go on exactly where it stopped.]"
CUT_CALL = "Not run: the output limit cut this call off before its arguments were complete. Call it again, shorter."
HALF_CALL = "Not run: the turn ended before the arguments of this call were complete. Call it again."


class Refusal(msgspec.Struct, frozen=True):
    """The call is not run; the model reads why."""

    reason: str


class Settled(msgspec.Struct, frozen=True):
    """The call is answered by the runtime itself, within this commit. `title` renames the thread."""

    content: Content
    title: str | None = None


class Rest(msgspec.Struct, frozen=True):
    """The call waits: for `delay` milliseconds, until `due`, or (with neither) for whatever comes."""

    delay: int = 0
    due: int = 0


class Run(msgspec.Struct, frozen=True):
    """The call is to be performed.

    `deadline`: milliseconds it may take, 0 for no bound. `passive`: it stands for waiting, events do not wait for it.
    """

    mode: CallMode
    deadline: int = 0
    passive: bool = False
    server: str = ""
    """The tool server that performs it; "" when an engine's process does."""
    event_schema: str = ""
    """The JSON Schema of the events that it may bring, as JSON text; "" for any."""


Verdict = Refusal | Settled | Rest | Run | FamilyMatter


class Judged(msgspec.Struct, frozen=True, gc=False):
    """What is to be done with a call, and its arguments as a JSON object."""

    verdict: Verdict
    arguments: str = "{}"
    display: str = ""
    """The call as people read it; "" for its name and arguments."""
    annotations: tuple[str, ...] = ()
    """What the tool says of itself."""


class CallJudge(Protocol):
    """Knows the tools of a thread."""

    def judge(self, tool: str, arguments: str, now: int) -> Judged:
        """Check a call: does the tool exist, may it be used, are the arguments right?"""
        ...


LONGEST_NAME = 128
"""Characters of a tool's name that are stored: no tool has a longer one, so that it is made up by the model."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def fold_turn(draft: Draft, turn: Turn, judge: CallJudge) -> None:
    """Take a complete turn into the history: all its calls are stored, as many as may be open are dispatched.

    A turn without a text or a call leaves nothing behind, not even its reasoning.
    """
    head = draft.head
    head.owes = head.overflowed = False
    draft.forget_failures()
    count(draft, Spent(turn.usage, turn.cost))
    said = turn.parts if _say_something(turn.parts) else ()
    calls = _store(draft, said, judge, CUT_CALL if turn.reason == "length" else HALF_CALL)
    head.measured = turn.usage.input + turn.usage.output
    head.measured_items = head.items + draft.turn_end if head.measured else 0
    if calls:
        if draft.closing is not None:
            close(draft, *draft.closing)
        elif head.status == "open":
            dispatch(draft)
        draft.release_results()
        if outputs.end_calls(draft, calls):
            finish(draft, given.value if draft.output and isinstance(given := draft.output.given, Given) else "")
    elif turn.reason == "length" and not outputs.form_wanted(head):
        _continue(draft, _text_of(said))
    else:
        if not said:
            draft.notice("empty_turn", "the model answered with nothing")
        _end(draft, _text_of(said), cut=turn.reason == "length")
    if said and turn.reason != "length":
        head.continuations = 0
    if head.questions:
        questions.sweep(draft)


def spawns(turn: Turn) -> bool:
    """Tell whether the model wants a child."""
    for part in turn.parts:  # noqa: SIM110  # it is asked for every turn, and a generator takes four times as long
        if type(part) is TurnCall and part.name == "spawn_thread":
            return True
    return False


def _store(draft: Draft, said: Sequence[TurnPart], judge: CallJudge, cut: str) -> list[Call]:
    """Take all that was said into the history, and find out what is to be done with each call."""
    calls: list[Call] = []
    matters: list[tuple[Call, FamilyMatter]] = []
    alone = draft.output is not None and all(part.name == ANSWER_TOOL for part in said if isinstance(part, TurnCall))
    for part in said:
        if type(part) is TurnText:
            if part.text and not part.text.isspace():
                draft.items.append(TextItem(part.text))
        elif type(part) is TurnCall:
            call, matter = _store_call(draft, part, len(calls), judge, cut, alone=alone)
            calls.append(call)
            if matter is not None:
                matters.append((call, matter))
        elif type(part) is ReasoningBlock:
            draft.items.append(ReasoningItem(part.provider, part.data, part.text))
    if calls:
        draft.head.turn = tuple([call.id for call in calls])
        draft.calls += draft.head.turn
    draft.turn_end = len(draft.items)
    for call, matter in matters:
        carry_out(draft, call, matter)
    for call in calls:
        if call.held is not None and call.tool != ANSWER_TOOL:  # of these there is one try more, and no third
            draft.watch_repeats(call, call.held.content, is_error=call.held.is_error)
    return calls


def _text_of(said: Sequence[TurnPart]) -> str:
    if len(said) == 1 and isinstance(said[0], TurnText):
        return said[0].text
    return "".join([part.text for part in said if isinstance(part, TurnText)])


def _say_something(parts: Sequence[TurnPart]) -> bool:
    for part in parts:
        if type(part) is TurnCall or (type(part) is TurnText and part.text and not part.text.isspace()):
            return True
    return False


def fold_interrupted(draft: Draft, turn: Turn) -> None:
    """Keep the visible text of a turn that the user cut short. What woke it comes in the next round."""
    texts = [part.text for part in turn.parts if isinstance(part, TurnText)]
    text = "".join(text for text in texts if not text.isspace())
    if text:
        draft.items.append(TextItem(text, interrupted=True))
        draft.head.owes = False
    draft.forget_failures()


OVERFLOW = "context_overflow"
"""Code of the failure that compaction may help against."""


class Failure(msgspec.Struct, frozen=True):
    """How a completion failed; `retry_after` in milliseconds, 0 when nobody said.

    One that is not `counted` is none of the attempts that a thread has: the provider was not even asked.
    """

    code: str
    text: str
    retryable: bool = False
    retry_after: int = 0
    counted: bool = True

    @classmethod
    def of(cls, error: ModelError | ConfigurationError) -> "Failure":
        """Return how a completion failed with this error."""
        if isinstance(error, ModelError):
            return cls(error.code, str(error), error.retryable, error.retry_after, error.counted)
        return cls(error.code, str(error))


def fold_failure(draft: Draft, failure: Failure) -> None:
    """Put the thread back with a due time, or park it: after bounded attempts, or at once if trying again is no use.

    A prompt that was too long for the model is compacted and sent again, once.
    """
    head = draft.head
    head.owes = True
    what = f"{failure.code}: {failure.text}"
    if failure.code == OVERFLOW and draft.options.compact_at and not head.overflowed:
        head.overflowed, head.fruitless = True, 0
        draft.forget_failures()
        draft.notice("retry", f"{what}; trying again with a shorter history")
        return
    if not failure.counted:
        head.attempts = max(1, head.attempts)  # that a thread is held up shows in this
        wait = failure.retry_after + backoff(head.salt, head.version, 1)
        head.retry = draft.timer("retry", draft.now + wait)
        return
    head.attempts += 1
    if not failure.retryable or failure.retry_after > RETRY_AFTER_MOST:
        draft.park(what)
    elif head.attempts >= draft.options.max_attempts:
        draft.park(f"{what} (gave up after {head.attempts} attempts)")
    else:
        wait = max(failure.retry_after, backoff(head.salt, head.version, head.attempts))
        head.retry = draft.timer("retry", draft.now + wait)
        which = f"attempt {head.attempts + 1} of {draft.options.max_attempts}"
        draft.notice("retry", f"{what}; {which} in {wait / 1000:.0f} s")


def backoff(salt: bytes, version: int, attempts: int) -> int:
    """Return the milliseconds to wait after so many failures: doubling, with a jitter that follows from the thread."""
    wait = min(BACKOFF_FIRST << min(attempts - 1, 20), BACKOFF_MOST)
    jitter = int.from_bytes(sha256(b"%b|%d" % (salt, version))[:2], "big")
    return wait - wait * jitter // (4 * 65_536)


class Spent(msgspec.Struct, frozen=True, gc=False):
    """What a completion took."""

    usage: Usage = Usage()
    cost: int | None = None
    """Millionths of a US dollar; None: unknown."""
    estimated: int = 0
    """How many of the tokens are an estimate,"""
    estimated_cost: int = 0
    """and how much of the cost."""


def count(draft: Draft, spent: Spent) -> None:
    """Add what a completion took to what the thread has used."""
    head, usage = draft.head, spent.usage
    if spent.cost is not None:
        head.cost += spent.cost
        head.priced += usage.input + usage.output
    if usage.input or usage.output:
        head.usage = added(head.usage, usage)
    if spent.estimated:
        head.estimated += spent.estimated
        head.estimated_cost += spent.estimated_cost


def added(one: Usage, other: Usage) -> Usage:
    """Return what two completions took together."""
    return Usage(one.input + other.input, one.output + other.output, one.cached + other.cached)


def _store_call(
    draft: Draft, part: TurnCall, position: int, judge: CallJudge, cut: str, *, alone: bool
) -> tuple[Call, FamilyMatter | None]:
    head = draft.head
    name = call_id(head.salt, head.version + 1, position)
    if not part.complete:
        judged = Judged(Refusal(cut))
    elif position >= draft.options.max_calls_per_turn:
        judged = Judged(Refusal(f"Not run: a turn may make at most {draft.options.max_calls_per_turn} calls."))
    elif draft.output is not None and part.name == ANSWER_TOOL:
        judged = _judge_answer(draft, draft.output, part.arguments, alone=alone)
    else:
        judged = judge.judge(part.name, part.arguments, draft.now)
    tool = _NOT_IN_NAMES.sub("_", part.name)[:LONGEST_NAME] or "unnamed"
    call = Call(name, tool, judged.arguments, version=head.version + 1)
    head.calls[name] = call
    draft.items.append(CallItem(name, tool, judged.arguments, part.provider_id, part.data, judged.display))
    verdict = judged.verdict
    if type(verdict) is Run:
        call.mode, call.passive = verdict.mode, verdict.passive
        call.deadline = verdict.deadline or draft.options.call_deadline
        call.annotations = judged.annotations
        if verdict.server:
            call.server, call.provider_id = verdict.server, part.provider_id
        if verdict.event_schema:
            call.event_schema = draft.keep(verdict.event_schema.encode())
    elif isinstance(verdict, Refusal):
        draft.answer(call, verdict.reason, is_error=True)
    elif isinstance(verdict, Settled):
        draft.answer(call, verdict.content)
        if verdict.title is not None:
            head.title = verdict.title
            draft.notice("title", verdict.title)
    elif isinstance(verdict, Rest):
        call.mode, call.passive, call.delay, call.due = "rest", True, verdict.delay, verdict.due
    elif not isinstance(verdict, Run):
        return call, verdict
    return call, None


def _judge_answer(draft: Draft, output: Output, arguments: str, *, alone: bool) -> Judged:
    last = bool(draft.head.asks) and draft.head.asks[0].tried
    reason, value = outputs.take_call(output, arguments, alone=alone, last=last)
    return Judged(Refusal(reason) if reason else Settled(outputs.TAKEN), value)


def _end(draft: Draft, text: str, *, cut: bool = False) -> None:
    """End a turn in plain text, unless whoever waits for an answer cannot take it."""
    if outputs.end_text(draft, text, cut=cut):
        finish(draft, text)


def _continue(draft: Draft, text: str) -> None:
    head = draft.head
    if not text:
        draft.park("output_truncated: the output limit was reached before the model said anything that can be kept")
        head.owes = True
    elif head.continuations >= draft.options.max_continuations:
        draft.notice("truncated", f"the answer was cut by the output limit and continued {head.continuations} times")
        _end(draft, text)
        head.continuations = 0
    else:
        head.continuations += 1
        outputs.keep_beginning(draft, text)
        draft.items.append(UserItem(GO_ON, origin="runtime"))
        head.owes = True
