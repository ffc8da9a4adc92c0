"""What a tool server of ours serves below its URL, beside what the protocol says."""

from typing import Final

CALL_PATH: Final = "/rap/call"
"""Where calls are taken: the endpoint of the manifest."""

RESPONSE_PATH: Final = "/rap/response/"
"""Where the answers of people are taken; a secret follows."""
