"""How requests to Google Cloud are authorized: with an access token, which lives for an hour and is then replaced."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Final, Protocol

import httpx2

from hibernaut.auth import Bearer
from hibernaut.clock import Clock
from hibernaut.models.errors import RetryableModelError
from hibernaut.models.google.credentials import AccessToken, Credentials
from hibernaut.models.http_provider import option_of
from hibernaut.models.providers import Wanted

logger = logging.getLogger(__name__)

EARLY: Final = 225_000
"""Milliseconds before its end at which a token is replaced. A metadata server has a new one five minutes before."""

AGAIN: Final = 10_000
"""Milliseconds until it is tried again to replace a token that is still good."""

_QUOTA: Final = "x-goog-user-project"


def authorization_of(wanted: Wanted) -> httpx2.Auth:
    """Return how requests to Google Cloud are authorized: with the key, an access token, or with credentials."""
    if wanted.key:
        return Bearer(wanted.key)
    credentials = Credentials(wanted.clock, wanted.settings.options.get("credentials", ""))
    return CloudAuth(AccessTokens(credentials, wanted.clock))


def place_of(wanted: Wanted) -> tuple[str, str]:
    """Return the project and the region of a provider.

    Raises:
        ConfigurationError: nobody has said them.
    """
    project = option_of(wanted, "project", "GOOGLE_CLOUD_PROJECT")
    return project, option_of(wanted, "region", "GOOGLE_CLOUD_LOCATION")


class TokenSource(Protocol):
    """Whoever has tokens."""

    async def fetch(self) -> AccessToken:
        """Get a new token. It may raise `ModelError` and `ConfigurationError`."""
        ...


class AccessTokens:
    """The access token that all requests share. It is replaced before it ends, and by one of them at a time."""

    def __init__(self, source: TokenSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._held: AccessToken | None = None
        self._rests_until = 0
        """Until when a token that ends soon is not tried to be replaced: it has just failed."""
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, refused: str = "") -> AccessToken:
        """Return a token that is good; another one than `refused`, if there is one.

        Raises:
            ModelError. ConfigurationError: there are no credentials, or they cannot be used.
        """
        token = self._good(refused)
        if token is None:
            async with self._one_at_a_time():
                token = self._good(refused) or await self._replaced(refused)
        return token

    def _good(self, refused: str) -> AccessToken | None:
        token, now = self._held, self._clock.now()
        if token is None or token.token == refused or token.expires <= now:
            return None
        return token if now < max(token.expires - EARLY, self._rests_until) else None

    async def _replaced(self, refused: str) -> AccessToken:
        try:
            self._held = await self._source.fetch()
        except RetryableModelError as error:
            now = self._clock.now()
            if self._held is None or self._held.token == refused or self._held.expires <= now:
                raise
            self._rests_until = now + AGAIN
            logger.warning("the access token for Google Cloud could not be replaced yet: %s", error)
        return self._held

    def _one_at_a_time(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a lock belongs to the loop in which somebody has waited for it
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock


class CloudAuth(httpx2.Auth):
    """An access token in the header `Authorization`. A request that is refused for it is sent once more with a new one.

    Args:
        tokens: where it comes from.
    """

    def __init__(self, tokens: AccessTokens) -> None:
        self._tokens = tokens

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        token = await self._tokens.get()
        _show(request, token)
        answer = yield request
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            other = await self._tokens.get(refused=token.token)
            if other.token != token.token:
                _show(request, other)
                yield request


def _show(request: httpx2.Request, token: AccessToken) -> None:
    request.headers["Authorization"] = f"Bearer {token.token}"
    if token.quota_project:
        request.headers[_QUOTA] = token.quota_project
