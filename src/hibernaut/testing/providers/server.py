"""A provider of models on a port of this machine: real HTTP, real streams, strict about what the real one refuses.

async with FakeProvider(AnthropicWire(), [call("read", path="a.txt"), RateLimited("slow down"), "Done."]) as fake:
model = …  # with `fake.url` as its base URL
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

import h11

from hibernaut.clock import Clock, SystemClock
from hibernaut.errors import ModelError
from hibernaut.messages.stream import StreamPiece
from hibernaut.models.scripted import Playable, ScriptedTurn, as_turn
from hibernaut.testing.providers.wire import Asked, FakeWire, Raw

Played: TypeAlias = Playable | Raw
FakeScript: TypeAlias = Iterable[Played] | Callable[[Asked], Played]
"""What is played: in a row, or what a function says of a request."""

Chunks: TypeAlias = int | Sequence[int]
"""Bytes of each piece of a stream that is sent at once, or of the first ones."""

_READ: Final = 64 * 1024


class FakeProvider:
    """Speaks a provider's API over HTTP and plays a script, as `ScriptedModel` does inside a process.

    An error before the first piece of a turn is an answer with the provider's status and body for it. One after that is
    the event that the provider has for it, or the end of the connection in the middle of the stream.

    Args:
        wire: the API.
        script: turns, errors and raw answers in a row, or a function of the request.
        chunks: how streams are cut on the wire; by default event by event.
        clock: for pauses in turns.
    """

    def __init__(
        self, wire: FakeWire, script: FakeScript = (), *, chunks: Chunks | None = None, clock: Clock | None = None
    ) -> None:
        self.wire = wire
        self.asked: list[Asked] = []
        """Requests for a turn that were taken."""
        self.refused: list[Raw] = []
        """What was answered to requests that the provider would not take."""
        self.connections = 0
        """Connections that were made to it."""
        self.left = asyncio.Event()
        """Set once a client has gone in the middle of an answer."""
        self._turns = None if callable(script) else iter(tuple(script))
        self._script = script
        self._chunks = chunks
        self._clock = clock or SystemClock()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it is."""
        if self._server is None:
            raise RuntimeError("the fake provider is not open; use it in `async with`")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            await self._serve(_Connection(reader, writer))
        except* (ConnectionError, h11.RemoteProtocolError, _Cut, asyncio.CancelledError):
            pass  # the client, the script or whoever closes the fake wants it so
        finally:
            writer.close()

    async def _serve(self, connection: "_Connection") -> None:
        async for asked in connection.requests():
            async with asyncio.TaskGroup() as tasks:
                answering = tasks.create_task(self._answer(connection, asked))
                watching = tasks.create_task(connection.gone())
                done, _ = await asyncio.wait([answering, watching], return_when=asyncio.FIRST_COMPLETED)
                if answering not in done:
                    self.left.set()
                    answering.cancel()
                watching.cancel()
            if answering.cancelled():
                return

    async def _answer(self, connection: "_Connection", asked: Asked) -> None:
        checked = self.wire.check(asked)
        if checked is not None:
            if checked.status >= 400:  # noqa: PLR2004  # refusals begin there
                self.refused.append(checked)
            await connection.send(checked)
            return
        self.asked.append(asked)
        played = self._next(asked)
        if isinstance(played, Raw):
            await connection.send(played)
        else:
            await self._play(connection, asked, as_turn(played))

    def _next(self, asked: Asked) -> Played:
        if self._turns is None:
            return self._script(asked)  # type: ignore[operator]  # it is a function where there is no iterator
        following = next(self._turns, None)
        if following is None:
            return Raw(599, body=b'{"error":{"message":"the script of the fake provider has ended"}}')
        return following

    async def _play(self, connection: "_Connection", asked: Asked, turn: ScriptedTurn) -> None:
        encoder, begun = self.wire.encoder(asked), False
        cutter = _Cutter(self._chunks)
        for step in turn.steps:
            if not isinstance(step, StreamPiece):
                try:
                    await step.pause(self._clock)
                except ModelError as error:
                    if not begun:
                        await connection.send(self.wire.refuse(error))
                        return
                    said = encoder.failed(error)
                    if said is None:
                        raise _Cut from None
                    await connection.more(cutter.cut(said))
                    break
                continue
            if not begun:
                begun = True
                await connection.begin(self.wire.stream_type)
            for event in encoder.feed(step):
                await connection.more(cutter.cut(event))
        await connection.end(cutter.rest())


class _Cut(Exception):  # no error: the script wants the connection to end here
    pass


class _Cutter:
    """Cuts bytes to the sizes that are asked for."""

    def __init__(self, chunks: Chunks | None) -> None:
        self._sizes: Iterator[int] | None = None
        self._size = chunks if isinstance(chunks, int) else 0
        if chunks is not None and not isinstance(chunks, int):
            self._sizes = iter(chunks)
            self._size = next(self._sizes, 0)
        self._waiting = bytearray()

    def cut(self, data: bytes) -> Iterator[bytes]:
        self._waiting += data
        while self._size and len(self._waiting) >= self._size:
            yield bytes(self._waiting[: self._size])
            del self._waiting[: self._size]
            if self._sizes is not None:
                self._size = next(self._sizes, 0)
        if not self._size and self._waiting:
            yield self.rest()

    def rest(self) -> bytes:
        data = bytes(self._waiting)
        self._waiting.clear()
        return data


class _Connection:
    """One connection of a client, spoken with h11."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def requests(self) -> AsyncIterator[Asked]:
        while True:
            request: h11.Request | None = None
            body = bytearray()
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(await self._reader.read(_READ))
                elif isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    break
            if request is None:
                return
            yield _asked(request, bytes(body))
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def gone(self) -> None:
        """Return when the client has gone. Between a request and its answer it says nothing else."""
        data = await self._reader.read(_READ)
        if data:
            self._http.receive_data(data)
            await asyncio.Event().wait()

    async def send(self, answer: Raw) -> None:
        length = {} if answer.hangs else {"content-length": str(len(answer.body))}
        headers = list({**answer.headers, **length}.items())
        await self._write(h11.Response(status_code=answer.status, headers=headers))
        await self._write(h11.Data(data=answer.body))
        if answer.hangs:
            await asyncio.Event().wait()
        await self._write(h11.EndOfMessage())

    async def begin(self, media_type: str) -> None:
        await self._write(h11.Response(status_code=200, headers=[("content-type", media_type)]))

    async def more(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            await self._write(h11.Data(data=chunk))

    async def end(self, rest: bytes) -> None:
        if rest:
            await self._write(h11.Data(data=rest))
        await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()


def _asked(request: h11.Request, body: bytes) -> Asked:
    headers = {name.decode(): value.decode() for name, value in request.headers}
    return Asked.of(request.method.decode(), request.target.decode(), headers, body)
