"""OpenAI, Azure and compatible servers as providers."""

from typing import Final

import httpx2

from hibernaut.auth import Bearer, Headers
from hibernaut.models.http_provider import HttpProvider, endpoint_of, option_of
from hibernaut.models.openai.address import Address
from hibernaut.models.openai.chat import ChatDialect
from hibernaut.models.openai.responses import ResponsesDialect
from hibernaut.models.openai.servers import server_of
from hibernaut.models.providers import Wanted

_SERVERS: Final = {"openai-chat": "openai", "azure-chat": "azure"}
"""Kinds of providers that are not called like their server."""


def openai(wanted: Wanted) -> HttpProvider:
    """Make the provider of OpenAI's models, or another server that speaks the Responses API."""
    endpoint = endpoint_of(wanted, auth=Bearer(wanted.key) if wanted.key else None)
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
    endpoint = endpoint_of(wanted, auth=Bearer(wanted.key) if wanted.key else None)
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
    resource = option_of(wanted, "resource")
    path = "" if wanted.settings.options.get("api_version") else "/openai/v1"
    return f"https://{resource}.openai.azure.com{path}"
