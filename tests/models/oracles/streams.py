"""Streams of the single providers as they come from there, with what our fakes do not send."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.models.event_stream import MEDIA_TYPE
from hibernaut.testing.providers.bedrock import event
from hibernaut.testing.providers.wire import Raw


def _sse(*events: Any, named: bool = False) -> Raw:
    """Return a stream of server-sent events, `named` by their types."""
    lines = [
        (f"event: {event['type']}\n" if named else "")
        + f"data: {event if isinstance(event, str) else msgspec.json.encode(event).decode()}\n\n"
        for event in events
    ]
    return Raw(200, {"content-type": "text/event-stream"}, "".join(lines).encode())


# Anthropic


def _message(*blocks: tuple[dict[str, Any], list[dict[str, Any]]], reason: str, **counts: int) -> Raw:
    """Return a message of blocks, each as it begins and as it grows."""
    usage = {"input_tokens": 472, "cache_creation_input_tokens": 248, "cache_read_input_tokens": 1_800}
    message: dict[str, Any] = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-6",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 2},
    }
    events: list[Any] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, (begun, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 89, **counts}})
    events.append({"type": "message_stop"})
    return _sse(*events, named=True)


_TEXT: Final = {"type": "text", "text": ""}
_CITATION: Final = {
    "type": "char_location",
    "cited_text": "The sky is blue.",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 16,
    "file_id": None,
}
_ANTHROPIC: Final = {
    "a turn with a call": _message(
        (_TEXT, [{"type": "text_delta", "text": "Okay"}, {"type": "text_delta", "text": ", I look."}]),
        (
            {"type": "tool_use", "id": "toolu_01", "name": "look", "input": {}},
            [
                {"type": "input_json_delta", "partial_json": text}
                for text in ("", '{"path":', ' "San', " Francisc", 'o"}')
            ],
        ),
        reason="tool_use",
    ),
    "a call without arguments": _message(
        ({"type": "tool_use", "id": "toolu_01", "name": "wait", "input": {}}, []), reason="tool_use"
    ),
    "a text with citations": _message(
        (_TEXT, [{"type": "text_delta", "text": "Blue."}, {"type": "citations_delta", "citation": _CITATION}]),
        reason="end_turn",
    ),
    "a signature in pieces": _message(
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "So."},
                {"type": "signature_delta", "signature": "EqQB"},
                {"type": "signature_delta", "signature": "CgYI"},
            ],
        ),
        (_TEXT, [{"type": "text_delta", "text": "Yes."}]),
        reason="end_turn",
    ),
    "counts that change at the end": _message(
        (_TEXT, [{"type": "text_delta", "text": "Hi."}]),
        reason="end_turn",
        input_tokens=500,
        cache_creation_input_tokens=248,
        cache_read_input_tokens=1_800,
    ),
    "a sequence that stops it": _message((_TEXT, [{"type": "text_delta", "text": "Hi"}]), reason="stop_sequence"),
    "a window that is full": _message(
        (_TEXT, [{"type": "text_delta", "text": "Hi"}]), reason="model_context_window_exceeded"
    ),
    "a turn that pauses": _message((_TEXT, [{"type": "text_delta", "text": "Hi"}]), reason="pause_turn"),
}


# OpenAI

_COUNTS: Final = {
    "prompt_tokens": 1_200,
    "completion_tokens": 34,
    "total_tokens": 1_234,
    "prompt_tokens_details": {"cached_tokens": 1_000, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 0},
}


def _chat(*deltas: dict[str, Any], reason: str) -> Raw:
    """Return a completion. A filter has a word in front, and the counts come last."""
    head: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4.1"}
    filtered = {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    chunks = [{**head, "choices": [choice], "usage": None} for choice in choices]
    return _sse({**head, **filtered}, *chunks, {**head, "choices": [], "usage": _COUNTS}, "[DONE]")


def _piece(index: int, arguments: str, **more: str) -> dict[str, Any]:
    """Return a piece of a call, the first one with an id and a name."""
    function: dict[str, Any] = {name: more.pop(name) for name in ("name",) if name in more}
    return {"tool_calls": [{"index": index, **more, "function": {**function, "arguments": arguments}}]}


_CHAT: Final = {
    "a text": _chat({"role": "assistant", "content": ""}, {"content": "Hi"}, {"content": "."}, reason="stop"),
    "a refusal": _chat(
        {"role": "assistant", "content": None, "refusal": ""},
        {"refusal": "I am "},
        {"refusal": "sorry."},
        reason="stop",
    ),
    "calls in pieces": _chat(
        {"role": "assistant", "content": None},
        _piece(0, "", id="call_1", type="function", name="look"),
        _piece(0, '{"pa'),
        _piece(0, 'th":"a"}'),
        _piece(1, "{}", id="call_2", type="function", name="wait"),
        reason="tool_calls",
    ),
}


def _response(*events: dict[str, Any], output: list[dict[str, Any]], status: str = "completed", **more: Any) -> Raw:
    """Return a response with its output, and what it took."""
    usage = {
        "input_tokens": 1_200,
        "input_tokens_details": {"cached_tokens": 1_000},
        "output_tokens": 34,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 1_234,
    }
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    begun = {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    last = {**response, "status": status, "output": output, "usage": usage, **more}
    ended = {"type": f"response.{status}", "response": last}
    return _sse(
        *[{**event, "sequence_number": number} for number, event in enumerate((begun, *events, ended))], named=True
    )


def _added(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


_SAID: Final = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
_REFUSED: Final = {**_SAID, "status": "completed", "content": [{"type": "refusal", "refusal": "I am sorry."}]}
_THOUGHT: Final = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": "gAAAAx",
}
_HALF: Final = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"pa',
    "status": "incomplete",
}
_RESPONSES: Final = {
    "a refusal": _response(
        _added(_SAID),
        {
            "type": "response.refusal.delta",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "I am sorry.",
        },
        {
            "type": "response.refusal.done",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "refusal": "I am sorry.",
        },
        _done(_REFUSED),
        output=[_REFUSED],
    ),
    "a summary in parts that comes whole": _response(
        _added({**_THOUGHT, "summary": [], "encrypted_content": ""}), _done(_THOUGHT), output=[_THOUGHT]
    ),
    "a call that comes whole and is cut off": _response(
        _added({**_HALF, "arguments": "", "status": "in_progress"}),
        _done(_HALF),
        output=[_HALF],
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
    "something new in between": _response(
        {"type": "response.queued", "response": {"id": "resp_1"}},
        {"type": "response.something.new", "item_id": "x"},
        _added({**_HALF, "arguments": ""}),
        {
            "type": "response.function_call_arguments.done",
            "item_id": "fc_1",
            "output_index": 0,
            "name": "look",
            "arguments": "{}",
        },
        _done({**_HALF, "arguments": "{}", "status": "completed"}),
        output=[{**_HALF, "arguments": "{}", "status": "completed"}],
    ),
}


# Google


def _gemini(*events: tuple[list[dict[str, Any]], str]) -> Raw:
    """Return an answer: parts, and why it ends."""
    made: list[dict[str, Any]] = []
    for number, (parts, reason) in enumerate(events):
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if reason:
            candidate["finishReason"] = reason
        counts = {
            "promptTokenCount": 1_200,
            "cachedContentTokenCount": 1_000,
            "candidatesTokenCount": number,
            "thoughtsTokenCount": 20,
            "totalTokenCount": 1_220 + number,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1_200}],
        }
        made.append({"candidates": [candidate], "usageMetadata": counts, "modelVersion": "x", "responseId": "r"})
    return _sse(*made)


_GEMINI: Final = {
    "all in one piece": _gemini(
        (
            [
                {"text": "Hm.", "thought": True},
                {"text": "I look."},
                {"functionCall": {"name": "look", "args": {"path": "a"}, "id": "1"}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "wait", "id": "2"}},
            ],
            "STOP",
        )
    ),
    "a text in pieces": _gemini(
        ([{"text": "He"}], ""), ([{"text": "llo"}, {"text": "."}], ""), ([{"text": ""}], "STOP")
    ),
    "a signature in the middle": _gemini(
        ([{"text": "He", "thoughtSignature": "c2ln"}], ""), ([{"text": "llo."}], "MAX_TOKENS")
    ),
}


# Amazon


def _converse(*events: tuple[str, dict[str, Any]], reason: str = "end_turn") -> Raw:
    usage = {
        "inputTokens": 200,
        "outputTokens": 34,
        "totalTokens": 1_334,
        "cacheReadInputTokens": 1_000,
        "cacheWriteInputTokens": 100,
    }
    ended = (
        event("messageStop", {"stopReason": reason}),
        event("metadata", {"usage": usage, "metrics": {"latencyMs": 9}}),
    )
    sent = [event("messageStart", {"role": "assistant"}), *[event(kind, payload) for kind, payload in events], *ended]
    return Raw(200, {"content-type": MEDIA_TYPE}, b"".join(sent))


def _delta(index: int, **delta: Any) -> tuple[str, dict[str, Any]]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": delta}


def _stop(index: int) -> tuple[str, dict[str, Any]]:
    return "contentBlockStop", {"contentBlockIndex": index}


_CONVERSE: Final = {
    "what was put into the cache": _converse(_delta(0, text="Hi."), _stop(0)),
    "a signature in pieces": _converse(
        _delta(0, reasoningContent={"text": "So."}),
        _delta(0, reasoningContent={"signature": "Eq"}),
        _delta(0, reasoningContent={"signature": "QB"}),
        _stop(0),
        _delta(1, text="Yes."),
        _stop(1),
    ),
    "a guardrail": _converse(_delta(0, text="No."), _stop(0), reason="guardrail_intervened"),
    "a sequence that stops it": _converse(_delta(0, text="Hi"), _stop(0), reason="stop_sequence"),
    "something new in between": _converse(
        ("somethingNew", {"value": 1}),
        ("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t1", "name": "wait"}}}),
        _delta(0, toolUse={"input": ""}),
        _stop(0),
        reason="tool_use",
    ),
}


STREAMS: Final[Mapping[tuple[str, str], Raw]] = {
    (oracle, name): stream
    for oracle, streams in {
        "anthropic_messages": _ANTHROPIC,
        "bedrock_converse": _CONVERSE,
        "google_gemini": _GEMINI,
        "openai_chat": _CHAT,
        "openai_responses": _RESPONSES,
    }.items()
    for name, stream in streams.items()
}
"""By the oracle that they are for, and by what is special about them."""
