"""`GET /metrics`, for whoever watches a process."""

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Final

from hibernaut.exposition import CONTENT_TYPE
from hibernaut.rap.admission import LOCAL_HOSTS, check_sender, heading, is_loopback, unknown_path, wrong_method
from hibernaut.rap.answers import Answer
from hibernaut.rap.bodies import start
from hibernaut.rap.listening import Address, Receive, Scope, Send, listening

PATH: Final = "/metrics"


class Exposed:
    """An ASGI app that tells the metrics; `hosts` are the names it may be reached by, None any."""

    def __init__(self, metrics: Callable[[], Awaitable[str]], hosts: Collection[str] | None) -> None:
        self._metrics = metrics
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        """Answer one request."""
        if scope["type"] != "http":
            return
        refusal = check_sender(heading(scope["headers"]), self._hosts)
        if refusal is None and scope["path"] != PATH:
            refusal = unknown_path()
        if refusal is None and scope["method"] not in ("GET", "HEAD"):
            refusal = wrong_method("GET")
        if refusal is None:
            answer = Answer(200, (await self._metrics()).encode(), (("Content-Type", CONTENT_TYPE),))
        else:
            answer = refusal.answer
        await send(start(answer))
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})


def exposed(metrics: Callable[[], Awaitable[str]], host: str, port: int) -> AbstractAsyncContextManager[Address]:
    """Tell metrics at an address for as long as the context lasts. On this machine only under its own names."""
    local = host == "localhost" or is_loopback(host)
    return listening(Exposed(metrics, LOCAL_HOSTS if local else None), host, port)
