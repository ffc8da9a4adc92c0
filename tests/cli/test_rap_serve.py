"""`hibernaut rap serve`: finds the server, says where it listens, and stops when it is told to."""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from hibernaut.rap.exchange import Exchange
from tests.cli.conftest import Invoke

MODULE = """
from hibernaut.rap import ToolServer

print("I am imported")
server = ToolServer("desk")
number = 7

@server.tool
async def greet(name: str) -> str:
    "Greet somebody."
    return name

if __name__ == "__main__":
    server.run()
"""


@pytest.fixture(autouse=True)
def desk(folder: Path) -> None:
    (folder / "desk.py").write_text(MODULE, encoding="utf-8")


@pytest.mark.parametrize(
    "words, said",
    [
        (["desk.py:number"], "desk.py:number is no ToolServer, but a int"),
        (["agent.py"], "agent.py has 0 servers; name the one you mean"),
        (["desk.py:nothing"], "has no 'nothing'"),
        (["desk.py:server", "--secret-env", "NOT_SET"], "the environment has no NOT_SET"),
        (["desk.py:server", "--host", "0.0.0.0"], "give it a secret"),
        (["desk.py", "--port", "70000"], "70000 is not in the range"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_line(words: list[str], said: str, invoke: Invoke) -> None:
    result = invoke("rap", "serve", *words)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


async def test_it_says_where_it_listens_and_stops_on_a_signal(folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hibernaut.cli", "rap", "serve", "desk.py", "--secret-env", "DESK"),
        env={**os.environ, "DESK": "correct horse"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(30), Exchange() as exchange:
        assert await process.stdout.readline() == b"I am imported\n"
        line = (await process.stdout.readline()).decode()
        found = re.fullmatch(r"desk listens at (http://127\.0\.0\.1:\d+) \(process \d+, tools greet\); .*\n", line)
        assert found
        manifest = f"{found[1]}/.well-known/rap-toolset"
        assert (await exchange.get(manifest)).status == 401
        process.send_signal(signal.SIGTERM)
        rest, _ = await process.communicate()
    assert process.returncode == 0
    assert rest.decode().splitlines()[-1] == "stopped"


async def test_a_server_is_a_program_of_its_own_that_a_runtime_can_start(folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "desk.py"),
        env={**os.environ, "RAP_EMBEDDED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(30), Exchange() as exchange:
        assert await process.stdout.readline() == b"I am imported\n"  # before it could know that a runtime reads
        port = json.loads(await process.stdout.readline())["port"]
        assert (await exchange.get(f"http://127.0.0.1:{port}/.well-known/rap-toolset")).status == 200
        process.send_signal(signal.SIGTERM)
        rest, errors = await process.communicate()
    assert (process.returncode, rest) == (0, b"")
    assert errors.decode().splitlines()[-1] == "stopped"


STARTER = """
import os, subprocess, sys, time
server = subprocess.Popen([sys.executable, "-m", "hibernaut.cli", "rap", "serve", "desk.py", "--state", "desk.db"],
    env={**os.environ, "RAP_EMBEDDED": "1"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
server.stdout.readline()
print(server.pid, flush=True)
time.sleep(600)
"""


async def test_a_server_ends_cleanly_when_the_runtime_that_started_it_is_killed(folder: Path) -> None:
    runtime = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTER), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert runtime.stdout is not None
    assert runtime.stderr is not None
    async with asyncio.timeout(30):
        assert int(await runtime.stdout.readline()) > 0
        runtime.kill()
        said = await runtime.stderr.read()  # its end is that of the server, which holds it
        await runtime.wait()
    assert said.decode().splitlines()[-1] == "stopped"
