"""What comes of a request to another server: an answer, or none."""

from collections.abc import Mapping

import msgspec

from hibernaut.errors import HibernautError


class NoAnswer(HibernautError):
    """The server did not answer. `reached`: the request may have arrived, so that it may have been acted upon."""

    code = "no_answer"

    def __init__(self, url: str, why: str, *, reached: bool) -> None:
        super().__init__(f"no answer from {url}: {why}")
        self.reached = reached


class Reply(msgspec.Struct, frozen=True):
    """What a server answered. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
