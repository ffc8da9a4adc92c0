"""A conversation with a provider, held either by our adapter or by the provider's own SDK, and what each has heard."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, Final, Protocol

import msgspec

from hibernaut.codec import to_json
from hibernaut.errors import ModelError
from hibernaut.kernel.transcript import Transcript
from hibernaut.kernel.turn import Turn, TurnBuffer, TurnCall, TurnPart, TurnText
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem, Item, ReasoningItem, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import Image, Text
from hibernaut.messages.stream import Finish
from hibernaut.messages.tools import ToolSpec
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import ContextOverflow, InvalidRequest
from hibernaut.models.http_model import HttpModel
from hibernaut.models.protocol import About, ModelRequest, OutputSpec
from hibernaut.testing.model_transcripts import png
from hibernaut.testing.providers.server import FakeProvider, Played
from hibernaut.testing.providers.wire import Asked, FakeWire

INSTRUCTIONS: Final = "Be kind."
PICTURE: Final = png()
PATH: Final = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
NOTHING: Final = {"type": "object", "properties": {}}
TOOLS: Final = (("look", "Looks at a file.", PATH), ("wait", "Waits.", NOTHING))
"""Names, descriptions and schemas."""
FORM: Final = {**PATH, "additionalProperties": False}
"""What an answer may be held to."""


class Call(msgspec.Struct, frozen=True):
    """A call that was heard."""

    name: str
    id: str
    arguments: Any
    """None: it was cut off."""


class Thought(msgspec.Struct, frozen=True):
    """What was thought aloud."""

    text: str


class Answer(msgspec.Struct, frozen=True):
    """What was heard."""

    parts: tuple[str | Call | Thought, ...]
    reason: str
    """Why it ended; "": it broke off."""
    usage: Usage = Usage()

    @property
    def calls(self) -> list[Call]:
        return [part for part in self.parts if isinstance(part, Call)]


class Failure(msgspec.Struct, frozen=True):
    """How a completion failed."""

    kind: type[ModelError]
    retryable: bool
    wait: int | None = None
    """Milliseconds after which to try again; None: an SDK that does not read that."""


def answer_of(parts: Iterable[str | Call | Thought], reason: str, usage: Usage | None = None) -> Answer:
    """Return an answer whose texts and thoughts are put together; of how they came nothing is left."""
    heard: list[str | Call | Thought] = []
    for part in parts:
        if part in ("", Thought("")):
            continue
        last = heard[-1] if heard else None
        if isinstance(part, str) and isinstance(last, str):
            heard[-1] = last + part
        elif isinstance(part, Thought) and isinstance(last, Thought):
            heard[-1] = Thought(last.text + part.text)
        else:
            heard.append(part)
    return Answer(tuple(heard), reason, usage if usage and reason else Usage())


class Talker(Protocol):
    """One who talks with a provider and remembers what was said."""

    def say(self, text: str, picture: bytes = b"") -> None:
        """Say something to the model."""
        ...

    def answer(self, call: Call, text: str) -> None:
        """Return the result of a call."""
        ...

    async def ask(self, *, formed: bool) -> Answer:
        """Have the model go on; where it is `formed`, its answer is held to `FORM`."""
        ...

    def failure(self, error: Exception) -> Failure | None:
        """Return what an exception of `ask` means; None: it is no failure of the provider's."""
        ...


class Adapter:
    """Our side."""

    def __init__(self, model: HttpModel, *, tells_waits: bool) -> None:
        self._model = model
        self._tells_waits = tells_waits
        self._history: list[Item] = []

    def say(self, text: str, picture: bytes = b"") -> None:
        parts = (Text(text), Image("image/png", picture))
        self._history.append(UserItem(parts if picture else text))

    def answer(self, call: Call, text: str) -> None:
        made = next(item for item in self._history if isinstance(item, CallItem) and item.provider_id == call.id)
        self._history.append(ResultItem(made.id, text))

    async def ask(self, *, formed: bool) -> Answer:
        shown = Transcript()
        shown.extend(self._history)
        tools = tuple([ToolSpec(name, words, to_json(schema)) for name, words, schema in TOOLS])
        output = OutputSpec(to_json(FORM), ToolSpec("answer", "", to_json(FORM))) if formed else None
        request = ModelRequest("p:m", INSTRUCTIONS, tuple(shown.ready()), tools, "t1", output=output)
        buffer = TurnBuffer()
        async with aclosing(self._model.stream(request)) as stream:
            async for piece in stream:
                buffer.feed(piece)
        ended = buffer.finish is not None
        buffer.feed(Finish())  # so that what broke off can be looked at, too
        turn = buffer.turn()
        self._history += self._items(turn)
        return answer_of(map(_heard, turn.parts), turn.reason if ended else "", turn.usage)

    def failure(self, error: Exception) -> Failure | None:
        if not isinstance(error, ModelError):
            return None
        kind = InvalidRequest if isinstance(error, ContextOverflow) else type(error)  # SDKs do not tell them apart
        return Failure(kind, error.retryable, getattr(error, "retry_after", 0) if self._tells_waits else None)

    def _items(self, turn: Turn) -> Iterator[Item]:
        for part in turn.parts:
            if isinstance(part, TurnText):
                yield TextItem(part.text)
            elif isinstance(part, TurnCall):
                name = f"c{sum(isinstance(item, CallItem) for item in self._history)}.{part.provider_id}"
                yield CallItem(name, part.name, part.arguments or "{}", part.provider_id, part.data)
            else:
                yield ReasoningItem(part.provider, part.data, part.text)


def _heard(part: TurnPart) -> str | Call | Thought:
    if isinstance(part, TurnText):
        return part.text
    if isinstance(part, TurnCall):
        arguments = msgspec.json.decode(part.arguments or "{}") if part.complete else None
        return Call(part.name, part.provider_id, arguments)
    return Thought(part.text)


class Oracle(ABC):
    """A provider's API: the fake that speaks it, our adapter, and the provider's own SDK."""

    name: str
    """Of its module."""
    about: About
    """How our adapter asks."""
    tells_waits: bool = True
    """Whether the SDK heeds how long the provider wants to be left alone."""
    foreign: frozenset[int] = frozenset()
    """Statuses that the provider does not answer with and its SDK knows nothing of."""

    @abstractmethod
    def wire(self) -> FakeWire:
        """Return a new fake."""

    @abstractmethod
    def adapter(self, url: str) -> tuple[Endpoint, Dialect]:
        """Return our adapter for that address."""

    @abstractmethod
    def sdk(self, url: str) -> AbstractAsyncContextManager[Talker]:
        """Open the SDK for that address."""

    @abstractmethod
    def meaning(self, body: Any) -> Any:
        """Return the body of a request without what both may say in one way or another."""

    @asynccontextmanager
    async def ours(self, url: str) -> AsyncIterator[Talker]:
        """Open our adapter for that address."""
        endpoint, dialect = self.adapter(url)
        try:
            yield Adapter(HttpModel(endpoint, dialect, self.about), tells_waits=self.tells_waits)
        finally:
            await endpoint.close()


def oracle_of(name: str) -> Oracle:
    """Import an SDK, which takes a second or two, and return the oracle that it is."""
    found = importlib.import_module(f"tests.models.oracles.{name}").ORACLE
    assert isinstance(found, Oracle)
    return found


class Held(msgspec.Struct, frozen=True):
    """A conversation that was held."""

    heard: list[Answer | Failure]
    asked: list[Asked]


async def held(
    oracle: Oracle, script: Sequence[Played], *, sdk: bool, formed: bool = False, chunks: int | None = None
) -> Held:
    """Say something, and go on as long as there is a script."""
    heard: list[Answer | Failure] = []
    async with FakeProvider(oracle.wire(), script, chunks=chunks) as fake:
        opened = oracle.sdk(fake.url) if sdk else oracle.ours(fake.url)
        async with opened as talker:
            talker.say("Look at both, and at this:", PICTURE)
            for _ in script:
                try:
                    answer = await talker.ask(formed=formed)
                except Exception as error:
                    failure = talker.failure(error)
                    if failure is None:
                        raise
                    heard.append(failure)
                    break
                heard.append(answer)
                for call in answer.calls:
                    talker.answer(call, f"{call.name} found a letter")
                if not answer.calls:
                    talker.say("And now?")
        assert [refused.body for refused in fake.refused] == []
    return Held(heard, fake.asked)
