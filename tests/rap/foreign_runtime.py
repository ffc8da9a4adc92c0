"""A runtime that shares no line with ours: the standard library, and what the page on the protocol says.

`with ForeignRuntime() as runtime: runtime.call(base, "add", {"a": 1, "b": 2})` posts an invocation, takes callbacks on
a port of its own, and returns them as plain dictionaries, the last one being the result. It believes nothing: what is
not as the protocol has it raises `AssertionError`.
"""

import json
import queue
import threading
import urllib.error
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Fields = dict[str, Any]

KINDS = ("tool_result", "subscription_event", "oauth", "user_choice", "view_update")
WITHIN = 10.0
"""Seconds until a callback must have come."""


class ForeignCall:
    """A call. `answers` are statuses for the next callbacks, each with a Retry-After or None; then comes 200."""

    def __init__(self, base: str, invocation: Fields) -> None:
        self.base = base
        self.invocation = invocation
        self.callbacks: list[Fields] = []
        self.tries = 0
        self.answers: list[tuple[int, int | None]] = []
        self._arrived: queue.Queue[Fields] = queue.Queue()

    @property
    def thread_id(self) -> str:
        return str(self.invocation["group_id"])

    @property
    def id(self) -> str:
        return str(self.invocation["id"])

    def take(self, callback: Fields) -> tuple[int, int | None]:
        """Answer a callback as a runtime does, and keep it if that is 200."""
        self.tries += 1
        status, retry_after = self.answers.pop(0) if self.answers else (200, None)
        if status == 200:
            self._arrived.put(callback)
        return status, retry_after

    def next(self, within: float = WITHIN) -> Fields:
        """Return the next callback that was taken."""
        callback = self._arrived.get(timeout=within)
        self.callbacks.append(callback)
        self._check(callback)
        return callback

    def is_quiet(self, within: float) -> bool:
        """Tell whether nothing is taken for so many seconds."""
        try:
            self.next(within)
        except queue.Empty:
            return True
        return False

    def _check(self, callback: Fields) -> None:
        assert callback["type"] in KINDS
        assert callback["group_id"] == self.thread_id
        match callback["type"]:
            case "subscription_event":
                assert callback["tool_call_id"] == self.id
                assert isinstance(callback["text"], str)
            case "tool_result":
                assert callback["id"] == self.id
                assert isinstance(callback.get("text") or "", str)
                assert callback.get("text") is not None or callback.get("content")
            case "user_choice":
                assert callback["id"] == self.id
                assert callback["prompt"]
                assert 0 <= callback.get("default", 0) < len(callback["choices"])
                assert callback["response_url"].startswith("http")
            case "oauth":
                assert callback["id"] == self.id
                assert callback["auth_url"].startswith("http")
            case _:
                assert callback["view_type"]
                assert "content" in callback
        if callback["type"] != "view_update":
            assert callback.get("call_id") in (None, self.invocation["call_id"])


class ForeignRuntime:
    """Makes calls and takes callbacks. `headers` go with everything that it sends."""

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        self._headers = headers or {}
        self._calls: dict[str, ForeignCall] = {}
        runtime = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, retry_after = runtime._take(self.path, self.headers["Content-Type"] or "", body)
                self.send_response(status)
                if retry_after is not None:
                    self.send_header("Retry-After", str(retry_after))
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class calls it so
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    # What a runtime asks of a server

    def manifest(self, base: str) -> Fields:
        """Fetch what the server has."""
        status, fields = self._send(f"{base}/.well-known/rap-toolset", None)
        assert status == 200
        assert fields["name"]
        assert fields["tools"]
        return fields

    def start(self, base: str, tool: str, arguments: Fields, **more: Any) -> ForeignCall:
        """Make a call and return once it is acknowledged. `more` are further fields of the invocation."""
        call = self.prepare(base, tool, arguments, **more)
        status = self.post(call)
        assert 200 <= status < 300, status
        return call

    def prepare(self, base: str, tool: str, arguments: Fields, **more: Any) -> ForeignCall:
        """Make ready for a call, without making it."""
        token = uuid.uuid4().hex
        invocation = {
            "operation": tool,
            "arguments": arguments,
            "id": f"foreign-{uuid.uuid4()}",
            "call_id": f"toolu_{token[:8]}",
            "callback_url": f"http://127.0.0.1:{self._server.server_port}/deliver/{token}",
            "group_id": f"thread-{uuid.uuid4()}",
            "thread_ancestors": None,
            **more,
        }
        call = self._calls[token] = ForeignCall(base, invocation)
        return call

    def post(self, call: ForeignCall, key: str = "") -> int:
        """Send an invocation, the first time or again, and return the status."""
        endpoint = self.manifest(call.base)["endpoint"]
        return self._send(endpoint, call.invocation, {"Idempotency-Key": key} if key else {})[0]

    def call(self, base: str, tool: str, arguments: Fields, **more: Any) -> list[Fields]:
        """Make a call and return its callbacks up to its result, or of a subscription up to its final event."""
        call = self.start(base, tool, arguments, **more)
        while True:
            callback = call.next()
            over = callback["type"] == "tool_result" and not callback.get("subscription")
            if over or callback.get("final"):
                return call.callbacks

    def cancel(self, call: ForeignCall) -> int:
        """Say that a call is no longer wanted."""
        return self._notice(call, "cancel_tool_call")[0]

    def is_alive(self, call: ForeignCall) -> bool:
        """Ask whether a call is at work."""
        status, fields = self._notice(call, "tool_call_status")
        assert status == 200 or 400 <= status < 500, status
        return status == 200 and fields["alive"] is True

    def close_thread(self, base: str, thread_id: str) -> int:
        """Say that a thread has ended."""
        return self._send(f"{base}/close_thread", {"thread_id": thread_id})[0]

    def answer(self, choice: Fields, selected: int) -> int:
        """Answer a question, the choices being counted from 0."""
        return self._send(choice["response_url"], {"id": choice["id"], "selected": selected})[0]

    def _notice(self, call: ForeignCall, path: str) -> tuple[int, Fields]:
        return self._send(f"{call.base}/{path}", {"thread_id": call.thread_id, "tool_call_id": call.id})

    def _send(self, url: str, fields: Fields | None, headers: dict[str, str] | None = None) -> tuple[int, Fields]:
        body = None if fields is None else json.dumps(fields).encode()
        request = urllib.request.Request(url, body, {**self._headers, **(headers or {})})
        request.add_header("Content-Type", "application/json")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=WITHIN) as answer:
                return answer.status, _object(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _object(error.read())

    def _take(self, path: str, content_type: str, body: bytes) -> tuple[int, int | None]:
        call = self._calls.get(path.rpartition("/")[2])
        if call is None:
            return 404, None
        if content_type.partition(";")[0].strip() != "application/json":
            return 400, None
        return call.take(json.loads(body))


def _object(body: bytes) -> Fields:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
