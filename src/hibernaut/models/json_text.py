"""JSON as providers stream it."""

import json
from typing import TypeVar

import msgspec

T = TypeVar("T")


def read_json(text: str | bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    r"""Read a value of the decoder's type.

    A character beyond the first plane may be escaped in two halves (`\ud83d` at the end of one event, `\ude00` at the
    beginning of the next), which msgspec refuses. Such halves are kept; whoever joins the texts makes them one again.

    Raises:
        msgspec.DecodeError, msgspec.ValidationError, ValueError: it is none.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(text), decoder.type)
