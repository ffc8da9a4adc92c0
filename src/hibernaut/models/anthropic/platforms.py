"""Where Claude is spoken to. The same API stands behind several doors, which differ in their addresses."""

from typing import Final

import msgspec

from hibernaut.models.pictures import PictureLimits


class Platform(msgspec.Struct, frozen=True):
    """What of a request differs between the doors. `{model}` in a path stands for the id of the model."""

    name: str = "anthropic"
    """What it is called in errors."""
    messages: str = "/v1/messages"
    counting: str = "/v1/messages/count_tokens"
    listing: str = "/v1/models?limit=1000"
    """"" where there is none."""
    version: str = "2023-06-01"
    """Of the API: a header, or where the model stands in the path a field of the body."""
    largest: int = 32_000_000
    """Bytes of a request."""
    pictures: PictureLimits = PictureLimits(size=10_000_000)
    forms: bool = False
    """Whether models can be held to the form of their answers."""

    @property
    def names_model(self) -> bool:
        """Whether the model stands in the path and not in the body."""
        return "{model}" in self.messages


ANTHROPIC: Final = Platform(forms=True)

VERTEX: Final = Platform(
    name="vertex",
    messages="/{model}:streamRawPredict",
    counting="/count-tokens:rawPredict",
    listing="",
    version="vertex-2023-10-16",
    largest=30_000_000,
    pictures=PictureLimits(addresses=False),
)
"""Google Cloud. The base URL is `https://HOST/v1/projects/PROJECT/locations/REGION/publishers/anthropic/models`."""

BEDROCK: Final = Platform(
    name="bedrock", listing="", largest=20_000_000, pictures=PictureLimits(together=12_000_000, addresses=False)
)
"""The door of Amazon Bedrock that speaks this API. The base URL is `https://bedrock-mantle.REGION.api.aws/anthropic`."""
