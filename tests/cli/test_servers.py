"""`--server`: tool servers as the command line gives them, and what of it cannot be meant."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hibernaut.auth import Basic, MutualTls, SigV4
from hibernaut.cli.servers import address, load_servers
from hibernaut.errors import ConfigurationError
from tests.cli.conftest import Invoke
from tests.rap.foreign_server import ForeignServer, foreign_server

ECHO = ("run", 'call echo {"text": "hi"}', "--model", "agent.py:model")
PROGRAM = Path(__file__).parents[1] / "rap" / "foreign_server.py"


@pytest.fixture(scope="module")
def foreign() -> Iterator[ForeignServer]:
    with foreign_server() as server:
        yield server


def test_a_task_uses_a_server_by_its_url(invoke: Invoke, foreign: ForeignServer) -> None:
    result = invoke(*ECHO, "--server", foreign.url)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == '→ echo {"text":"hi"}\n← echo: hi\nIt says: hi\n'


def test_a_task_uses_a_server_that_a_command_starts(invoke: Invoke) -> None:
    result = invoke(*ECHO, "--server", shlex.join([sys.executable, str(PROGRAM)]))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "It says: hi")


def test_a_task_uses_the_servers_of_a_file(
    invoke: Invoke, foreign: ForeignServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "servers.toml").write_text(
        f"""
[[server]]
name = "abroad"
url = "{foreign.url}"
bearer = "env:ABROAD"
headers = {{ X-Team = "blue" }}

[callbacks]
secrets = ["env:SIGNING"]
""",
        encoding="utf-8",
    )
    monkeypatch.setenv("ABROAD", "correct horse")
    monkeypatch.setenv("SIGNING", "a secret that signs callbacks")
    result = invoke(*ECHO, "--server", "servers.toml")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "It says: hi")
    asked = foreign.received[-1]
    assert (asked.path, asked.headers["authorization"], asked.headers["x-team"]) == (
        "/invoke",
        "Bearer correct horse",
        "blue",
    )


def test_a_credential_that_is_not_there_is_named_and_the_agent_does_without_its_server(
    invoke: Invoke, foreign: ForeignServer, folder: Path
) -> None:
    (folder / "servers.toml").write_text(f'[[server]]\nurl = "{foreign.url}"\nname = "a"\nbearer = "env:NOT_SET"\n')
    result = invoke(*ECHO, "--server", "servers.toml")
    assert result.exit_code == 0
    assert (
        "a: its tools cannot be used: the bearer token is to be read from the environment variable NOT_SET"
        in result.stdout
    )
    assert "there is no tool named echo" in result.stdout


def test_a_server_that_is_down_is_named(invoke: Invoke) -> None:
    result = invoke(*ECHO, "--server", "http://127.0.0.1:9/x")
    assert result.exit_code == 0
    assert "127.0.0.1:9: no answer from http://127.0.0.1:9/x/.well-known/rap-toolset: " in result.stdout


SERVER = '[[server]]\nurl = "https://a.example"\n'


@pytest.mark.parametrize(
    "text, words",
    [
        (SERVER + "more = 1\n", "unknown field `more` - at `server 1`; it has the keys url, command, name, bearer"),
        ("[callbacks]\nmore = 1\n", "it has the keys listen, public, secrets"),
        ("", "servers.toml names no tool server"),
        ("servers = []\n", "unknown field `servers`; it has the keys server, callbacks"),
        (SERVER + 'bearer = "env:A"\nbasic = { user = "a", password = "env:A" }\n', "not by bearer and basic"),
        (SERVER + 'basic = { user = "a" }\n', "missing required field `password`"),
        (SERVER + 'command = "ci"\n', "by one"),
        ("[[server]]\n", "by one"),
        (SERVER + "[[server]]\n", "servers.toml: server 2: "),
        (SERVER + SERVER, "two tool servers are called 'a.example'"),
        (SERVER + "idle = 0\n", "`idle` must be more than 0"),
        (SERVER + 'idle = "soon"\n', "Expected `int | null`"),
        (SERVER + 'env = { A = "b" }\n', "are for a `command`"),
        ('[[server]]\nurl = "http://a.example"\nbearer = "env:A"\n', "must be https"),
        ("[[server]\n", "cannot be used"),
        ('[callbacks]\nsecrets = ["plain text"]\n', "write env:NAME"),
        ('[callbacks]\nsecrets = ["env:NOT_SET"]\n', "the environment has no NOT_SET"),
        ('[callbacks]\nlisten = "nowhere"\n', "'nowhere' is no address to listen at"),
        ('[callbacks]\nlisten = "127.0.0.1:70000"\n', "70000 is no port"),
        ('[callbacks]\npublic = "agents.example"\n', "not an http or https address"),
        ("name = '\xe9'\n".encode("latin-1"), "cannot be used"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_in_a_line(
    text: str | bytes, words: str, invoke: Invoke, folder: Path
) -> None:
    (folder / "servers.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    result = invoke("run", "hello", "--model", "echo", "--server", "servers.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "server, words",
    [
        ("missing.toml", "missing.toml cannot be read: No such file or directory"),
        ("folder.toml", "folder.toml cannot be read: Is a directory"),
        ("https://", "not an http or https address"),
        ("'", "cannot be split"),
        ("127.0.0.1:8800", "no program '127.0.0.1:8800'"),
        ("localhost", "a URL begins with http:// or https://"),
        ("ftp://x", "a URL begins with http:// or https://"),
        ("./nothing --fast", "no program './nothing'"),
        ("ci=nothing", "tool server 'ci': there is no program 'nothing'"),
        (" ", "it is empty"),
    ],
)
def test_a_server_that_cannot_be_meant_is_refused_in_a_line(
    server: str, words: str, invoke: Invoke, folder: Path
) -> None:
    (folder / "folder.toml").mkdir()
    result = invoke("run", "hello", "--model", "echo", "--server", server)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_two_files_that_both_say_where_callbacks_come_in_are_refused(invoke: Invoke, folder: Path) -> None:
    for name in ("a.toml", "b.toml"):
        (folder / name).write_text('[callbacks]\npublic = "https://agents.example"\n', encoding="utf-8")
    result = invoke("run", "hello", "--model", "echo", "--server", "a.toml", "--server", "b.toml")
    assert (result.exit_code, "two files say where callbacks come in" in result.stderr) == (2, True)


def test_everything_that_a_file_can_say_is_heeded(folder: Path) -> None:
    (folder / "servers.toml").write_text(
        """
[[server]]
command = ["env", "--fast"]
env = { A = "b" }
cwd = "somewhere"
idle = 5

[[server]]
url = "https://basic.example"
basic = { user = "ann", password = "env:PASSWORD" }
connect_within = 6
answer_within = 7
trust_endpoint = true

[[server]]
url = "https://aws.example"
sigv4 = { region = "eu-north-1", profile = "work" }

[[server]]
url = "https://tls.example"
tls = { certificate = "a.pem", key = "a.key" }

[callbacks]
listen = "127.0.0.1:7411"
public = "https://agents.example"
allow_unsigned = true
""",
        encoding="utf-8",
    )
    found = load_servers(["servers.toml", "https://plain.example", "true http://a.example"], listen=":7412")
    process, basic, aws, tls, plain, desk = found.servers
    assert (process.command, process.env, process.cwd, process.idle) == (("env", "--fast"), {"A": "b"}, "somewhere", 5)
    assert (basic.connect_within, basic.answer_within, basic.trust_endpoint) == (6, 7, True)
    assert [type(server.auth) for server in (basic, aws, tls, plain)] == [Basic, SigV4, MutualTls, type(None)]
    assert (plain.name, desk.command) == ("plain.example", ("true", "http://a.example"))
    assert found.callbacks is not None
    assert (found.callbacks.host, found.callbacks.port) == ("127.0.0.1", 7412)
    assert (found.callbacks.public, found.callbacks.allow_unsigned) == ("https://agents.example", True)


def test_without_a_word_about_callbacks_nothing_is_said_of_them() -> None:
    assert load_servers(["https://a.example"]).callbacks is None


@pytest.mark.parametrize(
    "written, host, port",
    [
        ("127.0.0.1:7411", "127.0.0.1", 7411),
        (":7411", "127.0.0.1", 7411),
        ("7411", "127.0.0.1", 7411),
        ("[::1]:7411", "::1", 7411),
        ("example.com:0", "example.com", 0),
    ],
)
def test_an_address_is_a_host_and_a_port(written: str, host: str, port: int) -> None:
    assert address(written) == (host, port)


@pytest.mark.parametrize("written", ["", "nowhere", "host:", "host:-1", "host:\u0661"])
def test_what_has_no_port_is_no_address(written: str) -> None:
    with pytest.raises(ConfigurationError, match="no address to listen at"):
        address(written)


def test_a_server_is_named_before_its_url_or_its_command() -> None:
    found = load_servers(["a=https://x.example/", "b.2=true --a=b"]).servers
    assert [(server.name, server.url, server.command) for server in found] == [
        ("a", "https://x.example", ()),
        ("b.2", "", ("true", "--a=b")),
    ]
