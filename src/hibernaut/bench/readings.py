"""Real texts for the density workload: prose, code and logs, a third of each.

Every agent reads on from places of its own in the three, drawn by chance, and changes between them with every text. So
what it says once it does not say again until it has read all of one (logs are the shortest: 67 KB, of which it reads
18 KB in 20 turns), while what real texts repeat is repeated. Different agents read the same texts from different
places; no store packs the commits of two threads together, and the dictionaries have not seen them.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

USER: Final = 130
CHUNKS: Final = 12
CHUNK: Final = 98
RESULT: Final = 340
"""Characters of a user's text, of the chunks of a completion, and of a result: as many as the made-up texts have."""

_CORPUS: Final = Path(__file__).parent / "corpus"
_KINDS: Final = ("prose", "code", "logs")


class Readings:
    """The texts of agents, and how many bytes they are."""

    def __init__(self, kinds: tuple[str, ...] = _KINDS) -> None:
        self.text_bytes = 0
        self._texts = [(_CORPUS / f"{kind}.txt").read_text(encoding="ascii") for kind in kinds]
        self._chance = random.Random(2026)  # noqa: S311 - nothing is kept from anybody
        self._agents: dict[str, _Reader] = {}

    def begin(self) -> None:
        """Forget the agents so far: others come."""
        self._agents.clear()

    def user_text(self, agent: str) -> str:
        """Return what an agent's user says."""
        return self._read(agent, USER)

    def result(self, agent: str) -> str:
        """Return what an agent's tool has printed."""
        return self._read(agent, RESULT)

    def chunks(self, agent: str) -> Iterator[str]:
        """Return the texts of one completion."""
        text = self._read(agent, CHUNKS * CHUNK)
        return (text[at : at + CHUNK] for at in range(0, len(text), CHUNK))

    def _read(self, agent: str, size: int) -> str:
        reader = self._agents.get(agent)
        if reader is None:
            reader = self._agents[agent] = _Reader(self._texts, self._chance)
        self.text_bytes += size
        return reader.read(size)


class _Reader:
    __slots__ = ("_kind", "_places", "_texts")

    def __init__(self, texts: list[str], chance: random.Random) -> None:
        self._texts = texts
        self._places = [chance.randrange(len(text)) for text in texts]
        self._kind = chance.randrange(len(texts))

    def read(self, size: int) -> str:
        kind = self._kind = (self._kind + 1) % len(self._texts)
        text, at = self._texts[kind], self._places[kind]
        self._places[kind] = (at + size) % len(text)
        piece = text[at : at + size]
        return piece if len(piece) == size else piece + text[: size - len(piece)]
