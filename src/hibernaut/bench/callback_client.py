"""A client that posts callbacks as fast as they are answered, in a process of its own.

    python -m hibernaut.bench.callback_client PORT CONNECTIONS SECONDS < TARGETS

It posts events under genuine tokens over that many connections, each one as soon as the one before it on its connection
is answered, and prints what it saw as JSON.
"""

import asyncio
import sys
import time

import msgspec

CALL = "call_0123456789abcdef"
TEXT = "Something happened that a subscription watches for. " * 4


class Target(msgspec.Struct, frozen=True):
    """Where one thread's events are posted."""

    path: str
    thread_id: str


class Seen(msgspec.Struct, frozen=True):
    """What the client saw."""

    callbacks: int
    per_second: float
    p50_ms: float
    p99_ms: float
    refused: int


class _Connection(asyncio.Protocol):
    """Posts one body after the other until the time is up."""

    def __init__(self, number: int, stride: int, targets: list[Target], until: float, times: list[float]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.refused = 0
        self._number, self._stride = number, stride
        self._targets, self._until, self._times = targets, until, times
        self._sent, self._since, self._answer = 0, 0.0, b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
            self._post(transport)

    def data_received(self, data: bytes) -> None:
        """Note how long an answer took; post the next."""
        self._answer += data
        if not self._answer.endswith(b"}") or self._transport is None:
            return
        self._times.append(time.perf_counter() - self._since)
        self.refused += not self._answer.startswith(b"HTTP/1.1 200")
        if time.perf_counter() < self._until:
            self._post(self._transport)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if exc is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(exc)

    def _post(self, transport: asyncio.Transport) -> None:
        target = self._targets[(self._number + self._sent * self._stride) % len(self._targets)]
        body = msgspec.json.encode(
            {
                "type": "subscription_event",
                "group_id": target.thread_id,
                "tool_call_id": CALL,
                "text": TEXT,
                "associative": True,
                "event_id": f"{self._number}.{self._sent}",
            }
        )
        self._sent += 1
        self._answer = b""
        self._since = time.perf_counter()
        head = (
            f"POST {target.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        transport.write(head.encode() + body)


async def post(port: int, connections: int, seconds: float, targets: list[Target]) -> Seen:
    """Post for a time."""
    loop, times = asyncio.get_running_loop(), list[float]()
    began = time.perf_counter()
    made = []
    for number in range(connections):
        one = _Connection(number, connections, targets, began + seconds, times)
        await loop.create_connection(lambda one=one: one, "127.0.0.1", port)  # type: ignore[misc]  # a bound default
        made.append(one)
    await asyncio.gather(*(connection.done for connection in made))
    took = time.perf_counter() - began
    times.sort()
    p50, p99 = times[len(times) // 2] * 1_000, times[len(times) * 99 // 100] * 1_000
    return Seen(len(times), len(times) / took, p50, p99, sum(connection.refused for connection in made))


if __name__ == "__main__":
    told = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Target])
    try:
        seen = asyncio.run(post(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), told))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.stdout.buffer.write(msgspec.json.encode(seen))
