"""One access token for all requests: replaced in time, by one of them, and once when it is refused."""

import asyncio
import logging

import pytest

from hibernaut.errors import ModelError
from hibernaut.models.errors import AuthenticationFailed, Overloaded
from hibernaut.models.google.cloud import AGAIN, EARLY, AccessTokens
from hibernaut.models.google.credentials import AccessToken
from hibernaut.testing.clock import ManualClock

HOUR = 3_600_000


class Source:
    """Gives tokens that count, when it may."""

    def __init__(self, clock: ManualClock) -> None:
        self.fetched = 0
        self.failing: ModelError | None = None
        self.may = asyncio.Event()
        self.may.set()
        self.asked = asyncio.Event()
        self._clock = clock

    async def fetch(self) -> AccessToken:
        self.fetched += 1
        self.asked.set()
        await self.may.wait()
        if self.failing is not None:
            raise self.failing
        return AccessToken(f"ya29.{self.fetched}", self._clock.now() + HOUR)


def test_a_token_is_kept_until_shortly_before_its_end() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source = Source(clock)
        tokens = AccessTokens(source, clock)
        assert (await tokens.get()).token == "ya29.1"
        clock.advance(HOUR - EARLY - 1)
        assert (await tokens.get()).token == "ya29.1"
        clock.advance(1)
        assert (await tokens.get()).token == "ya29.2"
        assert source.fetched == 2

    asyncio.run(scenario())


def test_all_who_need_one_at_the_same_time_wait_for_the_same() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source = Source(clock)
        tokens = AccessTokens(source, clock)
        source.may.clear()
        asking = [asyncio.ensure_future(tokens.get()) for _ in range(50)]
        await source.asked.wait()
        await asyncio.sleep(0)
        source.may.set()
        assert {token.token for token in await asyncio.gather(*asking)} == {"ya29.1"}
        again = await asyncio.gather(*[tokens.get(refused="ya29.1") for _ in range(50)])
        assert {token.token for token in again} == {"ya29.2"}
        assert source.fetched == 2

    asyncio.run(scenario())


def test_who_stops_waiting_leaves_it_to_the_next() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source = Source(clock)
        tokens = AccessTokens(source, clock)
        source.may.clear()
        first = asyncio.ensure_future(tokens.get())
        await source.asked.wait()
        second = asyncio.ensure_future(tokens.get())
        first.cancel()
        source.may.set()
        assert (await second).token == "ya29.2"
        assert first.cancelled()

    asyncio.run(scenario())


def test_a_token_that_is_still_good_is_used_while_no_new_one_can_be_had(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source = Source(clock)
        tokens = AccessTokens(source, clock)
        await tokens.get()
        clock.advance(HOUR - EARLY)
        source.failing = Overloaded("busy")
        assert (await tokens.get()).token == "ya29.1"
        assert (await tokens.get()).token == "ya29.1"
        assert source.fetched == 2, "and it is not asked for at every request"
        clock.advance(AGAIN)
        assert (await tokens.get()).token == "ya29.1"
        assert source.fetched == 3
        with pytest.raises(Overloaded, match="busy"):
            await tokens.get(refused="ya29.1")
        clock.advance(EARLY)
        with pytest.raises(Overloaded, match="busy"):
            await tokens.get()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert caplog.messages == ["the access token for Google Cloud could not be replaced yet: busy"] * 2


def test_credentials_that_are_taken_no_longer_are_told_at_once() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        source = Source(clock)
        tokens = AccessTokens(source, clock)
        await tokens.get()
        clock.advance(HOUR - EARLY)
        source.failing = AuthenticationFailed("sign in")
        with pytest.raises(AuthenticationFailed):
            await tokens.get()

    asyncio.run(scenario())


def test_each_loop_of_events_can_use_it() -> None:
    clock = ManualClock()
    source = Source(clock)
    tokens = AccessTokens(source, clock)

    async def scenario() -> None:
        source.may = asyncio.Event()
        source.asked = asyncio.Event()
        asking = [asyncio.ensure_future(tokens.get()) for _ in range(3)]
        await source.asked.wait()
        source.may.set()
        await asyncio.gather(*asking)

    for _ in range(2):
        asyncio.run(scenario())
        clock.advance(HOUR)
    assert source.fetched == 2


def test_a_token_is_not_printed() -> None:
    assert "secret" not in repr(AccessToken("secret", 1))
    assert "secret" not in str([AccessToken("secret", 1)])
