"""What completions cost."""

import msgspec

from hibernaut.messages.events import Usage
from hibernaut.messages.stream import Finish


class Tier(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Prices that count instead for a prompt with more than `above` tokens."""

    above: int
    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    written: float | None = None


class Prices(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a million tokens cost, in US dollars: of prompts and answers.

    `cached`: of a prompt, those read from the provider's cache; `written`: those put into it. None: like any other.
    """

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    written: float | None = None
    tiers: tuple[Tier, ...] = ()


def cost(prices: Prices, usage: Usage, written: int = 0) -> int:
    """Return what a completion has cost, in millionths of a US dollar; `written` of its tokens were cached anew."""
    counting: Prices | Tier = prices
    for tier in prices.tiers:
        if usage.input > tier.above:
            counting = tier
    cached = counting.input if counting.cached is None else counting.cached
    anew = counting.input if counting.written is None else counting.written
    plain = max(0, usage.input - usage.cached - written)
    return round(plain * counting.input + usage.cached * cached + written * anew + usage.output * counting.output)


def cost_of(prices: Prices | None, finish: Finish | None) -> int | None:
    """Return what a completion has cost that ended like this; None: its price or its tokens are unknown."""
    if prices is None or finish is None or not (finish.usage.input or finish.usage.output):
        return None
    return cost(prices, finish.usage, finish.written)
