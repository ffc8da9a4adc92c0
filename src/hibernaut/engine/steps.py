"""A slice as steps: it says what it cannot go on without, and leaves it to others to get that.

So the same code runs alone, in one task, and together with the slices of other threads; see `hibernaut.engine.stages`.
"""

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, ParamSpec, TypeVar

import msgspec

from hibernaut.engine.live import LiveTurn
from hibernaut.kernel.draft import Draft
from hibernaut.models.protocol import Model, ModelRequest
from hibernaut.stores.protocol import Round

P = ParamSpec("P")
T = TypeVar("T")


class Stream(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A slice wants a model asked. It goes on with why the stream was stopped, "" if it was not."""

    model: Model
    request: ModelRequest
    live: LiveTurn
    """What takes the pieces."""
    draft: Draft


Need = Stream | Round | Callable[[], Awaitable[Any]]
"""What a slice cannot go on without. It is handed the result, or the error is raised in it."""

Steps = Generator[Need, Any, T]
"""A slice, or a part of it, that says what it needs and leaves it to others to get that."""


def got(get: Callable[P, Awaitable[T]], *arguments: P.args, **more: P.kwargs) -> Steps[T]:
    """Wait for what a function gets."""
    found: T = yield partial(get, *arguments, **more)
    return found
