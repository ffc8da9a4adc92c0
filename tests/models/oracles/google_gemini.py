"""The Gemini API with thought signatures, and the SDK of Google."""

import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import httpx2
from google import genai
from google.genai import _api_client, errors, types

from hibernaut.auth import Headers
from hibernaut.messages.events import Usage
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import ConnectionLost
from hibernaut.models.google.dialect import GeminiDialect
from hibernaut.models.google.provider import KEY_HEADER
from hibernaut.models.protocol import About, Settings
from hibernaut.testing.providers.google import KEY, GeminiWire
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
from tests.models.oracles.failures import by_status

MODEL: Final = "gemini-3.5-flash"
MOST: Final = 9_000
REASONS: Final = {"STOP": "end", "MAX_TOKENS": "length", "SAFETY": "refused"}
CONFIG: Final = types.GenerateContentConfig(
    system_instruction=INSTRUCTIONS,
    max_output_tokens=MOST,
    thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_level="low"),
    tools=[
        types.Tool(
            function_declarations=[
                types.FunctionDeclaration(name=name, description=words, parameters_json_schema=schema)
                for name, words, schema in TOOLS
            ]
        )
    ],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)
FORMED: Final = CONFIG.model_copy(update={"response_mime_type": "application/json", "response_json_schema": FORM})
UNUSED: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Where there is no TLS; reading all authorities would take longer than a scene."""


class Client:
    """Talks by the SDK."""

    def __init__(self, client: genai.Client) -> None:
        self._client = client
        self._contents: list[types.Content] = []

    def say(self, text: str, picture: bytes = b"") -> None:
        shown = [types.Part.from_bytes(data=picture, mime_type="image/png")] if picture else []
        self._contents.append(types.Content(role="user", parts=[types.Part(text=text), *shown]))

    def answer(self, call: Call, text: str) -> None:
        if self._contents[-1].role != "user":
            self._contents.append(types.Content(role="user", parts=[]))
        result = types.FunctionResponse(name=call.name, id=call.id, response={"output": text})
        self._contents[-1].parts.append(types.Part(function_response=result))

    async def ask(self, *, formed: bool) -> Answer:
        models = self._client.aio.models
        parts: list[types.Part] = []
        reason, usage = "", Usage()
        stream = await models.generate_content_stream(
            model=MODEL, contents=self._contents, config=FORMED if formed else CONFIG
        )
        async with aclosing(stream):
            async for chunk in stream:
                (candidate,) = chunk.candidates
                parts += candidate.content.parts
                if candidate.finish_reason is not None:
                    reason = REASONS[candidate.finish_reason.value]
                    usage = _counted(chunk.usage_metadata)
        said = [part for part in parts if part.text != "" or part.thought_signature]
        self._contents.append(types.Content(role="model", parts=said))
        # Why it was stopped is told to people by our adapter; here it is the name of the reason.
        stopped = " [google stopped the answer: SAFETY]" if reason == "refused" else ""
        return answer_of([*map(_heard, parts), stopped], reason, usage)

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, httpx2.TransportError):
            return Failure(ConnectionLost, retryable=True)
        if not isinstance(error, errors.APIError):
            return None
        return Failure(by_status(error.code), error.code in _api_client._RETRY_HTTP_STATUS_CODES)


def _heard(part: types.Part) -> str | Call | Thought:
    if part.function_call is not None:
        return Call(part.function_call.name, part.function_call.id, part.function_call.args or {})
    return Thought(part.text) if part.thought else part.text or ""


def _counted(counts: types.GenerateContentResponseUsageMetadata) -> Usage:
    return Usage(
        counts.prompt_token_count,
        counts.candidates_token_count + (counts.thoughts_token_count or 0),
        counts.cached_content_token_count or 0,
    )


class GeminiOracle(Oracle):
    """Gemini."""

    name = "google_gemini"
    about = About(MODEL, settings=Settings(MOST, "low"))
    tells_waits = False
    foreign = frozenset({HTTPStatus.CONFLICT, 529})

    def wire(self) -> GeminiWire:
        return GeminiWire()

    def adapter(self, url: str) -> tuple[Endpoint, Dialect]:
        return Endpoint("google", f"{url}/v1beta", auth=Headers({KEY_HEADER: KEY})), GeminiDialect()

    @asynccontextmanager
    async def sdk(self, url: str) -> AsyncIterator[Talker]:
        options = types.HttpOptions(
            base_url=url,
            api_version="v1beta",
            client_args={"verify": UNUSED},
            async_client_args={"verify": UNUSED, "ssl": UNUSED},
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        client = genai.Client(vertexai=False, api_key=KEY, http_options=options)
        try:
            yield Client(client)
        finally:
            await client.aio.aclose()
            client.close()

    def meaning(self, body: Any) -> Any:
        # Read by the SDK's own types, which know all ways to spell something and refuse what is unknown.
        members = dict(body)
        return (
            [_plain(types.Content.model_validate(content)) for content in members.pop("contents")],
            _plain(types.Content.model_validate(members.pop("systemInstruction")))[1],
            [types.Tool.model_validate(tool) for tool in members.pop("tools")],
            types.GenerationConfig.model_validate(members.pop("generationConfig")),
            members,
        )


def _plain(content: types.Content) -> tuple[str, list[types.Part]]:
    """Return a content with one part for each text, signed if a piece of it was, and without thoughts.

    Thoughts need not be sent back, nor has the last text to be signed; what is signed is the text as a whole.
    """
    parts: list[types.Part] = []
    for part in content.parts:
        if part.thought:
            continue
        if part.function_call is not None:
            part.function_call.args = part.function_call.args or {}
        last = parts[-1] if parts else types.Part()
        if part.text is not None and last.text is not None:
            signature = part.thought_signature or last.thought_signature
            parts[-1] = types.Part(text=last.text + part.text, thought_signature=signature)
        elif part.text != "":
            parts.append(part)
    if parts and parts[-1].text is not None:
        parts[-1] = types.Part(text=parts[-1].text)
    return content.role, parts


ORACLE: Final = GeminiOracle()
