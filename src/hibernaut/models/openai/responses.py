"""The dialect of OpenAI's Responses API.

It is asked to store nothing: the whole conversation goes along, encrypted reasoning included.
"""

from collections.abc import Sequence
from typing import Any

from hibernaut.errors import ModelError
from hibernaut.models.dialect import Refusal, Sent
from hibernaut.models.errors import Overloaded
from hibernaut.models.failures import words_of
from hibernaut.models.openai.address import Address
from hibernaut.models.openai.bodies import body_of, text_of
from hibernaut.models.openai.failures import code_of, failure_of
from hibernaut.models.openai.listing import listed
from hibernaut.models.openai.responses_reading import ResponsesReader
from hibernaut.models.openai.responses_writing import ResponsesWriter
from hibernaut.models.openai.rules import ENCRYPTED, LEAST_OUTPUT, cache_key, effort_of, merged, reasons, tool_names
from hibernaut.models.openai.schemas import Functions
from hibernaut.models.openai.unwanted import Unwanted
from hibernaut.models.protocol import About, ListedModel, ModelRequest


class ResponsesDialect:
    """Speaks the Responses API.

    Args:
        name: with what reasoning is marked. Who has two accounts that cannot read each other's gives them two names.
        address: where the API is.
    """

    def __init__(self, name: str = "openai", address: Address | None = None) -> None:
        self._name = name
        self._address = address or Address()
        self._unwanted = Unwanted()
        self._names = tool_names()
        self._functions = Functions(self._names, nested=False, strict=True)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    def writer(self, about: About) -> ResponsesWriter:
        """Return a writer for a new transcript."""
        return ResponsesWriter(self._name if reasons(about) else "", self._names, self._unwanted.keys)

    def request(self, about: About, request: ModelRequest, writer: ResponsesWriter) -> Sent:
        """Return what asks for a completion."""
        self._leave_out(request, writer)
        settings = about.settings
        fields: dict[str, Any] = {"model": about.model_id, "stream": True, "store": False}
        if reasons(about):
            fields["include"] = [ENCRYPTED]
            effort = effort_of(about)
            if effort:
                fields["reasoning"] = {"effort": effort}
        if settings.max_output:
            fields["max_output_tokens"] = max(settings.max_output, LEAST_OUTPUT)
        if settings.cache:
            fields["prompt_cache_key"] = cache_key(request.tree_id or request.thread_id)
        members = [("input", writer.text(request.transcript))]
        if request.instructions:
            members.insert(0, ("instructions", [text_of(request.instructions)]))
        if request.tools:
            members.insert(0, ("tools", [self._functions.json(request.tools)]))
        return Sent(self._address.responses(), body_of(merged(fields, settings.parameters), *members))

    def reader(self) -> ResponsesReader:
        """Return a reader for a new answer."""
        return ResponsesReader(self._name, self._names)

    def failure(self, refusal: Refusal) -> ModelError:
        """Return what an answer means that is no stream."""
        failure = failure_of(self._name, refusal)
        if self._unwanted.learn(code_of(refusal.body), words_of(refusal.body)):
            return Overloaded(f"{failure}. The next attempt leaves this reasoning out")
        return failure

    @property
    def listing(self) -> str:
        """The path at which models are listed."""
        return self._address.models()

    def listed(self, body: bytes) -> tuple[Sequence[ListedModel], str]:
        """Read a list of models."""
        return listed(body), ""

    def _leave_out(self, request: ModelRequest, writer: ResponsesWriter) -> None:
        """See to it that nothing is replayed of which the provider has said that it does not take it."""
        if writer.version == self._unwanted.version:
            return
        writer.version = self._unwanted.version
        if self._unwanted.spread(self._name, request.transcript):
            writer.again(request.transcript)
