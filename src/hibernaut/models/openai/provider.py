"""OpenAI, Azure and compatible servers as providers."""

from collections.abc import Mapping
from typing import Final

import httpx2

from hibernaut.auth import Bearer, Headers
from hibernaut.errors import ConfigurationError
from hibernaut.models.http_provider import HttpProvider, endpoint_of
from hibernaut.models.openai.address import Address
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.responses import ResponsesDialect
from hibernaut.models.openai.servers import server_of
from hibernaut.models.providers import Wanted

URL: Final = "https://api.openai.com/v1"

URLS: Final[Mapping[str, str]] = {
    "deepseek": "https://api.deepseek.com",
    "groq": "https://api.groq.com/openai/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "mistral": "https://api.mistral.ai/v1",
    "moonshot": "https://api.moonshot.ai/v1",
    "ollama": "http://127.0.0.1:11434/v1",
    "openai-chat": URL,
    "openrouter": "https://openrouter.ai/api/v1",
    "vllm": "http://127.0.0.1:8000/v1",
}
"""Where servers are, if nobody says anything else."""

_SERVERS: Final = {"openai-chat": "openai", "azure-chat": "azure"}
"""Kinds of providers that are not called like their server."""


def openai(wanted: Wanted) -> HttpProvider:
    """Make the provider of OpenAI's models, or another server that speaks the Responses API."""
    endpoint = endpoint_of(wanted, auth=Bearer(wanted.key) if wanted.key else None, url=URL)
    return HttpProvider(endpoint, ResponsesDialect(wanted.name))


def azure(wanted: Wanted) -> HttpProvider:
    """Make the provider of OpenAI's models at Azure. Options: `resource`, `api_version`, `auth = "bearer"`."""
    return HttpProvider(
        endpoint_of(wanted, auth=_azure_auth(wanted), url=_azure_url(wanted)),
        ResponsesDialect(wanted.name, _address(wanted)),
    )


def azure_chat(wanted: Wanted) -> HttpProvider:
    """Make the provider of models at Azure that are asked through the Chat API. Options: as of `azure`."""
    endpoint = endpoint_of(wanted, auth=_azure_auth(wanted), url=_azure_url(wanted))
    return HttpProvider(endpoint, ChatDialect(server_of("azure"), wanted.name, _address(wanted)))


def compatible(wanted: Wanted) -> HttpProvider:
    """Make the provider of a server that speaks the Chat API.

    Options: `server`, which one of `SERVERS` it is, if its kind does not say; and in what it differs from that one.
    """
    options = dict(wanted.settings.options)
    server = server_of(options.pop("server", _SERVERS.get(wanted.kind, wanted.kind)), options)
    endpoint = endpoint_of(wanted, auth=Bearer(wanted.key) if wanted.key else None, url=URLS.get(wanted.kind, ""))
    return HttpProvider(endpoint, ChatDialect(server, wanted.name))


def _address(wanted: Wanted) -> Address:
    return Address(wanted.settings.options.get("api_version", ""))


def _azure_auth(wanted: Wanted) -> httpx2.Auth | None:
    if not wanted.key:
        return None
    bearer = wanted.settings.options.get("auth") == "bearer"
    return Bearer(wanted.key) if bearer else Headers({"api-key": wanted.key})


def _azure_url(wanted: Wanted) -> str:
    if wanted.url:
        return ""
    resource, name = wanted.settings.options.get("resource", ""), wanted.name
    if not resource:
        raise ConfigurationError(f'{name} has to be told its resource: [providers.{name}.options] resource = "…"')
    path = "" if wanted.settings.options.get("api_version") else "/openai/v1"
    return f"https://{resource}.openai.azure.com{path}"
