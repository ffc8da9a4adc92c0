"""How requests to another server are authorized: to a tool server, to the provider of a model.

Every text may be given as `env:NAME`: it is then read from the environment when a request is made, and never kept.
Nothing here shows a secret when it is printed.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any, Final

import httpx2

from hibernaut.credentials import check_credential, credential, is_named
from hibernaut.errors import ConfigurationError

_SIGNED: Final = frozenset({"content-type", "idempotency-key", "rap-version"})
"""Headers that a signature covers, besides the host: those that no proxy has a reason to change."""

Flow = Generator[httpx2.Request, httpx2.Response, None]


class _Authorization(httpx2.Auth):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class Bearer(_Authorization):
    """A token in the header `Authorization`."""

    def __init__(self, token: str) -> None:
        check_credential("the bearer token", token)
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Flow:
        request.headers["Authorization"] = f"Bearer {credential('the bearer token', self._token)}"
        yield request


class Basic(_Authorization):
    """A user name and a password, which may be empty, in the header `Authorization`."""

    def __init__(self, user: str, password: str) -> None:
        if ":" in user and not is_named(user):
            raise ConfigurationError("the user name has a colon in it, where the password would begin")
        check_credential("the user name", user)
        if password:
            check_credential("the password", password)
        self._user = user
        self._password = password

    def auth_flow(self, request: httpx2.Request) -> Flow:
        user, password = credential("the user name", self._user), credential("the password", self._password)
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        request.headers["Authorization"] = f"Basic {pair}"
        yield request


class Headers(_Authorization):
    """Any headers."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            check_credential(f"the header {name}", value)
        self._headers = dict(headers)

    def read(self) -> dict[str, str]:
        """Return the headers of a request that is made now."""
        return {name: credential(f"the header {name}", value) for name, value in self._headers.items()}

    def auth_flow(self, request: httpx2.Request) -> Flow:
        request.headers.update(self.read())
        yield request


class MutualTls(_Authorization):
    """A certificate of ours, in files (PEM).

    Args:
        certificate, key: the chain and the private key.
        ca: the authority that has signed the server's certificate; by default those that this machine trusts.
        password: of the key.
    """

    def __init__(self, certificate: str, key: str, ca: str | None = None, password: str | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._ca = ca
        self._password = password

    def context(self) -> ssl.SSLContext:
        """Return what a connection is made with.

        Raises:
            ConfigurationError: a file cannot be read or is not what it should be.
        """
        password = credential("the password of the key", self._password) if self._password else ""
        try:
            context = ssl.create_default_context(cafile=self._ca)
            # Without a callable, a key that needs a password would ask for it at the terminal.
            context.load_cert_chain(self._certificate, self._key, password=lambda: password)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the certificate {self._certificate!r} with the key {self._key!r} cannot be used: {error}"
            ) from None
        return context

    def auth_flow(self, request: httpx2.Request) -> Flow:
        yield request


class SigV4(_Authorization):
    """A signature of Amazon Web Services, version 4, over the request and its body, made anew for every request.

    Needs the extra `aws`. Credentials are found as the AWS tools find them.

    Args:
        region: such as `eu-central-1`.
        service: what is called: `lambda` for a function URL, `execute-api` for an API gateway.
        profile: of the AWS configuration; by default what the environment says.
    """

    requires_request_body = True

    def __init__(self, region: str, service: str = "lambda", profile: str | None = None) -> None:
        self._region = region
        self._service = service
        self._profile = profile
        self._credentials: Any = None

    def auth_flow(self, request: httpx2.Request) -> Flow:
        self._sign(request)
        yield request

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        await request.aread()
        # Finding and renewing credentials reads files and may ask a server.
        await asyncio.to_thread(self._sign, request)
        yield request

    def _sign(self, request: httpx2.Request) -> None:
        try:
            import botocore.auth  # noqa: PLC0415  # an extra
            import botocore.awsrequest  # noqa: PLC0415
            import botocore.exceptions  # noqa: PLC0415
        except ImportError as error:
            raise ConfigurationError(f"SigV4 needs the extra `aws` (pip install 'hibernaut[aws]'): {error}") from error
        signed = {name: value for name, value in request.headers.items() if name in _SIGNED}
        asked = botocore.awsrequest.AWSRequest(request.method, str(request.url), signed, request.content)
        try:
            signer = botocore.auth.SigV4Auth(self._found(), self._service, self._region)
            signer.add_auth(asked)
        except botocore.exceptions.BotoCoreError as error:
            raise ConfigurationError(f"the credentials for AWS cannot be had: {error}") from error
        request.headers.update({name: value for name, value in asked.headers.items() if name.lower() not in signed})

    def _found(self) -> Any:
        import botocore.session  # noqa: PLC0415  # an extra

        if self._credentials is None:
            self._credentials = botocore.session.Session(profile=self._profile).get_credentials()
        if self._credentials is None:
            raise ConfigurationError(f"no credentials for AWS were found (profile {self._profile or 'by default'!r})")
        return self._credentials.get_frozen_credentials()
