"""Mail of a person who has to log in first: a tool behind OAuth.

    PROVIDER=https://login.example CLIENT=… hibernaut rap serve examples/rap/mail.py:server --port 8802

The tool asks for an authorization and waits. The person logs in at the provider, who sends the browser back to
`/oauth/back` here, with the `state` that names the call. That route fetches the token, keeps it for the user, and
grants what the call waits for. Tokens are kept in memory; a real server would keep them encrypted.
"""

import os
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import urlencode

import httpx2
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from hibernaut import HibernautError, ToolContext, ToolError
from hibernaut.rap import ToolServer

LOG_IN_WITHIN = 600
"""Seconds that a person has to log in."""


class Login(NamedTuple):
    """A person who was sent to the provider. The verifier proves there that whoever comes for the token sent them."""

    user: str
    verifier: str


logins: dict[str, Login] = {}
"""Those who are at the provider, by `state`."""

tokens: dict[str, str] = {}
"""Access tokens, by user."""


async def back(request: Request) -> PlainTextResponse:
    """Take a person back from the provider."""
    state, code = request.query_params.get("state", ""), request.query_params.get("code", "")
    login = logins.pop(state, None)
    if login is None:
        return PlainTextResponse("Nobody waits for this; start again.", 404)
    try:
        if not code:
            await server.deny(state)
            return PlainTextResponse("Nothing was authorized. You can close this page.")
        tokens[login.user] = await fetch_token(code, login.verifier)
        await server.grant(state)
    except (HibernautError, httpx2.HTTPError, KeyError, ValueError) as error:
        return PlainTextResponse(f"That did not work: {error}", 502)
    return PlainTextResponse("Thank you. You can close this page.")


server = ToolServer("mail", description="Reads mail.", routes=[Route("/oauth/back", back)])


@server.tool(read_only=True, requires_auth="login.example")
async def unread(context: ToolContext) -> str:
    """Say how many messages are unread. The person whose mail it is may have to log in first."""
    if context.user not in tokens:
        url = login_url(context)
        if not await context.authorize(url, timeout=LOG_IN_WITHIN) or context.user not in tokens:
            raise ToolError("nobody has logged in, so the mail cannot be read")
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {tokens[context.user]}"}) as client:
        answer = await client.get(f"{os.environ['PROVIDER']}/mail")
    return f"{answer.raise_for_status().text} unread messages"


def login_url(context: ToolContext) -> str:
    """Return where a person logs in for a call."""
    state, verifier = server.oauth_state(context), secrets.token_urlsafe(48)
    logins[state] = Login(context.user, verifier)
    asked = {
        "response_type": "code",
        "client_id": os.environ.get("CLIENT", "mail"),
        "redirect_uri": f"{server.url}/oauth/back",
        "state": state,
        "code_challenge": urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    return f"{os.environ['PROVIDER']}/authorize?{urlencode(asked)}"


async def fetch_token(code: str, verifier: str) -> str:
    """Exchange the code that a person came back with for a token."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": os.environ.get("CLIENT", "mail"),
        "redirect_uri": f"{server.url}/oauth/back",
        "code_verifier": verifier,
    }
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{os.environ['PROVIDER']}/token", data=form)
    token: str = answer.raise_for_status().json()["access_token"]
    return token
