"""Gemini as a provider, of Google AI and of Vertex AI."""

from typing import Final

from hibernaut.auth import Headers
from hibernaut.models.google.cloud import authorization_of, place_of
from hibernaut.models.google.dialect import GeminiDialect
from hibernaut.models.google.rules import GEMINI_API, VERTEX
from hibernaut.models.http_provider import HttpProvider, endpoint_of
from hibernaut.models.providers import Wanted

KEY_HEADER: Final = "x-goog-api-key"


def google(wanted: Wanted) -> HttpProvider:
    """Make the provider at Google AI. The key is one of an API."""
    auth = Headers({KEY_HEADER: wanted.key}) if wanted.key else None
    return HttpProvider(endpoint_of(wanted, auth=auth), GeminiDialect(GEMINI_API, wanted.name))


def vertex(wanted: Wanted) -> HttpProvider:
    """Make the provider at Vertex AI. The key is an access token; without any, credentials of Google Cloud count.

    Options: `project` and `region`, by default those of the environment; `credentials`, their file.
    """
    url = "" if wanted.url else vertex_url(*place_of(wanted))
    endpoint = endpoint_of(wanted, auth=authorization_of(wanted), url=url)
    return HttpProvider(endpoint, GeminiDialect(VERTEX, wanted.name))


def vertex_url(project: str, region: str) -> str:
    """Return where the models of Google are in a project; `region` may be `global`."""
    host = "aiplatform.googleapis.com" if region == "global" else f"{region}-aiplatform.googleapis.com"
    return f"https://{host}/v1/projects/{project}/locations/{region}/publishers/google"
