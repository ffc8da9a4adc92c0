"""Servers that speak the Chat Completions API, and in what each differs. Data only: its readers treat all alike."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hibernaut.errors import ConfigurationError
from hibernaut.models.openai.pictures import LIMITS, NO_PICTURES
from hibernaut.models.pictures import PictureLimits

Efforts = Mapping[str, Mapping[str, Any]]
"""Which fields of a request ask for an effort; one that is missing cannot be asked for."""

BY_TEMPLATE: Final = r"(?i).*(mistral|mixtral|ministral|magistral|devstral|codestral|pixtral|gemma)"
"""Models whose own templates, which local servers use, are strict about the order of messages and about ids."""


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In what a server differs from others."""

    name: str
    max_output: str = "max_tokens"
    """The field that limits the output."""
    usage: bool = True
    """Whether it takes `stream_options.include_usage`; others refuse it, and tell the usage anyway or never."""
    efforts: Efforts = {}
    thinking: str = ""
    """The field of a message under which its reasoning is sent back; "": it is not, and not stored."""
    owes_thinking: bool = False
    """Whether a message with calls is refused that has no such field; it is empty where there was no reasoning."""
    by_model: bool = False
    """Whether its models are OpenAI's, of which some cannot be asked for an effort, and others not for every one."""
    strict: bool = False
    """Whether functions may be `strict`, and answers held to a form beside them."""
    cache_key: bool = False
    """Whether it takes `prompt_cache_key`."""
    alternates: str = ""
    """Pattern of ids of models with which the user may not speak right after results, and ids of calls are nine letters
    and digits. "": there are none."""
    images: PictureLimits = LIMITS


def _said(*efforts: str) -> Efforts:
    return {effort: {"reasoning_effort": effort} for effort in efforts}


_TEMPLATED: Final[Efforts] = {
    "none": {"chat_template_kwargs": {"enable_thinking": False}},
    **{
        effort: {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": effort}}
        for effort in ("low", "medium", "high")
    },
}
_SWITCHED: Final[Efforts] = {
    "none": {"thinking": {"type": "disabled"}},
    **{effort: {"thinking": {"type": "enabled"}} for effort in ("low", "medium", "high")},
}
_NESTED: Final[Efforts] = {
    "none": {"reasoning": {"enabled": False}},
    **{effort: {"reasoning": {"effort": effort}} for effort in ("low", "medium", "high")},
}
_ALL: Final = ("none", "low", "medium", "high")

DEFAULT: Final = Server("compatible", alternates=BY_TEMPLATE)
"""A server of which nothing is known."""

_OPENAI: Final = Server(
    "openai", max_output="max_completion_tokens", efforts=_said(*_ALL), by_model=True, strict=True, cache_key=True
)

SERVERS: Final[Mapping[str, Server]] = {
    server.name: server
    for server in (
        DEFAULT,
        _OPENAI,
        msgspec.structs.replace(_OPENAI, name="azure"),
        Server(
            "deepseek",
            efforts=_SWITCHED,
            thinking="reasoning_content",
            owes_thinking=True,
            images=NO_PICTURES,
        ),
        Server(
            "groq",
            max_output="max_completion_tokens",
            efforts=_said(*_ALL),
            images=msgspec.structs.replace(LIMITS, count=5, size=4_000_000, together=20_000_000),
        ),
        Server("llamacpp", efforts=_TEMPLATED, thinking="reasoning_content", alternates=BY_TEMPLATE),
        Server("lmstudio", efforts=_said("low", "medium", "high"), alternates=BY_TEMPLATE),
        Server(
            "mistral", usage=False, alternates=".*", images=msgspec.structs.replace(LIMITS, count=8, size=10_000_000)
        ),
        Server("moonshot", efforts=_SWITCHED, thinking="reasoning_content", owes_thinking=True),
        Server("ollama", efforts=_said(*_ALL), thinking="reasoning", alternates=BY_TEMPLATE),
        Server("openrouter", efforts=_NESTED, thinking="reasoning_details", alternates=BY_TEMPLATE),
        Server(
            "vllm",
            efforts={**_said("low", "medium", "high"), "none": _TEMPLATED["none"]},
            thinking="reasoning",
            alternates=BY_TEMPLATE,
        ),
    )
}


def server_of(name: str, changes: Mapping[str, Any] | None = None) -> Server:
    """Return what is known of a server, with changes; of one that nobody knows, what holds for most.

    Changes may be texts: "false", "2".

    Raises:
        ConfigurationError: a change names no difference that there is.
    """
    known = SERVERS.get(name) or msgspec.structs.replace(DEFAULT, name=name)
    try:
        return msgspec.convert({**msgspec.to_builtins(known), **(changes or {})}, Server, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"what is said of the server {name!r} cannot be used: {error}") from error
