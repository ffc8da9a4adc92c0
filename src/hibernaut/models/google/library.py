"""Credentials that take Google's own library (extra `google`): those that sign, and those of other identity providers.

service_account                     a key that signs
external_account                    workload identity: who runs this is shown by AWS, Azure, GitHub and others
external_account_authorized_user    the same for people
impersonated_service_account        one of these, on behalf of a service account
"""

import importlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

import httpx2

from hibernaut.errors import ConfigurationError, said_by
from hibernaut.models.endpoint import certificate_checks
from hibernaut.models.errors import AuthenticationFailed, ConnectionLost, Overloaded

_WITHIN: Final = 10.0
"""Seconds that a server of tokens may be silent, if the library does not say."""

_KINDS: Final[Mapping[str, str]] = {
    "external_account_authorized_user": "google.auth.external_account_authorized_user:Credentials.from_info",
    "impersonated_service_account": (
        "google.auth.impersonated_credentials:Credentials.from_impersonated_service_account_info"
    ),
    "service_account": "google.oauth2.service_account:Credentials.from_service_account_info",
}
_AWS: Final = "urn:ietf:params:aws:token-type:aws4_request"


def grant(info: Mapping[str, Any], where: str, scope: str) -> tuple[str, int]:
    """Get a token, and for how many seconds it is good (0: nobody says). Blocks.

    Args:
        info: the credentials.
        where: the file that they stand in.
        scope: what the token is to be good for.

    Raises:
        ConfigurationError: they cannot be used, or the library is not installed.
        AuthenticationFailed: they are not taken. ConnectionLost, Overloaded: that cannot be known right now.
    """
    kind = str(info.get("type", ""))
    maker = _external(info) if kind == "external_account" else _KINDS.get(kind)
    if maker is None:
        known = ", ".join(sorted({*_KINDS, "authorized_user", "external_account"}))
        raise ConfigurationError(f"{where} holds credentials of the type {kind!r}; known are {known}")
    try:
        from google.auth import exceptions  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ConfigurationError(
            f"credentials of the type {kind!r} need the extra `google` (pip install 'hibernaut[google]'): {error}"
        ) from error
    try:
        credentials = _made(maker, info, scope)
    except (AttributeError, LookupError, TypeError, ValueError, exceptions.GoogleAuthError) as error:
        raise ConfigurationError(f"the credentials in {where} cannot be used: {error}") from error
    try:
        with httpx2.Client(verify=certificate_checks(), timeout=_WITHIN) as client:
            credentials.refresh(_transport(client, exceptions.TransportError))
    except exceptions.TransportError as error:
        raise ConnectionLost(f"who gives tokens for {where} cannot be asked: {error}") from error
    except exceptions.GoogleAuthError as error:
        if error.retryable:
            raise Overloaded(f"who gives tokens for {where} fails: {error}") from error
        raise AuthenticationFailed(f"the credentials in {where} are not taken: {error}") from error
    left = credentials.expiry.replace(tzinfo=UTC) - datetime.now(UTC) if credentials.expiry else timedelta()
    return str(credentials.token), int(left.total_seconds())


def _external(info: Mapping[str, Any]) -> str:
    """Return what makes credentials of another identity provider, which depends on how that is asked."""
    source = info.get("credential_source")
    if info.get("subject_token_type") == _AWS:
        return "google.auth.aws:Credentials.from_info"
    if isinstance(source, Mapping) and "executable" in source:
        return "google.auth.pluggable:Credentials.from_info"
    return "google.auth.identity_pool:Credentials.from_info"


def _made(maker: str, info: Mapping[str, Any], scope: str) -> Any:
    module, _, path = maker.partition(":")
    made: Any = importlib.import_module(module)
    for name in path.split("."):
        made = getattr(made, name)
    return made(info, scopes=[scope])


def _transport(client: httpx2.Client, failed: type[Exception]) -> Callable[..., SimpleNamespace]:
    """Return how the library asks others. It would bring an HTTP client of its own otherwise."""

    def ask(
        url: str, method: str = "GET", body: Any = None, headers: Any = None, timeout: Any = None, **_: Any
    ) -> SimpleNamespace:
        try:
            answer = client.request(method, url, content=body, headers=headers, timeout=timeout or _WITHIN)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise failed(said_by(error)) from error
        return SimpleNamespace(status=answer.status_code, headers=answer.headers, data=answer.content)

    return ask
