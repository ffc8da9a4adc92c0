"""Encrypted reasoning that a provider refuses to take back.

It cannot be read elsewhere: after another account, another region or another key, a history that holds it would be
refused for ever. So what is refused once is left out, together with all the reasoning that stood in the same history.
"""

import re
from collections.abc import Iterable
from typing import Final

from hibernaut.messages.items import Item, ReasoningItem
from hibernaut.models.openai.failures import NOT_VERIFIED
from hibernaut.models.openai.responses_writing import Reasoned, key_of, reasoned

MOST_REMEMBERED: Final = 10_000
"""Blocks that are known to be refused; of older ones it has to be learned again."""

_ITEM: Final = re.compile(r"\brs_[A-Za-z0-9]+")
_SHORTENED: Final = re.compile(r"encrypted content (\S{2,}?)\.\.\.(\S{2,}) could not", re.IGNORECASE)


class Unwanted:
    """What one provider has refused."""

    def __init__(self) -> None:
        self.keys: dict[str, None] = {}
        self.version = 0
        """Grows whenever something was refused."""
        self._signs: list[tuple[str, str]] = []
        """What refusals have named that was not found in a history yet."""

    def learn(self, code: str, words: str) -> bool:
        """Take note of a refusal, and tell whether the history can be sent without what was refused."""
        if code != NOT_VERIFIED and "could not be verified" not in words:
            return False
        item, shortened = _ITEM.search(words), _SHORTENED.search(words)
        if item:
            self._signs.append((item[0], ""))
        elif shortened:
            self._signs.append((shortened[1], shortened[2]))
        else:
            return False
        del self._signs[:-MOST_REMEMBERED]
        self.version += 1
        return True

    def spread(self, provider: str, transcript: Iterable[Item]) -> bool:
        """Leave out all reasoning that stands in a transcript with some that was refused; tell whether there is any."""
        found = [item for item in transcript if isinstance(item, ReasoningItem) and item.provider == provider]
        blocks = [block for block in (reasoned(item.data) for item in found) if block is not None]
        met = {sign for sign in self._signs for block in blocks if _fits(sign, block)}
        if met:
            self._signs = [sign for sign in self._signs if sign not in met]
            self.keys.update(dict.fromkeys(map(key_of, blocks)))
            while len(self.keys) > MOST_REMEMBERED:
                del self.keys[next(iter(self.keys))]
        return bool(met)


def _fits(sign: tuple[str, str], block: Reasoned) -> bool:
    """Tell whether a refusal means a block: it names its id, or how its content begins and ends."""
    head, tail = sign
    content = block.encrypted_content or ""
    return content.startswith(head) and content.endswith(tail) if tail else block.id == head
