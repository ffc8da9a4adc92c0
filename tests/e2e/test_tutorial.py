"""The tutorial of tool servers, as somebody follows it who knows nothing else."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
HIBERNAUT = [sys.executable, "-m", "hibernaut.cli"]
PORT = "8800"


def blocks(kind: str) -> list[str]:
    text = (ROOT / "docs" / "rap-tutorial.md").read_text(encoding="utf-8")
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, encoding="utf-8", check=False, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def serving(cwd: Path) -> Iterator[str]:
    """Run the tutorial's server on a free port, and return its address."""
    command = [*HIBERNAUT, "rap", "serve", "parcels.py:server", "--port", "0"]
    environment = {**os.environ, "RAP_EMBEDDED": "1"}
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, encoding="utf-8", env=environment) as process:
        assert process.stdout is not None
        port = re.findall(r"\d+", process.stdout.readline())[0]
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def test_the_tutorial_of_tool_servers_works_as_it_is_written(tmp_path: Path) -> None:
    server, agent = blocks("python")
    (tmp_path / "parcels.py").write_text(server.replace("sleep(2)", "sleep(0.01)"), encoding="utf-8")
    _, looking = blocks("sh")
    with serving(tmp_path) as url:
        told = {}
        for line in looking.strip().splitlines():
            words = re.match(r"hibernaut rap (\w+) (\S+)(?: (\w+) '(.*)')?", line)
            assert words is not None
            command, address, *call = [word for word in words.groups() if word is not None]
            told[" ".join([command, *call[:1]])] = run(
                *HIBERNAUT, "rap", command, address.replace(f"http://127.0.0.1:{PORT}", url), *call, cwd=tmp_path
            )
        assert "Say where a parcel is." in told["inspect"]
        assert "P1 is in Bremen" in told["call where_is"]
        assert "P1 is at the front door" in told["call follow"]
        assert "no MUST is broken" in told["check"]
        (tmp_path / "agent.py").write_text(agent.replace(f"http://127.0.0.1:{PORT}", url), encoding="utf-8")
        said = run(sys.executable, "agent.py", cwd=tmp_path)
        assert "P1 is in Bremen" in said
        assert "Your parcel is in Bremen." in said
