"""The Converse API, streamed and signed, and Amazon's own client."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, Final

import botocore.config
import botocore.exceptions
import botocore.retries.standard
import botocore.session
import pytest
import urllib3.exceptions

from hibernaut.auth import SigV4
from hibernaut.errors import ModelError
from hibernaut.messages.events import Usage
from hibernaut.models.bedrock.dialect import ConverseDialect
from hibernaut.models.bedrock.provider import SERVICE
from hibernaut.models.dialect import Dialect
from hibernaut.models.endpoint import Endpoint
from hibernaut.models.errors import AuthenticationFailed, ConnectionLost, InvalidRequest, Overloaded, RateLimited
from hibernaut.models.protocol import About, Settings
from hibernaut.testing.providers.bedrock import ACCESS_KEY, SECRET_KEY, ConverseWire
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

MODEL: Final = "global.anthropic.claude-opus-4-6-v1"
REGION: Final = "eu-central-1"
MOST: Final = 9_000
_SCHEMA: Final = {"name": "answer", "schema": json.dumps(FORM, separators=(",", ":"))}
OUTPUT: Final = {"outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": _SCHEMA}}}}
REASONS: Final = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "end",
    "max_tokens": "length",
    "content_filtered": "refused",
    "guardrail_intervened": "refused",
}

_NAMES: Final[dict[str, type[ModelError]]] = {
    "AccessDeniedException": AuthenticationFailed,
    "ThrottlingException": RateLimited,
    "ServiceUnavailableException": Overloaded,
    "ValidationException": InvalidRequest,
}
"""What the exceptions mean that the service's model has."""


class Client:
    """Talks by Amazon's client, which has threads wait."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._messages: list[dict[str, Any]] = []

    def say(self, text: str, picture: bytes = b"") -> None:
        shown = [{"image": {"format": "png", "source": {"bytes": picture}}}] if picture else []
        self._messages.append({"role": "user", "content": [{"text": text}, *shown]})

    def answer(self, call: Call, text: str) -> None:
        if self._messages[-1]["role"] != "user":
            self._messages.append({"role": "user", "content": []})
        self._messages[-1]["content"].append({"toolResult": {"toolUseId": call.id, "content": [{"text": text}]}})

    async def ask(self, *, formed: bool) -> Answer:
        blocks: dict[int, dict[str, Any]] = {}
        reason, usage = "", Usage()
        for event in await asyncio.to_thread(self._events, OUTPUT if formed else {}):
            if "contentBlockStart" in event:
                started = event["contentBlockStart"]
                blocks[started["contentBlockIndex"]] = {"toolUse": {**started["start"]["toolUse"], "input": ""}}
            elif "contentBlockDelta" in event:
                more = event["contentBlockDelta"]
                _grow(blocks.setdefault(more["contentBlockIndex"], {}), more["delta"])
            elif "messageStop" in event:
                reason = REASONS[event["messageStop"]["stopReason"]]
            elif "metadata" in event:
                usage = _counted(event["metadata"]["usage"])
        said = list(blocks.values())
        heard = list(_heard(said, reason))
        self._messages.append({"role": "assistant", "content": said})
        return answer_of(heard, reason, usage)

    def _events(self, output: dict[str, Any]) -> list[dict[str, Any]]:
        answer = self._client.converse_stream(
            modelId=MODEL,
            system=[{"text": INSTRUCTIONS}],
            messages=self._messages,
            toolConfig={
                "tools": [
                    {"toolSpec": {"name": name, "description": words, "inputSchema": {"json": schema}}}
                    for name, words, schema in TOOLS
                ]
            },
            inferenceConfig={"maxTokens": MOST},
            additionalModelRequestFields={"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            **output,
        )
        with closing(answer["stream"]) as stream:
            return list(stream)

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, urllib3.exceptions.ProtocolError):
            return Failure(ConnectionLost, retryable=True)
        if isinstance(error, botocore.exceptions.EventStreamError):
            name = error.response["Error"]["Code"]
            return Failure(_NAMES[name[0].upper() + name[1:]], retryable=True)
        if not isinstance(error, botocore.exceptions.ClientError):
            return None
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        kind = _NAMES.get(error.response["Error"]["Code"]) or by_status(status)
        return Failure(kind, self._tries_again(error, status))

    def _tries_again(self, error: botocore.exceptions.ClientError, status: int) -> bool:
        context = botocore.retries.standard.RetryContext(
            1,
            operation_model=_session().get_service_model("bedrock-runtime").operation_model("ConverseStream"),
            parsed_response=error.response,
            http_response=SimpleNamespace(status_code=status),
        )
        return bool(botocore.retries.standard.StandardRetryConditions().is_retryable(context))


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta:
        block["toolUse"]["input"] += delta["toolUse"]["input"]
    else:
        thought = delta["reasoningContent"]
        if "redactedContent" in thought:
            block["reasoningContent"] = thought
        else:
            known = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})["reasoningText"]
            for name, more in thought.items():
                known[name] = known.get(name, "") + more


def _heard(blocks: list[dict[str, Any]], reason: str) -> Iterator[str | Call | Thought]:
    """Return what blocks say. The arguments of calls, which come as text, go back as objects."""
    for block in blocks:
        if "text" in block:
            yield block["text"]
        elif "reasoningContent" in block:
            yield Thought(block["reasoningContent"].get("reasoningText", {}).get("text", ""))
        else:
            call = block["toolUse"]
            cut = reason == "length" and block is blocks[-1]
            call["input"] = {} if cut else json.loads(call["input"] or "{}")
            yield Call(call["name"], call["toolUseId"], None if cut else call["input"])


def _counted(usage: dict[str, int]) -> Usage:
    cached = usage["cacheReadInputTokens"]
    return Usage(usage["inputTokens"] + cached + usage["cacheWriteInputTokens"], usage["outputTokens"], cached)


class ConverseOracle(Oracle):
    """Claude at Amazon Bedrock."""

    name = "bedrock_converse"
    about = About(MODEL, settings=Settings(MOST, "low"))
    tells_waits = False
    foreign = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, 529})

    def wire(self) -> ConverseWire:
        return ConverseWire()

    def adapter(self, url: str) -> tuple[Endpoint, Dialect]:
        return Endpoint("bedrock", url, auth=SigV4(REGION, SERVICE)), ConverseDialect()

    @asynccontextmanager
    async def ours(self, url: str) -> AsyncIterator[Talker]:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
                environment.delenv(name, raising=False)
            async with super().ours(url) as talker:
                yield talker

    @asynccontextmanager
    async def sdk(self, url: str) -> AsyncIterator[Talker]:
        config = botocore.config.Config(retries={"total_max_attempts": 1})
        with closing(_session().create_client("bedrock-runtime", REGION, endpoint_url=url, config=config)) as client:
            yield Client(client)

    def meaning(self, body: Any) -> Any:
        return _unmarked(body)


@functools.cache
def _session() -> botocore.session.Session:
    session = botocore.session.Session()
    session.set_credentials(ACCESS_KEY, SECRET_KEY)
    return session


def _unmarked(value: Any) -> Any:
    """Return a value without the points of the provider's cache, which our adapter sets."""
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_unmarked(each) for each in value if not isinstance(each, dict) or "cachePoint" not in each]
    return value


ORACLE: Final = ConverseOracle()
