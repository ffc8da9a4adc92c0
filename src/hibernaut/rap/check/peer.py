"""The other side of a check or of one call: its addresses, and who may see the credentials for it."""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from hibernaut.errors import MalformedInput, TooLarge
from hibernaut.messages.text import decode, shorten
from hibernaut.rap.check.receiver import LONGEST_EXCERPT, Inbox
from hibernaut.rap.exchange import Exchange, NoAnswer
from hibernaut.rap.leading import check_lead
from hibernaut.rap.limits import ANSWER_WITHIN, CONNECT_WITHIN, LIMITS
from hibernaut.rap.origins import origin
from hibernaut.rap.requests import AskStatus, CancelToolCall, CloseThread, Invocation, Request, Selected
from hibernaut.rap.tool_servers import EndpointRefused
from hibernaut.rap.wire import CANCEL_PATH, CLOSE_PATH, STATUS_PATH, TOOLSET_PATH, VERSION, check_address, encode


class Answered(msgspec.Struct, frozen=True):
    """What became of a request. A `status` of None: no answer, and `why` says more."""

    status: int | None
    body: bytes = b""
    content_type: str = ""
    why: str = ""

    @property
    def words(self) -> str:
        """The answer, for people."""
        if self.status is None:
            return self.why
        return f"status {self.status}: {excerpt}" if (excerpt := told(self.body)) else f"status {self.status}"


class Peer:
    """A tool server at `base`. Headers with credentials go to its own origin only, wherever its endpoint is.

    Raises:
        MalformedInput: the base is not an http or https address.
    """

    def __init__(self, base: str, headers: Mapping[str, str] | None = None, answer_within: int = ANSWER_WITHIN) -> None:
        check_address("the server's address", base)
        self.base = base.rstrip("/")
        self.endpoint = ""
        self.name = urlsplit(base).netloc
        self.has_credentials = bool(headers)
        self.trust_endpoint = False
        self.connect_within = CONNECT_WITHIN
        # Nothing that is sent to an http origin needs certificates, and reading them all takes a while.
        self._own = Exchange(headers=headers, answer_within=answer_within, verify=urlsplit(base).scheme == "https")
        self._other: Exchange | None = None
        self._answer_within = answer_within
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._own)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def manifest(self) -> Answered:
        """Fetch the manifest, which may be anything.

        Raises:
            NoAnswer: nobody is there.
        """
        url = self.base + TOOLSET_PATH
        try:
            reply = await self._own.get(url, limit=LIMITS.manifest_bytes, setting="manifest_bytes")
        except NoAnswer as error:
            if not error.reached:
                raise
            return Answered(None, why=str(error))
        except TooLarge as error:
            return Answered(None, why=str(error))
        if reply.headers.get("content-encoding", "identity") != "identity":
            return Answered(None, why="its manifest is compressed, which was not asked for")
        return Answered(reply.status, reply.body, reply.headers.get("content-type", ""))

    async def invoke(self, call: Invocation, key: str, extra: Mapping[str, Any] | None = None) -> Answered:
        """Make a call, without its own headers if there is no key. `extra` are fields that no server knows."""
        body = encode(call)
        if extra:
            body = json.dumps({**json.loads(body), **extra}, ensure_ascii=False).encode()
        headers = {"Idempotency-Key": key, "RAP-Version": VERSION} if key else {}
        return await self._post(self.endpoint, body, headers)

    async def cancel(self, thread_id: str, call_id: str) -> Answered:
        """Say that a call is no longer wanted."""
        return await self._notice(CANCEL_PATH, CancelToolCall(thread_id, call_id))

    async def close_thread(self, thread_id: str) -> Answered:
        """Say that a thread has ended."""
        return await self._notice(CLOSE_PATH, CloseThread(thread_id))

    async def status(self, thread_id: str, call_id: str) -> Answered:
        """Ask whether a call is at work."""
        return await self._notice(STATUS_PATH, AskStatus(thread_id, call_id))

    async def answer(self, response_url: str, call_id: str, selected: int) -> Answered:
        """Answer a choice; `selected` counts from 0."""
        return await self._post(response_url, encode(Selected(call_id, selected)), bare=True)

    async def _notice(self, path: str, notice: Request) -> Answered:
        return await self._post(self.base + path, encode(notice))

    async def check_endpoint(self, endpoint: str) -> str:
        """Return why the runtime would not make calls at an endpoint, "" if it would."""
        try:
            await check_lead(self, self.base, endpoint, "its endpoint")
        except (EndpointRefused, NoAnswer) as error:
            return str(error)
        return ""

    async def _post(
        self, url: str, body: bytes, headers: Mapping[str, str] | None = None, *, bare: bool = False
    ) -> Answered:
        try:
            own = await check_lead(self, self.base, url, "an address", bare=bare)
            exchange = self._own if own else await self._bare()
            reply = await exchange.post(url, body, headers)
        except (EndpointRefused, NoAnswer) as error:
            return Answered(None, why=str(error))
        return Answered(reply.status, reply.body, reply.headers.get("content-type", ""))

    async def _bare(self) -> Exchange:
        if self._other is None:
            self._other = Exchange(answer_within=self._answer_within)
            await self._stack.enter_async_context(self._other)
        return self._other


class Call(msgspec.Struct, frozen=True):
    """A call that was made: what was sent, what the server said to it, and where its callbacks arrive."""

    sent: Invocation
    answered: Answered
    inbox: Inbox


def is_same_origin(url: str, other: str) -> bool:
    """Tell whether two addresses have the same scheme, host and port."""
    return origin(url) == origin(other)


def told(body: bytes) -> str:
    """Return the beginning of a body for people, on one line."""
    return shorten(decode(body[: 8 * LONGEST_EXCERPT]), LONGEST_EXCERPT)


def is_address(value: object) -> bool:
    """Tell whether something is an address that can be posted to."""
    try:
        check_address("it", value if isinstance(value, str) else "")
    except MalformedInput:
        return False
    return True
