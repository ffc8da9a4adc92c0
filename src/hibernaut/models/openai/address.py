"""Where below the base URL the APIs are. Azure's dated versions have places of their own; its v1 API has OpenAI's."""

from urllib.parse import quote

import msgspec


class Address(msgspec.Struct, frozen=True):
    """The paths below the base URL.

    With an `api_version` (such as `2025-04-01-preview`) they are those of Azure's dated versions: the base URL is that
    of the resource, and the model's id is the name of a deployment. The key goes into the header `api-key`.
    """

    api_version: str = ""

    def responses(self) -> str:
        """Return where the Responses API is."""
        return self._of("/responses")

    def chat(self, model_id: str) -> str:
        """Return where the Chat API of a model is."""
        path = "/chat/completions"
        return self._of(f"/deployments/{quote(model_id, safe='')}{path}") if self.api_version else path

    def models(self) -> str:
        """Return where models are listed."""
        return self._of("/models")

    def _of(self, path: str) -> str:
        return f"/openai{path}?api-version={quote(self.api_version)}" if self.api_version else path
