"""Claude as a provider, behind each of its doors."""

import httpx2

from hibernaut.auth import Bearer, Headers, SigV4
from hibernaut.errors import ConfigurationError
from hibernaut.models.anthropic.dialect import AnthropicDialect
from hibernaut.models.anthropic.platforms import ANTHROPIC, BEDROCK, VERTEX
from hibernaut.models.anthropic.requests import MARKS, CacheFor
from hibernaut.models.google.cloud import authorization_of, place_of
from hibernaut.models.http_provider import HttpProvider, endpoint_of, option_of
from hibernaut.models.providers import Wanted


def anthropic(wanted: Wanted) -> HttpProvider:
    """Make the provider at Anthropic's own address, or another server that speaks its API.

    Options: `auth = "bearer"` where the key is a bearer token; `cache_for` is `5m` or `1h`.
    """
    auth: httpx2.Auth | None = None
    if wanted.key:
        bearer = wanted.settings.options.get("auth") == "bearer"
        auth = Bearer(wanted.key) if bearer else Headers({"x-api-key": wanted.key})
    endpoint = endpoint_of(wanted, auth=auth, headers={"anthropic-version": ANTHROPIC.version})
    return HttpProvider(endpoint, AnthropicDialect(name=wanted.name, cache_for=_cache_for(wanted)))


def vertex(wanted: Wanted) -> HttpProvider:
    """Make the provider at Google Cloud. The key is an access token; without any, credentials of Google Cloud count.

    Options: `project` and `region`, by default those of the environment; `credentials`, their file; `cache_for`.
    """
    url = "" if wanted.url else vertex_url(*place_of(wanted))
    endpoint = endpoint_of(wanted, auth=authorization_of(wanted), url=url)
    return HttpProvider(endpoint, AnthropicDialect(VERTEX, cache_for=_cache_for(wanted)))


def bedrock(wanted: Wanted) -> HttpProvider:
    """Make the provider at Amazon Bedrock.

    The key is one of Bedrock's; without any, requests are signed with the credentials of AWS (extra `aws`).
    Options: `region`, `profile`, `cache_for`.
    """
    url = wanted.url
    auth: httpx2.Auth | None = Bearer(wanted.key) if wanted.key else None
    if not url or auth is None:
        region = option_of(wanted, "region")
        url = url or f"https://bedrock-mantle.{region}.api.aws/anthropic"
        auth = auth or SigV4(region, "bedrock-mantle", wanted.settings.options.get("profile"))
    endpoint = endpoint_of(wanted, auth=auth, headers={"anthropic-version": BEDROCK.version}, url=url)
    return HttpProvider(endpoint, AnthropicDialect(BEDROCK, cache_for=_cache_for(wanted)))


def vertex_url(project: str, region: str) -> str:
    """Return where the models of Anthropic are in a project; `region` may be `global`, `us` or `eu`."""
    hosts = {
        "global": "aiplatform.googleapis.com",
        "us": "aiplatform.us.rep.googleapis.com",
        "eu": "aiplatform.eu.rep.googleapis.com",
    }
    host = hosts.get(region, f"{region}-aiplatform.googleapis.com")
    return f"https://{host}/v1/projects/{project}/locations/{region}/publishers/anthropic/models"


def _cache_for(wanted: Wanted) -> CacheFor:
    value = wanted.settings.options.get("cache_for", "")
    for known in MARKS:
        if value == known:
            return known
    raise ConfigurationError(f"providers.{wanted.name}.options.cache_for: {value!r} is neither 5m nor 1h")
