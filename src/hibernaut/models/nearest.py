"""What somebody probably meant who has named something that is not there."""

from collections.abc import Iterable
from difflib import get_close_matches

from hibernaut.models.catalogue import known

MAKERS = ("anthropic", "openai", "google", "deepseek", "mistral", "xai", "moonshot")
"""Providers whose models have names of their own, by which people call them."""


ALIKE = 0.7
"""From when on two names are alike: between 0, nothing in common, and 1."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question in brackets, to follow `name`, that names the one of `names` most like it; "" if none is."""
    by_folded = {one.casefold(): one for one in names if one != name}
    near = get_close_matches(name.casefold(), by_folded, n=1, cutoff=ALIKE)
    return f" (did you mean {by_folded[near[0]]!r}?)" if near else ""


def maker_of(model_id: str) -> str:
    """Return the provider whose model is called so; "" if the catalogue knows none."""
    return next((maker for maker in MAKERS if known(maker, model_id) is not None), "")
