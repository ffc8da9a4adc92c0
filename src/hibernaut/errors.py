"""Every error that Hibernaut raises on purpose.

    HibernautError
    ├── InputRefused            what was handed in is not acceptable; nothing changed
    │   ├── MalformedInput      it cannot be read as what it should be
    │   ├── TooLarge            it is above a named bound
    │   ├── UnknownThread       no such thread for this tenant
    │   ├── ThreadClosed        the thread is final
    │   ├── TokenRefused        a callback token that is forged, foreign or expired
    │   ├── AlreadyAnswered     the call, or the question, has its answer
    │   ├── UnknownQuestion     no such question for this tenant
    │   ├── UnknownEffect       no such effect in the outbox of this tenant
    │   ├── QuestionOver        the question needs no answer any more
    │   ├── EventMisfit         an event does not fit the schema of its subscription
    │   ├── EventNotTaken       the thread's authority takes no events of that tool
    │   ├── SubscriptionOver    the time of the subscription is up
    │   ├── UnknownMessage      no such message waits for the thread
    │   ├── NotAtRest           the tree cannot be moved as it is: it may still change
    │   ├── HasForks            the tree cannot go: others share its history
    │   └── ThreadExists        there is such a thread already
    ├── ConfigurationError      the embedding program is set up wrongly
    │   └── ToolDefinitionError a function cannot be a tool
    ├── ToolError               raised by a tool: its text is the model's error result
    ├── StoreError              the store could not do what was asked; nothing was written
    │   ├── StoreBusy           another process held the store for too long
    │   ├── StoreFull           no room on the disk
    │   ├── StoreCorrupt        what is stored cannot be read as what it should be
    │   ├── StoreFormatTooNew   written by a newer version
    │   └── StaleClaim          the writer lost its claim on the thread
    ├── ModelError              a completion did not happen; see `hibernaut.models.errors`
    ├── NoAnswer                a program that asked a thread gets no answer, or none that it can take
    ├── MoveFailed              a tree was not moved
    │   ├── ServersNotMoved     tool servers did not move their state
    │   └── MoveUnfinished      it is frozen, maybe in both places
    ├── VerificationFailed      a chain of receipts does not match what is stored
    └── InvariantBroken         a defect: a slice would have broken the contract, and was not committed

Every class has a stable `code` for wires and logs.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

MOST_NAMED: Final = 5
"""Names that a text lists, at most."""


def said_by(error: BaseException) -> str:
    """Return what an error says; one without words is told by what it came from, or by the name of its class."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if words := str(cause).strip():
            return words
        seen.add(id(cause))  # errors can come from each other
        cause = cause.__cause__ or cause.__context__  # even if it was raised "from None", as anyio's are
    return type(error).__name__


class HibernautError(Exception):
    """The root of all errors raised on purpose."""

    code: ClassVar[str] = "error"


class InputRefused(HibernautError):
    """What was handed in is not acceptable. Nothing was changed by it."""

    code = "input_refused"


class MalformedInput(InputRefused):
    """It cannot be read as what it should be."""

    code = "malformed_input"


class TooLarge(InputRefused):
    """It is above a named bound. `size` is what is known of its bytes: with `cut_short` there may be more."""

    code = "too_large"

    def __init__(self, what: str, size: int, limit: int, setting: str, *, cut_short: bool = False) -> None:
        has = f"more than {limit:,}" if cut_short else f"{size:,}"
        super().__init__(f"{what} has {has} bytes; at most {limit:,} are taken (setting `{setting}`)")
        self.size = size
        self.limit = limit
        self.setting = setting


class UnknownThread(InputRefused):
    """There is no such thread for this tenant."""

    code = "unknown_thread"

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"there is no thread {thread_id!r}; only a user text creates one")
        self.thread_id = thread_id


class ThreadClosed(InputRefused):
    """The thread is final: it takes no more input."""

    code = "thread_closed"

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"thread {thread_id!r} is closed and takes no more input")
        self.thread_id = thread_id


class TokenRefused(InputRefused):
    """A callback token is forged, foreign or expired."""

    code = "token_refused"


class AlreadyAnswered(InputRefused):
    """The call, or the question, has its answer; a second one changes nothing."""

    code = "already_answered"


class UnknownQuestion(InputRefused):
    """There is no such question for this tenant."""

    code = "unknown_question"

    def __init__(self, question_id: str) -> None:
        super().__init__(f"there is no question {question_id!r}")
        self.question_id = question_id


class UnknownEffect(InputRefused):
    """There is no such effect in the outbox: it was settled, or never owed."""

    code = "unknown_effect"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"there is no effect {request_id!r} under way: it is settled, or there never was one")
        self.request_id = request_id


class UnknownMessage(InputRefused):
    """No such message waits for the thread: it was read, or never came."""

    code = "unknown_message"

    def __init__(self, thread_id: str, message_id: str) -> None:
        super().__init__(f"no message {message_id!r} waits for thread {thread_id!r}: it was read, or never came")
        self.thread_id = thread_id
        self.message_id = message_id


class QuestionOver(InputRefused):
    """The question needs no answer any more: it was dismissed, or its time was up and its default counted."""

    code = "question_over"

    def __init__(self, question_id: str, why: str) -> None:
        super().__init__(f"the question {question_id!r} takes no answer any more: {why}")
        self.question_id = question_id
        self.why = why


class EventMisfit(InputRefused):
    """An event does not fit the schema that its subscription was made with. `problems` says where, in its own words."""

    code = "event_misfit"

    def __init__(self, tool: str, problems: str) -> None:
        super().__init__(f"the event does not fit the event schema of {tool}: {problems}")
        self.problems = problems


class EventNotTaken(InputRefused):
    """The authority of the thread takes no events of that tool."""

    code = "event_not_taken"

    def __init__(self, tool: str, server: str) -> None:
        where = f" on {server}" if server else ""
        super().__init__(f"the authority of this thread takes no events of {tool}{where}")


class SubscriptionOver(InputRefused):
    """The time of a subscription is up, so it takes no events any more."""

    code = "subscription_over"

    def __init__(self, tool: str) -> None:
        super().__init__(f"the time of this subscription of {tool} is up; it takes no events any more")


class NotAtRest(InputRefused):
    """The tree may still change, so it cannot be taken away as it is. The text says what to do."""

    code = "not_at_rest"


class HasForks(InputRefused):
    """The tree cannot be taken away: forks of its threads share their history."""

    code = "has_forks"

    def __init__(self, root: str, forks: Sequence[str]) -> None:
        named = ", ".join(forks[:MOST_NAMED])
        more = f" and {len(forks) - MOST_NAMED:,} more" if len(forks) > MOST_NAMED else ""
        super().__init__(f"thread {root!r} has to stay as long as its forks, which share its history: {named}{more}")
        self.root = root
        self.forks = tuple(forks)


class ThreadExists(InputRefused):
    """There is such a thread already, and it stays as it is."""

    code = "thread_exists"

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"there is a thread {thread_id!r} already; delete it, or leave it where it is")
        self.thread_id = thread_id


class ConfigurationError(HibernautError):
    """The embedding program is set up wrongly."""

    code = "configuration"


class ToolDefinitionError(ConfigurationError):
    """A function cannot be a tool as it is written."""

    code = "tool_definition"


class ToolError(HibernautError):
    """Raised inside a tool: its text becomes the error result that the model reads."""

    code = "tool_error"


class StoreError(HibernautError):
    """The store could not do what was asked. Nothing was written."""

    code = "store"


class StoreBusy(StoreError):
    """Another process held the store for longer than the busy timeout."""

    code = "store_busy"


class StoreFull(StoreError):
    """There is no room left to write."""

    code = "store_full"


class StoreCorrupt(StoreError):
    """What is stored cannot be read as what it should be."""

    code = "store_corrupt"


class StoreFormatTooNew(StoreError):
    """The store was written by a newer version of Hibernaut."""

    code = "store_format_too_new"


class StaleClaim(StoreError):
    """The writer no longer holds the thread: somebody else took it over. Nothing was written."""

    code = "stale_claim"


class ModelError(HibernautError):
    """A completion did not happen.

    `retryable`: it may work later; `retry_after`: not before so many milliseconds; `counted`: it is one of the attempts
    that a thread has.
    """

    code = "model"
    retryable: ClassVar[bool] = False
    counted: ClassVar[bool] = True
    retry_after: int = 0


class NoAnswer(HibernautError):
    """A program that asked a thread gets no answer, or none that it can take.

    Attributes:
        thread_id: the thread.
        message_id: what asked. Where the thread only stands still, asking with it again goes on waiting.
        problem: why there is none.
    """

    code = "no_answer"

    def __init__(self, thread_id: str, message_id: str, problem: str) -> None:
        super().__init__(f"thread {thread_id} gave no answer to {message_id}: {problem}")
        self.thread_id = thread_id
        self.message_id = message_id
        self.problem = problem


class MoveFailed(HibernautError):
    """A tree was not moved, or not to the end."""

    code = "move_failed"


class ServersNotMoved(MoveFailed):
    """Tool servers did not move their state, so the tree goes on where it was.

    `failures` says why, by the server's name; `moved` are those that did.
    """

    code = "servers_not_moved"

    def __init__(self, failures: Mapping[str, Exception], moved: Sequence[str]) -> None:
        reasons = "; ".join(f"{name}: {said_by(error)}" for name, error in failures.items())
        done = f" These have moved it already: {', '.join(moved)}." if moved else ""
        super().__init__(f"the thread stays, since its tool servers did not all move their state: {reasons}.{done}")
        self.failures = dict(failures)
        self.moved = tuple(moved)


class MoveUnfinished(MoveFailed):
    """The tree is frozen, in one place or in both, as the text says. Moving it again ends that."""

    code = "move_unfinished"


class VerificationFailed(HibernautError):
    """A chain of receipts does not match what is stored.

    `version` is the head version at which the first difference was found, and `kind` what differs: "page" (history is
    not what its receipt says), "receipt" (it cannot be read, or was changed), "order" (one is missing or misplaced),
    "head", or "effect" (the outbox is not what the receipts say).
    """

    code = "verification_failed"

    def __init__(self, text: str, kind: str = "", version: int = 0) -> None:
        super().__init__(text)
        self.kind = kind
        self.version = version


class InvariantBroken(HibernautError):
    """What a slice was about to commit would have broken a rule of the contract: a defect. Nothing was written."""

    code = "invariant_broken"
