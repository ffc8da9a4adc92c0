"""`hibernaut rap inspect`: a manifest, as people read it."""

import json
from typing import Any

import msgspec
import pytest

from hibernaut.cli.rap.signatures import signature
from hibernaut.rap.manifest import RemoteTool
from tests.cli.conftest import Invoke
from tests.cli.rap.conftest import beside
from tests.rap.check.tool_server import ToolServer
from tests.rap.foreign_server import foreign_server


def test_every_tool_is_shown_with_its_signature_and_what_it_says_of_itself(server: ToolServer, invoke: Invoke) -> None:
    result = invoke("rap", "inspect", server.url)
    assert result.exit_code == 0
    shown = result.stdout.split("\n\n")
    assert shown[0] == f"numbers: 7 tools\n  calls go to {server.url}/call"
    assert shown[1] == "add(a: integer, b: integer)\n    add.\n    [readOnly]"
    assert shown[6] == 'draw(text?: string = "a dot")\n    draw.'
    assert shown[7] == 'login()\n    login.\n    [requiresAuth: "example"]\n'


def test_an_endpoint_on_another_host_is_marked_and_schemas_are_shown_when_asked_for(invoke: Invoke) -> None:
    with beside("elsewhere") as server:
        server.endpoint = "https://192.0.2.1/rap"
        shown = invoke("rap", "inspect", server.url, "--schemas").stdout
        told = json.loads(invoke("rap", "inspect", server.url, "--json").stdout)
    assert "calls go to https://192.0.2.1/rap  (at another origin: refused if there are credentials)" in shown
    assert '    [readOnly]\n    {\n      "type": "object",\n' in shown
    assert told.keys() == {"rap_inspect", "server", "problems", "toolset"}
    toolset = told["toolset"]
    assert (told["rap_inspect"], told["problems"], toolset["elsewhere"]) == (1, [], True)
    assert toolset["tools"][0]["signature"] == "add(a: integer, b: integer)"
    assert toolset["tools"][0]["input_schema"]["required"] == ["a", "b"]
    assert toolset["tools"][0]["event_schema"] is None


def test_a_toolset_that_is_refused_says_why_one_by_one(invoke: Invoke) -> None:
    with beside("bad schema", "nameless") as server:
        result = invoke("rap", "inspect", server.url)
        told = json.loads(invoke("rap", "inspect", server.url, "--json").stdout)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == f"The toolset at {server.url} is refused:"
    assert [line.split(":")[0] for line in lines[1:]] == [
        "  its name '' is not a text of 1 to 128 characters on one line",
        "  tool 2 (deploy)",
    ]
    assert told["toolset"] is None
    assert [f"  {problem}" for problem in told["problems"]] == lines[1:]


def test_an_endpoint_that_the_server_may_not_lead_to_is_refused_as_the_runtime_refuses_it(invoke: Invoke) -> None:
    with beside("elsewhere") as server:
        server.endpoint = "http://169.254.169.254/latest"
        result = invoke("rap", "inspect", server.url)
    assert result.exit_code == 1
    assert "its endpoint, 'http://169.254.169.254/latest', is further inside this machine or network" in result.stdout


def test_a_compressed_manifest_is_said_to_be_compressed(invoke: Invoke) -> None:
    with foreign_server("manifest-bomb") as server:
        result = invoke("rap", "inspect", server.url)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1] == "  its manifest is compressed, which was not asked for"


def test_a_server_without_a_manifest_is_told_from_one_that_is_not_there(invoke: Invoke) -> None:
    with beside("hidden") as server:
        result = invoke("rap", "inspect", server.url)
    assert result.exit_code == 1
    assert "it has no manifest at /.well-known/rap-toolset: status 404" in result.stdout
    assert invoke("rap", "inspect", "http://127.0.0.1:1").exit_code == 3


@pytest.mark.parametrize(
    "argument, expected",
    [
        ({"type": "string"}, "a?: string"),
        ({"type": "string", "default": "x"}, 'a?: string = "x"'),
        ({"type": ["string", "null"]}, "a?: string|null"),
        ({"enum": ["north", 2]}, 'a?: "north"|2'),
        ({"enum": list(range(9))}, "a?: 0|1|2|3|4|5|…"),
        ({"const": True}, "a?: true"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a?: integer|null"),
        ({"type": "array", "items": {"type": "number"}}, "a?: number[]"),
        ({"type": "array", "items": {"enum": [1, 2]}}, "a?: (1|2)[]"),
        ({"type": "array"}, "a?: any[]"),
        ({"$ref": "#/$defs/Place"}, "a?: Place"),
        (True, "a?: any"),
        ({"const": "y" * 100}, f'a?: "{"y" * 58}…'),
    ],
)
def test_an_argument_is_shown_by_its_type(argument: Any, expected: str) -> None:
    schema = {"type": "object", "properties": {"a": argument}}
    assert signature(RemoteTool("look", "", msgspec.json.encode(schema).decode())) == f"look({expected})"
