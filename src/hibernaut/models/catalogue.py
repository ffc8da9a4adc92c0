"""What is known of models by their names. The data stand in `catalogue.json`; `make catalogue` writes them anew."""

import functools
from importlib.resources import files
from typing import Final

import msgspec

from hibernaut.kernel.authority import matches
from hibernaut.models.prices import Prices
from hibernaut.models.protocol import ModelInfo

CATALOGUE: Final = "catalogue.json"


class Entry(msgspec.Struct, frozen=True):
    """What is known of a model. `match`: patterns of its ids in which `*` stands for anything."""

    provider: str
    match: tuple[str, ...]
    context_window: int = 0
    max_output: int = 0
    images: bool = False
    reasoning: bool = False
    prompt_cache: bool = False
    prices: Prices | None = None


class _Catalogue(msgspec.Struct, frozen=True):
    source: str
    models: tuple[Entry, ...]


def known(provider: str, model_id: str) -> ModelInfo | None:
    """Return what the catalogue says of a model; None: it does not know it. The most exact pattern counts."""
    best, exact = None, -1
    for entry in _entries().get(provider, ()):
        for pattern in entry.match:
            if len(pattern.replace("*", "")) > exact and matches(pattern, model_id):
                best, exact = entry, len(pattern.replace("*", ""))
    if best is None:
        return None
    return ModelInfo(
        context_window=best.context_window,
        max_output=best.max_output,
        images=best.images,
        reasoning=best.reasoning,
        prompt_cache=best.prompt_cache,
        prices=best.prices,
    )


@functools.cache
def _entries() -> dict[str, list[Entry]]:
    data = files("hibernaut.models").joinpath(CATALOGUE).read_bytes()
    found: dict[str, list[Entry]] = {}
    for entry in msgspec.json.decode(data, type=_Catalogue).models:
        found.setdefault(entry.provider, []).append(entry)
    return found
