"""The events of a stored commit: the same ones for ever, whoever reads them and whenever.

A turn is shown while it is being made, too. So that a reader who saw part of it can go on in the stored one, everything
is measured in *units*: a text counts its characters, any other event counts one.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hibernaut.kernel.outside import order_of
from hibernaut.kernel.receipt import Receipt, TurnCommit
from hibernaut.messages.events import (
    AgentEvent,
    CompletionFinished,
    CompletionStarted,
    Cursor,
    Notice,
    OutputGiven,
    QuestionAsked,
    QuestionEnded,
    SubscriptionEvent,
    Summarized,
    TextChunk,
    ThreadSpawned,
    ToolCall,
    ToolResult,
    Usage,
    UserInput,
)
from hibernaut.messages.items import (
    CallItem,
    EventItem,
    Item,
    NoticeItem,
    OutputItem,
    OutsideItem,
    QuestionEndItem,
    QuestionItem,
    ReasoningItem,
    ResultItem,
    SpawnItem,
    SummaryItem,
    TextItem,
    UserItem,
)

_AFTER_NOTHING = ("parked", "closed")
"""Notices that a turn without anything in it ends with."""

_TURN = (TextItem, ReasoningItem, CallItem)


def stored_events(thread_id: str, items: Sequence[Item], receipt: Receipt) -> list[AgentEvent]:
    """Return the events of one commit, in order, each with its cursor."""
    events: list[AgentEvent] = []
    asked = receipt.turn in (TurnCommit.COMPLETE, TurnCommit.INTERRUPTED)
    begins, ends = _turn_bounds(items) if asked else (-1, -1)
    for position in range(len(items) + 1):
        if position == begins:
            events.append(CompletionStarted(thread_id=thread_id))
        if position == ends:
            events.append(
                CompletionFinished(
                    thread_id=thread_id,
                    usage=receipt.usage or Usage(),
                    interrupted=receipt.turn is TurnCommit.INTERRUPTED,
                    estimated=receipt.estimated,
                )
            )
        if position < len(items):
            event = event_of(thread_id, items[position])
            if event is not None:
                events.append(event)
    return [replace(event, cursor=str(Cursor(receipt.version, index))) for index, event in enumerate(events, 1)]


def event_of(thread_id: str, item: Item) -> AgentEvent | None:
    """Return what people see of one item; reasoning and what we do not know are not shown."""
    match item:
        case UserItem():
            return UserInput(thread_id=thread_id, content=item.content, user=item.user, origin=item.origin)
        case TextItem():
            return TextChunk(thread_id=thread_id, text=item.text)
        case CallItem():
            return ToolCall(
                thread_id=thread_id, call_id=item.id, tool=item.name, arguments=item.arguments, display=item.display
            )
        case ResultItem():
            return ToolResult(
                thread_id=thread_id,
                call_id=item.call_id,
                content=item.content,
                is_error=item.is_error,
                display=item.display,
            )
        case EventItem():
            return SubscriptionEvent(
                thread_id=thread_id,
                call_id=item.call_id,
                tool=item.tool,
                content=item.content,
                source=item.source,
                final=item.final,
                is_error=item.is_error,
                display=item.display,
                origin=item.thread_id,
                note=order_of(item.sequence, item.before) if isinstance(item, OutsideItem) else "",
            )
        case SummaryItem():
            return Summarized(
                thread_id=thread_id, text=item.text, covers=item.covers, before=item.before, after=item.after
            )
        case SpawnItem():
            return ThreadSpawned(thread_id=thread_id, child_id=item.thread_id, call_id=item.call_id, event=item.event)
        case QuestionItem():
            return QuestionAsked(
                thread_id=thread_id,
                question_id=item.id,
                call_id=item.call_id,
                prompt=item.prompt,
                choices=item.choices,
                default=item.default,
                due=item.due,
                url=item.url,
            )
        case QuestionEndItem():
            return QuestionEnded(
                thread_id=thread_id,
                question_id=item.id,
                call_id=item.call_id,
                outcome=item.outcome,
                choice=item.choice,
                text=item.text,
                user=item.user,
            )
        case OutputItem():
            return OutputGiven(thread_id=thread_id, ask_id=item.ask_id, value=item.value, problem=item.problem)
        case NoticeItem():
            return Notice(thread_id=thread_id, kind=item.kind, text=item.text)
        case _:
            return None


def units(event: AgentEvent) -> int:
    """Return how many units an event counts."""
    return len(event.text) if isinstance(event, TextChunk) else 1


def rest_of(events: Sequence[AgentEvent], seen: int) -> Iterator[AgentEvent]:
    """Yield what follows the first `seen` units of a commit's events; a text may be continued in its middle."""
    for event in events:
        size = units(event)
        if seen >= size:
            seen -= size
        elif seen and isinstance(event, TextChunk):
            yield TextChunk(thread_id=event.thread_id, cursor=event.cursor, text=event.text[seen:])
            seen = 0
        else:
            yield event


def _turn_bounds(items: Sequence[Item]) -> tuple[int, int]:
    """Return where the turn begins in a page and where it has ended."""
    turn = [position for position, item in enumerate(items) if isinstance(item, _TURN)]
    if turn:
        return turn[0], turn[-1] + 1
    for position, item in enumerate(items):
        if isinstance(item, NoticeItem) and item.kind == "empty_turn":
            return position, position
    end = len(items)
    while end and _comes_after(items[end - 1]):
        end -= 1
    return end, end


def _comes_after(item: Item) -> bool:
    """Tell whether an item is about a turn without anything in it, which ends before it."""
    return isinstance(item, OutputItem) or (isinstance(item, NoticeItem) and item.kind in _AFTER_NOTHING)
