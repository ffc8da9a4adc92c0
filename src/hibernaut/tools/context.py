"""What a tool may know and do beyond its arguments: the context of one call.

A tool asks for it with a parameter annotated `ToolContext`, wherever it stands; the model never sees that parameter.
Each call has a context of its own and nothing in it is shared, so no call sees anything of another.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from hibernaut.errors import ToolDefinitionError
from hibernaut.messages.text import clean, shorten

LONGEST_PROGRESS = 2_000
"""Characters of one word about progress; more is shortened."""

_metadata_decoder = msgspec.json.Decoder(dict[str, Any])


class Deferred:
    """Returned by a tool: the call stays open until somebody delivers its result to `token`.

    It is no value that could be written into a result, and does not print its token: who has that may answer the call.
    """

    __slots__ = ("call_id", "token")

    def __init__(self, token: str, call_id: str) -> None:
        self.token = token
        self.call_id = call_id

    def __repr__(self) -> str:
        return f"<Deferred {self.call_id}>"


class ToolContext:
    """The context of one call.

    `call_id` is the same however often the call is tried, so it is the key for whatever must happen once. `user` is on
    whose behalf the thread works, `tenant` whose thread it is. The engine makes contexts; a test of a tool may too.
    """

    __slots__ = ("_issue_token", "_metadata", "_report", "_values", "call_id", "tenant", "thread_id", "tool", "user")

    def __init__(
        self,
        *,
        call_id: str,
        thread_id: str,
        tool: str,
        tenant: str = "",
        user: str = "",
        metadata: str = "",
        issue_token: Callable[[], str] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Make a context.

        `metadata` is the thread's, as JSON text. `issue_token` returns the callback token of this call; without it the
        call cannot be deferred. `report` takes words about progress, from whatever thread the tool runs in, and
        never raises.
        """
        self.call_id = call_id
        self.thread_id = thread_id
        self.tool = tool
        self.tenant = tenant
        self.user = user
        self._metadata = metadata
        self._values: dict[str, Any] | None = None
        self._issue_token = issue_token
        self._report = report

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the thread: what the input that was accepted last carried. A copy of this call's own."""
        if self._values is None:
            self._values = _metadata_decoder.decode(self._metadata) if self._metadata else {}
        return self._values

    def defer(self) -> Deferred:
        """Leave the call open: return the value that comes back, and let somebody deliver the result to its token.

        Raises:
            ToolDefinitionError: this tool is inline or a subscription, which cannot be deferred.
        """
        if self._issue_token is None:
            raise ToolDefinitionError(f"{self.tool} cannot defer its result: only background tools can")
        return Deferred(self._issue_token(), self.call_id)

    def progress(self, text: str) -> None:
        """Tell whoever watches how far the call is. It is cheap, it is not stored, and the model does not see it."""
        if self._report is not None:
            self._report(shorten(clean(text), LONGEST_PROGRESS))
