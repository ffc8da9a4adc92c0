"""A tool server by somebody who has read the protocol and uses nothing but Python's standard library.

    python foreign_server.py --port 0 [--mode hang]

prints `{"port": n}` and serves until it is killed. A test starts one within itself: `with foreign_server() as server`.

Tools: `echo` answers at once, `later` some time after the acknowledgement, `fail` with an error; `tick` becomes a
subscription that sends events and ends with a final one; `choose` asks a person and answers with what was chosen;
`picture` answers with a text and an image; `show` shows people something beside the conversation, and answers with a
text that people see otherwise than the model.

It behaves, unless it is told a mode: for everything by `--mode`, or for one base URL, which is the mode as its path:
`http://127.0.0.1:1234/hang`. The modes are in `CALL_MODES` and `MANIFEST_MODES`.
"""

import argparse
import base64
import gzip
import json
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

CALL_MODES: Final = {
    "hang": "a call is never acknowledged",
    "early": "the answer comes before the acknowledgement",
    "trouble": "the first two tries of a call are answered with 500",
    "break": "the connection is closed in the middle of the acknowledgement",
    "refuse": "a call is answered with 422 and words",
}
MANIFEST_MODES: Final = {
    "manifest-redirect": "the manifest is said to be elsewhere",
    "manifest-empty": "the manifest has no bytes",
    "manifest-huge": "the manifest has 10 MB",
    "manifest-bomb": "the manifest is compressed and swells to 10 MB",
    "manifest-hang": "the manifest never comes",
    "manifest-break": "the connection is closed in the middle of the manifest",
    "manifest-trouble": "503",
    "manifest-missing": "404",
}

PICTURE: Final = base64.b64encode(b"\x89PNG\r\n\x1a\n not much of a picture").decode()

_TRIES: Final = 30
_LONGEST_PAUSE: Final = 1.0
_HUGE: Final = 10_000_000
_EMPTY: Final[dict[str, Any]] = {"type": "object", "properties": {}}

Fields = dict[str, Any]


class Received(NamedTuple):
    """A request, as it arrived."""

    path: str
    headers: dict[str, str]
    body: Fields


class Call(NamedTuple):
    """A call at work. `over` is set when nobody wants it any more."""

    invocation: Fields
    base: str
    over: threading.Event
    chosen: "list[int]"
    answered: threading.Event


@cache
def _bomb() -> bytes:
    """Return a manifest that swells. It is compressed once: that takes a while on a busy machine."""
    manifest = {"name": "foreign", "endpoint": "http://127.0.0.1:1/invoke", "tools": tools()}
    return gzip.compress(b" " * _HUGE + json.dumps(manifest).encode(), 1)


def tools() -> list[Fields]:
    """Return the tools as the manifest tells them."""
    seconds = {"type": "object", "properties": {"seconds": {"type": "number"}}}
    count: Fields = {"type": "object", "properties": {"count": {"type": "integer"}, "seconds": {"type": "number"}}}
    count["properties"]["associative"] = {"type": "boolean"}
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return [
        {"name": "echo", "description": "Say it again.", "inputSchema": text, "annotations": {"readOnly": True}},
        {"name": "later", "description": "Answer later.", "inputSchema": seconds},
        {"name": "fail", "description": "Fail.", "inputSchema": _EMPTY},
        {"name": "tick", "description": "Tell when it ticks.", "inputSchema": count},
        {"name": "choose", "description": "Ask a person.", "inputSchema": _EMPTY},
        {"name": "picture", "description": "Show a picture.", "inputSchema": _EMPTY},
        {"name": "show", "description": "Show something.", "inputSchema": _EMPTY},
    ]


class ForeignServer(ThreadingHTTPServer):
    """The server, and what it remembers."""

    daemon_threads = True
    request_queue_size = 128  # a check makes more connections at once than the five of the default

    def __init__(self, port: int = 0, mode: str = "") -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.mode = mode
        self.endpoint = ""
        """Where the manifest says that calls go, if not here."""
        self.received: list[Received] = []
        self.calls: dict[str, Call] = {}
        self.done: list[str] = []
        """The ids of calls, each once for every time that it was worked on."""
        self.delivered: list[tuple[Fields, int]] = []
        """What was posted to callback URLs and taken or refused, with the status of the answer."""
        self.tries: Counter[str] = Counter()
        self.stopped = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        self.stopped.set()
        for call in self.calls.values():
            call.over.set()
            call.answered.set()
        self.shutdown()
        self.server_close()

    def bodies(self, path: str) -> list[Fields]:
        """Return what was posted to a path."""
        return [each.body for each in self.received if each.path == path]

    # The work

    def begin(self, call: Call, *, wait: bool = False) -> None:
        worker = threading.Thread(target=self.work, args=(call,), daemon=True)
        worker.start()
        if wait:
            worker.join()

    def work(self, call: Call) -> None:
        invocation = call.invocation
        self.done.append(invocation["id"])
        work: dict[str, Callable[[Call, Fields], None]] = {
            "echo": self.echo,
            "later": self.later,
            "fail": lambda call, _: self.result(call, text="Error: it was to fail", is_error=True),
            "tick": self.tick,
            "choose": self.choose,
            "picture": self.picture,
            "show": self.show,
        }
        work[invocation["operation"]](call, invocation["arguments"])
        with self.lock:
            self.calls.pop(invocation["id"], None)

    def echo(self, call: Call, arguments: Fields) -> None:
        text = arguments.get("text")
        if isinstance(text, str):
            self.result(call, text=text)
        else:
            self.result(call, text="Error: the text is missing", is_error=True)

    def later(self, call: Call, arguments: Fields) -> None:
        if not call.over.wait(arguments.get("seconds", 0.01)):
            self.result(call, text="this took a while")

    def tick(self, call: Call, arguments: Fields) -> None:
        self.result(call, text="ticking", subscription=True)
        count = arguments.get("count", 3)
        for number in range(1, count + 1):
            if call.over.wait(arguments.get("seconds", 0.01)):
                return
            final = {"final": True} if number == count else {}
            more = {"associative": arguments.get("associative", False), **final}
            self.deliver(call, "subscription_event", text=f"tick {number}", event_id=f"tick-{number}", **more)

    def choose(self, call: Call, _arguments: Fields) -> None:
        colours = ["red", "green", "blue"]
        response_url = f"{call.base}/choice/{call.invocation['id']}"
        question = {"prompt": "Which colour?", "choices": colours, "default": 1, "response_url": response_url}
        self.deliver(call, "user_choice", id=call.invocation["id"], **question)
        call.answered.wait()
        if not call.over.is_set():
            self.result(call, text=f"chosen: {colours[call.chosen[0]]}")

    def picture(self, call: Call, _arguments: Fields) -> None:
        image = {"type": "image", "data": PICTURE, "mediaType": "image/png"}
        self.result(call, content=[{"type": "text", "text": "look:"}, image])

    def show(self, call: Call, _arguments: Fields) -> None:
        self.deliver(call, "view_update", view_type="plan", content={"steps": 2})
        display = [{"type": "hologram", "content": {}}, {"type": "diff", "content": {"path": "a", "patch": "+b"}}]
        self.result(call, text="shown", display_as=display)

    def result(self, call: Call, **fields: Any) -> None:
        invocation = call.invocation
        self.deliver(call, "tool_result", id=invocation["id"], call_id=invocation["call_id"], **fields)

    def deliver(self, call: Call, kind: str, **fields: Any) -> None:
        """Post a callback until it is taken or refused."""
        if kind == "subscription_event":
            fields["tool_call_id"] = call.invocation["id"]
        callback = {"type": kind, "group_id": call.invocation["group_id"], **fields}
        request = urllib.request.Request(
            call.invocation["callback_url"], json.dumps(callback).encode(), {"Content-Type": "application/json"}
        )
        for attempt in range(_TRIES):
            pause = min(0.05 * 2**attempt, _LONGEST_PAUSE)
            try:
                with urllib.request.urlopen(request, timeout=5) as answer:
                    status = answer.status
            except urllib.error.HTTPError as error:
                status = error.code
                asked = error.headers.get("Retry-After", "")
                pause = max(pause, int(asked)) if asked.isdigit() else pause
                error.close()
            except OSError:
                status = 0
            if status and status != 429 and status < 500:
                self.delivered.append((callback, status))
                return
            if self.stopped.wait(pause):
                return


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: ForeignServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # it is called so
        pass

    def do_GET(self) -> None:
        mode, path = self.split()
        if path != "/.well-known/rap-toolset":
            return self.answer(404, b"there is nothing here")
        self.remember({})
        endpoint = self.server.endpoint or f"{self.base(mode)}/invoke"
        manifest = json.dumps({"name": "foreign", "endpoint": endpoint, "tools": tools(), "isNew": True}).encode()
        return self.answer_manifest(mode, manifest)

    def answer_manifest(self, mode: str, manifest: bytes) -> None:
        match mode:
            case "manifest-redirect":
                self.answer(302, b"", Location=f"{self.server.url}/.well-known/rap-toolset")
            case "manifest-empty":
                self.answer(200, b"")
            case "manifest-huge":
                self.answer(200, b'{"name": "' + b"x" * _HUGE + b'"}')
            case "manifest-bomb":
                self.answer(200, _bomb(), **{"Content-Encoding": "gzip"})
            case "manifest-hang":
                self.server.stopped.wait()
            case "manifest-break":
                self.break_off(manifest)
            case "manifest-trouble":
                self.answer(503, b"come again")
            case "manifest-missing":
                self.answer(404, b"there is nothing here")
            case _:
                self.answer(200, manifest)

    def do_POST(self) -> None:
        mode, path = self.split()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.remember(body)
        match path.split("/")[1:]:
            case ["invoke"]:
                self.invoke(mode, body)
            case ["cancel_tool_call"]:
                self.cancel(lambda call: call.invocation["id"] == body["tool_call_id"])
            case ["close_thread"]:
                self.cancel(lambda call: call.invocation["group_id"] == body["thread_id"])
            case ["tool_call_status"]:
                self.answer(200, json.dumps({"alive": body["tool_call_id"] in self.server.calls}).encode())
            case ["choice", call_id] if call_id in self.server.calls:
                self.server.calls[call_id].chosen.append(body["selected"])
                self.server.calls[call_id].answered.set()
                self.answer(200, b"{}")
            case ["migrate"]:
                self.answer(200, b"{}")
            case _:
                self.answer(404, b"there is nothing here")

    def invoke(self, mode: str, body: Fields) -> None:
        key = self.headers.get("Idempotency-Key") or body["id"]
        with self.server.lock:
            self.server.tries[key] += 1
            tries = self.server.tries[key]
        if body["operation"] not in {tool["name"] for tool in tools()}:
            return self.answer(404, f"there is no tool {body['operation']!r}".encode())
        if mode == "hang":
            self.close_connection = True
            self.server.stopped.wait()
            return None
        if mode == "refuse":
            return self.answer(422, b"the moon is not right for this")
        if mode == "trouble" and tries <= 2:
            return self.answer(500, b"something is wrong here")
        call = Call(body, self.base(mode), threading.Event(), [], threading.Event())
        is_new = body["id"] not in self.server.done
        with self.server.lock:
            if is_new:
                self.server.calls[body["id"]] = call
        if is_new and mode == "early":
            self.server.begin(call, wait=True)
        if mode == "break":
            self.break_off(b"{}")
        else:
            self.answer(200, b"{}")
        if is_new and mode != "early":
            self.server.begin(call)
        return None

    def cancel(self, is_meant: Callable[[Call], bool]) -> None:
        with self.server.lock:
            for call in list(self.server.calls.values()):
                if is_meant(call):
                    del self.server.calls[call.invocation["id"]]
                    call.over.set()
                    call.answered.set()
        self.answer(200, b"{}")

    # The wire

    def split(self) -> tuple[str, str]:
        """Return the mode and the path below the base."""
        first, _, rest = self.path[1:].partition("/")
        if first in CALL_MODES or first in MANIFEST_MODES:
            return first, f"/{rest}"
        return self.server.mode, self.path

    def base(self, mode: str) -> str:
        return self.server.url if mode in ("", self.server.mode) else f"{self.server.url}/{mode}"

    def remember(self, body: Fields) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.received.append(Received(self.path, headers, body))

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def break_off(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + 100))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        self.close_connection = True


@contextmanager
def foreign_server(mode: str = "") -> Iterator[ForeignServer]:
    """Serve from a thread for as long as the context lasts."""
    server = ForeignServer(mode=mode)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    serving.start()
    try:
        yield server
    finally:
        server.stop()
        serving.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mode", choices=["", *CALL_MODES, *MANIFEST_MODES], default="")
    options = parser.parse_args()
    server = ForeignServer(options.port, options.mode)
    sys.stdout.write(json.dumps({"port": server.server_address[1]}) + "\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
