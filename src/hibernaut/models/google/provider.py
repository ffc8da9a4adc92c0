"""Gemini as a provider, of Google AI and of Vertex AI."""

from typing import Final

from hibernaut.auth import Bearer, Headers
from hibernaut.models.google.dialect import GeminiDialect
from hibernaut.models.google.rules import GEMINI_API, VERTEX
from hibernaut.models.http_provider import HttpProvider, endpoint_of, option_of
from hibernaut.models.providers import Wanted

KEY_HEADER: Final = "x-goog-api-key"


def google(wanted: Wanted) -> HttpProvider:
    """Make the provider at Google AI. The key is one of an API."""
    auth = Headers({KEY_HEADER: wanted.key}) if wanted.key else None
    return HttpProvider(endpoint_of(wanted, auth=auth), GeminiDialect(GEMINI_API, wanted.name))


def vertex(wanted: Wanted) -> HttpProvider:
    """Make the provider at Vertex AI. The key is an access token. Options: `project`, `region`."""
    url = "" if wanted.url else vertex_url(option_of(wanted, "project"), option_of(wanted, "region"))
    auth = Bearer(wanted.key) if wanted.key else None
    return HttpProvider(endpoint_of(wanted, auth=auth, url=url), GeminiDialect(VERTEX, wanted.name))


def vertex_url(project: str, region: str) -> str:
    """Return where the models of Google are in a project; `region` may be `global`."""
    host = "aiplatform.googleapis.com" if region == "global" else f"{region}-aiplatform.googleapis.com"
    return f"https://{host}/v1/projects/{project}/locations/{region}/publishers/google"
