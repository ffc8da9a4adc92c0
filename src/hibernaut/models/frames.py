"""The events of a streamed answer, in whichever framing they come."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final

import httpx2

from hibernaut.models import event_stream
from hibernaut.models.dialect import Frame
from hibernaut.models.errors import OutputTruncated

LARGEST_EVENT: Final = 16 * 1024 * 1024
"""Characters, or bytes, of one event of a stream."""

LARGEST_ANSWER: Final = 64 * 1024 * 1024
"""Characters of all events of one stream."""


async def frames(answer: httpx2.Response, media_type: str) -> AsyncGenerator[Frame, None]:
    """Return the events of an answer as they come.

    Raises:
        OutputTruncated: there is no end of them. ValueError: they cannot be read.
    """
    size = 0
    async with aclosing(READERS[media_type](answer)) as events:
        async for frame in events:
            size += len(frame.data)
            if size > LARGEST_ANSWER:
                raise OutputTruncated(f"the answer has no end: more than {LARGEST_ANSWER:,} characters")
            yield frame


async def _server_sent(answer: httpx2.Response) -> AsyncGenerator[Frame, None]:
    try:
        async for event in httpx2.EventSource(answer, LARGEST_EVENT):
            yield Frame(event.event, event.data)
    except httpx2.SSEError as error:
        raise OutputTruncated(f"an event of the answer has no end: more than {LARGEST_EVENT:,} bytes") from error


async def _amazon(answer: httpx2.Response) -> AsyncGenerator[Frame, None]:
    decoder = event_stream.EventStreamDecoder(LARGEST_EVENT)
    async for chunk in answer.aiter_bytes():
        for frame in decoder.feed(chunk):
            yield frame
    decoder.end()


READERS: Final[Mapping[str, Callable[[httpx2.Response], AsyncGenerator[Frame, None]]]] = {
    "text/event-stream": _server_sent,
    event_stream.MEDIA_TYPE: _amazon,
}
"""What reads the framings that there are, by media type."""
