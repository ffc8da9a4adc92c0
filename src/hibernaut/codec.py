"""Canonical bytes: how values are written down and how what is written is digested.

Stored values are msgspec structs in msgpack. Structs are written in the order of their fields and
dictionaries in the order they were filled, so equal values made the same way have equal bytes.
"""

import hashlib
from typing import Any, TypeVar

import msgspec

from hibernaut.errors import StoreCorrupt

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_sha256 = hashlib.sha256

pack = _encoder.encode
"""Write one value as msgpack bytes."""


def sha256(*pieces: bytes) -> bytes:
    """Return the SHA-256 of the pieces, one after the other."""
    return _sha256(pieces[0] if len(pieces) == 1 else b"".join(pieces)).digest()


def unpack(data: bytes, decoder: "msgspec.msgpack.Decoder[T]", what: str) -> T:
    """Read one stored value.

    Raises:
        StoreCorrupt: the bytes are not what they should be; `what` names them in the message.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"{what} cannot be read: {error}") from error


def decoder_of(kind: type[T]) -> "msgspec.msgpack.Decoder[T]":
    """Return a decoder for one type; make it once and keep it."""
    return msgspec.msgpack.Decoder(kind)


def to_json(value: Any) -> str:
    """Write one value as compact JSON text."""
    return msgspec.json.encode(value).decode()
