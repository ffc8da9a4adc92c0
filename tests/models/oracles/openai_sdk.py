"""The SDK of OpenAI, as both of its APIs use it."""

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import openai

from tests.models.oracles.conversation import FORM, Talker

KEY: Final = "sk-fake"
NAMED: Final = {"name": "answer", "schema": FORM, "strict": True}
"""`FORM`, as both APIs take it."""


@asynccontextmanager
async def opened(url: str, talker: Callable[[openai.AsyncOpenAI], Talker]) -> AsyncIterator[Talker]:
    """Open the SDK for an address, and who talks by it."""
    http = openai.DefaultAsyncHttpxClient(verify=False)  # reading all authorities takes longer than a scene
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0, http_client=http) as client:
        yield talker(client)


def data_url(picture: bytes) -> str:
    """Return a picture as the APIs take it."""
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"
