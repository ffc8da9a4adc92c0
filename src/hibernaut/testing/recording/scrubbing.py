"""What must not get into a recording: keys and whatever else says who somebody is.

Keys of providers never come here, since a recording is of what a model is shown and says, not of headers, addresses and
bodies. But a tool may print its environment or a whole request, and a model repeats what it has read. So secrets are
taken out by their values, as the environment has them, and by their shapes, which are the same on every machine.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from hibernaut.codec import to_json

SCRUBBED: Final = "[scrubbed]"
"""What stands for a secret. It is none itself, so that to scrub twice is to scrub once."""

SHORTEST: Final = 8
"""Characters of a value that is looked for: a shorter one would be found in words."""

_NAMES: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|COOKIE|ORGANIZATION|ORG_ID"
    r"|_PWD$|(?:^|_)(?:PASS|AUTH|PAT|PRIVATE)(?:_|$)",
    re.IGNORECASE,
)
"""Environment variables that hold secrets."""

_SCHEMES: Final = "Bearer|Basic|Token|Digest|Negotiate"

_IS: Final = r"""\\*["']?\s*[:=]\s*\\*["']?"""
"""What stands between a name and its value in headers, JSON, and JSON in JSON."""

# A value may have been found in it already: all of it goes, whether one was or not.
_BEGIN: Final = r"(?:\[scrubbed\]|[A-Za-z0-9_])"

_WORD: Final = rf"""{_BEGIN}[^\s"'\\,;<>]*"""

_LINE: Final = rf"""{_BEGIN}[^\r\n"'\\]*"""

_PART: Final = r"""(?:\[scrubbed\]|[^&\s"'<>\\#\[])+"""

_SHAPES: Final = tuple(
    re.compile(shape)
    for shape in (
        # Headers
        rf"(?i)(AWS4-HMAC-SHA256\s+){_LINE}",
        rf"(?i)(authorization{_IS}(?:(?:{_SCHEMES})\s+)?)(?!(?:{_SCHEMES}|AWS4-HMAC-SHA256)\b){_WORD}",
        rf"(?i)(\b(?:x-goog-)?(?:x-)?api[-_]?key{_IS}){_WORD}",
        rf"(?i)(\b(?:x-amz-security-token|aws_secret_access_key|client_secret|passw(?:or)?d|passphrase){_IS}){_WORD}",
        rf"(?i)(\b(?:openai-organization|openai-project|anthropic-organization-id){_IS}){_WORD}",
        rf"(?i)(\b(?:set-)?cookie{_IS}){_LINE}",
        # Addresses
        rf"(?i)([?&](?:key|api_?key|token|access_token|sig|signature|client_secret|password)=){_PART}",
        rf"(?i)([?&]x-amz-(?:signature|credential|security-token)=){_PART}",
        r"(://[^\s/:@\"'\[]*:)(?:\[scrubbed\]|[^\s/@\"'\[])+(?=@)",
        # By themselves
        r"()-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
        r"()\b(?:sk|gsk|csk|xai|hf|pk)[-_][A-Za-z0-9_-]{16,}",
        r"()\b(?:AIza|ya29\.|ABSK|bedrock-api-key-)[A-Za-z0-9_+/=.-]{16,}",
        r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"()\b(?:gh[opsur]_|github_pat_|glpat-|npm_|pypi-|xox[abeprs]-)[A-Za-z0-9_-]{16,}",
        r"()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+",
        r"()\b(?:org-|proj_)(?:(?=[A-Za-z]*\d)[A-Za-z0-9]{16,}|[A-Za-z0-9]{24,})",
    )
)
"""How secrets look, wherever they are found. What is in the first group stays."""


class Scrubber:
    """Takes secrets out of texts.

    Args:
        secrets: values to look for, besides those of the environment and those that look like what they are.
        environment: where further ones are found, by the names of their variables; the process's own by default.
    """

    def __init__(self, secrets: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        named = (value for name, value in variables.items() if _NAMES.search(name))
        values = {value.strip() for value in (*secrets, *named)}
        ways = {way for value in values if len(value) >= SHORTEST and value not in SCRUBBED for way in _written(value)}
        longest_first = sorted(ways, key=lambda way: (-len(way), way))
        self._values = re.compile("|".join(map(re.escape, longest_first))) if ways else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._values is not None:
            text = self._values.sub(SCRUBBED, text)
        for shape in _SHAPES:
            text = shape.sub(rf"\g<1>{SCRUBBED}", text)
        return text


def _written(value: str) -> set[str]:
    """Return how a value is written: as it is, in JSON, and in a URL."""
    return {value, to_json(value)[1:-1], quote(value, safe="")}
