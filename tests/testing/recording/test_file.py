"""The file of a recording: the same bytes for the same, readable, whole or not there, and told from others."""

import asyncio
import errno
import json
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hibernaut.errors import ConfigurationError
from hibernaut.messages.items import Item, TextItem, UserItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, call, turn
from hibernaut.testing.recording import RecordedModel, Recording
from hibernaut.testing.recording.file import FORMAT, VERSION

TALK = [
    (UserItem("Look under the bed"),),
    (UserItem("Look under the bed"), TextItem("Where?\nThere is none."), UserItem("Behind it, then")),
]
ALONE = [(UserItem("Another talk"),)]


def record(path: Path, asked: Sequence[Sequence[Item]], *, anew: bool = False) -> Recording:
    async def scenario() -> Recording:
        recording = Recording(path, anew=anew)
        said = ScriptedModel(lambda request: turn("Hm. ", call("look", number=len(request.transcript))))
        model = RecordedModel(recording, said)
        for transcript in asked:
            _ = [piece async for piece in model.stream(ModelRequest("m", "You look.", transcript, (), "t"))]
        recording.write()
        return recording

    return asyncio.run(scenario())


def test_a_file_says_its_format_and_is_read_by_people(tmp_path: Path) -> None:
    record(tmp_path / "a.json", TALK)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    assert max(map(len, text.splitlines())) < 80
    assert json.loads(text) == {
        "format": "hibernaut recording",
        "version": 1,
        "model": "m",
        "info": {},
        "completions": [
            {
                "asked": ["told You look.", "user Look under the bed"],
                "said": [
                    {"type": "text", "text": "Hm. "},
                    {"type": "call", "name": "look", "arguments": {"number": 1}},
                    {"type": "end"},
                ],
            },
            {
                "as_before": 2,
                "asked": ["model Where?", "  There is none.", "user Behind it, then"],
                "said": [
                    {"type": "text", "text": "Hm. "},
                    {"type": "call", "name": "look", "arguments": {"number": 3}},
                    {"type": "end"},
                ],
            },
        ],
    }


def test_the_same_has_the_same_bytes_in_whatever_order_it_was_asked(tmp_path: Path) -> None:
    record(tmp_path / "a.json", [*TALK, *ALONE])
    record(tmp_path / "b.json", [*ALONE, *reversed(TALK)])
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_what_is_read_and_written_again_has_the_same_bytes(tmp_path: Path) -> None:
    record(tmp_path / "a.json", [*TALK, *ALONE])
    before = (tmp_path / "a.json").read_bytes()
    Recording(tmp_path / "a.json").write()
    assert (tmp_path / "a.json").read_bytes() == before


def test_adding_to_a_file_keeps_what_is_in_it_and_recording_anew_does_not(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    record(path, TALK)
    assert record(path, [*TALK, *ALONE]).added == 1
    assert len(Recording(path).completions) == 3
    record(path, ALONE, anew=True)
    assert [completion.asked[-1] for completion in Recording(path).completions] == ["user Another talk"]


# Whole, or not there


@pytest.mark.parametrize("broken", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_file_that_cannot_be_written_is_what_it_was(
    broken: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    recording = record(path, TALK)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises((ConfigurationError, KeyboardInterrupt)) as caught:
        recording.write()
    assert isinstance(error, KeyboardInterrupt) or "cannot be written: No space left" in str(caught.value)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


WRITER = """
import sys
from hibernaut.testing.recording import Recording

recording = Recording(sys.argv[1])
while True:
    recording.write()
    print(flush=True)
"""


def test_a_file_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    record(path, [*TALK, *ALONE] * 20)
    before = path.read_bytes()
    for moment in range(3):
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as writer:
            assert writer.stdout is not None
            for _ in range(random.Random(moment).randrange(1, 40)):
                writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
        assert path.read_bytes() == before
        assert Recording(path).completions


def test_a_link_stays_one_and_a_file_can_be_read_by_others(tmp_path: Path) -> None:
    record(tmp_path / "deep" / "a.json", TALK)
    (tmp_path / "link.json").symlink_to(tmp_path / "deep" / "a.json")
    record(tmp_path / "link.json", ALONE)
    assert (tmp_path / "link.json").is_symlink()
    assert len(Recording(tmp_path / "deep" / "a.json").completions) == 3
    assert stat.S_IMODE((tmp_path / "deep" / "a.json").stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# What is none

GOOD = {"format": FORMAT, "version": VERSION, "model": "m", "info": {}, "completions": []}
SAID = [{"type": "end"}]


@pytest.mark.parametrize(
    "data,words",
    [
        (b"", "is no recording, or a broken one: "),
        (b"\xff\xfe\x00", "is no recording, or a broken one: "),
        (b"[1, 2]", "is no recording, or a broken one: "),
        (b"{}", 'is no recording: it does not say "format": "hibernaut recording"'),
        (b'{"version": 1, "cassettes": []}', "is no recording: it does not say"),
        (
            json.dumps({**GOOD, "version": 2}).encode(),
            "is a recording of version 2, and this is a Hibernaut that knows 1",
        ),
        (json.dumps(GOOD).encode()[:-5], "is no recording, or a broken one: "),
        (json.dumps({**GOOD, "more": 1}).encode(), "unknown field `more`"),
        (json.dumps({**GOOD, "completions": [{"asked": ["a"]}]}).encode(), "`said` - at `$.completions[0]`"),
        (
            json.dumps({**GOOD, "completions": [{"asked": ["a"], "said": [{"type": "song"}]}]}).encode(),
            "'song' - at `$.completions[0].said[0].type`",
        ),
        (
            json.dumps({**GOOD, "completions": [{"as_before": 3, "asked": ["a"], "said": SAID}]}).encode(),
            "completion 1 begins with 3 lines of the one before, which has fewer",
        ),
        (b'{"format": "hibernaut recording", "version": 1, "info": ' + b"[" * 100_000, "or a broken one: "),
        (json.dumps(GOOD).encode(), "nothing is recorded in "),
    ],
)
def test_what_is_no_recording_is_refused_in_a_sentence(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(ConfigurationError) as caught:
        RecordedModel(tmp_path / "a.json")
    assert words in str(caught.value)
    assert "a.json" in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(ConfigurationError, match="is no recording"):
            RecordedModel(path)
