"""The people's side of questions: which ones are open, and how one is answered, from any process."""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from hibernaut.clock import Clock
from hibernaut.engine.asking import answer_message
from hibernaut.errors import AlreadyAnswered, MalformedInput, QuestionOver, UnknownQuestion, UnknownThread
from hibernaut.ids import asking_thread
from hibernaut.kernel.head import Head, Pending, decode_head
from hibernaut.messages.events import QuestionAsked
from hibernaut.messages.inputs import Answer, InputMessage, Question
from hibernaut.messages.items import QuestionEndItem, decode_page
from hibernaut.stores.protocol import Outcome, Store, ThreadRow

ASKING_THREADS = 100_000
"""Threads whose questions are shown at once, at most, those that ask the longest first."""


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question that waits for a person, and where it comes from."""

    question_id: str
    thread_id: str
    title: str
    """Of the thread."""
    root: str
    """The thread at the top of its tree, itself if it is that."""
    call_id: str
    tool: str
    prompt: str
    choices: tuple[str, ...]
    default: int
    """The number of the choice that counts at `due`; the first is 0."""
    due: int
    """Milliseconds since 1970; 0: it waits for ever."""
    url: str
    """Where to go, when it asks to authorize something."""
    asked: int
    """When, milliseconds since 1970."""


async def open_questions(store: Store, tenant: str, root: str | None) -> list[OpenQuestion]:
    """Return the questions that wait, of a tenant or one tree of it, oldest first.

    Raises:
        UnknownThread: the tenant has no such tree.
    """
    if root is not None:
        top = await store.read_head(root)
        if top is None or top.tenant != tenant:
            raise UnknownThread(root)
    rows = await store.list_asking(tenant, root=root, limit=ASKING_THREADS)
    found = [question for row in rows if row.tenant == tenant for question in questions_of(decode_head(row.head).head)]
    return sorted(found, key=lambda question: question.asked)


def questions_of(head: Head) -> list[OpenQuestion]:
    """Return the questions of a thread that wait, oldest first."""
    return [
        OpenQuestion(
            question_id=name,
            thread_id=head.thread_id,
            title=head.title,
            root=head.link.root if head.link else head.thread_id,
            call_id=one.call_id,
            tool=head.calls[one.call_id].tool if one.call_id in head.calls else "",
            prompt=one.prompt,
            choices=one.choices,
            default=one.default,
            due=one.due,
            url=one.url,
            asked=one.asked,
        )
        for name, one in head.questions.items()
        if one.answer < 0
    ]


def as_event(question: OpenQuestion) -> QuestionAsked:
    """Return the event of a question that was asked before."""
    return QuestionAsked(
        thread_id=question.thread_id,
        question_id=question.question_id,
        call_id=question.call_id,
        prompt=question.prompt,
        choices=question.choices,
        default=question.default,
        due=question.due,
        url=question.url,
    )


def choice_of(choices: tuple[str, ...], given: int | str) -> int:
    """Return the number of the choice that is meant: by its number, the first being 0, or by its words.

    Raises:
        MalformedInput: there is no such choice; the text names those there are.
    """
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(choices):
        return given
    if isinstance(given, str):
        words = given.strip()
        if words in choices:
            return choices.index(words)
        folded = [choice.casefold() for choice in choices]
        with suppress(ValueError):
            return folded.index(words.casefold())
    named = ", ".join(f"{number} {choice!r}" for number, choice in enumerate(choices))
    raise MalformedInput(f"{given!r} is none of the choices, which are: {named}")


async def answer(store: Store, clock: Clock, tenant: str, question_id: str, choice: int | str, user: str) -> str:
    """Answer a question, and return the words of the choice; then the answer is stored.

    Raises:
        UnknownQuestion, AlreadyAnswered, QuestionOver. MalformedInput: there is no such choice.
    """
    name = question_id if asking_thread(question_id) else await _in_full(store, tenant, question_id)
    thread_id = asking_thread(name)
    # The inbox first: what leaves it from now on shows in the head that is read after it.
    inbox = await store.read_inbox(thread_id)
    row = await store.read_head(thread_id)
    if row is None or row.tenant != tenant:
        raise UnknownQuestion(question_id)
    pending = decode_head(row.head).head.questions.get(name)
    asked: Pending | Question | None = pending
    if asked is None:
        contents = [arrived.message.content for arrived in inbox if arrived.message]
        new = (one for one in contents if isinstance(one, Question) and one.question_id == name)
        asked = next(new, None)
    if asked is None:
        raise await _over(store, name)
    if pending is not None and pending.answer >= 0:
        raise _settled(name, "expired" if pending.expired else "answered", pending.choices[pending.answer])
    now = clock.now()
    if asked.due and asked.due <= now:
        raise _settled(name, "expired", asked.choices[asked.default])
    number = choice_of(asked.choices, choice)
    message = InputMessage(answer_message(name), thread_id, Answer(name, number, user), "api")
    (outcome,) = await store.put([message], now, tenant=tenant)
    if outcome is Outcome.DUPLICATE:
        raise AlreadyAnswered(f"question {name} has its answer already")
    if outcome in (Outcome.CLOSED, Outcome.UNKNOWN):
        raise QuestionOver(name, "the thread is closed")
    return asked.choices[number]


async def _in_full(store: Store, tenant: str, given: str) -> str:
    """Return the whole id of an open question of which the part before the @ is given."""
    rows: Iterable[ThreadRow] = await store.list_asking(tenant, limit=ASKING_THREADS)
    for row in rows:
        for name in decode_head(row.head).head.questions:
            if name.partition("@")[0] == given:
                return name
    raise UnknownQuestion(given)


async def _over(store: Store, name: str) -> Exception:
    """Return why a question that is not there any more takes no answer."""
    for row in reversed(await store.read_log(asking_thread(name))):
        for item in decode_page(row.page):
            if isinstance(item, QuestionEndItem) and item.id == name:
                return _settled(name, item.outcome, item.text)
    return UnknownQuestion(name)


def _settled(name: str, outcome: str, words: str) -> Exception:
    if outcome == "answered":
        return AlreadyAnswered(f"question {name} has its answer already: {words}")
    if outcome == "expired":
        return QuestionOver(name, f"nobody answered in time, so that this counts: {words}")
    return QuestionOver(name, words)
