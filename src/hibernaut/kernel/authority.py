"""What a thread may do: which calls run, which wait for a person, which are refused, and how much it may spend.

An authority is a value. Whoever launches a thread gives it one, an operator may change it, a child has its parent's or
less. It is asked about every call when the model makes it and again when the call is begun, since it may have changed
in between; and about every event, when it is delivered and when it is taken in.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from hibernaut.codec import decoder_of, pack, sha256, unpack
from hibernaut.errors import ConfigurationError
from hibernaut.kernel.event_policy import EventPolicy, check_policy

Decision = Literal["allow", "ask", "deny"]

Annotation = Literal["read_only", "destructive", "idempotent", "long_running"]

STRICTEST: Final[tuple[Decision, ...]] = ("allow", "ask", "deny")
"""Decisions, the strictest last."""

MOST_RULES: Final = 256
"""Rules of one authority."""

MOST_VALUES: Final = 10_000
"""Values that one condition looks at in the arguments. Of a call with more, whatever restricts it counts as met."""

_STEP: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+|\*)\]|\[\"([^\"\\]*)\"\]")

JSON = Any


class Condition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What must hold for an argument, found by its path: `$.amount`, `$.files[0].path`, `$.files[*].path`.

    Of several values some must meet all that is demanded; with `every`, all of them, and there must be one. A text
    `matches` a pattern in which `*` stands for anything. Numbers are compared with numbers only.
    """

    path: str
    equals: JSON | msgspec.UnsetType = msgspec.UNSET
    one_of: tuple[JSON, ...] = ()
    matches: tuple[str, ...] = ()
    above: float | None = None
    below: float | None = None
    exists: bool | None = None
    every: bool = False


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What is decided about calls that it is about: those that meet all that it names.

    `tools` and `servers` are patterns of names in which `*` stands for anything; a rule with `servers` is about tools
    that work on them. An annotation with a `!` before it must not be there.
    """

    decision: Decision
    tools: tuple[str, ...] = ("*",)
    servers: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    arguments: tuple[Condition, ...] = ()
    reason: str = ""
    """Read by the person who is asked, and by the model that is refused."""


class Authority(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What a thread may do. The first of the `rules` that is about a call decides, `default` if none is.

    Tools whose names match none of the patterns in `tools` are not even shown to the model.
    """

    tools: tuple[str, ...] = ("*",)
    rules: tuple[Rule, ...] = ()
    default: Decision = "allow"
    calls: int = 0
    """Calls that the thread may begin in all; 0: no bound."""
    tokens: int = 0
    """Tokens, of prompts and answers, that it may use in all; 0: no bound."""
    dollars: float = 0.0
    """US dollars that its completions may cost in all, by prices that are known; 0: no bound."""
    seconds: int = 0
    """Seconds that it may work in all, its completions and inline tools included and its waits not; 0: no bound."""
    max_depth: int | None = None
    """Threads between a child and its root, the root included; None: what the thread's options say."""
    max_children: int | None = None
    """Children made by `spawn_thread` that may live at once; None: what the thread's options say."""
    events: EventPolicy = EventPolicy()
    """Which events it takes."""
    children: "Authority | None" = None
    """What binds its children besides all this; None: nothing more."""
    within: "tuple[Authority, ...]" = ()
    """What binds it besides: those of the threads above it, and what an operator has added."""


class Facts(msgspec.Struct, frozen=True):
    """What a tool says of itself, and where it works."""

    server: str = ""
    annotations: frozenset[str] = frozenset()


class Judgement(msgspec.Struct, frozen=True):
    """What is decided about a call, and why."""

    decision: Decision
    reason: str = ""
    rule: Rule | None = None
    """The rule that decided; None: none did, and the default (or the tools that may be used at all) counts."""


ALLOWED: Final = Judgement("allow")


def digest_of(authority: Authority) -> bytes:
    """Return what an authority is known by: SHA-256 of its stored form."""
    return sha256(pack(authority))


_decoder = decoder_of(Authority)


def decode_authority(data: bytes) -> Authority:
    """Read an authority. What a version does not know of it, it must not leave aside.

    Raises:
        StoreCorrupt: it is none, or a newer version wrote it.
    """
    return unpack(data, _decoder, "an authority")


def narrowed(authority: Authority, more: Authority | None) -> Authority:
    """Return what a child may do: what its parent may, and within that what is meant for children.

    The counts begin anew for the child; what binds the parent binds it, too.
    """
    if more is None:
        return authority
    above = msgspec.structs.replace(authority, children=None)
    return msgspec.structs.replace(more, within=(*more.within, above), children=more.children or more)


def check_authority(authority: Authority) -> Authority:
    """Return an authority whose parts can all be meant.

    Raises:
        ConfigurationError: naming the rule and what is wrong with it.
    """
    if len(authority.rules) > MOST_RULES:
        raise ConfigurationError(f"an authority has at most {MOST_RULES} rules; this one has {len(authority.rules)}")
    known = set(Annotation.__args__)  # type: ignore[attr-defined]
    for number, rule in enumerate(authority.rules, 1):
        for annotation in rule.annotations:
            if annotation.removeprefix("!") not in known:
                raise ConfigurationError(
                    f"rule {number}: there is no annotation {annotation!r}; there are {', '.join(sorted(known))}"
                )
        for test in rule.arguments:
            _check_condition(number, test)
    for bound in ("calls", "tokens", "dollars", "seconds"):
        if not 0 <= getattr(authority, bound) < math.inf:
            raise ConfigurationError(f"{bound} is {getattr(authority, bound)}; it must be at least 0 (0: no bound)")
    for bound in ("max_depth", "max_children"):
        if (getattr(authority, bound) or 0) < 0:
            raise ConfigurationError(f"{bound} is {getattr(authority, bound)}; it must be at least 0 (0: none at all)")
    check_policy(authority.events)
    for other in (*authority.within, *((authority.children,) if authority.children else ())):
        check_authority(other)
    return authority


def _check_condition(number: int, test: Condition) -> None:
    try:
        _steps(test.path)
    except ValueError as error:
        raise ConfigurationError(f"rule {number}: {error}") from None
    demands = (test.equals is not msgspec.UNSET, test.one_of, test.matches, test.above is not None)
    if not any((*demands, test.below is not None, test.exists is not None)):
        raise ConfigurationError(f"rule {number}: the condition on {test.path} demands nothing")


class Judge:
    """An authority, made ready for use."""

    __slots__ = (
        "_bound",
        "_rules",
        "authority",
        "calls",
        "cost",
        "digest",
        "everything",
        "is_bounded",
        "is_open",
        "seconds",
        "tokens",
    )

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.digest = digest_of(authority)
        self._rules = [_Ready(rule) for rule in authority.rules]
        self._bound = [Judge(other) for other in authority.within]
        self.everything: tuple[Authority, ...] = (
            authority,
            *[one for other in self._bound for one in other.everything],
        )
        """It, and all that binds it."""
        own = not self._rules and authority.default == "allow"
        self.is_open: bool = own and all(other.is_open for other in self._bound)
        """Whether it allows every call, so that none has to be looked at."""
        # Every slice asks for these.
        self.calls: int = least(one.calls for one in self.everything)
        """How many calls may be begun in all; 0: no bound."""
        self.tokens: int = least(one.tokens for one in self.everything)
        """How many tokens may be used in all; 0: no bound."""
        self.cost: int = least(round(one.dollars * 1_000_000) for one in self.everything)
        """How much its completions may cost in all, in millionths of a US dollar; 0: no bound."""
        self.seconds: int = least(one.seconds for one in self.everything)
        """How many seconds it may work in all; 0: no bound."""
        self.is_bounded: bool = bool(self.calls or self.tokens or self.cost or self.seconds)
        """Whether anything bounds what is spent."""

    def shows(self, tool: str) -> bool:
        """Tell whether the model may know of a tool."""
        return _any(self.authority.tools, tool) and all(other.shows(tool) for other in self._bound)

    def decide(self, tool: str, facts: Facts, arguments: JSON) -> Judgement:
        """Decide about a call: of all that binds the thread, the strictest counts."""
        judgements = [self._own(tool, facts, arguments), *[one.decide(tool, facts, arguments) for one in self._bound]]
        return max(judgements, key=lambda one: STRICTEST.index(one.decision))

    def _own(self, tool: str, facts: Facts, arguments: JSON) -> Judgement:
        if not _any(self.authority.tools, tool):
            return Judgement("deny", f"this thread may not use {tool}")
        for ready in self._rules:
            if ready.is_about(tool, facts, arguments):
                return Judgement(ready.rule.decision, ready.rule.reason, ready.rule)
        return Judgement(self.authority.default)

    @property
    def max_depth(self) -> int | None:
        """Threads between a child and its root; None: no bound."""
        return min((one.max_depth for one in self.everything if one.max_depth is not None), default=None)

    @property
    def max_children(self) -> int | None:
        """Children that may live at once; None: no bound."""
        return min((one.max_children for one in self.everything if one.max_children is not None), default=None)

    # Events

    def takes_events_of(self, tool: str, server: str) -> bool:
        """Tell whether events of a tool are taken; `server` is where it works, "" for one of the program's own."""
        policies = [one.events for one in self.everything]
        return all(_any(one.tools, tool) and (not server or _any(one.servers, server)) for one in policies)

    @property
    def event_bytes(self) -> int:
        """Bytes of one event; 0: no bound."""
        return least(one.events.max_bytes for one in self.everything)

    @property
    def events_per_minute(self) -> int:
        """Events of one subscription that are taken in within a minute; 0: no bound."""
        return least(one.events.per_minute for one in self.everything)

    @property
    def lifetime(self) -> int:
        """Milliseconds after which a subscription ends; 0: never."""
        return 1_000 * least(one.events.lifetime for one in self.everything)


def least(bounds: Iterable[int]) -> int:
    """Return the least of bounds, of which 0 is none."""
    return min((bound for bound in bounds if bound), default=0)


OPEN: Final = Judge(Authority())
"""Everything is allowed."""


class _Ready:
    __slots__ = ("rule", "tests")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.tests = [(test, _steps(test.path)) for test in rule.arguments]

    def is_about(self, tool: str, facts: Facts, arguments: JSON) -> bool:
        rule = self.rule
        return (
            _any(rule.tools, tool)
            and (not rule.servers or (bool(facts.server) and _any(rule.servers, facts.server)))
            and all(_is_annotated(facts, annotation) for annotation in rule.annotations)
            and all(_meets(test, steps, arguments, too_many=rule.decision != "allow") for test, steps in self.tests)
        )


def _is_annotated(facts: Facts, annotation: str) -> bool:
    if annotation.startswith("!"):
        return annotation[1:] not in facts.annotations
    return annotation in facts.annotations


def _any(patterns: Sequence[str], name: str) -> bool:
    return any(matches(pattern, name) for pattern in patterns)


def matches(pattern: str, text: str) -> bool:
    """Tell whether a text is of a pattern in which `*` stands for anything. Takes time in proportion to both."""
    if "*" not in pattern:
        return pattern == text
    first, *middle, last = pattern.split("*")
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


# Paths and tests


def _steps(path: str) -> tuple[str | int | None, ...]:
    """Return the steps of a path: a member's name, the number of an element, or None for all elements.

    Raises:
        ValueError: it is no path.
    """
    if not path.startswith("$"):
        raise ValueError(f"{path!r} is no path; it begins with $")
    steps: list[str | int | None] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise ValueError(f"{path!r} is no path: what stands at character {at + 1} is neither .name nor [number]")
        name, index, quoted = step.groups()
        if index is not None:
            steps.append(None if index == "*" else int(index))
        else:
            steps.append(quoted if name is None else name)
        at = step.end()
    return tuple(steps)


def _values(steps: Sequence[str | int | None], value: JSON) -> Iterator[JSON]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield from _values(rest, value[step])
    elif isinstance(value, list):
        if step is None:
            for element in value:
                yield from _values(rest, element)
        elif step < len(value):
            yield from _values(rest, value[step])


def _meets(test: Condition, steps: Sequence[str | int | None], arguments: JSON, *, too_many: bool) -> bool:
    found: list[JSON] = []
    for value in _values(steps, arguments):
        found.append(value)
        if len(found) > MOST_VALUES:
            return too_many
    if test.exists is not None and test.exists != bool(found):
        return False
    if test.exists is False:
        return True
    met = (_is_met(test, value) for value in found)
    return (bool(found) and all(met)) if test.every else any(met)


def _is_met(test: Condition, value: JSON) -> bool:
    if test.equals is not msgspec.UNSET and not _same(test.equals, value):
        return False
    if test.one_of and not any(_same(one, value) for one in test.one_of):
        return False
    if test.matches and not (isinstance(value, str) and _any(test.matches, value)):
        return False
    if test.above is None and test.below is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (test.above is None or value > test.above) and (test.below is None or value < test.below)


def _same(one: JSON, other: JSON) -> bool:
    """Tell whether two values are the same to JSON, to which true is no number."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other
