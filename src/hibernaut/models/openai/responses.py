"""The dialect of OpenAI's Responses API.

It is asked to store nothing: the whole conversation goes along, encrypted reasoning included.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hibernaut.errors import ModelError
from hibernaut.models.dialect import Refusal, Sent
from hibernaut.models.failures import words_of
from hibernaut.models.openai.address import Address
from hibernaut.models.openai.bodies import body_of, text_of
from hibernaut.models.openai.failures import failure_of
from hibernaut.models.openai.listing import listed
from hibernaut.models.openai.responses_reading import ResponsesReader
from hibernaut.models.openai.responses_writing import ResponsesWriter
from hibernaut.models.openai.rules import (
    ANSWER,
    ENCRYPTED,
    LEAST_OUTPUT,
    cache_key,
    effort_of,
    form_of,
    merged,
    reasons,
    tool_names,
)
from hibernaut.models.openai.schemas import Functions
from hibernaut.models.protocol import About, ListedModel, ModelRequest

MOST_UNWANTED: Final = 10_000
"""Blocks of reasoning that are known to be refused; of older ones it is learned again."""

_OF_REASONING: Final = re.compile(
    r"encrypted content|reasoning (input )?items?|type 'reasoning'|\brs_\w+", re.IGNORECASE
)
"""How a refusal says that it is about the reasoning in a history."""

_REFUSED: Final = (400, 404)


class ResponsesDialect:
    """Speaks the Responses API.

    Args:
        name: with what reasoning is marked. Who has two accounts that cannot read each other's gives them two names.
        address: where the API is.
    """

    def __init__(self, name: str = "openai", address: Address | None = None) -> None:
        self._name = name
        self._address = address or Address()
        self._unwanted: dict[str, None] = {}
        """Reasoning that was refused, by its keys."""
        self._names = tool_names()
        self._functions = Functions(self._names, nested=False, strict=True)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    def writer(self, about: About) -> ResponsesWriter:
        """Return a writer for a new transcript."""
        return ResponsesWriter(self._name if reasons(about) else "", self._names, self._unwanted)

    def request(self, about: About, request: ModelRequest, writer: ResponsesWriter) -> Sent:
        """Return what asks for a completion. Refused for the reasoning in it, it is sent again without."""
        return msgspec.structs.replace(
            self._sent(about, request, writer), instead=functools.partial(self._without, about, request, writer)
        )

    def _without(self, about: About, request: ModelRequest, writer: ResponsesWriter, refusal: Refusal) -> Sent | None:
        """Return a request without any of the reasoning that was refused.

        It is encrypted for an account, a region and a key. After a change of one of these nobody can read it, and a
        history that holds it would be refused for ever.
        """
        about_reasoning = refusal.status in _REFUSED and _OF_REASONING.search(words_of(refusal.body))
        if not about_reasoning or not writer.replayed:
            return None
        self._unwanted.update(dict.fromkeys(writer.replayed))
        while len(self._unwanted) > MOST_UNWANTED:
            del self._unwanted[next(iter(self._unwanted))]
        writer.again(request.transcript)
        return self._sent(about, request, writer)

    def _sent(self, about: About, request: ModelRequest, writer: ResponsesWriter) -> Sent:
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
        form = form_of(about, request.output)
        if form:
            fields["text"] = {"format": {"type": "json_schema", "name": ANSWER, "schema": form, "strict": True}}
        members = [("input", writer.text(request.transcript))]
        if request.instructions:
            members.insert(0, ("instructions", [text_of(request.instructions)]))
        if tools := request.offered(held=form is not None):
            members.insert(0, ("tools", [self._functions.json(tools)]))
        return Sent(self._address.responses(), body_of(merged(fields, settings.parameters), *members))

    def reader(self) -> ResponsesReader:
        """Return a reader for a new answer."""
        return ResponsesReader(self._name, self._names)

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
