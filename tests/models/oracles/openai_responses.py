"""The Responses API with encrypted reasoning, and the SDK of OpenAI."""

import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import openai

from hibernaut.auth import Bearer
from hibernaut.messages.events import Usage
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import Overloaded
from hibernaut.models.openai.responses import ResponsesDialect
from hibernaut.models.protocol import About, Settings
from hibernaut.testing.providers.openai_responses import ResponsesWire
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

MODEL: Final = "gpt-5"
MOST: Final = 9_000
REASONS: Final = {"max_output_tokens": "length", "content_filter": "refused"}


class Failed(Exception):
    """The last event says that the response has failed."""


class Client:
    """Talks by the SDK."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client
        self._input: list[Any] = []

    def say(self, text: str, picture: bytes = b"") -> None:
        shown = [{"type": "input_image", "image_url": data_url(picture)}] if picture else []
        self._input.append({"role": "user", "content": [{"type": "input_text", "text": text}, *shown]})

    def answer(self, call: Call, text: str) -> None:
        self._input.append({"type": "function_call_output", "call_id": call.id, "output": text})

    async def ask(self, *, formed: bool) -> Answer:
        stream = await self._client.responses.create(
            model=MODEL,
            instructions=INSTRUCTIONS,
            input=self._input,
            tools=[
                {"type": "function", "name": name, "description": words, "parameters": schema, "strict": False}
                for name, words, schema in TOOLS
            ],
            reasoning={"effort": "low"},
            include=["reasoning.encrypted_content"],
            max_output_tokens=MOST,
            store=False,
            text={"format": {"type": "json_schema", **NAMED}} if formed else openai.omit,
            stream=True,
        )
        said: list[str] = []
        async with stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    said.append(event.delta)
                elif event.type == "response.failed":
                    raise Failed
                elif event.type in ("response.completed", "response.incomplete"):
                    return self._taken(event.response)
        return answer_of(said, "")

    def _taken(self, response: openai.types.responses.Response) -> Answer:
        self._input += map(_said, response.output)
        details, usage = response.incomplete_details, response.usage
        messages = [item for item in response.output if item.type == "message"]
        declined = any(part.type == "refusal" for message in messages for part in message.content)
        return answer_of(
            _parts(response.output),
            REASONS[details.reason] if details else "refused" if declined else "end",
            Usage(usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens),
        )

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, Failed):
            return Failure(Overloaded, retryable=True, wait=0)
        return failure_of(openai, self._client, error)


def _said(item: Any) -> Any:
    """Return an item as it goes back, without ids of messages: nothing is stored that they could stand for."""
    if item.type == "message":
        return {"role": "assistant", "content": "".join(_words(item))}
    if item.type == "function_call":
        return {**item.to_dict(), "arguments": item.arguments or "{}"}
    return item


def _words(message: Any) -> Iterator[str]:
    return (part.refusal if part.type == "refusal" else part.text for part in message.content)


def _parts(output: list[Any]) -> Iterator[str | Call | Thought]:
    for item in output:
        if item.type == "message":
            yield from _words(item)
        elif item.type == "reasoning":
            yield Thought("\n\n".join([part.text for part in item.summary]))
        elif item.type == "function_call":
            whole = item.status == "completed"
            yield Call(item.name, item.call_id, json.loads(item.arguments or "{}") if whole else None)


class ResponsesOracle(Oracle):
    """A model of OpenAI's that reasons."""

    name = "openai_responses"
    about = About(MODEL, settings=Settings(MOST, "low", cache=False))

    def wire(self) -> ResponsesWire:
        return ResponsesWire(key=KEY)

    def adapter(self, url: str) -> tuple[Endpoint, Dialect]:
        return Endpoint("openai", f"{url}/v1", auth=Bearer(KEY)), ResponsesDialect()

    def sdk(self, url: str) -> AbstractAsyncContextManager[Talker]:
        return opened(url, Client)

    def meaning(self, body: Any) -> Any:
        return {**body, "input": [_plain(item) for item in body["input"]]}


def _plain(item: Any) -> Any:
    """Return an item without what is known of it anyway: ids of calls among the items, and that they are complete."""
    if item.get("type") == "function_call":
        return {name: value for name, value in item.items() if name not in ("id", "status")}
    content = item.get("content")
    if item.get("role") == "user" and isinstance(content, str):
        return {**item, "content": [{"type": "input_text", "text": content}]}
    return item


ORACLE: Final = ResponsesOracle()
