"""What is checked at the door of a system, and how it says no."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from msgspec.structs import replace

from hibernaut.errors import ConfigurationError, MalformedInput, ThreadClosed, TooLarge, UnknownThread
from hibernaut.kernel.commit import Blob
from hibernaut.messages.inputs import (
    Event,
    InputContent,
    InputMessage,
    ToolResult,
    UserText,
    encode_input,
    event_message,
    is_of_the_runtime,
)
from hibernaut.messages.parts import Content, Part, is_blank
from hibernaut.messages.text import clean
from hibernaut.models.protocol import Model, ModelSource
from hibernaut.models.source import Models
from hibernaut.stores.protocol import Outcome
from hibernaut.stores.references import digests_in
from hibernaut.tools.builtin import BUILT_IN
from hibernaut.tools.results import fit
from hibernaut.tools.tool import AnyTool, Tool, tool

LONGEST_NAME = 200
"""Characters of a thread id, a message id or a user."""


LONGEST_REASON = 4_096
"""Bytes of the reason for a decision: it stands in a receipt, which is kept for ever."""


def cleaned_reason(reason: str) -> str:
    """Return the reason for a decision as it can be kept.

    Raises:
        TooLarge: it is above `LONGEST_REASON`.
    """
    cleaned = clean(reason)
    if (size := len(cleaned.encode())) > LONGEST_REASON:
        raise TooLarge("the reason", size, LONGEST_REASON, "LONGEST_REASON")
    return cleaned


def check_name(what: str, name: object) -> None:
    """Check that something can be a name that is stored and shown.

    Raises:
        MalformedInput: saying why not.
    """
    if not isinstance(name, str) or not name or len(name) > LONGEST_NAME:
        raise MalformedInput(f"a {what} is a text of 1 to {LONGEST_NAME} characters")
    if not name.isprintable():
        raise MalformedInput(f"the {what} {name!r} has characters in it that cannot be shown")


_CLOSED, _UNKNOWN = Outcome.CLOSED, Outcome.UNKNOWN


def refuse(outcome: Outcome, thread_id: str) -> None:
    """Raise what a store said no with.

    Raises:
        ThreadClosed, UnknownThread.
    """
    if outcome is _CLOSED:
        raise ThreadClosed(thread_id)
    if outcome is _UNKNOWN:
        raise UnknownThread(thread_id)


def tools_by_name(functions: Iterable[AnyTool | Callable[..., Any]]) -> dict[str, AnyTool]:
    """Return tools by their names; plain functions are made tools.

    Raises:
        ConfigurationError: two have one name, or a name is the runtime's own.
    """
    tools: dict[str, AnyTool] = {}
    for_all = {entry.__name__ for entry in BUILT_IN}
    for function in functions:
        one = function if isinstance(function, Tool) else tool(function)
        if one.name in for_all:
            raise ConfigurationError(
                f"{one.name!r} is a tool that every thread has; rename {one.where} with @tool(name=…)"
            )
        if one.name in tools:
            both = f"{tools[one.name].where} and {one.where}"
            raise ConfigurationError(f"two tools are called {one.name!r}, {both}: rename one with @tool(name=…)")
        tools[one.name] = one
    return tools


def models_and_default(model: Model | ModelSource | str | None, models: ModelSource | None) -> tuple[ModelSource, str]:
    """Return where models are found, and the name of the one that threads have which name none.

    Raises:
        ConfigurationError: there is no model of that name.
    """
    if isinstance(model, str):
        source = models or _providers()
        source.resolve(model)
        return source, model
    if model is None:
        return models or Models({}), ""
    if hasattr(model, "resolve"):
        return cast("ModelSource", model), ""
    return Models.of(model), "default"


def _providers() -> ModelSource:
    # Loaded only where a provider is named.
    from hibernaut.models.configuration import find_configuration  # noqa: PLC0415
    from hibernaut.models.providers import Providers  # noqa: PLC0415

    return Providers(find_configuration())


def fitted(given: object, *, blank: bool = False) -> tuple[Content, tuple[Blob, ...]]:
    """Return what a message may carry of a content, and what is too large for it and is stored beside it.

    Raises:
        MalformedInput: it is none, or (unless `blank` ones are taken) it is blank. TooLarge.
    """
    if not isinstance(given, str) and not (isinstance(given, tuple) and all(isinstance(part, Part) for part in given)):
        raise MalformedInput(f"a {type(given).__name__} is no content; give a text, or a tuple of Text and Image")
    content, blobs = fit(given)
    if not blank and is_blank(content):
        raise MalformedInput("the text is blank")
    return content, blobs


def check_own_id(message_id: str, content: InputContent) -> None:
    """Refuse an id that is another message's: that one would be a duplicate when it comes, and be waited for for ever.

    Raises:
        MalformedInput: it is one of the runtime's own.
    """
    if type(content) is Event and content.event_id:
        return  # it gets the id of its event
    own = f"result:{content.call_id}" if type(content) is ToolResult else ""
    if message_id != own and is_of_the_runtime(message_id):
        raise MalformedInput(f"message id {message_id!r} is one of the runtime's own; choose another")


_BRINGS_CONTENT = (UserText, ToolResult, Event)


def admitted(message: InputMessage) -> tuple[InputMessage, tuple[Blob, ...]]:
    """Return a message that comes from outside, cleaned, and what is too large for it and is stored beside it.

    Raises:
        MalformedInput: it is blank, is no content, or names stored bytes instead of bringing them. TooLarge.
    """
    content = message.content
    if not isinstance(content, _BRINGS_CONTENT):
        if digests_in((encode_input(message),)):
            raise MalformedInput(f"message {message.message_id!r} names stored bytes instead of bringing them")
        return message, ()
    check_own_id(message.message_id, content)
    said, blobs = fitted(content.content, blank=not isinstance(content, UserText))
    is_clean = said is content.content
    content = content if is_clean else replace(content, content=said)
    if type(content) is Event and content.event_id:
        # Whatever it was sent under: the same event twice is one message.
        return event_message(message.thread_id, content, message.sender, message.metadata), blobs
    return message if is_clean else replace(message, content=content), blobs
