"""The items of a history as plain values, fit for JSON."""

import base64
from typing import Any

from hibernaut.messages.events import content_record
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
    Unknown,
    UserItem,
)

KINDS: dict[type[Item], str] = {
    UserItem: "user",
    TextItem: "agent",
    ReasoningItem: "reasoning",
    CallItem: "call",
    ResultItem: "result",
    EventItem: "event",
    OutsideItem: "event",
    SummaryItem: "summary",
    SpawnItem: "child",
    QuestionItem: "question",
    QuestionEndItem: "question over",
    NoticeItem: "notice",
    OutputItem: "answer",
    Unknown: "unknown",
}
"""What each kind of item is called."""


def item_record(item: Item) -> dict[str, Any]:
    """Return an item as plain values, fit for JSON; opaque bytes in base 64."""
    record: dict[str, Any] = {"type": KINDS[type(item)]}
    for name in item.__struct_fields__:
        value = getattr(item, name)
        if name == "content":
            record[name] = content_record(value)
        else:
            record[name] = base64.b64encode(value).decode() if isinstance(value, bytes) else value
    return record
