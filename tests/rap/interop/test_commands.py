"""The commands as people run them: engines and tool servers as processes that know nothing of each other."""

import asyncio
import json
import re
import signal
import sys
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from hibernaut.cli.rap.serve import load_server
from hibernaut.rap.check.checking import check
from hibernaut.rap.check.findings import Report
from hibernaut.rap.check.session import Settings
from tests.rap.foreign_server import foreign_server
from tests.rap.interop.processes import COMMAND, ROOT, done, line_of, process

EXAMPLES = ROOT / "examples" / "rap"

MODEL = """
from hibernaut import ScriptedModel
from tests.rap.interop.parties import obedient

model = ScriptedModel(obedient)
"""


async def test_an_engine_answers_what_was_said_by_another_process_with_the_tools_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(MODEL, encoding="utf-8")
    store = ("--store", str(tmp_path / "agents.db"))
    with foreign_server() as server:
        serve = ("serve", "--local", *store, "--model", "agent.py:model", "--server", server.url)
        async with process(*COMMAND, *serve, "--listen", "127.0.0.1:0", cwd=tmp_path) as engine:
            assert " serving " in await line_of(engine)
            told = await line_of(engine)
            found = re.search(r"tool servers: (\S+); callbacks come to (http://127\.0\.0\.1:\d+)$", told)
            assert found is not None, told
            assert found[1] == server.url.removeprefix("http://")
            code, output, errors = await done("send", "t", 'echo {"text": "hi"}', *store, cwd=tmp_path)
            assert (code, output.split()[0]) == (0, "accepted"), errors
            while "said: I read: hi" not in (line := await line_of(engine)):
                assert line, "it ended"
        (called,) = server.bodies("/invoke")
        assert called["callback_url"].startswith(f"{found[2]}/rap/callback/")


HURRY = Settings(called_back_within=5_000, quiet=200)
CHECKS = {
    "ci": replace(HURRY, subscribe=(("build", {"job": "slow"}),)),
    "clock": replace(HURRY, subscribe=(("tick", {"seconds": 0.1}),), slow=(("alarm", {"at": "2999-01-01T00:00:00Z"}),)),
    "desk": replace(HURRY, choose=(("spend", {"what": "tea", "euros": 5}),)),
    "files": replace(HURRY, tools=(("read", {"name": "a.txt"}),)),
    "mail": HURRY,
}
"""What may be called of every example, besides what says that it only reads."""


async def test_every_example_keeps_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints = "import time\nfor n in range(150): print(n, flush=True); time.sleep(0.1)"
    (tmp_path / "jobs.json").write_text(json.dumps({"slow": [sys.executable, "-c", prints]}), encoding="utf-8")
    (tmp_path / "a.txt").write_text("what is in it", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROVIDER", "https://login.example")

    async def checked(name: str, settings: Settings) -> Report:
        async with load_server(f"{EXAMPLES / name}.py:server").running() as there:
            return await check(there.url, settings)

    reports = await asyncio.gather(*(checked(name, settings) for name, settings in CHECKS.items()))
    for name, report in zip(CHECKS, reports, strict=True):
        assert [(name, one.rule.id, one.seen) for one in report.of("broken")] == []
        assert len(report.of("kept")) > 15


async def test_a_server_is_served_checked_and_called_by_commands(tmp_path: Path) -> None:
    served = (*COMMAND, "rap", "serve", f"{EXAMPLES / 'clock.py'}:server")
    async with process(*served, cwd=tmp_path, ends=signal.SIGTERM, RAP_EMBEDDED="1") as server:
        url = f"http://127.0.0.1:{json.loads(await line_of(server))['port']}"
        checked, called = await asyncio.gather(
            done("rap", "check", url, "--quiet", "0.2", "--timeout", "5", cwd=tmp_path),
            done("rap", "call", url, "now", '{"zone": "Europe/Berlin"}', cwd=tmp_path),
        )
    assert (checked[0], checked[2]) == (0, ""), checked
    assert "no MUST is broken" in checked[1].splitlines()[-1]
    assert (called[0], called[2]) == (0, "")
    assert datetime.fromisoformat(called[1].strip()).utcoffset()
    assert server.returncode == 0
