"""The Converse API of Amazon Bedrock, streamed."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from hibernaut.errors import ModelError
from hibernaut.models.bedrock.failures import failure_of, refuses_reasoning
from hibernaut.models.bedrock.reading import ConverseReader
from hibernaut.models.bedrock.requests import body_of, path_of
from hibernaut.models.bedrock.rules import LONGEST_TOOL_NAME, TOOL_NAME, family_of
from hibernaut.models.bedrock.writing import ConverseWriter
from hibernaut.models.bodies import joined
from hibernaut.models.dialect import Refusal, Sent
from hibernaut.models.event_stream import MEDIA_TYPE
from hibernaut.models.protocol import About, ListedModel, ModelInfo, ModelRequest
from hibernaut.models.tool_names import ToolNames


class _Model(msgspec.Struct, frozen=True, rename="camel"):
    model_id: str
    model_name: str = ""
    provider_name: str = ""
    input_modalities: list[str] = []
    output_modalities: list[str] = []
    response_streaming_supported: bool | None = None
    inference_types_supported: list[str] = []


class _Profile(msgspec.Struct, frozen=True, rename="camel"):
    inference_profile_id: str
    inference_profile_name: str = ""


class _List(msgspec.Struct, frozen=True, rename="camel"):
    model_summaries: list[_Model] | None = None
    inference_profile_summaries: list[_Profile] | None = None
    next_token: str | None = None


class ConverseDialect:
    """Speaks `ConverseStream`.

    Args:
        name: what it is called. Reasoning goes back to the dialect of its name only.
        control: the base URL of the service's other half, which lists models; "": they are not listed.
    """

    def __init__(self, name: str = "bedrock", control: str = "") -> None:
        self._name = name
        self._control = control.rstrip("/")
        self._names = ToolNames(TOOL_NAME, LONGEST_TOOL_NAME)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    def writer(self, about: About) -> ConverseWriter:
        """Return a writer for a new transcript."""
        return ConverseWriter(self.name, family_of(about.model_id), self._names)

    def request(self, about: About, request: ModelRequest, writer: ConverseWriter) -> Sent:
        """Return what asks for a completion."""
        path = path_of(about.model_id, "converse-stream")

        def instead(refusal: Refusal) -> Sent | None:
            if not refuses_reasoning(refusal):
                return None
            writer.distrust(request.transcript)
            return Sent(path, self._body(about, request, writer), answer=MEDIA_TYPE)

        return Sent(path, self._body(about, request, writer), answer=MEDIA_TYPE, instead=instead)

    def _body(self, about: About, request: ModelRequest, writer: ConverseWriter) -> bytes:
        return joined(body_of(about, family_of(about.model_id), request, writer, self._names))

    def counting(self, about: About, request: ModelRequest, writer: ConverseWriter) -> Sent:
        """Return what asks how many tokens a prompt has."""
        members = body_of(about, family_of(about.model_id), request, writer, self._names)
        kept = {name: text for name, text in members.items() if name in _COUNTED}
        return Sent(path_of(about.model_id, "count-tokens"), b'{"input":{"converse":' + joined(kept) + b"}}")

    def counted(self, body: bytes) -> int:
        """Read how many they are."""
        return msgspec.json.decode(body, type=_Count).input_tokens

    def reader(self) -> ConverseReader:
        """Return a reader for a new answer."""
        return ConverseReader(self.name, self._names)

    def failure(self, refusal: Refusal) -> ModelError:
        """Return what an answer means that is no stream."""
        return failure_of(self.name, refusal)

    @property
    def listing(self) -> str:
        """Where the models are listed that can be asked by their own ids; profiles for the others follow."""
        return f"{self._control}/foundation-models" if self._control else ""

    def listed(self, body: bytes) -> tuple[Sequence[ListedModel], str]:
        """Read a list of models, or of inference profiles."""
        found = msgspec.json.decode(body, type=_List)
        profiles = f"{self._control}/inference-profiles?maxResults=1000"
        if found.model_summaries is not None:
            return [_listed(model) for model in found.model_summaries if _can_be_asked(model)], profiles
        if found.inference_profile_summaries is None:
            raise ValueError("there are neither models nor profiles in it")
        models = [
            ListedModel(profile.inference_profile_id, profile.inference_profile_name)
            for profile in found.inference_profile_summaries
        ]
        token = found.next_token
        return models, f"{profiles}&nextToken={quote(token, safe='')}" if token else ""


class _Count(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: int


_COUNTED: Final = frozenset({"additionalModelRequestFields", "messages", "system", "toolConfig"})


def _can_be_asked(model: _Model) -> bool:
    return (
        "TEXT" in model.output_modalities
        and model.response_streaming_supported is not False
        and "ON_DEMAND" in model.inference_types_supported
    )


def _listed(model: _Model) -> ListedModel:
    name = f"{model.provider_name} {model.model_name}".strip()
    return ListedModel(model.model_id, name, ModelInfo(images="IMAGE" in model.input_modalities))
