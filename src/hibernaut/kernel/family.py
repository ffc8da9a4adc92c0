"""Children: how a thread makes them, talks with them, and what becomes of them when it ends.

A child shares the history of its parent up to the moment at which it is made, by reference, and has everything else of
its own. What tells it where it is comes after what it shares, so that a provider's prompt cache serves the shared part.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hibernaut.codec import pack
from hibernaut.ids import child_of
from hibernaut.kernel.authority import narrowed
from hibernaut.kernel.commit import NewThread
from hibernaut.kernel.draft import Draft, Outside, outside_item
from hibernaut.kernel.ending import close
from hibernaut.kernel.head import Call, Child, Head, Link, encode_head, living, metadata_of
from hibernaut.kernel.limits import REMEMBERED_ARGUMENTS
from hibernaut.kernel.receipt import next_history
from hibernaut.messages.inputs import Command, Event, ParentMessage, Report, Seed
from hibernaut.messages.items import EventItem, Item, ResultItem, SpawnItem, UserItem, encode_page
from hibernaut.messages.parts import Content, Part, Text, is_blank
from hibernaut.messages.text import excerpt

ELSEWHERE = "This call belongs to your parent thread, {parent}; its result goes there."

SPAWNED = """\
You are now in a thread of your own. Its id is {child}, and its stack of threads is {stack}.
{inherited}Your task, and nothing beyond it:

{instructions}

Nobody but you sees what you write here. When the task is done, call close_thread with thread_id "{child}" and say in \
report_to_parent what your parent has to know. Call report_to_parent for what it must know before that."""

INHERITED = """\
What stands above comes from your parent thread, {parent}, so that you know what it knew. Its plans, promises and \
other calls are its own: leave them to it.
"""

FOR_EVENT = """\
[You are now in a temporary thread that was made for the one event below. Its id is {child}, and its stack of threads \
is {stack}. What stands above comes from your parent thread, {parent}, which goes on meanwhile: its plans and open \
calls are its own. Deal with this event only. Nobody but you sees what you write here. When you are done, call \
close_thread with thread_id "{child}"; say in report_to_parent what your parent has to know, and leave it out if that \
is nothing.]"""


DEALT_WITH = "it has dealt with its event"

_AT_WORK = ("open", "detached", "subscribed")


class Spawn(msgspec.Struct, frozen=True):
    """The model wants a child that works by itself. `child_of`: the stack of the thread that it believes to be in.

    The root need not know its id: none at all stands for it.
    """

    instructions: str
    child_of: tuple[str, ...]
    fresh: bool = False


class Tell(msgspec.Struct, frozen=True):
    """The model wants its parent to know something."""

    report: str


class Close(msgspec.Struct, frozen=True):
    """The model ends its own thread, or a child. `report`: for the parent."""

    thread_id: str
    report: str = ""


class TellChild(msgspec.Struct, frozen=True):
    """The model wants a child to know something."""

    thread_id: str
    message: str


class Unsubscribe(msgspec.Struct, frozen=True):
    """The model wants no more events of a subscription."""

    call_id: str


FamilyMatter = Spawn | Tell | Close | TellChild | Unsubscribe


class _Refused(Exception):
    """The matter cannot be carried out; the model reads why."""


def carry_out(draft: Draft, call: Call, matter: FamilyMatter) -> None:
    """Do what a call of the turn asks for, and answer it. To be done once all of the turn's calls are in the draft."""
    try:
        if isinstance(matter, Spawn):
            said = _spawn(draft, call, matter)
        elif isinstance(matter, Tell):
            said = _tell(draft, call, matter)
        elif isinstance(matter, TellChild):
            said = _tell_child(draft, call, matter)
        elif isinstance(matter, Unsubscribe):
            said = _unsubscribe(draft, matter)
        else:
            said = _close(draft, matter)
    except _Refused as refusal:
        draft.answer(call, f"Not done: {refusal}", is_error=True)
    else:
        draft.answer(call, said)


def stack_of(head: Head) -> tuple[str, ...]:
    """Return the thread ids from the root to this thread."""
    return (*head.link.stack, head.thread_id) if head.link else (head.thread_id,)


# Making children


def _spawn(draft: Draft, call: Call, matter: Spawn) -> str:
    head = draft.head
    stack = stack_of(head)
    if matter.child_of != stack and (matter.child_of or head.link is not None):
        raise _Refused(
            f"child_of must be the stack of the thread that you are in, which is {_shown(stack)}. If you believed "
            "to be in another one: you are not. Do what this thread is for."
        )
    if not matter.instructions.strip():
        raise _Refused("the instructions are empty, and the child would not know what to do.")
    if (full := _bound(draft)) or (full := _children_bound(draft)):
        raise _Refused(full)
    child, salt = child_of(head.salt, call.id)
    inherited = "" if matter.fresh else INHERITED.format(parent=head.thread_id)
    text = SPAWNED.format(
        child=child, stack=_shown((*stack, child)), inherited=inherited, instructions=matter.instructions
    )
    made_by = Child(call.id, call.tool, excerpt(call.arguments, REMEMBERED_ARGUMENTS))
    brief = _is_temporary(head)
    items: list[Item]
    if matter.fresh:
        items = [UserItem(text, origin="runtime")]
        link = Link(stack, call.id, call.tool, made_by.arguments, fresh=True, below_event=brief)
    else:
        elsewhere = ELSEWHERE.format(parent=head.thread_id)
        items = [ResultItem(name, text if name == call.id else elsewhere) for name in head.turn]
        link = Link(
            stack,
            call.id,
            call.tool,
            made_by.arguments,
            version=head.version,
            items=draft.turn_end,
            summary=head.summary,
            below_event=brief,
        )
    _make(draft, child, salt, link, items, head.metadata)
    head.children[child] = made_by
    return f"Thread {child} works on that now, by itself, and will report. Leave its task to it."


def can_route(draft: Draft, call: Call) -> bool:
    """Tell whether one more event of a subscription may have a thread now."""
    busy = sum(child.event and child.call_id == call.id for child in draft.head.children.values())
    return busy < draft.options.max_event_children and draft.family < draft.options.max_descendants


def can_go_deeper(draft: Draft) -> bool:
    """Tell whether this thread may have children at all."""
    return len(stack_of(draft.head)) <= _deepest(draft)


def _deepest(draft: Draft) -> int:
    allowed = draft.authority.max_depth
    return draft.options.max_depth if allowed is None else min(draft.options.max_depth, allowed)


def route(draft: Draft, call: Call, event: Event, name: str, outside: Outside | None = None) -> None:
    """Give an event a temporary thread of its own. `name` is the id of the event's message.

    It inherits what is stored so far; calls that are open there are answered as the parent's. The thread itself is not
    disturbed.
    """
    head = draft.head
    stack = stack_of(head)
    child, salt = child_of(head.salt, name)
    elsewhere = ELSEWHERE.format(parent=head.thread_id)
    arguments = excerpt(call.arguments, REMEMBERED_ARGUMENTS)
    items: list[Item] = [ResultItem(open_call, elsewhere) for open_call in draft.open_before]
    items.append(
        UserItem(FOR_EVENT.format(child=child, stack=_shown((*stack, child)), parent=head.thread_id), origin="runtime")
    )
    shown, content = f"call_{child}", event.content
    items.append(
        EventItem(shown, call.id, call.tool, call.arguments, content, "event", final=event.final)
        if outside is None
        else outside_item(shown, call, content, outside, final=event.final)
    )
    link = Link(stack, call.id, call.tool, arguments, event=True, version=head.version, summary=head.summary)
    _make(draft, child, salt, link, items, metadata_of(head, call))
    head.children[child] = Child(call.id, call.tool, arguments, event=True)


def _make(draft: Draft, child: str, salt: bytes, link: Link, items: Sequence[Item], metadata: str) -> None:
    head = draft.head
    start = b"" if link.fresh else next_history(head.history, encode_page(draft.items[: link.items]))
    made = Head(
        child,
        salt,
        head.config,
        link=link,
        metadata=metadata,
        model=head.model,
        history=start,
        toolsets=head.toolsets,
        authority=_authority_of_child(draft),
        trace=head.trace,
    )
    new = NewThread(child, "", encode_head(made), head.config, b"", draft.now, parent=head.thread_id, root=link.root)
    draft.spawned += (new,)
    draft.send(f"seed:{child}", Seed(tuple(items)), child)
    draft.items.append(SpawnItem(child, link.call_id, link.event))
    draft.family += 1


def _authority_of_child(draft: Draft) -> bytes:
    """Return the digest of what a child may do: what its parent may, and within that what is meant for children."""
    own = draft.authority.authority
    if own.children is None:
        return draft.head.authority
    return draft.keep(pack(narrowed(own, own.children)))


def _bound(draft: Draft) -> str:
    options = draft.options
    if not can_go_deeper(draft):
        return f"threads may be nested {_deepest(draft)} deep (max_depth), and this one is as deep as that."
    if draft.family >= options.max_descendants:
        return (
            f"{options.max_descendants} threads may live below this conversation's first one (max_descendants), and "
            "they do. Wait for some to end, or do it here."
        )
    return ""


def _children_bound(draft: Draft) -> str:
    allowed, most = draft.authority.max_children, draft.options.max_children
    if allowed is not None:
        most = min(most, allowed)
    children = sum(not child.event for child in living(draft.head).values())
    if children < most:
        return ""
    return (
        f"{children} children of this thread live, and {most} may (max_children). "
        "Wait for one to end, close one, or do it here."
    )


# Talking


def _tell(draft: Draft, call: Call, matter: Tell) -> str:
    link = draft.head.link
    if link is None:
        raise _Refused("this is the root thread, which has no parent. Say it to the user.")
    if not matter.report.strip():
        raise _Refused("the report is empty.")
    draft.report(f"report:{call.id}", matter.report)
    return f"Told to your parent thread, {link.parent}."


def _tell_child(draft: Draft, call: Call, matter: TellChild) -> str:
    child = _child(draft, matter.thread_id)
    if not matter.message.strip():
        raise _Refused("the message is empty.")
    draft.send(f"parent:{call.id}", ParentMessage(matter.message), child)
    return f"Told to thread {child}."


def _child(draft: Draft, thread_id: str) -> str:
    children = living(draft.head)
    if thread_id not in children:
        there_is = (
            f"Its children that live: {', '.join(list(children)[-8:])}." if children else "It has none that lives."
        )
        raise _Refused(f"{thread_id[:64]!r} is no living child of this thread. {there_is}")
    return thread_id


def finish(draft: Draft, text: str) -> None:
    """End the turn of a child in plain text: its parent hears of it, and a temporary thread is over with that."""
    head = draft.head
    if head.link is None or head.status != "open":
        return
    words = f"with these words:\n{text}" if text else "and without a word."
    report = "" if head.reported else f"It ended its turn without a report, {words}"
    if _is_temporary(head) and not _is_busy(head):
        close(draft, DEALT_WITH, report)
    elif report:
        draft.report(f"report:{head.thread_id}:{head.version + 1}", report)


def end_if_done(draft: Draft) -> None:
    """Close a temporary thread that has ended its turn and waits for nothing any more."""
    head = draft.head
    if _is_temporary(head) and not (head.owes or head.turn or _is_busy(head)):
        close(draft, DEALT_WITH)


def _is_temporary(head: Head) -> bool:
    return head.link is not None and (head.link.event or head.link.below_event)


def _is_busy(head: Head) -> bool:
    return bool(head.children) or any(call.state in _AT_WORK for call in head.calls.values())


def hear_report(draft: Draft, report: Report) -> None:
    """Put what a child reports into the history."""
    head = draft.head
    child = head.children[report.child_id]
    name = report.child_id
    which = f"Thread {name}, made for an event of this subscription," if child.event else f"Thread {name}"
    if not report.closed:
        content = _headed(f"{which} reports:", report.content)
    elif is_blank(report.content):
        content = f"{which} has ended without a report."
    else:
        content = _headed(f"{which} has ended. Its report:", report.content)
    draft.inject(Call(child.call_id, child.tool, child.arguments), content, "report", thread_id=name)
    if report.closed:
        del head.children[name]


def hear_parent(draft: Draft, link: Link, message: ParentMessage) -> None:
    """Put what the parent says into the history."""
    content = _headed(f"Your parent thread, {link.parent}, says:", message.content)
    draft.inject(Call(link.call_id, link.tool, link.arguments), content, "parent_message", thread_id=link.parent)


def _headed(heading: str, content: Content) -> Content:
    if isinstance(content, str):
        return f"{heading}\n{content}"
    parts: tuple[Part, ...] = (Text(heading), *content)
    return parts


# Ending


def _close(draft: Draft, matter: Close) -> str:
    head = draft.head
    if matter.thread_id != head.thread_id:
        child = _child(draft, matter.thread_id)
        draft.send(f"close:{child}", Command("close", reason="its parent closed it"), child)
        # It may have reported something before it heard of that.
        head.children[child] = replace(head.children[child], ending=True)
        return f"Thread {child} is closed."
    if head.link is None:
        raise _Refused("this is the root thread; only people close it.")
    draft.closing = ("it has done its work", matter.report)
    return "This thread is closed."


def _unsubscribe(draft: Draft, matter: Unsubscribe) -> str:
    call = draft.head.calls.get(matter.call_id)
    maybe = call is not None and (call.mode == "subscription" or bool(call.server))
    if call is None or not maybe or call.state not in ("subscribed", "detached"):
        active = [one.id for one in draft.head.calls.values() if one.mode == "subscription"]
        there_is = f"Active ones: {', '.join(active[-8:])}." if active else "There is none."
        raise _Refused(f"{matter.call_id[:64]!r} is no active subscription of this thread. {there_is}")
    draft.forget_work(call, "cancelled")
    return f"The subscription {call.id} of {call.tool} is cancelled; no more events of it will come."


def _shown(stack: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in stack) + "]"
