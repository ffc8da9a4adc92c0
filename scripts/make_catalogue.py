"""Writes `src/hibernaut/models/catalogue.json`: what is known of models, from the prices that `genai-prices` collects.

`make catalogue` runs it where that package (MIT licence, © Pydantic Services Inc.) is installed. What it does not know
(output limits, images, reasoning) stands here.
"""

import json
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices import data, types

PROVIDERS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "google": "google",
    "aws": "bedrock",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "groq": "groq",
    "x-ai": "xai",
    "moonshotai": "moonshot",
    "cerebras": "cerebras",
}
"""Its names of providers, and ours."""

NO_CHAT = re.compile(
    r"embed|tts|whisper|image|audio|realtime|moderation|transcri|dall|\bada\b|babbage|curie|davinci|veo|imagen|sora|ocr"
    r"|rerank|titan|stability|live|polly|search|computer-use|instruct|guard|speech|voice|canvas|reel|sonic|lyria"
)

CLAUDE_OUTPUT = (
    (r"claude-(2|v)", 4_096),
    (r"claude-3-(haiku|opus|sonnet)", 4_096),
    (r"claude-3[-.]5", 8_192),
    (r"claude-(opus-4(-[01])?$|opus-4-[01]|4-opus|opus-4-2025)", 32_000),
    (r"claude-opus", 128_000),
    (r"claude", 64_000),
)
"""Tokens that a turn of these models may have."""

REASONING = re.compile(
    r"claude-(3[-.]7|sonnet-3|opus-|sonnet-|haiku-[4-9]|fable|mythos|[4-9])|^o\d|openai\.|gpt-(5|6|oss)|codex|gemini-(2\.5|[3-9])"
    r"|deepseek-(r|v[34]|reasoner|flash|pro)|magistral|grok-[34]|kimi-k|qwen3"
)

IMAGES = re.compile(
    r"claude-(3|opus|sonnet|haiku|fable|mythos|4|5)|gpt-(4o|4\.1|4-turbo|4\.5|5|6)|^o[134]|gemini|nova-(lite|pro|premier|2)|grok-4"
    r"|pixtral|mistral-(medium|small|large-3)|llama-?4|kimi-k(2\.5|3)|chatgpt-4o"
)

CACHED = {"anthropic", "openai", "google", "deepseek", "xai", "moonshot", "groq"}
"""Providers that keep prompts."""


def main() -> int:
    """Write the catalogue."""
    entries = [entry for provider in data.providers for entry in _entries(provider)]
    source = f"genai-prices {version('genai-prices')}"
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    target = Path(__file__).parent.parent / "src/hibernaut/models/catalogue.json"
    target.write_text(f'{{"source": "{source}", "models": [\n{lines}\n]}}\n')
    print(f"{target}: {len(entries)} models, {target.stat().st_size:,} bytes")
    return 0


def _entries(provider: types.Provider) -> Iterator[dict[str, Any]]:
    ours = PROVIDERS.get(provider.id)
    for model in provider.models if ours else ():
        patterns = [pattern for pattern in _patterns(model.match) if not NO_CHAT.search(pattern)]
        prices = _prices(model.prices)
        if NO_CHAT.search(model.id) or not patterns or not prices.get("output"):
            continue
        name = re.sub(r"^(regional\.|global\.)", "", model.id).removeprefix("anthropic.")
        output = next((limit for pattern, limit in CLAUDE_OUTPUT if re.search(pattern, name)), 0)
        facts = {
            "provider": ours,
            "match": sorted(set(patterns)),
            "context_window": model.context_window or 0,
            "max_output": output,
            "images": bool(IMAGES.search(name)),
            "reasoning": bool(REASONING.search(name)),
            "prompt_cache": ours in CACHED or "cached" in prices,
            "prices": prices,
        }
        yield {key: value for key, value in facts.items() if value not in (0, False)}


def _patterns(clause: Any) -> Iterator[str]:
    if isinstance(clause, types.ClauseOr):
        for one in clause.or_:
            yield from _patterns(one)
    elif isinstance(clause, types.ClauseEquals):
        yield clause.equals
    elif isinstance(clause, types.ClauseStartsWith):
        yield f"{clause.starts_with}*"
    elif isinstance(clause, types.ClauseEndsWith):
        yield f"*{clause.ends_with}"
    elif isinstance(clause, types.ClauseContains):
        yield f"*{clause.contains}*"
    elif isinstance(clause, types.ClauseRegex):
        yield from _of_regex(clause.regex)


def _of_regex(regex: str) -> Iterator[str]:
    """Yield the patterns of a regular expression that only stands for a name with a date after it."""
    plain = re.sub(r"\\d\{8\}|\\d\{4\}-\\d\{2\}-\\d\{2\}", "20*", regex.removeprefix("^").removesuffix("$"))
    for one in [plain.replace("[-@]", mark) for mark in "-@"] if "[-@]" in plain else [plain]:
        simple = one.replace("\\.", ".")
        if not re.search(r"[\\\[\](){}|?+^$]", simple):
            yield simple


def _prices(prices: Any) -> dict[str, Any]:
    if isinstance(prices, list):
        prices = prices[-1].prices
    named = {
        "input": prices.input_mtok,
        "output": prices.output_mtok,
        "cached": prices.cache_read_mtok,
        "written": prices.cache_write_mtok,
    }
    found = {name: _base(price) for name, price in named.items() if price is not None}
    starts = sorted({tier.start for price in named.values() for tier in getattr(price, "tiers", ())})
    tiers = [
        {"above": start, **{name: _at(price, start) for name, price in named.items() if price is not None}}
        for start in starts
    ]
    return {**found, **({"tiers": tiers} if tiers else {})}


def _base(price: Any) -> float:
    return float(price if isinstance(price, Decimal) else price.base)


def _at(price: Any, start: int) -> float:
    reached = [tier for tier in getattr(price, "tiers", ()) if tier.start <= start]
    return float(reached[-1].price) if reached else _base(price)


if __name__ == "__main__":
    sys.exit(main())
