"""What is outside of the threads of a course: a store that remembers, tools, tool servers, and contents by chance."""

import base64
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Final

from hibernaut.errors import InputRefused
from hibernaut.kernel.commit import Blob
from hibernaut.messages.inputs import InputMessage
from hibernaut.messages.parts import Content, Image, Part, Text
from hibernaut.rap.callbacks import ImagePart, Result, SubscriptionEvent, TextPart
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.rap.requests import Invocation
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Outcome
from hibernaut.testing.clock import ManualClock
from hibernaut.testing.model_transcripts import IMAGES
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import AnyTool, tool
from tests.engine.far import Far
from tests.models.speaking import LONG_NAME
from tests.models.words import some_text

SHOP: Final = Toolset(
    "shop",
    "http://shop.test/call",
    (
        RemoteTool("build", "Build.", '{"type":"object","properties":{"commit":{"type":"string"}}}'),
        RemoteTool("watch", "Watch, in threads of their own.", '{"type":"object"}'),
        RemoteTool("follow", "Follow.", '{"type":"object"}'),
        RemoteTool(LONG_NAME, "", '{"type":"object","anyOf":[{"properties":{"a":{"type":"string"}}}]}'),
    ),
)

SUBSCRIPTIONS: Final = ("watch", "follow")


class RememberingStore(MemoryStore):
    """Remembers what was accepted from outside, by thread."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: dict[str, set[str]] = {}

    async def put(
        self,
        messages: Sequence[InputMessage],
        now: int,
        *,
        due: int = 0,
        blobs: Sequence[Blob] = (),
        tenant: str | None = None,
    ) -> list[Outcome]:
        outcomes = await super().put(messages, now, due=due, blobs=blobs, tenant=tenant)
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome is Outcome.ACCEPTED:
                self.accepted.setdefault(message.thread_id, set()).add(message.message_id)
        return outcomes


class Outside(Far):
    """Tool servers, and tools of the program, whose calls are answered when the course wants it."""

    def __init__(self, setting: int, store: RememberingStore, clock: ManualClock) -> None:
        super().__init__(store, clock, SHOP)
        self._setting = setting
        self._processes = 0
        self._events = 0
        self.tokens: list[str] = []
        """Of calls that somebody else answers."""

    def at_work(self, *operations: str) -> list[Invocation]:
        """Return the calls that servers work on: all, or those of these tools."""
        working = [call for call in self.servers.work.values() if call.id in self.servers.alive]
        return [call for call in working if not operations or call.operation in operations]

    async def come_back(self, call: Invocation, chance: Random) -> None:
        """Answer a call, whether anybody still waits for it or not."""
        subscribes = call.operation in SUBSCRIPTIONS and chance.random() < 0.9
        parts = tuple([_on_wire(part) for part in some_content(chance, blank=True)])
        failed = chance.random() < 0.2
        result = Result(group_id=call.group_id, id=call.id, content=parts, is_error=failed, subscription=subscribes)
        with suppress(InputRefused):
            await self.deliver(result, call)
        if not subscribes:
            self.servers.finish(call.id)

    async def occur(self, call: Invocation, chance: Random) -> None:
        """Bring an event of a subscription."""
        self._events += 1
        event = SubscriptionEvent(
            group_id=call.group_id,
            tool_call_id=call.id,
            text=some_text(chance),
            associative=call.operation == "follow",
            final=chance.random() < 0.1,
            sequence=chance.choice([0, self._events]),
        )
        await self.deliver(event, call)

    def tools(self) -> list[AnyTool]:
        """Return the tools of the next process: from the second on one of them may be gone."""
        tools = self._all_tools()
        chance = Random(f"{self._setting} {self._processes}")
        self._processes += 1
        if self._processes > 1 and chance.random() < 0.5:
            tools.pop(chance.randrange(len(tools)))
        return tools

    def _all_tools(self) -> list[AnyTool]:
        outside = self

        @tool
        async def look(path: str) -> tuple[Part, ...]:
            """Look at a file, perhaps one with pictures."""
            return some_content(Random(f"{outside._setting} {path}"), blank=True)

        @tool(inline=True)
        async def quick() -> str:
            """Be quick."""
            return "quick"

        @tool
        async def broken(n: int) -> str:
            """Fail."""
            raise ValueError(f"no {n}, \ud800 and \x00 neither")

        @tool
        async def later(context: ToolContext) -> Deferred:
            """Have somebody else answer."""
            deferred = context.defer()
            outside.tokens.append(deferred.token)
            return deferred

        return [look, quick, broken, later]


def something_to_say(chance: Random) -> str | Content:
    """Return what a person may say: a word, any text, pictures, or something very long."""
    kind = chance.random()
    if kind < 0.3:
        return some_content(chance)
    if kind < 0.4:
        return "Look: " + "long " * chance.choice([1_000, 20_000])
    return "Go on." if kind < 0.7 else some_text(chance, broken=True)


def some_content(chance: Random, *, blank: bool = False) -> tuple[Part, ...]:
    """Return a content with pictures; it may be `blank`, as that of results may."""
    if blank and chance.random() < 0.1:
        return ()
    parts = [_some_part(chance) for _ in range(chance.choice([1, 1, 1, 2, 2, 4, 12]))]
    return tuple(parts if blank else [Text("See:"), *parts])


def _some_part(chance: Random) -> Part:
    text: Part = Text(chance.choice([some_text(chance, broken=True), ""]))
    return text if chance.random() < 0.5 else chance.choice(IMAGES)


def _on_wire(part: Part) -> TextPart | ImagePart:
    if isinstance(part, Image):
        return ImagePart(data=base64.b64encode(part.data).decode(), media_type=part.media_type)
    return TextPart(part.text)
