"""What the exceptions of an SDK mean. Those of Anthropic and of OpenAI are made alike."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import httpx2

from hibernaut.errors import ModelError
from hibernaut.models.errors import AuthenticationFailed, ConnectionLost, InvalidRequest, Overloaded, RateLimited
from tests.models.oracles.conversation import Failure

_CLASSES: Final[Mapping[str, type[ModelError]]] = {
    "AuthenticationError": AuthenticationFailed,
    "PermissionDeniedError": AuthenticationFailed,
    "RateLimitError": RateLimited,
    "ConflictError": Overloaded,
    "InternalServerError": Overloaded,
}


def failure_of(sdk: Any, client: Any, error: Exception) -> Failure | None:
    """Return what an exception of a client means; None: it is no failure of the provider's."""
    if isinstance(error, httpx2.TransportError | sdk.APIConnectionError):
        return Failure(ConnectionLost, retryable=True, wait=0)
    if not isinstance(error, sdk.APIError):
        return None
    response = getattr(error, "response", None)
    if response is None or response.status_code == HTTPStatus.OK:
        # In the middle of a stream, where there are no classes: it began, so it was no wrong request.
        return Failure(Overloaded, retryable=True, wait=0)
    kinds = [kind for name, kind in _CLASSES.items() if isinstance(error, getattr(sdk, name))]
    again, wait = client._should_retry(response), client._parse_retry_after_header(response.headers)
    return Failure(
        kinds[0] if kinds else by_status(response.status_code), again, int((wait or 0) * 1_000) if again else 0
    )


def by_status(status: int) -> type[ModelError]:
    """Return what a status means for which an SDK has no class."""
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return AuthenticationFailed
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RateLimited
    if status == HTTPStatus.REQUEST_TIMEOUT:
        return ConnectionLost
    return Overloaded if status >= HTTPStatus.INTERNAL_SERVER_ERROR else InvalidRequest
