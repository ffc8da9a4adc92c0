"""The texts of the density workload. Stands by itself, so that other runtimes can be given the same.

A user text of about 130 characters; a completion of 12 chunks of about 98 characters; a result of about 340 characters.
Every text differs from every other, so nothing is won by repetition.
"""

COMMAND = '{"command":"cargo test --workspace"}'
"""The arguments of the call."""

_SENTENCES = (
    "Looking at the failing module first, since the trace points into it",
    "The second assertion compares a stale snapshot with a fresh one",
    "I will run the whole suite again to see what else is affected",
    "That change moved the border between the parser and the planner",
    "Nothing in the lock file explains this, so the code must have",
    "A smaller reproduction would help, but the log is long enough",
    "The retry is fine; what it retries was never allowed to fail",
    "Here is what I know so far, and what I would like to try next",
    "Two of the three warnings are old, and the third one is ours",
    "The cache was warm on this machine, which hid it for a while",
    "With that in place the planner no longer asks for it twice",
    "I will leave the other crates alone until this one is green",
)
_PIECES = tuple([f". {sentence}, just as before: {place:x}" for place, sentence in enumerate(_SENTENCES)])
"""What a completion says, chunk by chunk; each ends with the number of this one."""
_LENGTH = sum(map(len, _PIECES))
_OUTPUT = (
    "running 148 tests; test planner::moves_borders ... ok; test parser::keeps_spans ... ok; "
    "test cache::is_cold_at_start ... FAILED; failures: cache::is_cold_at_start panicked at "
    "crates/cache/src/lib.rs:211; "
    "test result: FAILED. 147 passed; 1 failed; 0 ignored; finished in 2.31s; seed "
)
_USER = "Please look into the nightly build once more and tell me what to change before we cut the candidate; ticket "


_FACTOR, _MASK = 0x9E3779B97F4A7C15, 0xFFFFFFFFFFFFFFFF
"""Of a multiplicative hash: neighbouring texts have nothing in common that an allocator or a cache could use."""


class Texts:
    """Makes the texts, and counts their bytes."""

    def __init__(self) -> None:
        self._number = 0
        self.text_bytes = 0

    def _unique(self) -> str:
        self._number += 1
        return f"{self._number * _FACTOR & _MASK:016x}"

    def begin(self) -> None:
        """Go on as before: all agents are given the same kind of text."""

    def user_text(self, agent: str = "") -> str:
        """Return what a user says."""
        del agent
        text = _USER + self._unique()
        self.text_bytes += len(text)
        return text

    def result(self, agent: str = "") -> str:
        """Return what the tool has printed."""
        del agent
        text = _OUTPUT + self._unique()
        self.text_bytes += len(text)
        return text

    def chunks(self, agent: str = "") -> list[str]:
        """Return the texts of one completion."""
        del agent
        unique = self._unique()
        self.text_bytes += _LENGTH + len(_PIECES) * len(unique)
        return [piece + unique for piece in _PIECES]
