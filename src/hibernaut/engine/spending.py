"""What a completion took: as the provider has counted it, or estimated where it was cut short.

Once a provider has begun to answer, it wants to be paid for the prompt, and for what it has said until it was stopped
or broke off. Some say at the beginning how long the prompt is, or count as they go; the others count at the end alone,
which never comes then. So what nobody has counted is estimated, and is marked as that.
"""

from collections.abc import Callable, Sequence
from typing import Final

from hibernaut.kernel.fold import Spent
from hibernaut.kernel.sizes import said_tokens
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import Counted, Finish, StreamPiece
from hibernaut.models.prices import Prices, cost_of

_NOTHING: Final = Counted(Usage())


def spent_on(pieces: Sequence[StreamPiece], prompt: Callable[[], int], prices: Prices | None) -> Spent:
    """Return what a completion took of which these pieces have come.

    Args:
        pieces: none of them: the provider had not begun to answer.
        prompt: estimates the prompt, in tokens.
        prices: of the model; None: unknown.
    """
    if not pieces:
        return Spent()
    told = next((piece for piece in reversed(pieces) if isinstance(piece, Counted | Finish)), _NOTHING)
    if isinstance(told, Finish):
        return Spent(told.usage, cost_of(prices, told))
    known = told.usage
    usage = Usage(known.input or prompt(), max(known.output, said_tokens(pieces)), known.cached)
    estimated = usage.input + usage.output - known.input - known.output
    cost = cost_of(prices, Finish(usage=usage, written=told.written))
    certain = cost_of(prices, Finish(usage=known, written=told.written))
    return Spent(usage, cost, estimated, max(0, (cost or 0) - (certain or 0)))
