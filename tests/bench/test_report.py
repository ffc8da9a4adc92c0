"""Reports: medians over runs, and what an earlier one says."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from select import select
from typing import Any

import msgspec
import pytest

from hibernaut.bench.machine import Build, Machine, this_build, this_machine
from hibernaut.bench.plot import check, draw
from hibernaut.bench.report import Figure, Report, differences, encode, ratios, read, table
from hibernaut.errors import ConfigurationError, MalformedInput

MACHINE = Machine("a processor", 2, 2**30, "Linux")
BUILD = Build("1.0", "", "CPython 3.11", "3.54", {"msgspec": "0.22"})


def report(*speeds: float, **parameters: Any) -> Report:
    runs = [{"completions": 10, "per_s": speed} for speed in speeds]
    return Report("scale", "2026-11-30T00:00:00+00:00", MACHINE, BUILD, parameters, runs)


WITHIN = 30
"""Seconds that what must happen may take."""


class Lasted(msgspec.Struct):
    """What a run without end would find."""

    seconds: float


async def lasting(fifo: str) -> Lasted:
    """Tell that it runs, and run for ever."""
    os.write(os.open(fifo, os.O_WRONLY), b"runs\n")
    await asyncio.Event().wait()
    return Lasted(0)


def test_a_run_ends_with_the_command_that_takes_it_even_if_that_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "told"
    os.mkfifo(fifo)
    program = (
        f"from hibernaut.bench.report import measure; from {__name__} import lasting; "
        f"measure('x', 1, lasting, {{'fifo': {str(fifo)!r}}})"
    )
    told = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with subprocess.Popen([sys.executable, "-c", program]) as command:
        assert select([told], [], [], WITHIN)[0]
        assert os.read(told, 100) == b"runs\n"
        command.kill()
        assert select([told], [], [], WITHIN)[0], "its end is closed once the run has ended"
        assert os.read(told, 100) == b""
    os.close(told)


def test_a_figure_is_the_median_of_its_runs() -> None:
    assert report(3.0, 1.0, 8.0).figures["per_s"] == Figure(3.0, 1.0, 8.0)


def test_reports_are_compared_by_their_medians(tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    path.write_bytes(encode(report(2.0, 4.0)))
    now = report(6.0)
    assert ratios(now, read(path)) == {"completions": 1, "per_s": 2}
    told = msgspec.json.decode(encode(now, read(path)))
    assert (told["per_s"], told["compared"]) == (6, {"ratios": {"completions": 1, "per_s": 2}, "differs": []})
    assert any(line.split() == ["per_s", "6.00", "2.00"] for line in table(now, read(path)))


def test_what_else_has_changed_is_told() -> None:
    elsewhere = msgspec.structs.replace(
        report(1.0, agents=1, store="memory"),
        machine=msgspec.structs.replace(MACHINE, cores=8),
        build=msgspec.structs.replace(BUILD, python="CPython 3.12", libraries={"msgspec": "0.22", "uvloop": "1"}),
    )
    assert list(differences(report(1.0, agents=2, store="memory"), elsewhere)) == [
        "cores is 2, was 8",
        "python is CPython 3.11, was CPython 3.12",
        "uvloop is none, was 1",
        "--agents is 2, was 1",
    ]


@pytest.mark.parametrize("content", [b"{}", b"no JSON"])
def test_what_is_no_report_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    path.write_bytes(content)
    with pytest.raises(MalformedInput, match="is no report"):
        read(path)


def test_this_machine_and_this_build_are_named() -> None:
    assert this_machine().cores >= 1
    build = this_build()
    assert build.libraries.keys() >= {"apsw", "msgspec"}
    assert build.python.startswith("CPython 3.")


@pytest.mark.parametrize("name, begins", [("picture.png", b"\x89PNG"), ("picture.svg", b"<?xml")])
def test_a_report_is_drawn(name: str, begins: bytes, tmp_path: Path) -> None:
    sample = {"agents": 5, "seconds": 1.0, "completions_per_s": 10.0, "floor_per_s": 90.0, "resident_bytes": 2**20}
    drawn = report(1.0, agents=5)
    drawn.runs[0]["samples"] = [sample, sample | {"agents": 10, "seconds": 2.0}]
    check(tmp_path / name)
    draw(drawn, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_picture_of_another_kind_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"must end in \.png or \.svg"):
        check(tmp_path / "picture.gif")
