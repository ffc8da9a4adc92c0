"""A provider of models behind HTTP."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

import httpx2
import msgspec

from hibernaut.auth import Headers
from hibernaut.errors import ConfigurationError
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import InvalidRequest, Overloaded
from hibernaut.models.http_model import HttpModel
from hibernaut.models.protocol import About, ListedModel
from hibernaut.models.providers import Wanted
from hibernaut.models.throttle import Throttle

MOST_PAGES: Final = 100
"""Pages of a list of models."""

_OK: Final = 200


def endpoint_of(
    wanted: Wanted, *, auth: httpx2.Auth | None = None, headers: Mapping[str, str] | None = None, url: str = ""
) -> Endpoint:
    """Return the connection to a provider; `url` counts if nobody has said where it is.

    Raises:
        ConfigurationError: nobody knows where it is.
    """
    settings = wanted.settings
    if not (wanted.url or url):
        raise ConfigurationError(f'nobody knows where {wanted.name!r} is: [providers.{wanted.name}] url = "https://…"')
    return Endpoint(
        wanted.name,
        wanted.url or url,
        auth=auth,
        headers={**(headers or {}), **Headers(settings.headers).read()},
        throttle=Throttle(
            concurrency=settings.concurrency,
            requests_per_minute=settings.requests_per_minute,
            tokens_per_minute=settings.tokens_per_minute,
        ),
        clock=wanted.clock,
    )


def option_of(wanted: Wanted, name: str, variable: str = "") -> str:
    """Return an option that a provider cannot do without; if it is not given, what the environment variable holds.

    Raises:
        ConfigurationError: it is not given.
    """
    value = wanted.settings.options.get(name, "") or (os.environ.get(variable, "").strip() if variable else "")
    if not value:
        raise ConfigurationError(
            f'{wanted.name} has to be told its {name}: [providers.{wanted.name}.options] {name} = "…"'
            + (f", or the environment variable {variable}" if variable else "")
        )
    return value


class HttpProvider:
    """Models behind one endpoint that speak one dialect."""

    def __init__(self, endpoint: Endpoint, dialect: Dialect) -> None:
        self.endpoint = endpoint
        self.dialect = dialect

    def model(self, about: About) -> HttpModel:
        """Return a model of the provider's; whether it exists shows when it is asked."""
        return HttpModel(self.endpoint, self.dialect, about)

    async def models(self) -> Sequence[ListedModel]:
        """Ask the provider which models it has."""
        name, path = self.endpoint.name, self.dialect.listing
        if not path:
            raise InvalidRequest(f"{name} has no list of its models")
        found: list[ListedModel] = []
        for _ in range(MOST_PAGES):
            reply = await self.endpoint.fetch(path)
            if reply.status != _OK:
                raise self.dialect.failure(reply)
            try:
                more, path = self.dialect.listed(reply.body)
            except (msgspec.DecodeError, ValueError) as error:
                raise Overloaded(f"{name} sent no list of models: {error}") from error
            found += more
            if not path:
                break
        return found

    async def close(self) -> None:
        """Let go of all connections."""
        await self.endpoint.close()
