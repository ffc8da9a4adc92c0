"""The dialect of the Chat Completions API, as OpenAI and the many servers that are compatible with it speak it."""

from collections.abc import Sequence
from typing import Any

from hibernaut.errors import ModelError
from hibernaut.models.dialect import Refusal, Sent
from hibernaut.models.openai.address import Address
from hibernaut.models.openai.bodies import body_of, text_of
from hibernaut.models.openai.chat_reading import ChatReader
from hibernaut.models.openai.chat_writing import ChatWriter
from hibernaut.models.openai.failures import failure_of
from hibernaut.models.openai.listing import listed
from hibernaut.models.openai.rules import ANSWER, cache_key, effort_of, form_of, merged, reasons, tool_names
from hibernaut.models.openai.schemas import Functions
from hibernaut.models.openai.servers import DEFAULT, Server
from hibernaut.models.protocol import About, ListedModel, ModelRequest


class ChatDialect:
    """Speaks the Chat Completions API.

    Args:
        server: in what the server differs from others (see `server_of`).
        name: with what reasoning is marked; by default `openai-chat/` and the server's name.
        address: where the API is.
    """

    def __init__(self, server: Server = DEFAULT, name: str = "", address: Address | None = None) -> None:
        self._server = server
        self._name = name or f"openai-chat/{server.name}"
        self._address = address or Address()
        self._names = tool_names()
        self._functions = Functions(self._names, nested=True, strict=server.strict)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    def writer(self, about: About) -> ChatWriter:
        """Return a writer for a new transcript."""
        return ChatWriter(self._server, about.model_id, self._name, self._names)

    def request(self, about: About, request: ModelRequest, writer: ChatWriter) -> Sent:
        """Return what asks for a completion."""
        server, settings = self._server, about.settings
        fields: dict[str, Any] = {"model": about.model_id, "stream": True}
        if server.usage:
            fields["stream_options"] = {"include_usage": True}
        if settings.max_output:
            fields[server.max_output] = settings.max_output
        fields |= server.efforts.get(self._effort(about), {})
        if settings.cache and server.cache_key:
            fields["prompt_cache_key"] = cache_key(request.tree_id or request.thread_id)
        form = form_of(about, request.output) if server.strict else None
        if form:
            named = {"name": ANSWER, "schema": form, "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": named}
        first = b""
        if request.instructions:
            first = b'{"role":"system","content":' + text_of(request.instructions) + b"}"
        members = [("messages", writer.text(request.transcript, first))]
        if tools := request.offered(held=form is not None):
            members.insert(0, ("tools", [self._functions.json(tools)]))
        return Sent(self._address.chat(about.model_id), body_of(merged(fields, settings.parameters), *members))

    def reader(self) -> ChatReader:
        """Return a reader for a new answer."""
        return ChatReader(self._name, self._server.thinking, self._names)

    def failure(self, refusal: Refusal) -> ModelError:
        """Return what an answer means that is no stream."""
        return failure_of(self._name, refusal)

    @property
    def listing(self) -> str:
        """The path at which models are listed."""
        return self._address.models()

    def listed(self, body: bytes) -> tuple[Sequence[ListedModel], str]:
        """Read a list of models."""
        return listed(body), ""

    def _effort(self, about: About) -> str:
        if not self._server.by_model:
            return about.settings.effort
        return effort_of(about) if reasons(about) else ""
