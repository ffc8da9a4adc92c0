"""Settings that every test shares."""

import os

import pytest
from hypothesis import settings

# The same examples on every run and machine: a change is never refused for what chance found in old code.
# HYPOTHESIS_PROFILE=search looks for new examples, longer.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio, as Hibernaut does."""
    return "asyncio"
