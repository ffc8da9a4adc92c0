"""Those who give access tokens for Google Cloud, on ports of this machine, and strict: Google's two servers."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from google.auth import exceptions, jwt

from hibernaut.errors import ModelError
from hibernaut.testing.providers.wire import Asked, Encoder, Raw

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
SIGN_IN: Final = {"client_id": "client", "client_secret": "hush", "refresh_token": "1//refresh"}
FORM: Final = "application/x-www-form-urlencoded"
METADATA: Final = {"metadata-flavor": "Google", "content-type": "application/json"}


def refusal(status: int, error: str, description: str = "", **headers: str) -> Raw:
    """Return how a token server refuses."""
    said = {"error": error, **({"error_description": description} if description else {})}
    return Raw(status, {"content-type": "application/json", **headers}, json.dumps(said).encode())


class _Tokens:
    """Gives tokens that count, each good for an hour."""

    stream_type = ""

    def __init__(self, told: Callable[[str], None] = lambda token: None) -> None:
        self.given: list[str] = []
        self.instead: Iterator[Raw] = iter(())
        """What the next requests are answered, in place of a token."""
        self._told = told
        self._numbers = itertools.count(1)

    def refuse(self, error: ModelError) -> Raw:
        raise NotImplementedError

    def encoder(self, asked: Asked) -> Encoder:
        raise NotImplementedError

    def _answer(self, headers: Mapping[str, str]) -> Raw:
        instead = next(self.instead, None)
        if instead is not None:
            return instead
        token = f"ya29.{next(self._numbers)}"
        self.given.append(token)
        self._told(token)
        grant = {"access_token": token, "expires_in": 3_600, "token_type": "Bearer"}
        return Raw(200, headers, json.dumps(grant).encode())


class TokenServer(_Tokens):
    """`oauth2.googleapis.com`, which takes what a sign-in has left, and assertions that are signed.

    Args:
        keys: public keys by their ids.
    """

    def __init__(self, told: Callable[[str], None] = lambda token: None, keys: Mapping[str, Any] | None = None) -> None:
        super().__init__(told)
        self._keys = keys or {}

    def check(self, asked: Asked) -> Raw:
        assert (asked.method, asked.headers["content-type"]) == ("POST", FORM)
        form = {name: values[0] for name, values in parse_qs(asked.raw.decode(), strict_parsing=True).items()}
        kind = form.pop("grant_type")
        if kind == "refresh_token":
            if form != SIGN_IN:
                return refusal(400, "invalid_grant", "Token has been expired or revoked.")
        elif kind == "urn:ietf:params:oauth:grant-type:jwt-bearer":
            try:
                claims = jwt.decode(form["assertion"], certs=self._keys)
            except exceptions.GoogleAuthError:
                return refusal(400, "invalid_grant", "Invalid JWT Signature.")
            assert claims["scope"] == SCOPE
            assert claims["iss"] == "robot@p.iam.gserviceaccount.com"
        elif kind == "urn:ietf:params:oauth:grant-type:token-exchange":
            if form["subject_token"] != "who I am":
                return refusal(400, "invalid_grant", "The subject token is not taken.")
            assert form["scope"] == SCOPE
        else:
            return refusal(400, "unsupported_grant_type")
        return self._answer({"content-type": "application/json"})


class MetadataServer(_Tokens):
    """What `metadata.google.internal` is on machines of Google's."""

    def check(self, asked: Asked) -> Raw:
        if asked.headers.get("metadata-flavor") != "Google":
            return Raw(403, {"content-type": "text/html"}, b"Missing Metadata-Flavor:Google header.")
        path, _, query = asked.path.partition("?")
        if asked.method != "GET" or path != "/computeMetadata/v1/instance/service-accounts/default/token":
            return Raw(404, METADATA)
        assert parse_qs(query) == {"scopes": [SCOPE]}
        return self._answer(METADATA)
