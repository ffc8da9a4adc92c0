"""What was recorded so far: found again by what was asked, and what has been played of it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from hibernaut.errors import ConfigurationError
from hibernaut.messages.stream import StreamPiece
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.testing.recording.asked import NotRecorded, difference, fits, lines_of
from hibernaut.testing.recording.file import Completion, Contents, read_contents, write_contents
from hibernaut.testing.recording.said import Said, said_in
from hibernaut.testing.recording.scrubbing import SCRUBBED, Scrubber

Asked = tuple[str, ...]
"""What a model is shown, as lines."""


class Recording:
    """Completions, and the file that they came from or go to. Nothing is written but by `write`.

    Args:
        path: the file. One that is not there holds nothing.
        anew: whether what is in it does not count.
        secrets: what must not get into it, besides what the environment says and what looks like a secret.

    Raises:
        ConfigurationError: it is no recording.
    """

    def __init__(self, path: str | Path, *, anew: bool = False, secrets: Iterable[str] = ()) -> None:
        self.path = Path(path)
        self._scrubber = Scrubber(secrets)
        self._said: dict[Asked, list[tuple[Said, ...]]] = {}
        self._model = ""
        self._info = ModelInfo()
        self._played: Counter[Asked] = Counter()
        self._unanswered: set[Asked] = set()
        self._refusals: list[NotRecorded] = []
        self.added = 0
        """Completions that were recorded since it was read."""
        if not anew and self.path.exists():
            contents = read_contents(self.path)
            self._model, self._info = contents.model, contents.info
            for completion in contents.completions:
                self._said.setdefault(completion.asked, []).append(completion.said)
        self._scrubbed = [asked for asked in self._said if any(SCRUBBED in line for line in asked)]

    @property
    def info(self) -> ModelInfo:
        """What is known of the model that was recorded."""
        return self._info

    @property
    def is_empty(self) -> bool:
        """Whether nothing is recorded."""
        return not self._said

    @property
    def is_whole(self) -> bool:
        """Whether everything has its answer that a model was asked."""
        return not self._unanswered

    @property
    def completions(self) -> Sequence[Completion]:
        """All of them, in the order of the file."""
        return [Completion(asked, said) for asked in sorted(self._said) for said in self._said[asked]]

    def asked(self, request: ModelRequest) -> Asked:
        """Return what a model is shown, as lines without secrets; if it was recorded, as it was."""
        asked = lines_of(request, self._scrubber)
        if asked in self._said:
            return asked
        return next((recorded for recorded in self._scrubbed if fits(asked, recorded)), asked)

    def play(self, asked: Asked) -> Sequence[Said] | None:
        """Return what was said to this the next time; None: so often it was not asked."""
        recorded, turn = self._said.get(asked, ()), self._played[asked]
        self._played[asked] += 1
        return recorded[turn] if turn < len(recorded) else None

    def play_again(self, asked: Asked) -> Sequence[Said]:
        """Return what was said to this last.

        Raises:
            NotRecorded: nothing was.
        """
        if asked in self._said:
            return self._said[asked][-1]
        what = difference(asked, [completion.asked for completion in self.completions]) if self._said else "nothing was"
        refusal = NotRecorded(f"this was not recorded in {self.path}: {what}")
        self._refusals.append(refusal)
        raise refusal

    def begin(self, asked: Asked) -> None:
        """Note that a model is asked."""
        self._unanswered.add(asked)

    def fail(self, asked: Asked) -> None:
        """Note that it did not answer: what is asked again counts as asked once."""
        self._played[asked] -= 1

    def add(self, asked: Asked, pieces: Iterable[StreamPiece], model: str, info: ModelInfo) -> None:
        """Record what it has said. `model` is its name."""
        if self.is_empty:
            # Of a model in a file: where that lies on this machine is nobody's business.
            self._model, self._info = Path(model).name if Path(model).is_absolute() else model, info
        self._said.setdefault(asked, []).append(said_in(pieces, self._scrubber))
        self._unanswered.discard(asked)
        self.added += 1

    def write(self) -> None:
        """Write the file: all of it, or none.

        Raises:
            ConfigurationError: it cannot be written. What was there before still is.
        """
        write_contents(self.path, Contents(self._model, self._info, self.completions))

    def check(self) -> None:
        """Check that all was played that is recorded, and nothing else was asked for.

        Raises:
            NotRecorded: something was. AssertionError: something was not played.
        """
        if self._refusals:
            raise self._refusals[0]
        left = [asked for asked, said in self._said.items() if self._played[asked] < len(said)]
        if left:
            first = min(left)
            raise AssertionError(
                f"{len(left)} of the completions in {self.path} were not asked for; the first ends with: {first[-1]!r}"
            )


def recording_in(path: str | Path) -> Recording:
    """Return what is recorded in a file.

    Raises:
        ConfigurationError: there is no such file, or it is no recording.
    """
    if not Path(path).exists():
        raise ConfigurationError(f"there is no recording {path}; `hibernaut record` makes one")
    recording = Recording(path)
    if recording.is_empty:
        raise ConfigurationError(f"nothing is recorded in {path}")
    return recording
