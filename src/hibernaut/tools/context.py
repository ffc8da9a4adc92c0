"""What a tool may know and do beyond its arguments: the context of one call.

A tool asks for it with a parameter annotated `ToolContext`, wherever it stands; the model never sees that parameter.
Each call has a context of its own and nothing in it is shared, so no call sees anything of another.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hibernaut.errors import MalformedInput, ToolDefinitionError
from hibernaut.messages.text import clean, shorten

LONGEST_WAIT = 10 * 366 * 86_400
"""Seconds that a timeout or a deadline may be, ten years: what is above is a slip in the unit."""

MOST_CHOICES = 20
"""Choices that a question offers, at most: a person has to read them."""

LONGEST_PROMPT = 4_000
"""Characters of what a person is asked."""

LONGEST_CHOICE = 200
"""Characters of one choice, and of the id of an event."""

LONGEST_URL = 2_000
"""Characters of the address at which something is to be authorized."""

AUTHORIZED = ("Done", "Cancel")
"""What a person answers who was asked to authorize something."""

LONGEST_PROGRESS = 2_000
"""Characters of one word about progress; more is shortened."""

_metadata_decoder = msgspec.json.Decoder(dict[str, Any])


class Deferred:
    """Returned by a tool: the call stays open until somebody delivers its result to `token`.

    It is no value that could be written into a result, and does not print its token: who has that may answer the call.
    """

    __slots__ = ("call_id", "token")

    def __init__(self, token: str, call_id: str) -> None:
        self.token = token
        self.call_id = call_id

    def __repr__(self) -> str:
        return f"<Deferred {self.call_id}>"


class ToolEvent:
    """Yielded by a subscription: an event with an id of its own, such as an offset.

    An id that was there before is the same event, which is not brought again. `final` ends the subscription.
    """

    __slots__ = ("content", "event_id", "final")

    def __init__(self, content: object, event_id: str = "", *, final: bool = False) -> None:
        """Make an event; an `event_id` that is left out is made up.

        Raises:
            MalformedInput: the `event_id` cannot be one.
        """
        self.content = content
        self.event_id = _text("an event id", event_id, LONGEST_CHOICE) if event_id != "" else ""
        self.final = final

    def __repr__(self) -> str:
        return f"<ToolEvent {self.event_id or self.content!r}>"


class Asked(msgspec.Struct, frozen=True):
    """A question to a person, checked. It is the call's `number`th; `timeout` in milliseconds, 0: it waits."""

    number: int
    prompt: str
    choices: tuple[str, ...]
    default: int = 0
    timeout: int = 0
    url: str = ""


class ToolContext:
    """The context of one call.

    `call_id` is the same however often the call is tried, so it is the key for whatever must happen once. `user` is on
    whose behalf the thread works, `tenant` whose thread it is. `last_event_id` and `last_sequence` are of the last
    event that a subscription had stored when its process ended, "" and 0 when it begins. The engine makes contexts; a
    test of a tool may too.
    """

    __slots__ = (
        "_ask",
        "_asked",
        "_issue_token",
        "_metadata",
        "_report",
        "_values",
        "call_id",
        "last_event_id",
        "last_sequence",
        "tenant",
        "thread_id",
        "tool",
        "user",
    )

    def __init__(
        self,
        *,
        call_id: str,
        thread_id: str,
        tool: str,
        tenant: str = "",
        user: str = "",
        metadata: str = "",
        issue_token: Callable[[], str] | None = None,
        report: Callable[[str], None] | None = None,
        ask: Callable[[Asked], Awaitable[int]] | None = None,
        last_event_id: str = "",
        last_sequence: int = 0,
    ) -> None:
        """Make a context.

        `metadata` is the thread's, as JSON text. `issue_token` returns the callback token of this call; without it the
        call cannot be deferred. `report` takes words about progress, from whatever thread the tool runs in, and
        never raises. `ask` asks a person and returns the number of the choice, the first being 0; without it the call
        cannot ask.
        """
        self.call_id = call_id
        self.thread_id = thread_id
        self.tool = tool
        self.tenant = tenant
        self.user = user
        self._metadata = metadata
        self._values: dict[str, Any] | None = None
        self._issue_token = issue_token
        self._report = report
        self._ask = ask
        self._asked = 0
        self.last_event_id = last_event_id
        self.last_sequence = last_sequence

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the thread: what the input that was accepted last carried. A copy of this call's own."""
        if self._values is None:
            self._values = _metadata_decoder.decode(self._metadata) if self._metadata else {}
        return self._values

    def defer(self) -> Deferred:
        """Leave the call open: return the value that comes back, and let somebody deliver the result to its token.

        Raises:
            ToolDefinitionError: this tool is inline or a subscription, which cannot be deferred.
        """
        if self._issue_token is None:
            raise ToolDefinitionError(f"{self.tool} cannot defer its result: only background tools can")
        return Deferred(self._issue_token(), self.call_id)

    def ask(
        self, prompt: str, choices: Sequence[str], default: int = 0, timeout: float | None = None
    ) -> Coroutine[Any, Any, str]:
        """Ask a person, wait for the answer, however long that takes, and return the words of the choice.

        Args:
            prompt: What is asked, up to 4,000 characters.
            choices: What can be answered: up to 20 different texts.
            default: The number of the choice that counts when nobody answers in time; the first is 0.
            timeout: Seconds after which it counts. Without it the question waits.

        Raises:
            MalformedInput: it cannot be asked so; the text says why.
            ToolError: the question was dismissed.
            ToolDefinitionError: this tool cannot ask: only a background tool that is `async def` can.
        """
        if isinstance(choices, str):
            raise MalformedInput("the choices are one text; give a list of them")
        offered = tuple(_text(f"choice {number}", choice, LONGEST_CHOICE) for number, choice in enumerate(choices, 1))
        if not offered:
            raise MalformedInput("the question has no choices")
        if len(offered) > MOST_CHOICES:
            raise MalformedInput(f"the question has {len(offered)} choices; a person is given at most {MOST_CHOICES}")
        if len({choice.casefold() for choice in offered}) < len(offered):
            raise MalformedInput("two choices of the question read the same")
        if type(default) is not int or not 0 <= default < len(offered):
            raise MalformedInput(f"the default is {default!r}; it numbers a choice, from 0 to {len(offered) - 1}")
        asked = self._number(_text("the prompt", prompt, LONGEST_PROMPT), offered, default, timeout)
        return self._chosen(asked)

    def authorize(self, url: str, prompt: str = "", timeout: float | None = None) -> Coroutine[Any, Any, bool]:
        """Ask a person to authorize something at an address; return whether they say that they did.

        Args:
            url: An `https` address, or an `http` one on this machine.
            prompt: What it is for.
            timeout: Seconds after which nobody did.

        Raises:
            MalformedInput: it cannot be asked so; the text says why.
            ToolError: the question was dismissed.
            ToolDefinitionError: this tool cannot ask: only a background tool that is `async def` can.
        """
        text = _text("the prompt", f"{self.tool} needs your authorization" if prompt == "" else prompt, LONGEST_PROMPT)
        return self._is_done(self._number(text, AUTHORIZED, AUTHORIZED.index("Cancel"), timeout, address(url)))

    def _number(self, prompt: str, choices: tuple[str, ...], default: int, timeout: object, url: str = "") -> Asked:
        if self._ask is None:
            raise ToolDefinitionError(f"{self.tool} cannot ask a person: only an `async def` in the background can")
        wait = _milliseconds(timeout)
        self._asked += 1
        return Asked(self._asked, prompt, choices, default, wait, url)

    async def _chosen(self, asked: Asked) -> str:
        if self._ask is None:
            raise AssertionError("it was checked when the question was numbered")
        return asked.choices[await self._ask(asked)]

    async def _is_done(self, asked: Asked) -> bool:
        return await self._chosen(asked) == AUTHORIZED[0]

    def progress(self, text: str) -> None:
        """Tell whoever watches how far the call is. It is cheap, it is not stored, and the model does not see it."""
        if self._report is not None:
            self._report(shorten(clean(text), LONGEST_PROGRESS))


def _text(what: str, value: object, longest: int) -> str:
    if not isinstance(value, str):
        raise MalformedInput(f"{what} is a {type(value).__name__}; it must be a text")
    text = clean(str.__str__(value)).strip()
    if not text:
        raise MalformedInput(f"{what} is blank")
    if len(text) > longest:
        raise MalformedInput(f"{what} has {len(text):,} characters; at most {longest:,} are taken")
    return text


def _milliseconds(seconds: object) -> int:
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_WAIT:
        raise MalformedInput(f"the timeout is {seconds!r}: give seconds, above 0 and up to ten years, or leave it out")
    return max(1, round(seconds * 1000))


def address(url: object) -> str:
    """Return an address that a person can be sent to.

    Raises:
        MalformedInput: it is none; the text says why.
    """
    text = _text("the url", url, LONGEST_URL)
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError as error:
        raise MalformedInput(f"the url {text!r} cannot be read: {error}") from None
    if not text.isprintable() or " " in text or "\\" in text:
        raise MalformedInput(f"the url {text!r} has characters in it that no address has")
    if "@" in parts.netloc:
        raise MalformedInput("the url has a user name in it, which hides where it leads")
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))):
        raise MalformedInput(f"the url {text!r} must begin with https:// (or http:// on this machine) and name a host")
    return text


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
