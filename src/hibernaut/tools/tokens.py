"""Callback tokens: what a deferred call hands out so that anything, days later, can deliver its result.

A token names the thread, the call and the moment from which it is void, signed with HMAC-SHA256. Nothing is stored for
it, so it outlives every restart as long as the secret does. It proves who may deliver, not that the call is
still open: the thread itself refuses what comes for an answered call.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from hibernaut.codec import decoder_of, pack
from hibernaut.errors import ConfigurationError, TokenRefused, TooLarge

LONGEST_TOKEN = 1_024
"""Characters of a token. What is longer is not looked at."""

SHORTEST_SECRET = 16
"""Bytes of a secret; a shorter one could be found by trying."""

_VERSION = "h1"
_DOMAIN = b"hibernaut callback token "
_REFUSED = "this callback token is not valid"


class Grant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a token allows: to answer one call of one thread, before `expires` (milliseconds since 1970; 0: always)."""

    thread_id: str
    call_id: str
    expires: int = 0


_decoder = decoder_of(Grant)


def sign(secret: bytes, thread_id: str, call_id: str, expires: int = 0) -> str:
    """Return a token for one call: text that may stand in a URL. The same call and moment give the same token.

    Raises:
        TooLarge: the names are too long for a token.
        ConfigurationError: the secret is too short.
    """
    _check_secret(secret)
    grant = base64.urlsafe_b64encode(pack(Grant(thread_id, call_id, expires))).decode().rstrip("=")
    signed = f"{_VERSION}.{grant}"
    token = f"{signed}.{_signature(secret, signed)}"
    if len(token) > LONGEST_TOKEN:
        raise TooLarge("a callback token", len(token), LONGEST_TOKEN, "LONGEST_TOKEN")
    return token


def read(secrets: Sequence[bytes], token: str, now: int) -> Grant:
    """Return what a token allows. Any of the secrets may have signed it, so that they can be changed one by one.

    Raises:
        TokenRefused: it is forged, garbled or expired. Only somebody who holds a genuine token learns which.
        ConfigurationError: there is no secret, or one is too short.
    """
    if not secrets:
        raise ConfigurationError("callback tokens cannot be read without a secret")
    for secret in secrets:
        _check_secret(secret)
    if len(token) > LONGEST_TOKEN or not token.isascii():
        raise TokenRefused(_REFUSED)
    signed, _, signature = token.rpartition(".")
    genuine = False
    for secret in secrets:
        genuine |= hmac.compare_digest(_signature(secret, signed), signature)
    version, _, grant = signed.partition(".")
    if not genuine or version != _VERSION:
        raise TokenRefused(_REFUSED)
    try:
        value = _decoder.decode(base64.urlsafe_b64decode(grant + "=" * (-len(grant) % 4)))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError):
        raise TokenRefused(_REFUSED) from None
    if value.expires and now >= value.expires:
        raise TokenRefused("this callback token has expired")
    return value


def _check_secret(secret: bytes) -> None:
    if len(secret) < SHORTEST_SECRET:
        raise ConfigurationError(f"a secret for callback tokens has at least {SHORTEST_SECRET} bytes")


def _signature(secret: bytes, signed: str) -> str:
    digest = hmac.digest(secret, _DOMAIN + signed.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
