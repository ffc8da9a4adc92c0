"""A model that answers questions which know their own number, and does at random whatever else models do.

It reads which question it has to answer as a real model would, from what it is shown, and answers with the number that
it finds there. So an answer says which question it is the answer to.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from hibernaut.kernel.fold import GO_ON
from hibernaut.kernel.outputs import WAITS
from hibernaut.kernel.transcript import CUT_SHORT
from hibernaut.messages.items import EVENT_TOOL, CallItem, Item, ResultItem, TextItem, UserItem
from hibernaut.messages.parts import plain_text
from hibernaut.messages.stream import Finish
from hibernaut.messages.tools import ANSWER_TOOL
from hibernaut.models.errors import InvalidRequest, Overloaded
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.models.scripted import Playable, ScriptedModel, ScriptedTurn, call, call_raw, say, turn
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.outputs import OutputType

TEXT: Final = "text"
"""The kind of a question whose answer has no form."""

NOT_SURE: Final = "not sure of"
"""What the type says of an answer that it does not take."""

QUESTION: Final = re.compile(r"Q(\d+):(\w+)")
NOTE: Final = re.compile(re.escape(WAITS).replace(re.escape("{question}"), '(".*")') + "$", re.DOTALL)
REFUSED: Final = "cannot be taken"

PAUSES: Final = (0, 0, 10, 40)
"""Milliseconds before a model begins to speak."""

MISFITS: Final = (turn(), turn("{"), turn("nonsense"), call(ANSWER_TOOL, zzz=1))
"""What fits no form."""


# What is asked for


@dataclass
class Point:
    number: int
    name: str


@dataclass
class Checked:
    number: int
    sure: bool = False

    def __post_init__(self) -> None:
        if not self.sure:
            raise ValueError(f"{NOT_SURE} Q{self.number}:checked")


class Seat(msgspec.Struct):
    seat: int


class Form(NamedTuple):
    """A form of answers, and the answer to the question of a number in it."""

    type: Any
    values: Callable[[int], dict[str, Any]]

    @property
    def schema(self) -> str:
        return OutputType(self.type).schema

    def answer(self, number: int) -> Any:
        values = self.values(number)
        return values["value"] if "value" in values else self.type(**values)


FORMS: Final[Mapping[str, Form]] = {
    "int": Form(int, lambda number: {"value": number}),
    "point": Form(Point, lambda number: {"number": number, "name": f"Q{number}"}),
    "checked": Form(Checked, lambda number: {"number": number, "sure": True}),
    "seat": Form(Seat, lambda number: {"seat": number}),
}


def text_of(number: int) -> str:
    """Return the answer to a question whose answer has no form."""
    return f"ans:Q{number}:{TEXT}"


# What a model reads


class Meant(NamedTuple):
    """What a model has to answer."""

    words: str
    number: int = 0
    """Of the question; 0: it is none."""
    kind: str = ""


def meant(transcript: Sequence[Item]) -> Meant:
    """Return what a model has to answer, as it reads it: what was said last, or what a note after that quotes."""
    for item in reversed(transcript):
        if not isinstance(item, UserItem):
            continue
        words = plain_text(item.content)
        if quoted := NOTE.search(words):
            words = json.loads(quoted[1])
        elif item.origin and not (REFUSED in words and QUESTION.search(words)):
            continue
        found = QUESTION.search(words)
        return Meant(words, int(found[1]), found[2]) if found else Meant(words)
    return Meant("")


def unfinished(transcript: Sequence[Item]) -> list[str]:
    """Return the pieces of an answer that the output limit has cut, each time, and that is to go on.

    Events come at any time, and change nothing about it.
    """
    events = {item.id for item in transcript if isinstance(item, CallItem) and item.name == EVENT_TOOL}
    pieces: list[str] = []
    cut = False
    for item in reversed(transcript):
        match item:
            case CallItem(id=name) | ResultItem(call_id=name) if name in events:
                pass
            case UserItem(content=words) if words == GO_ON and not cut:
                cut = True
            case TextItem(text=said) if cut and not said.endswith(CUT_SHORT):
                pieces.insert(0, said)
                cut = False
            case _:
                break
    return pieces


# What a model says


class Speaker:
    """What the models of a course say.

    Args:
        setting: the number that all follows from, together with the thread and how often its model was asked.
        forms: of the questions.
        structured: whether the model can be held to a form, or is offered a tool for it.
        oddities: how many turns at most are anything but what was asked for.
        continuations: times in a row an answer that is cut is continued.
    """

    def __init__(
        self,
        setting: int,
        forms: Mapping[str, Form],
        clock: ManualClock,
        *,
        structured: bool,
        oddities: int,
        continuations: int,
    ) -> None:
        chance = Random(f"{setting} speaks")
        self.story: list[str] = []
        """What has happened."""
        self.faults: list[str] = []
        """What must not have happened."""
        self.misfits: Counter[int] = Counter()
        """Answers that could not be taken, by the number of the question."""
        self.seen: Counter[str] = Counter()
        """What there was, by kind."""
        self.oddities = oddities
        """Turns that may still be anything but what was asked for."""
        self._odd = chance.choice([0.2, 0.45, 0.8])
        self._parks = chance.random() < 0.6
        self._setting, self._forms, self._clock = setting, forms, clock
        self._structured, self._continuations = structured, continuations
        self._asked: Counter[str] = Counter()

    def model(self) -> ScriptedModel:
        """Return the model for one more process."""
        info = ModelInfo(structured=self._structured)
        return ScriptedModel(self._play, info=info, record=False, clock=self._clock)

    async def _play(self, request: ModelRequest) -> Playable:
        name = request.thread_id
        self._asked[name] += 1
        chance = Random(f"{self._setting} {name} {self._asked[name]}")
        if request.purpose == "summary":
            self.seen["summary"] += 1
            return say("A summary.")
        asked, before = meant(request.transcript), unfinished(request.transcript)
        offered = self._offered(request, asked)
        played = self._odd_turn(chance, asked, before, offered) or self._turn(chance, asked, before, offered)
        told = f"{asked.words!r}{' in a form' if offered else ''}{f' after {before}' if before else ''}"
        self.story.append(f"model of {name}: {told} -> {_told(played)}")
        await self._clock.sleep(chance.choice(PAUSES))
        if isinstance(played, ScriptedTurn) and chance.random() < 0.4:
            return turn(played, delay=chance.choice([10, 30]))
        return played

    def _offered(self, request: ModelRequest, asked: Meant) -> bool:
        """Return whether an answer in a form is wanted, which must be the form of the question."""
        tool = next((one.parameters for one in request.tools if one.name == ANSWER_TOOL), "")
        form = request.output.schema if request.output is not None else tool
        wanted = self._forms[asked.kind].schema if asked.kind in self._forms else ""
        if form and form != wanted:
            self.faults.append(f"the model of {request.thread_id} is told of {asked.words!r} and offered {form}")
        return bool(form) and form == wanted

    def _turn(self, chance: Random, asked: Meant, before: list[str], offered: bool) -> ScriptedTurn:
        """Answer as one should."""
        if not asked.number:
            return turn("reply ", f"to {asked.words}")
        if asked.kind == TEXT:
            rest = self._rest(asked, before)
            return turn(rest[:3], rest[3:])
        if not offered:
            return turn("working on ", f"Q{asked.number}")
        values = self._forms[asked.kind].values(asked.number)
        if asked.kind == "checked" and REFUSED not in asked.words and chance.random() < 0.5:
            values["sure"] = False
        if self._structured or chance.random() < 0.2:
            written = json.dumps(values)
            return turn(written[:3], written[3:])
        return call(ANSWER_TOOL, values)

    def _rest(self, asked: Meant, before: list[str]) -> str:
        whole, said = text_of(asked.number), "".join(before)
        if not whole.startswith(said):
            self.faults.append(f"the model is told of {asked.words!r} and to go on with {said!r}")
            return whole
        return whole.removeprefix(said)

    def _odd_turn(self, chance: Random, asked: Meant, before: list[str], offered: bool) -> Playable | None:
        """Do anything else, if it is time for that."""
        if not self.oddities or chance.random() > self._odd:
            return None
        (kind,) = chance.choices(["calls", "park", "fail", "misfit", "cut", "twice"], [30, 4, 4, 12, 40, 10])
        if before and kind not in ("cut", "fail"):
            return None
        played: Playable | None = None
        match kind:
            case "calls":
                said = ["Let me see."] if chance.random() < 0.5 else []
                played = turn(*said, *[_some_call(chance) for _ in range(chance.choice([1, 1, 2, 3]))])
            case "park" if self._parks:
                played = InvalidRequest("no")
            case "fail":
                played = Overloaded("busy")
            case "misfit":
                played = self._misfit(chance, asked, offered)
            case "cut":
                played = self._cut(chance, asked, before, offered)
            case "twice" if offered and not self._structured:
                given = call(ANSWER_TOOL, self._forms[asked.kind].values(asked.number))
                played = turn("Here it is.", *[given] * chance.choice([1, 2]))
            case _:
                pass
        if played is not None:
            self.oddities -= 1
            self.seen[kind] += 1
        return played

    def _misfit(self, chance: Random, asked: Meant, offered: bool) -> ScriptedTurn:
        self.misfits[asked.number] += 1
        if not offered:
            return chance.choice([turn(), turn("  \n ")])
        given = call(ANSWER_TOOL, self._forms[asked.kind].values(asked.number))
        return chance.choice([*MISFITS, turn(given, _some_call(chance))])

    def _cut(self, chance: Random, asked: Meant, before: list[str], offered: bool) -> ScriptedTurn | None:
        if asked.kind == TEXT:
            rest = self._rest(asked, before)
            fits = len(rest) > 1 and len(before) < self._continuations
            if not fits:
                return None
            return turn(rest[: chance.randrange(1, len(rest))], reason="length")
        if before:
            return None
        self.misfits[asked.number] += offered
        if offered and chance.random() < 0.5:
            return turn(call_raw(ANSWER_TOOL, '{"n": 1', ended=False), reason="length")
        return turn("cut ", reason="length")


def _some_call(chance: Random) -> ScriptedTurn:
    number = chance.randrange(10**9)
    calls = {
        call("beside", number=number): 30,
        call("inline", number=number): 30,
        call("later", number=number): 15,
        call("fails", number=number): 5,
        call("follows", number=number): 6,
        call("set_title", title="T"): 6,
        call("no_such_tool", number=number): 3,
        call("sleep_until_event_or_input"): 3,
    }
    (chosen,) = chance.choices([*calls], [*calls.values()])
    return chosen


def _told(played: Playable) -> str:
    if not isinstance(played, ScriptedTurn):
        return repr(played)
    said = [getattr(one, name) for one in played.pieces for name in ("text", "name", "arguments") if hasattr(one, name)]
    cut = any(isinstance(one, Finish) and one.reason == "length" for one in played.ending)
    return f"{said}{' (cut)' if cut else ''}"
