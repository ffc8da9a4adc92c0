"""Lists of models, as OpenAI and the servers that speak its API give them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from hibernaut.models.prices import Prices
from hibernaut.models.protocol import ListedModel, ModelInfo

_WINDOWS: Final = ("context_length", "max_model_len", "context_window", "max_context_length", "loaded_context_length")
"""Where servers say how many tokens a model takes."""

_PER_MILLION: Final = 1_000_000


def listed(body: bytes) -> Sequence[ListedModel]:
    """Read a list of models; what a server says of them beyond their ids is used.

    Raises:
        msgspec.DecodeError, ValueError: it is none.
    """
    value = msgspec.json.decode(body)
    entries = value.get("data") if isinstance(value, Mapping) else value
    if not isinstance(entries, list):
        raise ValueError("there is no `data` in it")  # noqa: TRY004  # the provider's value, not the caller's
    return [_listed(entry) for entry in entries if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)]


def _listed(entry: Mapping[str, Any]) -> ListedModel:
    window = next((entry[name] for name in _WINDOWS if isinstance(entry.get(name), int)), 0)
    output = _of(entry, "top_provider", "max_completion_tokens") or entry.get("max_completion_tokens")
    supported = entry.get("supported_parameters")
    sees = _of(entry, "architecture", "input_modalities")
    vision = _of(entry, "capabilities", "vision")
    info = ModelInfo(
        context_window=window,
        max_output=output if isinstance(output, int) else 0,
        images="image" in sees if isinstance(sees, list) else vision is not False,
        reasoning=isinstance(supported, list) and "reasoning" in supported,
        prices=_prices(entry.get("pricing")),
    )
    name = entry.get("name")
    return ListedModel(entry["id"], name if isinstance(name, str) else "", info)


def _of(entry: Mapping[str, Any], name: str, inner: str) -> Any:
    value = entry.get(name)
    return value.get(inner) if isinstance(value, Mapping) else None


def _prices(pricing: Any) -> Prices | None:
    """Read what a token costs, in US dollars."""
    if not isinstance(pricing, Mapping):
        return None
    try:
        return Prices(
            float(pricing["prompt"]) * _PER_MILLION,
            float(pricing["completion"]) * _PER_MILLION,
            float(pricing["input_cache_read"]) * _PER_MILLION if "input_cache_read" in pricing else None,
            float(pricing["input_cache_write"]) * _PER_MILLION if "input_cache_write" in pricing else None,
        )
    except (KeyError, TypeError, ValueError):
        return None
