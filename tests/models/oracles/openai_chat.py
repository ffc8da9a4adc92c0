"""The Chat Completions API, and the SDK of OpenAI."""

import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import openai
from openai.lib.streaming.chat import ChatCompletionStreamState

from hibernaut.auth import Bearer
from hibernaut.messages.events import Usage
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.servers import server_of
from hibernaut.models.protocol import About, Settings
from hibernaut.testing.providers.openai_chat import ChatWire
from tests.models.oracles.conversation import (
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
from tests.models.oracles.openai_sdk import KEY, NAMED, data_url, opened

MODEL: Final = "gpt-4.1"
MOST: Final = 9_000
REASONS: Final = {"stop": "end", "tool_calls": "end", "length": "length", "content_filter": "refused", None: ""}


class Client:
    """Talks by the SDK."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client
        self._messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}]

    def say(self, text: str, picture: bytes = b"") -> None:
        shown = [{"type": "image_url", "image_url": {"url": data_url(picture)}}] if picture else []
        self._messages.append({"role": "user", "content": [{"type": "text", "text": text}, *shown]})

    def answer(self, call: Call, text: str) -> None:
        self._messages.append({"role": "tool", "tool_call_id": call.id, "content": text})

    async def ask(self, *, formed: bool) -> Answer:
        stream = await self._client.chat.completions.create(
            model=MODEL,
            messages=self._messages,
            tools=[
                {"type": "function", "function": {"name": name, "description": words, "parameters": schema}}
                for name, words, schema in TOOLS
            ],
            max_completion_tokens=MOST,
            response_format={"type": "json_schema", "json_schema": NAMED} if formed else openai.omit,
            stream=True,
            stream_options={"include_usage": True},
        )
        state = ChatCompletionStreamState()
        async with stream:
            async for chunk in stream:
                state.handle_chunk(chunk)
        completion = state.current_completion_snapshot
        (choice,) = completion.choices
        self._messages.append(_said(choice.message))
        reason, usage = REASONS[choice.finish_reason], completion.usage
        if choice.message.refusal:
            reason = "refused"
        counted = Usage()
        if usage is not None:
            counted = Usage(usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens_details.cached_tokens)
        return answer_of(_parts(choice.message, reason), reason, counted)

    def failure(self, error: Exception) -> Failure | None:
        return failure_of(openai, self._client, error)


def _said(message: Any) -> dict[str, Any]:
    """Return a message as it goes back: what is empty in a stream is null, or an object of nothing."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments or "{}"},
        }
        for call in message.tool_calls or ()
    ]
    said = {"role": "assistant", "content": message.content or None}
    return {**said, "tool_calls": calls} if calls else said


def _parts(message: Any, reason: str) -> Iterator[str | Call | Thought]:
    yield message.content or ""
    yield message.refusal or ""
    calls = message.tool_calls or []
    for call in calls:
        cut = reason == "length" and call is calls[-1]
        yield Call(call.function.name, call.id, None if cut else json.loads(call.function.arguments or "{}"))


class ChatOracle(Oracle):
    """A model of OpenAI's that does not reason."""

    name = "openai_chat"
    about = About(MODEL, settings=Settings(MOST, cache=False))

    def wire(self) -> ChatWire:
        return ChatWire("openai", key=KEY)

    def adapter(self, url: str) -> tuple[Endpoint, Dialect]:
        return Endpoint("openai", f"{url}/v1", auth=Bearer(KEY)), ChatDialect(server_of("openai"))

    def sdk(self, url: str) -> AbstractAsyncContextManager[Talker]:
        return opened(url, Client)

    def meaning(self, body: Any) -> Any:
        return {**body, "messages": [_plain(message) for message in body["messages"]]}


def _plain(message: Any) -> Any:
    if message["role"] == "user" and isinstance(message["content"], str):
        return {**message, "content": [{"type": "text", "text": message["content"]}]}
    return message


ORACLE: Final = ChatOracle()
