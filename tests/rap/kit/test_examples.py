"""Every example server runs as a program, and does what it says over plain HTTP."""

import json
import sys
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from hibernaut.cli.rap.serve import load_server
from hibernaut.rap.listening import listening
from tests.rap.kit.programs import EXAMPLES, program
from tests.rap.kit.runtime import Runtime


async def test_the_clock_rings_and_ticks_although_it_is_killed(runtime: Runtime, tmp_path: Path) -> None:
    state = ("--state", "clock.db")
    async with program(runtime, "clock", tmp_path, *state, kill=True):
        assert [tool["name"] for tool in (await runtime.toolset())["tools"]] == ["now", "alarm", "tick"]
        await runtime.call("now", {"zone": "Europe/Berlin"}, name="now")
        told = datetime.fromisoformat((await runtime.gets())[0]["text"])
        assert abs(told - datetime.now(UTC)) < timedelta(minutes=1)
        rings = datetime.now(UTC) + timedelta(seconds=1)
        await runtime.call("alarm", {"at": rings.isoformat(), "label": "Tea."}, name="alarm")
        await runtime.call("tick", {"seconds": 0.01, "count": 60}, name="tick")
        await runtime.gets(4)
    async with program(runtime, "clock", tmp_path, *state):
        events = await runtime.ends("tick")
        while "alarm" not in (said := {each["id"]: each["text"] for each in runtime.taken if "id" in each}):
            await runtime.gets(len(runtime.taken) + 1)
    assert said["alarm"] == "Tea."
    assert said["tick"] == "ticking 60 times, every 0.01 s"
    assert [each["text"] for each in events] == [
        *(f"tick {number} of 60" for number in range(1, 61)),
        "The subscription has ended.",
    ]
    assert all(each["associative"] for each in events)


NOISY = "print('compiling'); print('x' * 5_000); import sys; print('done', end=''); sys.exit(3)"
HANGS = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


async def test_the_build_server_tells_what_a_command_prints_and_ends_it_when_nobody_wants_it(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = {"noisy": [sys.executable, "-c", NOISY], "hangs": [sys.executable, "-c", HANGS]}
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    monkeypatch.chdir(tmp_path)
    async with runtime.calling(load_server(f"{EXAMPLES / 'ci.py'}")):
        await runtime.call("build", {"job": "rm"}, name="rm")
        assert (await runtime.gets())[0]["text"] == "Error: there is no job 'rm'; there are: noisy, hangs"
        await runtime.call("build", {"job": "noisy"}, name="noisy")
        said = [each["text"] for each in await runtime.ends("noisy")]
        assert (said[0], "".join(said[1:-2]), said[-2:]) == (
            "compiling",
            "x" * 5_000,
            ["done", "noisy failed with status 3"],
        )
        await runtime.call("build", {"job": "hangs"}, name="hangs")
        while not (printed := [each for each in runtime.taken if each.get("tool_call_id") == "hangs"]):
            await runtime.gets(len(runtime.taken) + 1)
        started = int(printed[0]["text"])
        assert is_there(started)
        await runtime.close()
        while is_there(started):
            await runtime.alive("hangs")


async def test_the_file_watcher_tells_what_was_written_while_it_was_away(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = tmp_path / "inbox"
    watched.mkdir()
    (watched / "old.csv").write_text("old")
    monkeypatch.setenv("WATCHED", str(watched))
    server = load_server(f"{EXAMPLES / 'files.py'}")
    server.state = str(tmp_path / "files.db")
    async with runtime.calling(server):
        await runtime.call("watch", {"pattern": "*.csv", "seconds": 0.02})
        await runtime.gets()
        (watched / "a.csv").write_text("a")
        (watched / "b.txt").write_text("b")
        await runtime.gets(2)
        await runtime.call("read", {"name": "../files.db"}, name="read")
        assert (await runtime.gets(3))[2]["is_error"] is True
    (watched / "c.csv").write_text("c")
    async with runtime.calling(server):
        events = (await runtime.gets(4))[1::2]
    assert [(each["text"], each["sequence"], each.get("associative", False)) for each in events] == [
        ("a.csv was written", 1, False),
        ("c.csv was written", 2, False),
    ]


async def test_the_desk_spends_what_two_persons_have_approved_and_spends_it_once(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with runtime.calling(load_server(f"{EXAMPLES / 'desk.py'}")):
        await runtime.call("spend", {"what": "a boat", "euros": 5_000}, name="boat")
        first = (await runtime.gets())[0]
        assert first["prompt"] == "Spend 5000 euros on a boat?"
        await runtime.post(first["response_url"], {"id": "boat", "selected": 0})
        second = (await runtime.gets(2))[1]
        await runtime.post(second["response_url"], {"id": "boat", "selected": 0})
        assert (await runtime.gets(3))[2]["text"] == "5000 euros are approved for a boat"
        await runtime.call("spend", {"what": "tea", "euros": 5}, name="tea")
        await runtime.post((await runtime.gets(4))[3]["response_url"], {"id": "tea", "selected": 1})
        assert (await runtime.gets(5))[4]["text"] == "Error: no: 5 euros for tea were not approved"
        await runtime.call("spent", name="spent")
        assert (await runtime.gets(6))[5]["text"] == "5000"


class Provider:
    """Logs everybody in, and gives a token to whoever sent them."""

    def __init__(self) -> None:
        self.challenges: dict[str, str] = {}

    async def authorize(self, request: Request) -> Response:
        asked = request.query_params
        self.challenges["code1"] = asked["code_challenge"]
        return RedirectResponse(f"{asked['redirect_uri']}?code=code1&state={asked['state']}")

    async def token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        proof = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        assert self.challenges.pop(form["code"]) == proof
        return JSONResponse({"access_token": "token1"})

    async def mail(self, request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer token1"
        return PlainTextResponse("7")


async def test_the_mail_is_read_after_a_login_and_without_one_from_then_on(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Provider()
    routes = [
        Route("/authorize", provider.authorize),
        Route("/token", provider.token, methods=["POST"]),
        Route("/mail", provider.mail),
    ]
    async with listening(Starlette(routes=routes)) as login, runtime.calling(load_server(f"{EXAMPLES / 'mail.py'}")):
        monkeypatch.setenv("PROVIDER", login.url)
        await runtime.call("unread", user_id="ann")
        asked = (await runtime.gets())[0]
        assert asked["type"] == "oauth"
        sent_back = (await runtime.exchange.get(asked["auth_url"])).headers["location"]
        assert urlsplit(sent_back).netloc == urlsplit(runtime.server).netloc
        page = await runtime.exchange.get(sent_back)
        assert (page.status, page.body) == (200, b"Thank you. You can close this page.")
        assert (await runtime.gets(2))[1]["text"] == "7 unread messages"
        assert (await runtime.exchange.get(sent_back)).status == 404
        await runtime.call("unread", name="c2", user_id="ann")
        assert (await runtime.gets(3))[2]["text"] == "7 unread messages"
