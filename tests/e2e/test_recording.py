"""`hibernaut record` and what it made, as a user has them: real processes, real HTTP, every dialect, real signals."""

import asyncio
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from hibernaut.messages.events import Usage
from hibernaut.models.scripted import call, say, think, turn
from hibernaut.testing.providers.anthropic import AnthropicWire
from hibernaut.testing.providers.bedrock import ACCESS_KEY, SECRET_KEY, ConverseWire
from hibernaut.testing.providers.google import GeminiWire
from hibernaut.testing.providers.openai_chat import ChatWire
from hibernaut.testing.providers.openai_responses import ResponsesWire
from hibernaut.testing.providers.server import FakeProvider, Played
from hibernaut.testing.providers.wire import Asked, FakeWire
from hibernaut.testing.recording import Recording
from hibernaut.testing.recording.scrubbing import SCRUBBED
from tests.e2e.commands import KEY, hibernaut
from tests.e2e.processes import done, running, until_there

TEAM_KEY = "team-key-of-a-test"
COOKIE = "session=cookie-of-a-test"
ORGANIZATION = "org-0fATest0123456789"
PERSON = "person-in-the-body"

TOOLS = '''
import os

from hibernaut import tool

KEY, TEAM, AWS = (os.environ.get(name, "other") for name in ("TEST_KEY", "TEAM_KEY", "AWS_SECRET_ACCESS_KEY"))


@tool
async def dump(why: str) -> str:
    """Show the environment, and the last requests that went out."""
    return f"""
TEST_KEY={KEY}
TEAM_KEY={TEAM}
AWS_SECRET_ACCESS_KEY={AWS}

POST /v1/models?alt=sse&key={KEY} HTTP/1.1
x-api-key: {KEY}
Authorization: Bearer {KEY}
Cookie: session=cookie-of-a-test
OpenAI-Organization: org-0fATest0123456789

POST /model/x/converse-stream?X-Amz-Credential=AKIDFAKE%2F20261130&X-Amz-Signature=0a1b2c3d4e5f60718293 HTTP/1.1
Authorization: AWS4-HMAC-SHA256 Credential=AKIDFAKE/20261130/x/bedrock/aws4_request, SignedHeaders=host, \\
Signature=fe5f80f77d5fa3beca038a248ff027d0

{{"headers": {{"x-goog-api-key": "{KEY}"}}, "database": "postgres://app:{KEY}@db.example/agents"}}
"""
'''

ENVIRONMENT = {
    "TEST_KEY": KEY,
    "TEAM_KEY": TEAM_KEY,
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
}

GENERATION = f'{{ generationConfig = {{ stopSequences = ["{PERSON}"] }} }}'

DIALECTS: list[tuple[str, str, Callable[[], FakeWire], str, str]] = [
    ("anthropic", "claude-sonnet-4-6", lambda: AnthropicWire(KEY), "", f'{{ metadata = {{ user_id = "{PERSON}" }} }}'),
    ("openai", "gpt-5", lambda: ResponsesWire(key=KEY), "/v1", f'{{ metadata = {{ person = "{PERSON}" }} }}'),
    ("openai-chat", "gpt-4o", lambda: ChatWire(key=KEY), "/v1", f'{{ stop = ["{PERSON}"] }}'),
    ("google", "gemini-2.5-flash", lambda: GeminiWire(key=KEY), "", GENERATION),
    (
        "bedrock",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ConverseWire,
        "",
        f'{{ requestMetadata = {{ person = "{PERSON}" }} }}',
    ),
]


def played() -> list[Played]:
    """Return a talk in which the model repeats what it should not know."""
    return [
        turn(
            think(f"The key is {KEY}.", data=b"signed"),
            say(f"I have {KEY} and {COOKIE}.\n", chunks=9),
            call("dump", why=f"to see {TEAM_KEY}"),
            usage=Usage(1_000, 50),
        ),
        turn(say(f"Done with {TEAM_KEY}, {KEY} and {ORGANIZATION}.", chunks=7), usage=Usage(1_100, 10)),
    ]


def configure(folder: Path, provider: str, model: str, url: str, parameters: str) -> None:
    signed = provider == "bedrock"
    (folder / "hibernaut.toml").write_text(
        f"""
[providers.{provider}]
url = "{url}"
{'options = { region = "eu-central-1" }' if signed else 'key = "env:TEST_KEY"'}
headers = {{ Cookie = "{COOKIE}", OpenAI-Organization = "{ORGANIZATION}", X-Team-Key = "env:TEAM_KEY" }}

[models."{provider}:{model}"]
parameters = {parameters}
""",
        encoding="utf-8",
    )
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")


def secrets_in(asked: Asked) -> Iterator[str]:
    """Return what was shown to a provider that nobody else is to see, as it went over the wire."""
    for name in ("authorization", "x-api-key", "x-goog-api-key", "cookie", "openai-organization", "x-team-key"):
        value = asked.headers.get(name, "")
        yield from (part for part in re.split(r"[ =,]+", value) if len(part) > 12 and part != "AWS4-HMAC-SHA256")


@pytest.mark.parametrize("provider,model,wire,path,parameters", DIALECTS, ids=[row[0] for row in DIALECTS])
def test_what_a_provider_said_is_recorded_without_a_secret_and_played_back_without_a_network_and_keys(
    provider: str, model: str, wire: Callable[[], FakeWire], path: str, parameters: str, tmp_path: Path
) -> None:
    task = ("Who are you?", "--tools", "tools.py", "--instructions", "You look.\nTwice.")

    async def scenario() -> None:
        secrets = {KEY, TEAM_KEY, COOKIE, ORGANIZATION, PERSON, ACCESS_KEY, SECRET_KEY}
        for name in ("one.json", "two.json"):
            async with FakeProvider(wire(), played(), chunks=11) as fake:
                configure(tmp_path, provider, model, fake.url + path, parameters)
                words = ("record", *task, "--model", f"{provider}:{model}", "--to", name)
                said = await hibernaut(tmp_path, *words, **ENVIRONMENT)
                assert (said.code, fake.refused) == (0, []), said.err
                assert "Recorded 2 completions in" in said.err
                for asked in fake.asked:
                    assert PERSON in asked.raw.decode()
                    assert asked.headers["cookie"] == COOKIE
                    secrets.update(secrets_in(asked))
        recorded = (tmp_path / "one.json").read_bytes()
        assert [secret for secret in sorted(secrets) if secret.encode() in recorded] == []
        assert recorded.count(SCRUBBED.encode()) > 10
        assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()

        (tmp_path / "hibernaut.toml").unlink()
        again = await hibernaut(tmp_path, "run", *task, "--model", "recorded:one.json")
        assert (again.code, again.err) == (0, ""), again.err
        assert again.out.rstrip().endswith(f"Done with {SCRUBBED}, {SCRUBBED} and {SCRUBBED}.")
        assert "← dump: TEST_KEY=other" in again.out

    asyncio.run(scenario())
    assert msgspec.json.decode((tmp_path / "one.json").read_bytes())["model"] == f"{provider}:{model}"


def test_another_request_ends_in_one_clear_difference(tmp_path: Path) -> None:
    assert done(tmp_path, "record", "Who are you?", "--model", "echo", "--to", "a.json")[0] == 0
    code, _, errors = done(tmp_path, "run", "Who am I?", "--model", "recorded:a.json")
    assert code == 3
    assert "differs first in line 1 of what was asked:\n- user Who are you?\n+ user Who am I?\n" in errors
    assert "Traceback" not in errors


# Interrupted

AGENT = '''
"""A model that calls a tool, and stalls over its result as long as there is a file that says so."""

from pathlib import Path

from hibernaut import ScriptedModel, tool
from hibernaut.messages.items import UserItem
from hibernaut.models.scripted import call, say, stall


@tool
async def look() -> str:
    """Look."""
    return "nothing"


def answer(request):
    if isinstance(request.transcript[-1], UserItem):
        return call("look")
    if Path("stalled").exists():
        Path("asked").touch()
        return stall(say("Let me think"))
    return say("Nothing there.")


model = ScriptedModel(answer)
'''


@pytest.mark.parametrize(
    "number,code", [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, -15)]
)
@pytest.mark.parametrize("options", [(), ("--force",), ("--append",)], ids=["new", "anew", "more"])
def test_a_recording_that_is_interrupted_leaves_what_was_there_before(
    number: signal.Signals, code: int, options: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    words = ("record", "--model", "agent.py:model", "--tools", "agent.py", "--to", "fixtures/a.json")
    if options:
        assert done(tmp_path, *words, "Look")[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "fixtures").glob("*")}
    (tmp_path / "stalled").touch()
    with running(tmp_path, *words, *options, "Look again") as command:
        until_there(tmp_path / "asked", command.process)
        command.process.send_signal(number)
        ended, _, errors = command.end()
    assert ended == code
    assert "Traceback" not in errors
    assert ("Nothing was recorded." in errors) is (number == signal.SIGINT)
    assert {path: path.read_bytes() for path in (tmp_path / "fixtures").glob("*")} == before
    (tmp_path / "stalled").unlink()
    assert done(tmp_path, *words, *options, "Look again")[0] == 0
    assert len(Recording(tmp_path / "fixtures" / "a.json").completions) == (4 if options == ("--append",) else 2)
