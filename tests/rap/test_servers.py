"""Which tool servers can be meant, and what is never shown of them."""

from typing import Any

import pytest

from hibernaut.auth import Bearer
from hibernaut.errors import ConfigurationError
from hibernaut.rap.origins import Zone, is_loopback_host, may_lead, origin, zone
from hibernaut.rap.servers import RemoteServer, remote_server, servers_by_name


@pytest.mark.parametrize(
    "given, name",
    [
        ({"url": "https://tools.example.com/base/"}, "tools.example.com"),
        ({"url": "http://127.0.0.1:8080"}, "127.0.0.1:8080"),
        ({"url": "https://tools.example.com", "name": "ci"}, "ci"),
        ({"command": "/usr/bin/ci-server --port 0"}, "ci-server"),
        ({"command": ["python", "-m", "x"], "name": "x"}, "x"),
        ({"command": "python3.11 -u tools/ci.py --port 0"}, "ci"),
        ({"command": "python -m my.clock"}, "my.clock"),
        ({"command": "python -"}, "python"),
    ],
)
def test_a_server_has_the_name_it_is_given_or_that_of_where_it_is(given: dict[str, Any], name: str) -> None:
    assert RemoteServer(**given).name == name


def test_a_command_is_split_as_a_shell_would_and_a_url_ends_without_a_slash() -> None:
    assert RemoteServer(command="run 'a b' c").command == ("run", "a b", "c")
    assert remote_server("https://tools.example.com/base/").url == "https://tools.example.com/base"


@pytest.mark.parametrize(
    "given, words",
    [
        ({}, "by one"),
        ({"url": "https://a.example", "command": "x"}, "by one"),
        ({"url": "ftp://a.example"}, "not an http or https address"),
        ({"url": "https://ada:secret@a.example"}, "user name"),
        ({"url": "https://a.example/?q=1"}, "no query"),
        ({"url": "https://a.example/" + "x" * 2_000}, "2,018 characters"),
        ({"url": "https://a.example", "name": "two\nlines"}, "on one line"),
        ({"url": "https://a.example", "name": "x" * 129}, "1 to 128"),
        ({"url": "http://a.example", "auth": Bearer("t")}, "in the clear"),
        ({"url": "http://a.example", "headers": {"X-Key": "env:KEY"}}, "in the clear"),
        ({"url": "http://a.example", "headers": {"Authorization": "Bearer t"}}, "in the clear"),
        ({"url": "https://a.example", "headers": {"Idempotency-Key": "1"}}, "set by the runtime"),
        ({"url": "https://a.example", "headers": {"X Key": "1"}}, "name of a header"),
        ({"url": "https://a.example", "headers": {"X-Key": "a\r\nX-Other: b"}}, "printable ASCII"),
        ({"url": "https://a.example", "headers": {"X-Key": "1", "x-key": "2"}}, "twice"),
        ({"url": "https://a.example", "headers": {"X-Key": "env: "}}, "without the name"),
        ({"url": "https://a.example", "cwd": "/tmp"}, "for a `command`"),
        ({"url": "https://a.example", "answer_within": 0}, "answer_within"),
        ({"command": "run 'half"}, "cannot be split"),
        ({"command": [""]}, "no program"),
        ({"command": "x", "env": {"A=B": "c"}}, "environment variable"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        RemoteServer(**given)


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.0.0.2", "http://[::1]:1", "https://a.example"])
def test_credentials_go_to_this_machine_or_over_https(url: str) -> None:
    assert RemoteServer(url=url, auth=Bearer("t")).has_credentials


def test_a_server_stays_as_it_was_given() -> None:
    headers = {"X-Key": "1"}
    server = RemoteServer(url="https://a.example", headers=headers)
    headers["Host"] = "b.example"
    assert server.headers == {"X-Key": "1"}


def test_two_servers_of_one_name_are_refused() -> None:
    assert list(servers_by_name(["https://a.example", RemoteServer(command="b")])) == ["a.example", "b"]
    with pytest.raises(ConfigurationError, match="two tool servers are called 'a'"):
        servers_by_name([RemoteServer(url="https://x.example", name="a"), RemoteServer(command="a")])


def test_no_secret_is_shown() -> None:
    server = RemoteServer(command=["run", "--key=s3cret"], headers={"X": "s3cret"}, env={"K": "s3cret"}, name="x")
    assert repr(server) == "RemoteServer(command=('run', …), name='x')"
    assert "s3cret" not in repr(RemoteServer(url="https://a.example", auth=Bearer("s3cret")))


@pytest.mark.parametrize(
    "address, expected",
    [
        ("93.184.216.34", "public"),
        ("10.1.2.3", "private"),
        ("100.64.0.1", "private"),
        ("fd00:ec2::254", "private"),
        ("169.254.169.254", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link-local"),
    ],
)
def test_how_far_inside_an_address_is(address: str, expected: str) -> None:
    assert zone(address) == expected


def test_a_server_may_lead_outwards_and_not_further_inside() -> None:
    public: frozenset[Zone] = frozenset({"public"})
    private: frozenset[Zone] = frozenset({"private"})
    loopback: frozenset[Zone] = frozenset({"loopback"})
    assert may_lead(private, public)
    assert may_lead(loopback, private)
    assert may_lead(frozenset({"public", "private"}), private)
    assert not may_lead(public, private)
    assert not may_lead(private, loopback)
    assert not may_lead(loopback, frozenset({"link-local"}))
    assert not may_lead(public, frozenset({"public", "loopback"}))


def test_an_origin_is_written_in_one_way() -> None:
    assert origin("https://Tools.Example:443/a?b") == origin("https://tools.example./") == "https://tools.example:443"
    assert origin("http://tools.example") != origin("https://tools.example")
    assert is_loopback_host("x.localhost")
    assert not is_loopback_host("localhost.example")


@pytest.mark.parametrize(
    "command, name",
    [
        ('python -c "print(5)"', "python"),
        ("hibernaut rap serve tools/a.py:server --port 1", "a"),
        ("hibernaut rap serve desk.tools:server", "desk.tools"),
        ("python -m hibernaut.cli rap serve a.py", "a"),
        ("hibernaut --help", "hibernaut"),
    ],
)
def test_a_command_is_called_after_what_it_serves(command: str, name: str) -> None:
    assert RemoteServer(command=command).name == name


def test_of_servers_on_one_host_those_after_the_first_are_told_apart_by_their_path() -> None:
    given = ["https://a.example/x", "https://a.example/y", "https://b.example/z"]
    assert list(servers_by_name(given)) == ["a.example", "a.example/y", "b.example"]
    with pytest.raises(ConfigurationError, match="two tool servers"):
        servers_by_name(["https://a.example/x", "https://a.example/y", "https://a.example/y"])
