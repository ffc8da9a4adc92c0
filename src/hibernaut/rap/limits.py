"""The bounds of the wire, in one place: what is above one of them is refused and never cut."""

from typing import Final

import msgspec


class WireLimits(msgspec.Struct, frozen=True):
    """What one body may be, by what it carries. The size is looked at before anything is parsed."""

    callback_bytes: int = 8 * 1024 * 1024
    """A result may hold pictures in base64."""

    invocation_bytes: int = 2 * 1024 * 1024
    """The arguments that a model writes are 1 MiB at most."""

    manifest_bytes: int = 4 * 1024 * 1024
    """All tools of a server with their schemas."""

    notice_bytes: int = 64 * 1024
    """Everything else: notices, answers to questions, whether a call is alive."""

    depth: int = 64
    """Objects and arrays inside one another."""


LIMITS: Final = WireLimits()
"""What is taken unless somebody says otherwise."""

LONGEST_ID: Final = 512
"""Characters of the id of a thread, a call, a choice or a user."""

LONGEST_EVENT_ID: Final = 200
"""Characters of the id of an event, which is kept as long as its subscription."""

LONGEST_ADDRESS: Final = 2_000
"""Characters of a URL that the wire carries, but for a callback URL."""

LONGEST_CALLBACK_URL: Final = 4_096
"""Characters of a callback URL: it holds a token."""

LONGEST_QUESTION: Final = 4_000
"""Characters of what a person is asked."""

MOST_CHOICES: Final = 50
"""Choices of one question."""

LONGEST_CHOICE: Final = 500
"""Characters of one choice."""

MOST_PARTS: Final = 100
"""Parts of one result, and display segments of one."""

DEEPEST_ANCESTRY: Final = 64
"""Threads above the one that calls."""

LONGEST_NAME: Final = 128
"""Characters of the name of a tool, a toolset, or a kind of view."""

MOST_TOOLS: Final = 512
"""Tools of one server."""

LONGEST_DESCRIPTION: Final = 16_384
"""Characters of the description of a tool or a toolset."""

LONGEST_SCRIPT: Final = 4_096
"""Characters of a display script."""

LARGEST_ANNOTATIONS: Final = 16_384
"""Bytes of the annotations of one tool, as JSON."""

CALL_TOKEN_LIFE: Final = 7 * 86_400_000
"""Milliseconds that the callback token of a plain call is good for. That of a subscription is as long as it lasts."""

CONNECT_WITHIN: Final = 5_000
"""Milliseconds until a connection must stand."""

ANSWER_WITHIN: Final = 30_000
"""Milliseconds until the whole answer must be there, the connection included."""
