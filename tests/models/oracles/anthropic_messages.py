"""The Messages API, and the SDK of Anthropic."""

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anthropic

from hibernaut.auth import Headers
from hibernaut.messages.events import Usage
from hibernaut.models.anthropic.dialect import AnthropicDialect
from hibernaut.models.anthropic.platforms import ANTHROPIC
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.protocol import About, Settings
from hibernaut.testing.providers.anthropic import AnthropicWire
from tests.models.oracles.conversation import (
    FORM,
    INSTRUCTIONS,
    TOOLS,
    Answer,
    Call,
    Failure,
    Oracle,
    Talker,
    Thought,
    answer_of,
)
from tests.models.oracles.failures import failure_of

KEY: Final = "sk-ant-fake"
MODEL: Final = "claude-sonnet-4-6"
MOST: Final = 9_000

REASONS: Final = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "refused",
    None: "",
}


class Client:
    """Talks by the SDK."""

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client
        self._messages: list[Any] = []

    def say(self, text: str, picture: bytes = b"") -> None:
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(picture).decode()}
        shown = [{"type": "image", "source": source}] if picture else []
        self._messages.append({"role": "user", "content": [{"type": "text", "text": text}, *shown]})

    def answer(self, call: Call, text: str) -> None:
        if self._messages[-1]["role"] != "user":
            self._messages.append({"role": "user", "content": []})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": text}
        self._messages[-1]["content"].append(result)

    async def ask(self, *, formed: bool) -> Answer:
        opened = self._client.messages.stream(
            model=MODEL,
            max_tokens=MOST,
            system=[{"type": "text", "text": INSTRUCTIONS}],
            tools=[{"name": name, "description": words, "input_schema": schema} for name, words, schema in TOOLS],
            thinking={"type": "adaptive"},
            output_config={"effort": "low", **({"format": {"type": "json_schema", "schema": FORM}} if formed else {})},
            messages=self._messages,
        )
        async with opened as stream:
            message = await stream.get_final_message()
        self._messages.append({"role": "assistant", "content": message.content})
        reason = REASONS[message.stop_reason]
        return answer_of(_parts(message, reason), reason, _counted(message.usage))

    def failure(self, error: Exception) -> Failure | None:
        return failure_of(anthropic, self._client, error)


def _counted(usage: anthropic.types.Usage) -> Usage:
    cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return Usage(usage.input_tokens + cached + written, usage.output_tokens, cached)


def _parts(message: anthropic.types.Message, reason: str) -> Iterator[str | Call | Thought]:
    for block in message.content:
        if block.type == "text":
            yield block.text
        elif block.type == "thinking":
            yield Thought(block.thinking)
        elif block.type == "tool_use":
            # The SDK returns a call that was cut off as far as it came.
            cut = reason == "length" and block is message.content[-1]
            yield Call(block.name, block.id, None if cut else block.input)


class AnthropicOracle(Oracle):
    """Claude."""

    name = "anthropic_messages"
    about = About(MODEL, settings=Settings(MOST, "low"))

    def wire(self) -> AnthropicWire:
        return AnthropicWire(KEY)

    def adapter(self, url: str) -> tuple[Endpoint, Dialect]:
        headers = {"anthropic-version": ANTHROPIC.version}
        return Endpoint("anthropic", url, auth=Headers({"x-api-key": KEY}), headers=headers), AnthropicDialect()

    @asynccontextmanager
    async def sdk(self, url: str) -> AsyncIterator[Talker]:
        http = anthropic.DefaultAsyncHttpxClient(verify=False)  # reading all authorities takes longer than a scene
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0, http_client=http) as client:
            yield Client(client)

    def meaning(self, body: Any) -> Any:
        return _unmarked(body)


def _unmarked(value: Any) -> Any:
    """Return a value without the marks for the provider's cache, which our adapter sets."""
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in value.items() if name != "cache_control"}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value


ORACLE: Final = AnthropicOracle()
