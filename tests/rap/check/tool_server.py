"""A tool server that is as it must be, but for the faults that it is given."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from hibernaut.rap.exchange import Exchange, NoAnswer
from hibernaut.rap.listening import Receive, Scope, Send, listening

KNOWN = {"operation", "arguments", "id", "call_id", "callback_url", "group_id", "thread_ancestors", "user_id"}
PERSON = {"prompt": "Ship it?", "choices": ["no", "yes"], "default": 1}
DOT = "iVBORw0KGgo="
DRAWN: dict[str, Any] = {
    "content": [{"type": "text", "text": "a dot"}, {"type": "image", "data": DOT, "mediaType": "image/png"}],
    "display_as": [{"type": "diff", "content": {"path": "dot.txt", "patch": "-nothing\n+a dot\n"}}],
}
NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}

Fields = dict[str, Any]


def tool(name: str, properties: Fields, *required: str, **annotations: Any) -> Fields:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": f"{name}.", "inputSchema": schema, "annotations": annotations}


class ToolServer:
    """Tools: `add`, `deploy` (which nobody must call unasked), `slow`, `watch` with events, `confirm` asks a person.

    `draw` brings a picture and what people see of it, `login` sends somebody to authorize something.
    """

    def __init__(self, *faults: str) -> None:
        self.faults = frozenset(faults)
        self.url = ""
        self.endpoint = ""
        self.runs: list[str] = []
        self.at_work = threading.Event()
        self.authorized_by: list[str] = []
        self.tried: dict[str, int] = {}
        self._open: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._answers: dict[str, asyncio.Future[int]] = {}
        self._keys: set[str] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        self._exchange = Exchange(verify=False)
        async with self._exchange, listening(self) as there, asyncio.TaskGroup() as self._work:
            self.url = there.url
            yield self
            for task in self._open.values():
                task.cancel()

    @property
    def open(self) -> int:
        """How many calls are at work."""
        return len(self._open)

    def has(self, fault: str) -> bool:
        return fault in self.faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.authorized_by.append(headers.get("authorization", ""))
        encoding = "latin-1" if self.has("latin-1") else "utf-8"
        fields = json.loads(body.decode(encoding)) if body else {}
        status, answer = await self._route(scope["path"], fields, headers)
        start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        await send(start)
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def _route(self, path: str, fields: Fields, headers: dict[str, str]) -> tuple[int, Any]:
        known = (fields.get("thread_id", ""), fields.get("tool_call_id", ""))
        match path:
            case "/.well-known/rap-toolset":
                return (404, {}) if self.has("hidden") else (200, self._manifest())
            case "/call":
                return await self._invoke(fields, headers)
            case "/cancel_tool_call":
                if known in self._open and not self.has("deaf"):
                    self._open[known].cancel()
                return (404 if self.has("strict cancel") and known not in self._open else 200), {}
            case "/close_thread":
                for thread, call in list(self._open):
                    if thread == fields["thread_id"]:
                        self._open[thread, call].cancel()
                return (404 if self.has("strict close") else 200), {}
            case "/tool_call_status":
                alive = known in self._open and not self.has("never alive")
                return 200, {"alive": alive or self.has("always alive")}
            case _:
                return self._answer(path, fields)

    def _answer(self, path: str, fields: Fields) -> tuple[int, Any]:
        answer = self._answers.pop(path, None)
        if answer is None or self.has("no answers"):
            return 404, {}
        if not answer.done():
            answer.set_result(fields["selected"])
        return 200, {}

    def _manifest(self) -> Fields:
        tools = [
            tool("add", NUMBERS, "a", "b", readOnly=True),
            tool("deploy", {}),
            tool("slow", {}, longRunning=True),
            tool("watch", {"count": {"type": "integer"}, "every": {"type": "number"}}),
            tool("confirm", {}),
            tool("draw", {"text": {"type": "string", "default": "a dot"}}),
            tool("login", {}, requiresAuth="example"),
        ]
        tools[3]["eventSchema"] = {"type": "integer"} if self.has("other events") else {"type": "string"}
        if self.has("elsewhere"):
            return {"name": "numbers", "endpoint": self.endpoint, "tools": tools}
        if self.has("bad schema"):
            tools[1]["inputSchema"]["type"] = "nothing"
        name = "" if self.has("nameless") else "numbers"
        return {"name": name, "endpoint": f"{self.url}/call", "tools": tools}

    async def _invoke(self, call: Fields, headers: dict[str, str]) -> tuple[int, Any]:
        if (self.has("no nulls") and call["call_id"] is None) or (self.has("closed") and call.keys() - KNOWN):
            return 400, {"error": "that is not in my book"}
        unknown = call["operation"] not in ("add", "deploy", "slow", "watch", "confirm", "draw", "login")
        if self.has("refuses") and unknown:
            return 400, {"error": "no such operation"}
        if self.has("crashes") and unknown:
            return 500, {}
        key = headers.get("idempotency-key", "")
        if not key and self.has("needs a key"):
            return 400, {"error": "no key"}
        if key in self._keys and not self.has("forgetful"):
            return 200, {}
        self._keys |= {key} - {""}
        work = self._work.create_task(self._run(call))
        known = (call["group_id"], call["id"])
        self._open[known] = work
        work.add_done_callback(lambda _: self._open.pop(known, None))
        if self.has("works first") and (unknown or call["operation"] == "add"):
            await work
        return 200, {}

    async def _run(self, call: Fields) -> None:
        arguments = call["arguments"]
        match call["operation"]:
            case "add":
                if not all(isinstance(arguments.get(name), int) for name in "ab"):
                    if not self.has("silent on arguments"):
                        await self._result(call, "Error: a and b are integers", is_error=True)
                elif not self.has("never answers"):
                    self.runs.append("add")
                    await self._result(call, str(arguments["a"] + arguments["b"]))
            case "deploy":
                self.runs.append("deploy")
                await self._result(call, "deployed")
            case "slow":
                await self._slow(call)
            case "watch":
                await self._watch(call, arguments.get("count", 1_000), arguments.get("every", 0.02))
            case "confirm":
                await self._confirm(call)
            case "draw":
                await self._result(call, "", **DRAWN)
            case "login":
                ids = {"group_id": call["group_id"], "id": call["id"]}
                await self._deliver(
                    call,
                    {
                        "type": "oauth",
                        **ids,
                        "auth_url": f"http{'' if self.has('http login') else 's'}://login.example/o",
                    },
                )
                await self._result(call, "welcome\x1b[2J")
            case _:
                await self._unknown(call)

    async def _unknown(self, call: Fields) -> None:
        text: Any = 5 if self.has("shapeless") else "Error: no such operation"
        marked: Fields = {} if self.has("unmarked") else {"is_error": True}
        if not self.has("silent"):
            await self._result(call, text, **marked)

    async def _slow(self, call: Fields) -> None:
        self.at_work.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self.has("stubborn"):
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            await self._result(call, "done all the same")

    async def _watch(self, call: Fields, count: int, every: float) -> None:
        await self._result(call, "watching", **({} if self.has("unconfirmed") else {"subscription": True}))
        for number in range(1, count + 1 + self.has("after the end")):
            event = {"type": "subscription_event", "group_id": call["group_id"], "tool_call_id": call["id"]}
            if self.has("foreign events"):
                event["tool_call_id"] = "somebody"
            ids = {} if self.has("no event ids") else {"event_id": f"e{number}"}
            await self._deliver(call, {**event, **ids, "text": f"event {number}", "final": number == count})
            await asyncio.sleep(every)

    async def _confirm(self, call: Fields) -> None:
        path = f"/answer/{call['id']}"
        answer = self._answers[path] = asyncio.get_running_loop().create_future()
        asked = {"type": "user_choice", "group_id": call["group_id"], "id": call["id"], "call_id": call["call_id"]}
        base = "http://169.254.169.254" if self.has("answers inside") else self.url
        asked |= {"response_url": base + path, **PERSON}
        await self._deliver(call, asked | ({"choices": []} if self.has("no choices") else {}))
        number = await answer
        await self._result(call, ["kept", "shipped"][number])

    async def _result(self, call: Fields, text: Any, **more: Any) -> None:
        ids = {"group_id": call["group_id"], "id": call["id"], "call_id": call["call_id"]}
        if self.has("other ids"):
            ids["call_id"] = "another"
        await self._deliver(call, {"type": "tool_result", **ids, "text": text, **more})

    async def _deliver(self, call: Fields, callback: Fields) -> None:
        url = call["callback_url"]
        body = json.dumps(callback, ensure_ascii=False).encode()
        headers = {"Content-Type": "text/plain"} if self.has("plain text") else {}
        for _ in range(4):
            self.tried[url] = self.tried.get(url, 0) + 1
            try:
                reply = await self._exchange.post(url, body, headers)
            except NoAnswer:
                return
            if reply.status < 300 or (reply.status < 500 and not self.has("insists")):
                return
            if self.has("gives up"):
                return
            await asyncio.sleep(0 if self.has("hurries") else int(reply.headers.get("retry-after", 0)))
