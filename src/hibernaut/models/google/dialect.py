"""The Gemini API of Google AI and of Vertex AI.

The two differ in where they are, in how they are shown who asks, and in which fields they refuse.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from hibernaut.errors import ModelError
from hibernaut.models.dialect import Refusal, Sent
from hibernaut.models.google.failures import failure_of, refuses_signature
from hibernaut.models.google.reading import GeminiReader
from hibernaut.models.google.requests import body_of, name_of, path_of
from hibernaut.models.google.rules import GEMINI_API, LONGEST_TOOL_NAME, TOOL_NAME, Platform, generation_of
from hibernaut.models.google.writing import GeminiWriter
from hibernaut.models.protocol import About, ListedModel, ModelInfo, ModelRequest
from hibernaut.models.tool_names import ToolNames

_LISTING: Final = "/models?pageSize=1000"


class _Model(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    display_name: str = ""
    input_token_limit: int = 0
    output_token_limit: int = 0
    supported_generation_methods: list[str] = []
    thinking: bool = False


class _List(msgspec.Struct, frozen=True, rename="camel"):
    models: list[_Model] = []
    next_page_token: str = ""


class _Count(msgspec.Struct, frozen=True, rename="camel"):
    total_tokens: int


class GeminiDialect:
    """Speaks `streamGenerateContent`.

    Args:
        platform: whose API it is.
        name: what it is called; by default as the platform. Signatures go back to the dialect of their name only.
    """

    def __init__(self, platform: Platform = GEMINI_API, name: str = "") -> None:
        self._platform = platform
        self._name = name or platform.name
        self._names = ToolNames(TOOL_NAME, LONGEST_TOOL_NAME)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    def writer(self, about: About) -> GeminiWriter:
        """Return a writer for a new transcript."""
        return GeminiWriter(self._name, self._platform, generation_of(about.model_id), self._names)

    def request(self, about: About, request: ModelRequest, writer: GeminiWriter) -> Sent:
        """Return what asks for a completion."""
        path = path_of(about.model_id, "streamGenerateContent?alt=sse")

        def instead(refusal: Refusal) -> Sent | None:
            if not refuses_signature(refusal):
                return None
            writer.distrust(request.transcript)
            return Sent(path, self._body(about, request, writer))

        return Sent(path, self._body(about, request, writer), instead=instead)

    def counting(self, about: About, request: ModelRequest, writer: GeminiWriter) -> Sent:
        """Return what asks how many tokens a prompt has."""
        body = self._body(about, request, writer)
        if self._platform.wraps_counting:
            name = msgspec.json.encode(name_of(about.model_id))
            body = b'{"generateContentRequest":{"model":' + name + b"," + body[1:] + b"}"
        return Sent(path_of(about.model_id, "countTokens"), body)

    def counted(self, body: bytes) -> int:
        """Read how many they are."""
        return msgspec.json.decode(body, type=_Count).total_tokens

    def _body(self, about: About, request: ModelRequest, writer: GeminiWriter) -> bytes:
        contents = writer.pieces(request.transcript)
        generation = generation_of(about.model_id)
        return body_of(about, generation, request, self._names, contents)

    def reader(self) -> GeminiReader:
        """Return a reader for a new answer."""
        return GeminiReader(self.name, self._names)

    def failure(self, refusal: Refusal) -> ModelError:
        """Return what an answer means that is no stream."""
        return failure_of(self.name, refusal)

    @property
    def listing(self) -> str:
        """Where models are listed."""
        return _LISTING if self._platform.lists_models else ""

    def listed(self, body: bytes) -> tuple[Sequence[ListedModel], str]:
        """Read a list of models."""
        found = msgspec.json.decode(body, type=_List)
        models = [
            ListedModel(
                model.name.removeprefix("models/"),
                model.display_name,
                ModelInfo(model.input_token_limit, model.output_token_limit, reasoning=model.thinking),
            )
            for model in found.models
            if "generateContent" in model.supported_generation_methods
        ]
        token = found.next_page_token
        return models, f"{_LISTING}&pageToken={quote(token, safe='')}" if token else ""
