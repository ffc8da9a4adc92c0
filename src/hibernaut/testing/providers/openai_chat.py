"""The Chat Completions API as OpenAI has it and as compatible servers have it, seen from their own side."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Counted,
    Finish,
    ReasoningBlock,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.errors import ConnectionLost
from hibernaut.testing.providers.openai_requests import (
    JSON,
    NotTaken,
    check_form,
    check_function,
    check_image,
    check_key,
    check_tools,
    error_body,
    failed_with,
    failure,
    refusal,
    refuse,
)
from hibernaut.testing.providers.wire import Asked, Raw

_FIELDS: Final = frozenset(
    {
        "messages",
        "model",
        "parallel_tool_calls",
        "seed",
        "stop",
        "stream",
        "temperature",
        "tools",
        "top_p",
    }
)
_MEMBERS: Final = {
    "system": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "refusal", "tool_calls"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_PATH: Final = re.compile(r"(?:/v1|/openai/v1)?/chat/completions")
_DATED: Final = re.compile(r"/openai/deployments/([^/]+)/chat/completions\?api-version=.+")
_LIST: Final = re.compile(r"(?:/v1|/openai/v1)?/models|/openai/models\?api-version=.+")
_MOST_CALLS: Final = 128


class Manner(msgspec.Struct, frozen=True):
    """How a server takes requests, and how it puts its answers."""

    fields: frozenset[str] = frozenset({"max_tokens", "stream_options"})
    """Fields of a request that it takes beyond those that all take."""
    refused: int = 400
    """The status with which it refuses fields that it does not know; 0: it ignores them."""
    members: frozenset[str] = frozenset()
    """Members of a message of the model that it takes beyond those that all take."""
    owed: str = ""
    """A member that a message with calls must have."""
    id_pattern: str = r".{1,64}"
    alternates: bool = False
    """Whether the user and the model have to take turns, results aside, and results are the model's to follow."""
    images: int = 500
    """How many a request may have; 0: contents are plain text."""
    strict: bool = False
    """Whether functions may be strict."""

    ids: Literal["own", "repeated", "same", "empty", "missing"] = "own"
    index: Literal["own", "zero", "missing"] = "own"
    whole: bool = False
    """Whether calls come in one piece."""
    objects: bool = False
    """Whether the arguments of whole calls are an object."""
    names_again: bool = False
    """Whether each piece of a call has its name."""
    old_calls: bool = False
    """Whether a call is a `function_call`."""
    thinking: Literal["", "reasoning_content", "reasoning", "reasoning_details", "parts"] = ""
    content_parts: bool = False
    nulls: bool = False
    """Whether members without a value are null, and not left out."""
    usage: Literal["own", "last", "every", "groq", "missing"] = "own"
    """In a chunk of its own, in the last one, in every one, in a member `x_groq`, or nowhere."""
    done: bool = True
    """Whether the stream ends with [DONE]."""
    call_reason: str | None = "tool_calls"
    """Why a turn ends that has calls."""
    errors: Literal["chunk", "event", "object", "choice"] = "chunk"
    """How a failure in the middle is told."""


_TEMPLATE: Final = Manner(
    fields=frozenset({"max_tokens", "stream_options", "chat_template_kwargs", "reasoning_effort"}),
    refused=0,
    alternates=True,
    id_pattern=r"[a-zA-Z0-9]{9}",
)

MANNERS: Final = {
    "openai": Manner(
        fields=frozenset(
            {
                "max_completion_tokens",
                "stream_options",
                "reasoning_effort",
                "prompt_cache_key",
                "response_format",
                "store",
            }
        ),
        strict=True,
        nulls=True,
    ),
    "mistral": Manner(
        fields=frozenset({"max_tokens", "random_seed", "reasoning_effort"}),
        refused=422,
        id_pattern=r"[a-zA-Z0-9]{9}",
        alternates=True,
        images=8,
        whole=True,
        usage="last",
        thinking="parts",
    ),
    "groq": Manner(
        fields=frozenset({"max_tokens", "max_completion_tokens", "stream_options", "reasoning_effort"}),
        images=5,
        whole=True,
        usage="groq",
        thinking="reasoning",
        errors="event",
    ),
    "deepseek": Manner(
        fields=frozenset({"max_tokens", "stream_options", "thinking", "reasoning_effort"}),
        members=frozenset({"reasoning_content"}),
        owed="reasoning_content",
        images=0,
        thinking="reasoning_content",
        usage="last",
        nulls=True,
    ),
    "moonshot": Manner(
        fields=frozenset({"max_tokens", "stream_options", "thinking"}),
        members=frozenset({"reasoning_content"}),
        owed="reasoning_content",
        thinking="reasoning_content",
    ),
    "openrouter": Manner(
        fields=frozenset({"max_tokens", "stream_options", "reasoning"}),
        refused=0,
        members=frozenset({"reasoning", "reasoning_details"}),
        thinking="reasoning_details",
        nulls=True,
    ),
    "ollama": Manner(
        fields=frozenset({"max_tokens", "stream_options", "reasoning_effort"}),
        refused=0,
        members=frozenset({"reasoning"}),
        whole=True,
        index="zero",
        thinking="reasoning",
        call_reason="stop",
    ),
    "vllm": msgspec.structs.replace(
        _TEMPLATE, members=frozenset({"reasoning"}), thinking="reasoning", usage="every", errors="object"
    ),
    "llamacpp": msgspec.structs.replace(
        _TEMPLATE, members=frozenset({"reasoning_content"}), thinking="reasoning_content", names_again=True
    ),
    "lmstudio": msgspec.structs.replace(_TEMPLATE, thinking="reasoning", ids="repeated", done=False),
}
"""The servers that are known. Those that render a template of the model's are as strict as the strictest template."""


class ChatWire:
    """Takes what the Chat Completions API of a server takes.

    Args:
        manner: which server's it is: one of `MANNERS`, or one of its own.
        key: what has to be shown; "" for nothing.
        models: what is listed.
    """

    stream_type = "text/event-stream"

    def __init__(
        self, manner: Manner | str = "openai", *, key: str = "", models: Iterable[dict[str, Any]] = ({"id": "gpt-4.1"},)
    ) -> None:
        self._manner = MANNERS[manner] if isinstance(manner, str) else manner
        self._key = key
        self._models = tuple(models)

    def check(self, asked: Asked) -> Raw | None:
        """Return what a request is answered that asks for no turn, or that is not taken."""
        try:
            check_key(asked, self._key)
            if asked.method == "GET" and _LIST.fullmatch(asked.path):
                return Raw(200, JSON, msgspec.json.encode({"object": "list", "data": self._models}))
            if asked.method != "POST" or not (_PATH.fullmatch(asked.path) or _DATED.fullmatch(asked.path)):
                refuse(f"There is nothing at {asked.method} {asked.path}.", code="unknown_url", status=404)
            self._check_body(asked.body)
        except NotTaken as error:
            return refusal(error)
        return None

    def refuse(self, error: ModelError) -> Raw:
        """Return the answer with which a completion fails from the start."""
        return failure(error)

    def encoder(self, asked: Asked) -> "ChatEncoder":
        """Return what writes the turn."""
        options = asked.body.get("stream_options") or {}
        return ChatEncoder(self._manner, asked.body["model"], asks_usage=bool(options.get("include_usage")))

    def _check_body(self, body: Any) -> None:
        manner = self._manner
        if not isinstance(body, dict):
            refuse("The body is no JSON object.")
        for name in body.keys() - _FIELDS - manner.fields if manner.refused else ():
            refuse(f"There is no field {name!r} here.", name, "unknown_parameter", manner.refused)
        if not isinstance(body.get("model"), str) or not body["model"]:
            refuse("There is no model.", "model", "missing_required_parameter")
        if body.get("stream") is not True:
            refuse("This fake only streams.", "stream")
        if "tools" in body:
            check_tools(body["tools"], nested=True)
            if not manner.strict and any("strict" in tool["function"] for tool in body["tools"]):
                refuse("A function has no `strict`.", "tools")
        if form := body.get("response_format"):
            check_form({"type": form.get("type"), **form.get("json_schema", {})}, "response_format")
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            refuse("There are no messages.", "messages", "missing_required_parameter")
        _Messages(manner).check(messages)


class _Messages:
    """Checks the messages of a request."""

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self._ids: set[str] = set()
        self._open: list[str] = []
        """Calls without a result."""
        self._before = ""
        self._images = 0

    def check(self, messages: list[Any]) -> None:
        for number, message in enumerate(messages):
            param = f"messages[{number}]"
            role = message.get("role") if isinstance(message, dict) else None
            if role not in _MEMBERS:
                refuse(f"There is no role {role!r}.", f"{param}.role")
            extra = self._manner.members if role == "assistant" else frozenset()
            for name in message.keys() - _MEMBERS[role] - extra:
                refuse(f"A message of {role} has no {name!r}.", f"{param}.{name}")
            if self._open and role != "tool":
                refuse(f"A message with calls has to be followed by their results: {self._open}.", param)
            self._check_order(role, param)
            getattr(self, f"_{role}")(message, param)
            self._before = "assistant_calls" if message.get("tool_calls") else role
        if self._open:
            refuse(f"A message with calls has to be followed by their results: {self._open}.", "messages")
        if self._before not in ("user", "tool"):
            refuse(f"The last message has to be of the user or a result, not of {self._before}.", "messages")

    def _check_order(self, role: str, param: str) -> None:
        if role == "system" and self._before:
            refuse("The system speaks first or not at all.", param)
        if not self._manner.alternates:
            return
        if role == "user" and self._before == "tool":
            refuse("Unexpected role: the user after a result.", param)
        if role in ("user", "assistant") and self._before == role:
            refuse("The user and the model have to take turns.", param)
        if role == "assistant" and self._before in ("", "system"):
            refuse("The user speaks first.", param)

    def _system(self, message: dict[str, Any], param: str) -> None:
        if not isinstance(message.get("content"), str) or not message["content"]:
            refuse("There is no content.", f"{param}.content", "invalid_type")

    def _user(self, message: dict[str, Any], param: str) -> None:
        content = message.get("content")
        if isinstance(content, str) and content:
            return
        if not self._manner.images:
            refuse("A content is a text.", f"{param}.content", "invalid_type")
        self._parts(content, f"{param}.content", {"text", "image_url"})

    def _tool(self, message: dict[str, Any], param: str) -> None:
        call_id = message.get("tool_call_id")
        if call_id not in self._open:
            refuse(f"There is no call that the result {call_id!r} answers.", param)
        self._open.remove(call_id)
        content = message.get("content")
        if not isinstance(content, str):
            self._parts(content, f"{param}.content", {"text"})

    def _assistant(self, message: dict[str, Any], param: str) -> None:
        content, calls = message.get("content"), message.get("tool_calls")
        if content is None and not calls:
            refuse("There is neither content nor a call.", f"{param}.content")
        if content is not None and (not isinstance(content, str) or not content):
            refuse("The content is no text.", f"{param}.content", "invalid_type")
        if calls is None:
            return
        if not isinstance(calls, list) or not 0 < len(calls) <= _MOST_CALLS:
            refuse("There are too few or too many calls.", f"{param}.tool_calls", "invalid_type")
        if self._manner.owed and not isinstance(message.get(self._manner.owed), str):
            refuse(f"`{self._manner.owed}` has to be passed back.", param)
        for number, call in enumerate(calls):
            self._call(call, f"{param}.tool_calls[{number}]")

    def _call(self, call: Any, param: str) -> None:
        call_id = call.get("id") if isinstance(call, dict) else None
        if not isinstance(call_id, str) or not re.fullmatch(self._manner.id_pattern, call_id, re.DOTALL):
            refuse(f"The id {call_id!r} does not match {self._manner.id_pattern}.", f"{param}.id")
        if call_id in self._ids:
            refuse(f"There are two calls with the id {call_id!r}.", f"{param}.id")
        function = call.get("function")
        if call.get("type") != "function" or not isinstance(function, dict):
            refuse("A call is one of a function.", f"{param}.type")
        check_function(function.get("name"), function.get("arguments"), f"{param}.function")
        self._ids.add(call_id)
        self._open.append(call_id)

    def _parts(self, parts: Any, param: str, kinds: set[str]) -> None:
        if not isinstance(parts, list) or not parts:
            refuse("There is no content.", param, "invalid_type")
        for number, part in enumerate(parts):
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in kinds:
                refuse(f"{kind!r} does not belong here.", f"{param}[{number}].type")
            if kind == "image_url":
                self._images += 1
                if self._images > self._manner.images:
                    refuse("There are too many images.", param)
                check_image((part.get("image_url") or {}).get("url"), f"{param}[{number}].image_url")
            elif not isinstance(part.get("text"), str) or not part["text"]:
                refuse("The text is missing.", f"{param}[{number}].text")


class ChatEncoder:
    """Writes a turn as chunks, in a server's manner."""

    def __init__(self, manner: Manner, model: str, *, asks_usage: bool) -> None:
        self._manner = manner
        self._model = model
        self._asks_usage = asks_usage
        self._calls: dict[int, tuple[CallStarted, list[str]]] = {}
        self._open: list[int] = []
        self._begun = False
        self._running = Usage(1, 1)
        """What servers say that count as they go."""

    def feed(self, piece: StreamPiece) -> Iterable[bytes]:
        """Return the chunks that say this."""
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""})
        if isinstance(piece, TextDelta):
            text = [{"type": "text", "text": piece.text}] if self._manner.content_parts else piece.text
            yield self._chunk({"content": text})
        elif isinstance(piece, ThinkingDelta):
            yield from self._think(piece.text)
        elif isinstance(piece, ReasoningBlock):
            if self._manner.thinking == "reasoning_details":
                sealed = {"type": "reasoning.encrypted", "data": piece.data.hex(), "index": 1}
                yield self._chunk({"reasoning_details": [sealed]})
        elif isinstance(piece, CallStarted):
            self._calls[piece.index] = piece, []
            self._open.append(piece.index)
            if not self._manner.whole:
                yield self._call(piece.index, "", first=True)
        elif isinstance(piece, CallDelta):
            self._calls[piece.index][1].append(piece.arguments)
            if not self._manner.whole:
                yield self._call(piece.index, piece.arguments, first=False)
        elif isinstance(piece, CallEnded):
            yield from self._end_call(piece.index)
        elif isinstance(piece, Counted):
            self._running = piece.usage
        else:
            yield from self._finish(piece)

    def failed(self, error: ModelError) -> bytes | None:
        """Return the chunk that says that the completion failed."""
        if isinstance(error, ConnectionLost):
            return None
        status, code, kind = failed_with(error)
        if self._manner.errors == "event":
            return b"event: error\ndata: " + error_body(str(error), kind, code) + b"\n\n"
        if self._manner.errors == "object":
            return _data({"object": "error", "message": str(error), "type": kind, "param": None, "code": status})
        body = {"code": status, "message": str(error)}
        if self._manner.errors == "choice":
            choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error", "error": body}
            return _data({"id": "gen-1", "object": "chat.completion.chunk", "choices": [choice]})
        return _data({"id": "gen-1", "object": "chat.completion.chunk", "error": body, "choices": []})

    def _think(self, text: str) -> Iterator[bytes]:
        field = self._manner.thinking
        if field == "reasoning_details":
            detail = {"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}
            yield self._chunk({"content": "", "reasoning": text, "reasoning_details": [detail]})
        elif field == "parts":
            yield self._chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]})
        elif field:
            yield self._chunk({field: text})

    def _call(self, index: int, arguments: Any, *, first: bool) -> bytes:
        manner, (piece, _) = self._manner, self._calls[index]
        function: dict[str, Any] = {"arguments": arguments}
        if first or manner.names_again:
            function["name"] = piece.name
        if manner.old_calls:
            return self._chunk({"function_call": function})
        call: dict[str, Any] = {"function": function}
        if manner.index != "missing":
            call["index"] = 0 if manner.index == "zero" else index
        if first:
            call["type"] = "function"
        if manner.ids == "empty":
            call["id"] = ""
        elif manner.ids == "same":
            call |= {"id": "call_0"} if first else {}
        elif manner.ids != "missing" and (first or manner.ids == "repeated"):
            call["id"] = piece.provider_id or f"call_{index}"
        return self._chunk({"tool_calls": [call]})

    def _end_call(self, index: int) -> Iterator[bytes]:
        self._open.remove(index)
        if self._manner.whole:
            text = "".join(self._calls[index][1])
            arguments = msgspec.json.decode(text) if self._manner.objects and text else text
            yield self._call(index, arguments, first=True)

    def _finish(self, finish: Finish) -> Iterator[bytes]:
        manner = self._manner
        if manner.whole:  # what was cut off is sent as far as it came
            for index in self._open:
                yield self._call(index, "".join(self._calls[index][1]), first=True)
        reason = {"length": "length", "refused": "content_filter"}.get(finish.reason)
        if reason is None:
            reason = manner.call_reason if self._calls else "stop"
        counted = _counted(finish.usage)
        last = {"last": {"usage": counted}, "every": {"usage": counted}, "groq": {"x_groq": {"usage": counted}}}
        yield self._chunk({}, reason, **last.get(manner.usage, {}))
        if manner.usage in ("own", "every") and self._asks_usage:
            yield _data(self._head() | {"choices": [], "usage": counted})
        if manner.done:
            yield b"data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        if self._manner.nulls:
            delta = {"content": None, "refusal": None, "tool_calls": None, **delta}
        if self._manner.usage == "every" and not more:
            more = {"usage": _counted(self._running)}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _data(self._head() | {"choices": [choice], **more})

    def _head(self) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self._model}


def _counted(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def _data(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
