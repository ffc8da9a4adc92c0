"""OpenAI's Responses API, seen from its own side."""

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from hibernaut.errors import ModelError
from hibernaut.messages.events import Usage
from hibernaut.messages.stream import (
    CallDelta,
    CallEnded,
    CallStarted,
    Finish,
    ReasoningBlock,
    StreamPiece,
    TextDelta,
    ThinkingDelta,
)
from hibernaut.models.errors import ConnectionLost
from hibernaut.testing.providers.openai_requests import (
    JSON,
    LARGEST_BODY,
    NotTaken,
    check_form,
    check_function,
    check_image,
    check_key,
    check_tools,
    failed_with,
    failure,
    refusal,
    refuse,
)
from hibernaut.testing.providers.wire import Asked, Raw

_FIELDS: Final = frozenset(
    {
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "metadata",
        "model",
        "parallel_tool_calls",
        "prompt_cache_key",
        "reasoning",
        "service_tier",
        "store",
        "stream",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_p",
        "truncation",
    }
)
_EFFORTS: Final = frozenset({"none", "minimal", "low", "medium", "high", "xhigh"})
_PATH: Final = re.compile(r"(?:/v1|/openai/v1)?/responses|/openai/responses\?api-version=.+")
_LIST: Final = re.compile(r"(?:/v1|/openai/v1)?/models|/openai/models\?api-version=.+")
_CALL_ID: Final = re.compile(r".{1,64}", re.DOTALL)
_LEAST_OUTPUT: Final = 16
_LONGEST_KEY: Final = 64


class ResponsesWire:
    """Takes what the Responses API takes.

    Args:
        key: what has to be shown; "" for nothing.
        plain: a pattern of the ids of models that do not reason.
        account: whose reasoning can be read; that of others is refused.
        models: ids that are listed.
    """

    stream_type = "text/event-stream"

    def __init__(
        self,
        *,
        key: str = "",
        plain: str = r"gpt-4.*",
        account: str = "account",
        models: Iterable[str] = ("gpt-5",),
    ) -> None:
        self._key = key
        self._plain = re.compile(plain)
        self._secret = account.encode()
        self._models = tuple(models)
        self._turns = 0

    def check(self, asked: Asked) -> Raw | None:
        """Return what a request is answered that asks for no turn, or that is not taken."""
        try:
            check_key(asked, self._key)
            if asked.method == "GET" and _LIST.fullmatch(asked.path):
                data = [{"id": name, "object": "model", "created": 1, "owned_by": "system"} for name in self._models]
                return Raw(200, JSON, msgspec.json.encode({"object": "list", "data": data}))
            if asked.method != "POST" or not _PATH.fullmatch(asked.path):
                refuse(f"There is nothing at {asked.method} {asked.path}.", code="unknown_url", status=404)
            self._check_body(asked)
        except NotTaken as error:
            return refusal(error)
        return None

    def refuse(self, error: ModelError) -> Raw:
        """Return the answer with which a completion fails from the start."""
        return failure(error)

    def encoder(self, asked: Asked) -> "ResponsesEncoder":
        """Return what writes the turn."""
        self._turns += 1
        return ResponsesEncoder(self, asked.body, self._turns)

    def seal(self, data: bytes) -> str:
        """Return reasoning as only this account can read it."""
        return f"gAAA{urlsafe_b64encode(data).decode()}.{self.mark(data)}"

    def mark(self, data: bytes, length: int = 16) -> str:
        """Return characters that follow from data and the account alone."""
        return hmac.new(self._secret, data, hashlib.sha256).hexdigest()[:length]

    def _opens(self, content: str) -> bool:
        sealed, _, mark = content.removeprefix("gAAA").partition(".")
        try:
            data = urlsafe_b64decode(sealed)
        except ValueError:
            return False
        return content.startswith("gAAA") and hmac.compare_digest(mark, self.mark(data))

    def _check_body(self, asked: Asked) -> None:
        body = asked.body
        if len(asked.raw) > LARGEST_BODY:
            refuse("The request is too large.", status=413)
        if not isinstance(body, dict):
            refuse("The body is no JSON object.")
        for name in body:
            if name not in _FIELDS:
                refuse(f"There is no parameter {name!r}.", name, "unknown_parameter")
        if not isinstance(body.get("model"), str) or not body["model"]:
            refuse("There is no model.", "model", "missing_required_parameter")
        if body.get("stream") is not True:
            refuse("This fake only streams.", "stream")
        if len(body.get("prompt_cache_key", "")) > _LONGEST_KEY:
            refuse("The key is too long.", "prompt_cache_key", "string_above_max_length")
        if body.get("max_output_tokens", _LEAST_OUTPUT) < _LEAST_OUTPUT:
            refuse("The limit is too small.", "max_output_tokens", "integer_below_min_value")
        self._check_reasoning(body)
        if form := body.get("text", {}).get("format"):
            check_form(form, "text.format")
        if "tools" in body:
            check_tools(body["tools"], nested=False)
        if not isinstance(body.get("input"), list) or not body["input"]:
            refuse("There is no input.", "input", "missing_required_parameter")
        reasons = not self._plain.fullmatch(body["model"])
        _Input(self._opens, reasons, stored=body.get("store", True)).check(body["input"])

    def _check_reasoning(self, body: dict[str, Any]) -> None:
        reasons = not self._plain.fullmatch(body["model"])
        if "reasoning.encrypted_content" in body.get("include", ()) and not reasons:
            refuse("There is no encrypted content with this model.", "include")
        reasoning = body.get("reasoning")
        if reasoning is None:
            return
        if not reasons:
            refuse("The parameter is not for this model.", "reasoning.effort", "unsupported_parameter")
        if reasoning.get("effort", "low") not in _EFFORTS:
            refuse("The effort is unknown.", "reasoning.effort", "unsupported_value")


class _Input:
    """Checks the items of an input."""

    def __init__(self, opens: Any, reasons: bool, *, stored: bool) -> None:  # noqa: FBT001  # inside
        self._opens = opens
        self._reasons = reasons
        self._stored = stored
        self._calls: dict[str, bool] = {}
        """Whether each has its output."""
        self._thinking = ""
        """The reasoning that leads to what follows."""

    def check(self, items: list[Any]) -> None:
        for number, item in enumerate(items):
            param = f"input[{number}]"
            if not isinstance(item, dict):
                refuse("An item is an object.", param, "invalid_type")
            kind = item.get("type", "message")
            if self._thinking and not self._is_said(kind, item):
                refuse(
                    f"Item {self._thinking!r} of type 'reasoning' came without the item that has to follow it.", param
                )
            if kind != "reasoning":
                self._thinking = ""
            if kind == "message":
                self._message(item, param)
            elif kind == "reasoning":
                self._reasoning(item, param)
            elif kind == "function_call":
                self._call(item, param)
            elif kind == "function_call_output":
                self._output(item, param)
            else:
                refuse(f"There is no item of type {kind!r}.", f"{param}.type")
        if self._thinking:
            refuse(f"Item {self._thinking!r} of type 'reasoning' came without the item that has to follow it.", "input")
        for call_id, answered in self._calls.items():
            if not answered:
                refuse(f"There is no output for the function call {call_id}.", "input")

    def _is_said(self, kind: str, item: dict[str, Any]) -> bool:
        return kind in ("reasoning", "function_call") or (kind == "message" and item.get("role") == "assistant")

    def _message(self, item: dict[str, Any], param: str) -> None:
        role, content = item.get("role"), item.get("content")
        if role not in ("user", "assistant", "system", "developer"):
            refuse("The role is unknown.", f"{param}.role")
        if "id" in item and not self._stored:
            refuse(f"Item {item['id']!r} was not found: nothing is stored.", param, "item_not_found", 404)
        if isinstance(content, str):
            return
        kinds = {"output_text", "refusal"} if role == "assistant" else {"input_text", "input_image"}
        _check_parts(content, kinds, f"{param}.content")

    def _reasoning(self, item: dict[str, Any], param: str) -> None:
        if not self._reasons:
            refuse("Reasoning can only be shown to models that reason.", param)
        if not isinstance(item.get("id"), str) or not isinstance(item.get("summary"), list):
            refuse("An id or a summary is missing.", param, "missing_required_parameter")
        content = item.get("encrypted_content")
        if not content:
            refuse(f"Item {item['id']!r} was not found: nothing is stored.", param, "item_not_found", 404)
        if not self._opens(content):
            words = f"The encrypted content for item {item['id']} could not be verified."
            refuse(words, code="invalid_encrypted_content")
        self._thinking = item["id"]

    def _call(self, item: dict[str, Any], param: str) -> None:
        call_id = item.get("call_id")
        if not isinstance(call_id, str) or not _CALL_ID.fullmatch(call_id):
            refuse("An id has 1 to 64 characters.", f"{param}.call_id", "string_above_max_length")
        if call_id in self._calls:
            refuse(f"There are two calls with the id {call_id}.", f"{param}.call_id")
        check_function(item.get("name"), item.get("arguments"), param)
        self._calls[call_id] = False

    def _output(self, item: dict[str, Any], param: str) -> None:
        call_id, output = item.get("call_id"), item.get("output")
        if self._calls.get(str(call_id)) is not False:
            refuse(f"There is no function call for the output with the id {call_id}.", param)
        self._calls[str(call_id)] = True
        if not isinstance(output, str):
            _check_parts(output, {"input_text", "input_image"}, f"{param}.output")


def _check_parts(parts: Any, kinds: set[str], param: str) -> None:
    if not isinstance(parts, list) or not parts:
        refuse("There is no content.", param, "invalid_type")
    for number, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in kinds:
            refuse(f"{kind!r} does not belong here.", f"{param}[{number}]")
        if kind == "input_image":
            check_image(part.get("image_url"), f"{param}[{number}].image_url")
        elif not isinstance(part.get("text", part.get("refusal")), str):
            refuse("The text is missing.", f"{param}[{number}].text", "missing_required_parameter")


class ResponsesEncoder:
    """Writes a turn as events."""

    def __init__(self, wire: ResponsesWire, body: dict[str, Any], turn: int) -> None:
        self._wire = wire
        self._turn = turn
        self._sealed = "reasoning.encrypted_content" in body.get("include", ())
        self._model = body["model"]
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._open = -1
        """The message or reasoning that is being written."""
        self._texts: list[str] = []
        self._calls: dict[int, int] = {}
        self._arguments: dict[int, str] = {}
        self._begun = False

    def feed(self, piece: StreamPiece) -> Iterable[bytes]:
        """Return the events that say this."""
        if not self._begun:
            self._begun = True
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=self._response("in_progress"))
        if isinstance(piece, TextDelta):
            yield from self._text(piece.text)
        elif isinstance(piece, ThinkingDelta):
            yield from self._think(piece.text)
        elif isinstance(piece, ReasoningBlock):
            yield from self._block(piece)
        elif isinstance(piece, CallStarted):
            yield from self._call(piece)
        elif isinstance(piece, CallDelta):
            place = self._calls[piece.index]
            self._arguments[place] += piece.arguments
            kind = "response.function_call_arguments.delta"
            yield self._event(kind, item_id=self._id(place), output_index=place, delta=piece.arguments)
        elif isinstance(piece, CallEnded):
            yield from self._end_call(self._calls.pop(piece.index), "completed")
        elif isinstance(piece, Finish):
            yield from self._finish(piece)

    def failed(self, error: ModelError) -> bytes | None:
        """Return the event that says that the completion failed."""
        if isinstance(error, ConnectionLost):
            return None
        response = self._response("failed") | {"error": {"code": failed_with(error)[1], "message": str(error)}}
        return self._event("response.failed", response=response)

    def _text(self, text: str) -> Iterator[bytes]:
        if self._kind() != "message":
            yield from self._close()
            yield from self._begin({"type": "message", "role": "assistant", "content": [], "status": "in_progress"})
            part = {"type": "output_text", "text": "", "annotations": []}
            yield self._event("response.content_part.added", **self._place(content_index=0), part=part)
        self._texts.append(text)
        yield self._event("response.output_text.delta", **self._place(content_index=0), delta=text, logprobs=[])

    def _think(self, text: str) -> Iterator[bytes]:
        if self._kind() != "reasoning":
            yield from self._close()
            yield from self._begin({"type": "reasoning", "summary": []})
            part = {"type": "summary_text", "text": ""}
            yield self._event("response.reasoning_summary_part.added", **self._place(summary_index=0), part=part)
        self._texts.append(text)
        yield self._event("response.reasoning_summary_text.delta", **self._place(summary_index=0), delta=text)

    def _block(self, block: ReasoningBlock) -> Iterator[bytes]:
        if self._kind() != "reasoning":
            yield from self._close()
            yield from self._begin({"type": "reasoning", "summary": []})
            self._texts = [block.text] if block.text else []
        if self._sealed:
            self._output[self._open]["encrypted_content"] = self._wire.seal(block.data)
        yield from self._close()

    def _call(self, piece: CallStarted) -> Iterator[bytes]:
        yield from self._close()
        place = len(self._output)
        call_id = piece.provider_id or f"call_{place}{'x' * 20}"
        call = {
            "type": "function_call",
            "status": "in_progress",
            "call_id": call_id,
            "name": piece.name,
            "arguments": "",
        }
        yield from self._begin(call)
        self._open = -1
        self._calls[piece.index] = place
        self._arguments[place] = ""

    def _end_call(self, place: int, status: str) -> Iterator[bytes]:
        call = self._output[place]
        call["arguments"], call["status"] = self._arguments[place], status
        if status == "completed":
            kind = "response.function_call_arguments.done"
            yield self._event(kind, item_id=call["id"], output_index=place, arguments=call["arguments"])
        yield self._event("response.output_item.done", output_index=place, item=call)

    def _finish(self, finish: Finish) -> Iterator[bytes]:
        yield from self._close()
        for place in list(self._calls.values()):
            yield from self._end_call(place, "incomplete")
        if finish.reason == "end":
            yield self._event("response.completed", response=self._response("completed", finish.usage))
            return
        why = "max_output_tokens" if finish.reason == "length" else "content_filter"
        response = self._response("incomplete", finish.usage) | {"incomplete_details": {"reason": why}}
        yield self._event("response.incomplete", response=response)

    def _kind(self) -> str:
        return str(self._output[self._open]["type"]) if self._open >= 0 else ""

    def _begin(self, item: dict[str, Any]) -> Iterator[bytes]:
        self._open = len(self._output)
        self._texts = []
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[item["type"]]
        mark = self._wire.mark(f"{self._turn}.{self._open}".encode(), 24)
        self._output.append({"id": f"{prefix}_{mark}", **item})
        yield self._event("response.output_item.added", output_index=self._open, item=self._output[self._open])

    def _close(self) -> Iterator[bytes]:
        """End the message or the reasoning that is being written."""
        if self._open < 0:
            return
        item, text = self._output[self._open], "".join(self._texts)
        if item["type"] == "message":
            part = {"type": "output_text", "text": text, "annotations": []}
            item["content"], item["status"] = [part], "completed"
            yield self._event("response.output_text.done", **self._place(content_index=0), text=text)
            yield self._event("response.content_part.done", **self._place(content_index=0), part=part)
        elif text:
            part = {"type": "summary_text", "text": text}
            item["summary"] = [part]
            yield self._event("response.reasoning_summary_text.done", **self._place(summary_index=0), text=text)
            yield self._event("response.reasoning_summary_part.done", **self._place(summary_index=0), part=part)
        yield self._event("response.output_item.done", output_index=self._open, item=item)
        self._open = -1

    def _id(self, place: int) -> str:
        return str(self._output[place]["id"])

    def _place(self, **more: int) -> dict[str, Any]:
        return {"item_id": self._id(self._open), "output_index": self._open, **more}

    def _response(self, status: str, usage: Usage | None = None) -> dict[str, Any]:
        counted = usage and {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input + usage.output,
        }
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self._model,
            "output": self._output if usage else [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": counted,
        }

    def _event(self, kind: str, **members: Any) -> bytes:
        data = msgspec.json.encode({"type": kind, "sequence_number": self._number, **members})
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
