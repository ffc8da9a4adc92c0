"""A model behind HTTP, whatever dialect it speaks: deadlines, limits and cancellation stand here for all of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from http import HTTPStatus
from typing import Final

import httpx2
import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.stream import Finish, StreamPiece
from hibernaut.models.dialect import CountingDialect, Dialect, Frame, Refusal, Sent, Writer
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import ConnectionLost, InvalidRequest, Overloaded
from hibernaut.models.failures import is_error, words_of
from hibernaut.models.frames import frames
from hibernaut.models.protocol import About, Memo, ModelInfo, ModelRequest

LARGEST_REFUSAL: Final = 64 * 1024
"""Bytes of a refusal that are read."""

LINGER: Final = 200
"""Milliseconds that a provider has to end a stream after its last piece; otherwise the connection is closed."""

_OK: Final = 200
_JSON: Final = "application/json"
_NOWHERE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
"""Statuses of a server that has nothing at an address; an API says more about it, in JSON."""


class HttpModel:
    """A model of a provider: one of its ids, asked in its dialect."""

    def __init__(self, endpoint: Endpoint, dialect: Dialect, about: About) -> None:
        self._endpoint = endpoint
        self._dialect = dialect
        self._about = about
        self._info = msgspec.structs.replace(about.info, structured=True)
        # What is written also follows from what is known of a model, and how it is asked.
        self._key = f"{dialect.name}:{about}"

    @property
    def info(self) -> ModelInfo:
        """What is known of it."""
        return self._info

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPiece, None]:
        """Make one completion."""
        sent = self.sent(request)
        async with AsyncExitStack() as stack:
            throttle, clock = self._endpoint.throttle, self._endpoint.clock
            spent = await stack.enter_async_context(throttle.admitted(len(sent.body), clock))
            answer = await self._endpoint.answer(stack, sent)
            refusal = await self._refused(answer, sent.answer)
            other = sent.instead(refusal) if refusal is not None and sent.instead is not None else None
            if other is not None:
                answer = await self._endpoint.answer(stack, other)
                refusal = await self._refused(answer, other.answer)
            if refusal is not None:
                raise self._meaning(answer, refusal)
            async for piece in await stack.enter_async_context(aclosing(self._pieces(answer, sent.answer))):
                if type(piece) is Finish:
                    spent(piece.usage)
                yield piece

    def sent(self, request: ModelRequest) -> Sent:
        """Return what is sent for a request. Of a transcript with a memo only what is new is written.

        Raises:
            InvalidRequest: the dialect has no way to say it.
        """
        return self._made(request, self._dialect.request)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Ask the provider how many tokens the prompt of a request has, without having it completed.

        Raises:
            InvalidRequest: the provider cannot be asked that. Another ModelError: it failed.
        """
        endpoint, dialect = self._endpoint, self._dialect
        if not isinstance(dialect, CountingDialect):
            raise InvalidRequest(f"{endpoint.name} counts no tokens")
        sent = self._made(request, dialect.counting)
        async with AsyncExitStack() as stack:
            answer = await endpoint.answer(stack, sent)
            try:
                reply = await endpoint.read(answer, LARGEST_REFUSAL)
            except httpx2.HTTPError as error:
                raise endpoint.lost(error) from error
        if reply.status != _OK:
            raise dialect.failure(reply)
        try:
            return dialect.counted(reply.body)
        except (msgspec.DecodeError, ValueError) as error:
            raise Overloaded(f"{endpoint.name} sent no count of tokens: {error}") from error

    def _made(self, request: ModelRequest, make: Callable[[About, ModelRequest, Writer], Sent]) -> Sent:
        memo = request.memo or Memo()
        try:
            writer = memo.get(self._key, self._writer)
            transcript = request.transcript
            writer.feed(transcript[writer.items :] if writer.items else transcript)
            return make(self._about, request, writer)
        except BaseException:
            memo.forget(self._key)  # it may have taken half an item
            raise

    def _writer(self) -> Writer:
        return self._dialect.writer(self._about)

    async def _refused(self, answer: httpx2.Response, stream: str) -> Refusal | None:
        """Return an answer that is not the stream; None if it is."""
        if answer.status_code == _OK and _kind(answer) == stream:
            return None
        try:
            return await self._endpoint.read(answer, LARGEST_REFUSAL)
        except httpx2.HTTPError as error:
            raise self._endpoint.lost(error) from error

    def _meaning(self, answer: httpx2.Response, refusal: Refusal) -> ModelError:
        name, kind = self._endpoint.name, _kind(answer)
        if answer.is_redirect:
            target = refusal.headers.get("location", "nowhere")
            return InvalidRequest(f"{name} leads to {target:.200}; redirects are not followed: correct the base URL")
        is_api = refusal.status >= HTTPStatus.BAD_REQUEST and (refusal.status not in _NOWHERE or "json" in kind)
        if is_api or (kind == _JSON and is_error(refusal.body)):
            return self._dialect.failure(refusal)
        status = f"{refusal.status} " if refusal.status != _OK else ""
        words = words_of(refusal.body)
        return InvalidRequest(
            f"{name} at {self._endpoint.url} answers {status}with {kind or 'something unnamed'} where a stream "
            f"belongs; is this the base URL of its API? It says{f': {words}' if words else ' nothing'}"
        )

    async def _pieces(self, answer: httpx2.Response, stream: str) -> AsyncGenerator[StreamPiece, None]:
        reader = self._dialect.reader()
        name = self._endpoint.name
        try:
            async with aclosing(frames(answer, stream)) as events:
                async for frame in events:
                    for piece in reader.feed(frame):
                        yield piece
                        if type(piece) is Finish:
                            await _read_out(events)
                            return
        except httpx2.HTTPError as error:
            raise self._endpoint.lost(error) from error
        except (msgspec.DecodeError, ValueError) as error:
            raise ConnectionLost(f"{name} sent what cannot be read: {error}") from error
        for piece in reader.end():
            yield piece


async def _read_out(events: AsyncGenerator[Frame, None]) -> None:
    """Read what a provider still says after the last piece, so that the connection can be used again."""
    with suppress(TimeoutError, httpx2.HTTPError, ModelError, ValueError):
        async with asyncio.timeout(LINGER / 1_000):
            async for _ in events:
                pass


def _kind(answer: httpx2.Response) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()
