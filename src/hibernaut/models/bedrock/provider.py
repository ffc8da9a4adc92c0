"""Amazon Bedrock as a provider."""

import os
from typing import Final

import httpx2

from hibernaut.auth import Bearer, SigV4
from hibernaut.models.bedrock.dialect import ConverseDialect
from hibernaut.models.endpoint import check_url
from hibernaut.models.http_provider import HttpProvider, endpoint_of, option_of
from hibernaut.models.providers import Wanted

SERVICE: Final = "bedrock"
"""What signatures are for, at both halves of the service."""


def bedrock(wanted: Wanted) -> HttpProvider:
    """Make the provider.

    The key is one of Bedrock's; without any, requests are signed with the credentials of AWS (extra `aws`).
    Options: `region`, by default that of the environment; `profile` of the AWS configuration; `control`, the base URL
    of what lists models.
    """
    options = wanted.settings.options
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    auth: httpx2.Auth | None = Bearer(wanted.key) if wanted.key else None
    if not region and (auth is None or not wanted.url):
        region = option_of(wanted, "region")
    auth = auth or SigV4(region, SERVICE, options.get("profile"))
    endpoint = endpoint_of(wanted, auth=auth, url=f"https://bedrock-runtime.{region}.amazonaws.com")
    control = options.get("control") or ("" if wanted.url else f"https://bedrock.{region}.amazonaws.com")
    if control:
        check_url(f"the option control of {wanted.name}", control)
    return HttpProvider(endpoint, ConverseDialect(wanted.name, control))
