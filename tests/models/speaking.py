"""What a model says in a course, by chance: everything that models have been seen to say, and every way to fail."""

import base64
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

import msgspec

from hibernaut.codec import to_json
from hibernaut.messages.events import Usage
from hibernaut.messages.items import CallItem
from hibernaut.messages.tools import ANSWER_TOOL
from hibernaut.models.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    Overloaded,
    RateLimited,
)
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import (
    Part,
    Playable,
    ScriptedTurn,
    call,
    call_raw,
    cut,
    drop,
    fail,
    refuse,
    think,
    turn,
)
from hibernaut.testing.gates import Gate
from hibernaut.testing.model_transcripts import PROVIDER_IDS
from tests.models.doors import Door
from tests.models.words import some_text

LONGEST_PROMPT: Final = 90
"""Items from which on a model does no more than answer."""

LONG_NAME: Final = "a-tool-whose-name-is-as-long-as-that-of-a-tool-of-a-server-may-be_" + "x" * 62
"""128 characters."""

TURNS: Final = {
    "answer": 24,
    "calls": 40,
    "held": 14,
    "half_call": 3,
    "half_text": 2,
    "nothing": 2,
    "thought_only": 1,
    "refusal": 1,
    "limited": 2,
    "broken": 3,
    "dropped": 2,
    "swarm": 1,
    "too_long": 1,
    "not_taken": 1,
}
"""What a turn may be, and how often beside the others."""

BREAKS: Final = (ConnectionLost("reset"), Overloaded("broke"))

SUMMARIES: Final = {"good": 12, "nothing": 1, "call": 1, "refusal": 1, "cut": 1, "endless": 1, "broken": 1}


class Facts(msgspec.Struct, frozen=True):
    """What a model knows of its thread, beyond the prompt."""

    stack: tuple[str, ...]
    """The thread and those above it, the root first."""
    children: tuple[str, ...]


class Speaker:
    """A model that says something.

    Args:
        chance: where chance comes from.
        door: whose model it is.
        name: of the completion, so that what it thinks can be told from all other thoughts.
        told: how a tool is called on the wire.
        calm: whether it brings all to an end.
        pauses: whether it may stand still in the middle.
    """

    def __init__(
        self,
        chance: Random,
        door: Door,
        name: str,
        told: Callable[[str], str],
        *,
        calm: bool = False,
        pauses: bool = True,
    ) -> None:
        self._chance = chance
        self._door = door
        self._name = name
        self._told = told
        self._calm = calm
        self._pauses = pauses
        self._thoughts = 0

    def summary(self) -> Playable:
        """Return what it says when it is asked for a summary."""
        kind = "good" if self._calm else self._pick(SUMMARIES)
        if kind == "broken":
            return fail(ConnectionLost("reset"), "They ta")
        made: dict[str, Callable[[], ScriptedTurn]] = {
            "good": lambda: turn(*self._maybe_thought(), "They talked. ", self._text()),
            "nothing": turn,
            "call": lambda: turn("Let me look. ", call("look", path="a")),
            "refusal": lambda: refuse("I would rather not."),
            "cut": lambda: cut("They ta"),
            "endless": lambda: turn("word " * 4_000),
        }
        return made[kind]()

    def turn(self, request: ModelRequest, facts: Facts) -> tuple[Playable, Gate | None]:
        """Return what it says next, and where it stands still, if it does."""
        if self._calm or len(request.transcript) > LONGEST_PROMPT:
            return turn(*self._maybe_thought(), "It is done."), None
        kind = self._pick(TURNS)
        if request.output is not None and self._chance.random() < 0.6:
            return self._given(), None
        if kind == "held" and self._pauses:
            return self._held(request, facts)
        made: dict[str, Callable[[], Playable]] = {
            "answer": self._answer,
            "held": self._answer,
            "calls": lambda: turn(*self._calls(request, facts), chunks=self._chance.choice([None, 3, 50])),
            "half_call": lambda: cut(*self._maybe_thought(), self._text(), call_raw("build", '{"commit":"abc')),
            "half_text": lambda: cut(*self._maybe_thought(), self._text()),
            "nothing": lambda: turn(self._chance.choice(["", " ", "\n\n"])),
            "thought_only": lambda: turn(self._thought()),
            "refusal": lambda: refuse("I cannot help with that."),
            "limited": lambda: self._chance.choice([RateLimited("slow down", 2_000), Overloaded("busy")]),
            "broken": lambda: self._ends(partial(fail, self._chance.choice(BREAKS)), request, facts),
            "dropped": lambda: self._ends(drop, request, facts),
            "swarm": lambda: turn("All at once. ", *[call("quick") for _ in range(self._chance.choice([65, 130]))]),
            "not_taken": lambda: self._chance.choice([InvalidRequest("no"), AuthenticationFailed("who are you?")]),
            "too_long": lambda: ContextOverflow("the prompt is too long"),
        }
        return made[kind](), None

    def _held(self, request: ModelRequest, facts: Facts) -> tuple[Playable, Gate]:
        gate = Gate()
        before: list[Part] = list(self._maybe_thought())
        before += self._chance.choice([["I was about "], [], ["One. ", call("look", path="a")], [" "]])
        if self._chance.random() < 0.3:  # it stands still in the middle of a call
            before.append(call_raw("build", '{"commit":"a', ended=False))
            return turn(*before, gate), gate
        return turn(*before, gate, *self._calls(request, facts)), gate

    def _ends(self, how: Callable[..., ScriptedTurn], request: ModelRequest, facts: Facts) -> ScriptedTurn:
        """End anywhere."""
        parts = self._calls(request, facts)
        return how(*parts, after=self._chance.randint(0, len(turn(*parts).pieces) - 1))

    def _given(self) -> ScriptedTurn:
        """Answer a program, in the form that it wants or in another."""
        good = to_json({"commit": "abc", "tags": ["x"]})
        text = self._chance.choice([good, good, "I would say abc.", '{"commit":1}', "{"])
        if self._chance.random() < 0.5:
            return turn(*self._maybe_thought(), text)
        made = call_raw(ANSWER_TOOL, good if self._door.only_json else text)
        return turn(*self._maybe_thought(), made, *([call("look", path="a")] if self._chance.random() < 0.2 else []))

    def _answer(self) -> ScriptedTurn:
        return turn(*self._maybe_thought(), self._text(), *self._maybe_thought(), self._text())

    # Parts of a turn

    def _pick(self, among: dict[str, int]) -> str:
        return self._chance.choices([*among], [*among.values()])[0]

    def _text(self) -> str:
        return self._chance.choice(["I see.", "It says hello.", some_text(self._chance), some_text(self._chance)])

    def _maybe_thought(self) -> Sequence[ScriptedTurn]:
        return [self._thought() for _ in range(self._chance.choice([0, 0, 1, 1, 2]))]

    def _thought(self) -> ScriptedTurn:
        self._thoughts += 1
        mark = f"thought {self._name}.{self._thoughts} of {self._door.provider} {some_text(self._chance)}"
        data = base64.b64encode(mark.encode())
        return think(data=data) if self._chance.random() < 0.2 else think(mark, data=data)

    def _calls(self, request: ModelRequest, facts: Facts) -> list[Part]:
        chance, parts = self._chance, list[Part]()
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            parts += self._maybe_thought()
            if chance.random() < 0.4:
                parts.append(self._text())
            parts.append(self._call(request, facts))
        return parts

    def _call(self, request: ModelRequest, facts: Facts) -> ScriptedTurn:
        chance = self._chance
        if chance.random() < 0.12:
            return self._bad_call()
        name, arguments = chance.choice(
            [
                *[("look", {"path": self._text()})] * 4,
                *[("build", {"commit": chance.choice(["abc", self._text()])})] * 4,
                *[("watch", {}), ("follow", {})] * 2,
                *[(LONG_NAME, {}), ("quick", {}), ("broken", {"n": 2**53 + 1}), ("later", {})],
                ("sleep", {"seconds": chance.choice([0.5, 30, 3_600])}),
                ("sleep_until_event_or_input", {}),
                ("set_title", {"title": self._text()}),
                *self._matters_of_family(facts),
                ("cancel_subscription", {"tool_call_id": self._some_call(request)}),
            ]
        )
        text = to_json(arguments)
        signed = chance.choice([b"", b"", f"call {self._name} of {self._door.provider}".encode()])
        return call_raw(self._told(name), text, provider_id=chance.choice(PROVIDER_IDS), data=signed)

    def _matters_of_family(self, facts: Facts) -> list[tuple[str, dict[str, object]]]:
        above = list(facts.stack) if len(facts.stack) > 1 else []
        fresh = {"fresh_context": True} if self._chance.random() < 0.3 else {}
        child = self._chance.choice(facts.children or ("nobody",))
        matters: list[tuple[str, dict[str, object]]] = [
            *[("spawn_thread", {"instructions": f"Look at {self._text()}", "child_of": above, **fresh})] * 2,
            ("send_message_to_child", {"thread_id": child, "message": self._text()}),
        ]
        if len(facts.stack) > 1:
            own = facts.stack[-1]
            matters += [
                ("report_to_parent", {"report": self._text()}),
                ("close_thread", {"thread_id": own, "report_to_parent": "Done."}),
            ]
        elif facts.children:
            matters.append(("close_thread", {"thread_id": child}))
        return matters

    def _some_call(self, request: ModelRequest) -> str:
        made = [item.id for item in request.transcript if isinstance(item, CallItem)]
        return self._chance.choice([*made[-8:], "call_of_nobody"])

    def _bad_call(self) -> ScriptedTurn:
        bad = [
            call("no_such_tool", path="a"),
            call("receive_event__injected", original_tool_name="look"),
            call("look"),
            call("look", path=[1, {"a": None}]),
            call("fs.read ü", path="a"),
            call("x" * 200),
            call_raw("sleep_until_event_or_input"),
        ]
        if not self._door.only_json:
            wrong = ("{", "[1]", '{"path":"a","path":"b"}', '{"path":NaN}', "null", '{"path":' + "[" * 200)
            bad += [call_raw("look", text) for text in wrong]
        return self._chance.choice(bad)


def usage(chance: Random, size: int) -> Usage:
    """Return what a completion may have taken whose prompt has so many bytes."""
    taken = size // 4
    return Usage(taken, chance.randint(1, 400), chance.choice([0, 0, taken // 2]))
