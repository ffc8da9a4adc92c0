"""Callback tokens: what a call hands out so that anything, days later, can deliver to it.

A token names the thread, the call, what may be delivered and the moment from which it is void, signed with HMAC-SHA256.
Nothing is stored for it, so it outlives every restart as long as its secret is known. It proves who may deliver, not
that the call is still open: the thread itself refuses what comes for an answered call.

Secrets change by rotation: a new one is put in front of the ring, tokens are signed with it from then on, and those
of the older ones are read until these are taken out. Tokens of the first form (`h1`), which allow a result and name no
key, are read for ever.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, Literal, get_args

import msgspec

from hibernaut.codec import decoder_of, pack
from hibernaut.errors import ConfigurationError, TokenRefused, TooLarge

LONGEST_TOKEN: Final = 2_048
"""Characters of a token. What is longer is not looked at."""

SHORTEST_SECRET: Final = 16
"""Bytes of a secret; a shorter one could be found by trying."""

Kind = Literal["tool_result", "subscription_event", "oauth", "user_choice", "view_update"]
"""What can be delivered to a call."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_LETTERS: Final[dict[Kind, str]] = {
    "tool_result": "r",
    "subscription_event": "e",
    "oauth": "o",
    "user_choice": "c",
    "view_update": "v",
}
_DOMAIN: Final = b"hibernaut callback token "
_KEY_DOMAIN: Final = b"hibernaut callback key"
_KEY_ID_BYTES: Final = 6
EXPIRED: Final = "this callback token has expired"
_REFUSED: Final = "this callback token is not valid"


class Grant(msgspec.Struct, frozen=True):
    """What a token allows: to deliver these kinds to one call of one thread, before `expires`.

    `expires` is in milliseconds since 1970, 0 for always. `root` is the root of a child's tree, "" for a root itself.
    """

    thread_id: str
    call_id: str
    expires: int = 0
    kinds: tuple[Kind, ...] = ("tool_result",)
    root: str = ""

    def is_over(self, now: int) -> bool:
        """Tell whether its time is up."""
        return bool(self.expires) and now >= self.expires

    def check(self, kind: str, thread_id: str, call_id: str | None) -> None:
        """Check that something may be delivered. A `call_id` of None: it is for the thread and names no call.

        Raises:
            TokenRefused: it is of another kind, or for another thread or call.
        """
        if kind not in self.kinds:
            raise TokenRefused(f"this callback token does not allow a {kind}")
        if thread_id != self.thread_id or call_id not in (None, self.call_id):
            raise TokenRefused("this callback token is for another call than the one that the body names")


class KeyRing:
    """The secrets of a deployment, the newest first. Each has an id that follows from it, so none has to be named.

    Raises:
        ConfigurationError: there is none, one is too short, or one is there twice.
    """

    __slots__ = ("_secrets", "newest")

    def __init__(self, secrets: Sequence[bytes]) -> None:
        if not secrets:
            raise ConfigurationError("callback tokens need a secret")
        if any(len(secret) < SHORTEST_SECRET for secret in secrets):
            raise ConfigurationError(f"a secret for callback tokens has at least {SHORTEST_SECRET} bytes")
        self._secrets = {_key_id(secret): secret for secret in secrets}
        if len(self._secrets) < len(secrets):
            raise ConfigurationError("a secret for callback tokens is in the ring twice")
        self.newest = next(iter(self._secrets))
        """The id of the key that signs."""

    def __repr__(self) -> str:
        return f"<KeyRing {' '.join(self._secrets)}>"

    def signature(self, signed: str) -> str:
        """Sign a text with the newest key."""
        return _signature(self._secrets[self.newest], signed)

    def is_genuine(self, signed: str, signature: str, key_id: str | None) -> bool:
        """Tell whether a text was signed with the key of that id, or with any of them if it names none."""
        if key_id is None:
            candidates = list(self._secrets.values())
        else:
            candidates = [self._secrets[key_id]] if key_id in self._secrets else []
        genuine = False
        for secret in candidates:
            genuine |= hmac.compare_digest(_signature(secret, signed), signature)
        return genuine


def ring_of(store_secret: bytes, more: Sequence[bytes] = ()) -> KeyRing:
    """Return the ring of a store's own secret and of others, the newest first, which sign before it does.

    Raises:
        ConfigurationError: a secret is too short.
    """
    return KeyRing(list(dict.fromkeys((*more, store_secret))))


class _First(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What stands in a token of version h1."""

    thread_id: str
    call_id: str
    expires: int = 0


class _Second(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What stands in a token of version h2; `kinds` by their letters."""

    thread_id: str
    call_id: str
    expires: int
    kinds: str
    root: str = ""


_first_decoder = decoder_of(_First)
_second_decoder = decoder_of(_Second)


def sign(keys: KeyRing, grant: Grant) -> str:
    """Return a token: text that may stand in a URL. The same grant under the same key gives the same token.

    Raises:
        TooLarge: the names are too long for a token.
    """
    letters = "".join(_LETTERS[kind] for kind in KINDS if kind in grant.kinds)
    body = pack(_Second(grant.thread_id, grant.call_id, grant.expires, letters, grant.root))
    signed = f"h2.{keys.newest}.{_written(body)}"
    token = f"{signed}.{keys.signature(signed)}"
    if len(token) > LONGEST_TOKEN:
        raise TooLarge("a callback token", len(token), LONGEST_TOKEN, "LONGEST_TOKEN")
    return token


def read(keys: KeyRing, token: str, now: int) -> Grant:
    """Return what a token allows. Any key of the ring may have signed it.

    Raises:
        TokenRefused: it is forged, garbled or expired. Only somebody who holds a genuine token learns which.
    """
    grant = read_expired(keys, token)
    if grant.is_over(now):
        raise TokenRefused(EXPIRED)
    return grant


def read_expired(keys: KeyRing, token: str) -> Grant:
    """Return what a token allows or allowed, for a door that knows when it may be used for longer.

    Raises:
        TokenRefused: it is forged or garbled.
    """
    if len(token) > LONGEST_TOKEN or not token.isascii():
        raise TokenRefused(_REFUSED)
    signed, _, signature = token.rpartition(".")
    match signed.split("."):
        case ["h1", body]:
            version, key_id = 1, None
        case ["h2", key_id, body]:
            version = 2
        case _:
            raise TokenRefused(_REFUSED)
    if not keys.is_genuine(signed, signature, key_id):
        raise TokenRefused(_REFUSED)
    try:
        data = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        grant = _first_grant(data) if version == 1 else _second_grant(data)
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError):
        raise TokenRefused(_REFUSED) from None
    return grant


def _first_grant(data: bytes) -> Grant:
    value = _first_decoder.decode(data)
    return Grant(value.thread_id, value.call_id, value.expires)


def _second_grant(data: bytes) -> Grant:
    value = _second_decoder.decode(data)
    kinds = tuple(kind for kind in KINDS if _LETTERS[kind] in value.kinds)
    if len(kinds) < len(value.kinds):
        raise TokenRefused(_REFUSED)
    return Grant(value.thread_id, value.call_id, value.expires, kinds, value.root)


def _written(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _key_id(secret: bytes) -> str:
    return _written(hmac.digest(secret, _KEY_DOMAIN, hashlib.sha256)[:_KEY_ID_BYTES])


def _signature(secret: bytes, signed: str) -> str:
    # `hmac.digest` would let other threads run meanwhile, and waiting for them takes longer than the work.
    return _written(hmac.new(secret, _DOMAIN + signed.encode(), hashlib.sha256).digest())
