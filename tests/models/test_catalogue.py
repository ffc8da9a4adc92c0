import pytest

from hibernaut.messages.events import Usage
from hibernaut.models.catalogue import known
from hibernaut.models.prices import Prices, Tier, cost


@pytest.mark.parametrize(
    "provider,model,window",
    [
        ("anthropic", "claude-sonnet-4-5", 200_000),
        ("anthropic", "claude-sonnet-4-5-20250929", 200_000),
        ("anthropic", "claude-opus-4-6", 1_000_000),
        ("openai", "gpt-4o-mini", 128_000),
        ("google", "gemini-2.5-flash", 1_048_576),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
    ],
)
def test_models_are_known_under_their_names_with_and_without_a_date(provider: str, model: str, window: int) -> None:
    info = known(provider, model)
    assert info is not None
    assert info.context_window == window
    assert info.images
    assert info.prices is not None
    assert info.prices.output > info.prices.input > 0


def test_a_model_that_is_not_in_it_is_unknown() -> None:
    assert known("anthropic", "claude-96") is None
    assert known("nobody", "claude-sonnet-4-5") is None


def test_the_most_exact_name_counts() -> None:
    plain, mini = known("openai", "gpt-4o"), known("openai", "gpt-4o-mini")
    assert plain is not None
    assert mini is not None
    assert plain.prices != mini.prices


def test_cached_and_written_tokens_have_prices_of_their_own() -> None:
    prices = Prices(input=3.0, output=15.0, cached=0.3, written=3.75)
    assert cost(prices, Usage(1_000, 100)) == 3_000 + 1_500
    assert cost(prices, Usage(1_000, 100, cached=400)) == 600 * 3 + 120 + 1_500
    assert cost(prices, Usage(1_000, 100, cached=400), written=600) == 120 + 2_250 + 1_500
    assert cost(Prices(input=3.0, output=15.0), Usage(1_000, 0, cached=1_000)) == 3_000


def test_a_long_prompt_costs_what_its_tier_says() -> None:
    prices = Prices(input=3.0, output=15.0, tiers=(Tier(above=200_000, input=6.0, output=22.5),))
    assert cost(prices, Usage(200_000, 10)) == 600_150
    assert cost(prices, Usage(200_001, 10)) == 1_200_006 + 225
