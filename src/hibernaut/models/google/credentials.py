"""Application Default Credentials of Google Cloud: where they are found, and how they give an access token.

They are looked for where Google's own tools look: in the file that is named, in the one that `gcloud` has left, and on
a machine of Google's at its metadata server. They are found anew for every token, so that a new sign-in counts at once.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
import msgspec

from hibernaut.clock import Clock
from hibernaut.errors import ConfigurationError, ModelError
from hibernaut.models.dialect import Refusal, Sent
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import AuthenticationFailed, ConnectionLost, Overloaded, RetryableModelError
from hibernaut.models.failures import by_status, words_of
from hibernaut.models.google import library

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"

TOKEN_URL: Final = "https://oauth2.googleapis.com/token"  # noqa: S105  # an address
METADATA_HOST: Final = "metadata.google.internal"

ANSWERS_WITHIN: Final = 10_000
"""Milliseconds that a server of tokens may be silent."""

LIFETIME: Final = 3_600
"""Seconds that a token is good for if nobody says."""

_LARGEST_ANSWER: Final = 64 * 1024
_FILE: Final = "application_default_credentials.json"
_LOGIN: Final = "gcloud auth application-default login"
_METADATA: Final = "/computeMetadata/v1/instance/service-accounts/default/token?" + urlencode({"scopes": SCOPE})
_PASSING: Final = frozenset({"internal_failure", "server_error", "temporarily_unavailable"})
"""Refusals that may not come again."""
_FLAVOR: Final = "metadata-flavor"


class AccessToken(msgspec.Struct, frozen=True):
    """A token, until when it is good (milliseconds since 1970), and whose quota its use counts against."""

    token: str
    expires: int
    quota_project: str = ""

    def __repr__(self) -> str:
        return f"AccessToken(…, expires={self.expires})"


class _SignIn(msgspec.Struct, frozen=True):
    """What a person's sign-in has left."""

    client_id: str
    client_secret: str
    refresh_token: str


class _Grant(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: int = LIFETIME


class _Refusal(msgspec.Struct, frozen=True):
    error: str = ""
    error_description: str = ""


class Credentials:
    """Gets access tokens.

    Args:
        path: the file of the credentials; "": wherever they are found.
        token_url: where a person's sign-in is exchanged for a token.
        metadata_host: the metadata server, unless GCE_METADATA_HOST names another one.
    """

    def __init__(
        self, clock: Clock, path: str = "", *, token_url: str = TOKEN_URL, metadata_host: str = METADATA_HOST
    ) -> None:
        self._clock = clock
        self._path = path
        self._token_url = token_url
        self._metadata_host = metadata_host
        self._on_google = False
        """Whether a metadata server has ever answered."""

    async def fetch(self) -> AccessToken:
        """Get a new token.

        Raises:
            ConfigurationError: there are no credentials, or they cannot be used.
            AuthenticationFailed: they are not taken.
            ConnectionLost, Overloaded, RateLimited: whoever gives tokens cannot be asked right now.
        """
        now = self._clock.now()  # before anybody is asked: a token's life begins when it is given
        path = await asyncio.to_thread(_found, self._path)
        if path is None:
            return _token(await self._of_machine(), now)
        info = await asyncio.to_thread(_read, path)
        quota = os.environ.get("GOOGLE_CLOUD_QUOTA_PROJECT") or str(info.get("quota_project_id") or "")
        if info.get("type") == "authorized_user":
            return _token(await self._of_person(path, info), now, quota)
        token, seconds = await asyncio.to_thread(library.grant, info, str(path), SCOPE)
        return _token(_Grant(token, seconds or LIFETIME), now, quota)

    async def _of_person(self, path: Path, info: Mapping[str, Any]) -> _Grant:
        """Exchange what a person's sign-in has left for a token."""
        try:
            signed_in = msgspec.convert(info, _SignIn)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"{path} holds no whole sign-in ({error}): run `{_LOGIN}`") from None
        form = urlencode({"grant_type": "refresh_token", **msgspec.to_builtins(signed_in)}).encode()
        server = Endpoint("Google's token server", self._token_url, silent_for=ANSWERS_WITHIN, clock=self._clock)
        try:
            async with AsyncExitStack() as stack:
                sent = Sent("", form, {"Content-Type": "application/x-www-form-urlencoded"})
                answer = await server.read(await server.answer(stack, sent), _LARGEST_ANSWER)
        except httpx2.HTTPError as error:
            raise server.lost(error) from error
        finally:
            await server.close()
        if answer.status == HTTPStatus.OK:
            return _granted(server.name, answer)
        raise _refused(server.name, path, answer)

    async def _of_machine(self) -> _Grant:
        """Ask the metadata server, which only machines of Google's have."""
        named = os.environ.get("GCE_METADATA_HOST", "")
        host = named or self._metadata_host
        # With a transport of its own, no proxy of the environment is asked: what it would reach is not this machine's.
        direct = httpx2.AsyncHTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        server = Endpoint(
            "the metadata server",
            f"http://{host}",
            headers={"Metadata-Flavor": "Google"},
            silent_for=ANSWERS_WITHIN,
            clock=self._clock,
            transport=direct,
        )
        try:
            answer = await server.fetch(_METADATA)
        except ConnectionLost as lost:
            if named or self._on_google:
                raise
            raise ConfigurationError(
                f"there are no credentials for Google Cloud. Run `{_LOGIN}`, or name the file of a service account "
                "in GOOGLE_APPLICATION_CREDENTIALS or in the option `credentials`, or put a token into "
                f"VERTEX_ACCESS_TOKEN. (This is no machine of Google's either: {lost})"
            ) from lost
        finally:
            await server.close()
        if answer.headers.get(_FLAVOR) != "Google":
            raise ConfigurationError(f"what answers at http://{host} is no metadata server of Google's")
        self._on_google = True
        if answer.status == HTTPStatus.OK:
            return _granted(server.name, answer)
        if answer.status == HTTPStatus.NOT_FOUND:
            raise ConfigurationError(f"this machine has no service account; attach one to it, or run `{_LOGIN}`")
        raise by_status(server.name, answer)


def _found(named: str) -> Path | None:
    named = named or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    if named:
        return Path(named).expanduser()
    folder = os.environ.get("CLOUDSDK_CONFIG", "")
    usual = (Path(folder) if folder else Path.home() / ".config" / "gcloud") / _FILE
    return usual if usual.exists() else None


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise ConfigurationError(
            f"the credentials for Google Cloud in {path} cannot be read: {error.strerror}"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} holds no credentials for Google Cloud: {error}") from None


def _granted(who: str, answer: Refusal) -> _Grant:
    try:
        return msgspec.json.decode(answer.body, type=_Grant)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Overloaded(f"{who} sent no token: {error}") from None


def _token(grant: _Grant, now: int, quota_project: str = "") -> AccessToken:
    return AccessToken(grant.access_token, now + grant.expires_in * 1_000, quota_project)


def _refused(who: str, path: Path, answer: Refusal) -> ModelError:
    """Return what it means that a sign-in is not exchanged for a token."""
    failure = by_status(who, answer)
    if isinstance(failure, RetryableModelError):
        return failure
    try:
        said = msgspec.json.decode(answer.body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = _Refusal(words_of(answer.body))
    words = f"{said.error}: {said.error_description}" if said.error_description else said.error
    if said.error in _PASSING:
        return Overloaded(f"{who} answers {answer.status}: {words}")
    return AuthenticationFailed(f"{who} does not take the sign-in in {path} ({words}): run `{_LOGIN}`")
