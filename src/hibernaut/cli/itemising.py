"""The items of a history, as people and programs read them."""

from hibernaut.messages.item_records import KINDS
from hibernaut.messages.items import (
    CallItem,
    EventItem,
    Item,
    NoticeItem,
    OutputItem,
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
from hibernaut.messages.parts import Content, Excerpt, plain_text
from hibernaut.stores.protocol import Store


def kind_of(item: Item, tools: dict[str, str]) -> str:
    """Return in a few words what an item is. `tools` remembers from item to item which tool each call is of."""
    match item:
        case UserItem(origin="runtime"):
            return "runtime"
        case UserItem(user=user) if user:
            return f"user {user}"
        case TextItem(interrupted=True):
            return "agent, interrupted"
        case CallItem():
            tools[item.id] = item.name
            return f"call {item.name}"
        case ResultItem():
            return f"{'error' if item.is_error else 'result'} {tools.pop(item.call_id, '')}".rstrip()
        case EventItem():
            return f"{item.source.replace('_', ' ')} {item.tool}"
        case NoticeItem():
            return f"notice {item.kind}"
        case _:
            return KINDS[type(item)]


def text_of(item: Item) -> str:
    """Return what can be read of an item."""
    match item:
        case TextItem() | ReasoningItem() | NoticeItem():
            return item.text
        case SummaryItem():
            return f"compacted: {item.before:,} -> {item.after:,} tokens\n{item.text}"
        case CallItem():
            return item.arguments
        case SpawnItem():
            return f"{item.thread_id}{', for an event' if item.event else ''}"
        case QuestionItem():
            choices = ", ".join(f"{number} {choice}" for number, choice in enumerate(item.choices, 1))
            return f"{item.prompt} [{choices}]{f' {item.url}' if item.url else ''}"
        case OutputItem():
            return item.problem or item.value
        case QuestionEndItem():
            return f"{item.outcome}: {item.text}"
        case Unknown():
            return "(written by a newer version)"
        case _:
            return plain_text(item.content)


async def full_text(store: Store, item: Item) -> str:
    """Return all that can be read of an item, what was put aside included."""
    content: Content = getattr(item, "content", "")
    if isinstance(content, str):
        return text_of(item)
    texts = []
    for part in content:
        blob = await store.read_blob(part.blob) if isinstance(part, Excerpt) else None
        texts.append(plain_text((part,)) if blob is None else blob.decode("utf-8", "replace"))
    return "\n".join(texts)
