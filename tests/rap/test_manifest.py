"""Toolsets are taken whole or refused whole, and a refusal says which tool and why."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.errors import MalformedInput, TooLarge
from hibernaut.messages.tools import ToolSpec
from hibernaut.rap import limits
from hibernaut.rap.limits import WireLimits
from hibernaut.rap.manifest import (
    MOST_PROBLEMS,
    Clash,
    RemoteTool,
    Toolset,
    ToolsetRefused,
    merge,
    read_manifest,
    write_manifest,
)
from tests.rap.made import JSON_VALUES, OBJECTS

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
BUILD: dict[str, Any] = {"name": "build", "description": "Build it.", "inputSchema": SCHEMA}
MANIFEST: dict[str, Any] = {"name": "ci", "endpoint": "http://127.0.0.1:8/run", "tools": [BUILD]}


def read(manifest: object) -> Toolset:
    return read_manifest(json.dumps(manifest).encode())


def problems(*tools: object, **fields: object) -> tuple[str, ...]:
    manifest = MANIFEST | ({"tools": list(tools)} if tools else {}) | fields
    with pytest.raises(ToolsetRefused) as refusal:
        read(manifest)
    assert str(refusal.value).encode()
    return refusal.value.problems


def toolset(*names: str) -> Toolset:
    return Toolset("s", "http://127.0.0.1:8/", tuple(RemoteTool(name, "", "{}") for name in names))


def test_a_manifest_is_read_with_everything_in_it() -> None:
    annotations = {
        "readOnly": True,
        "destructive": True,
        "idempotent": True,
        "longRunning": True,
        "requiresAuth": "github",
        "acme/cost": 3,
    }
    deploy = BUILD | {"name": "Deploy-2_x", "annotations": annotations, "displayScript": '"deploy " + args.n', "x": 1}
    manifest = MANIFEST | {"description": "Our builds.", "needsMigration": True, "tools": [BUILD, deploy], "x": 1}
    build = RemoteTool("build", "Build it.", json.dumps(SCHEMA, separators=(",", ":")))
    assert read(manifest) == Toolset(
        "ci",
        "http://127.0.0.1:8/run",
        (
            build,
            RemoteTool(
                "Deploy-2_x",
                "Build it.",
                build.parameters,
                json.dumps(annotations, separators=(",", ":")),
                read_only=True,
                destructive=True,
                idempotent=True,
                long_running=True,
                requires_auth="github",
                display_script='"deploy " + args.n',
            ),
        ),
        "Our builds.",
        needs_migration=True,
    )
    assert build.spec == ToolSpec("build", "Build it.", build.parameters)


def test_a_manifest_has_these_bytes_for_ever() -> None:
    tool = RemoteTool(
        "build", "Build it.", '{"type":"object"}', '{"readOnly":true}', read_only=True, display_script="1"
    )
    full = Toolset("ci", "https://s.example/run", (tool,), "Our builds.", needs_migration=True)
    assert write_manifest(full) == (
        b'{"name":"ci","endpoint":"https://s.example/run","description":"Our builds.","needsMigration":true,"tools":['
        b'{"name":"build","description":"Build it.","inputSchema":{"type":"object"},"annotations":{"readOnly":true},'
        b'"displayScript":"1"}]}'
    )
    least = Toolset("ci", "https://s.example/run", (RemoteTool("build", "", "{}"),))
    assert write_manifest(least) == (
        b'{"name":"ci","endpoint":"https://s.example/run","tools":[{"name":"build","description":"","inputSchema":{}}]}'
    )
    for one in (full, least):
        assert read_manifest(write_manifest(one)) == one


def test_a_server_that_does_no_work_twice_says_so() -> None:
    promising = Toolset("ci", "https://s.example/run", (RemoteTool("build", "", "{}"),), idempotency_keys=True)
    assert b'"idempotencyKeys":true' in write_manifest(promising)
    assert read_manifest(write_manifest(promising)) == promising


NAMES = st.from_regex(r"[A-Za-z0-9-]{1,20}", fullmatch=True)
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\u2400\u241b"), max_size=30)
TOOLS = st.lists(
    st.builds(
        RemoteTool,
        NAMES.filter(lambda name: name != "sleep"),
        PLAIN,
        st.sampled_from(["{}", '{"type":"object"}', json.dumps(SCHEMA, separators=(",", ":"))]),
        display_script=PLAIN,
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda tool: tool.name,
)


@given(TOOLS, PLAIN, st.booleans())
def test_a_manifest_comes_back_as_it_was_written(tools: list[RemoteTool], description: str, migrates: bool) -> None:
    one = Toolset("ci", "https://s.example/run", tuple(tools), description, migrates)
    assert read_manifest(write_manifest(one)) == one


@pytest.mark.parametrize(
    "tool, reason",
    [
        (BUILD | {"name": ""}, "its name has other characters than letters"),
        (BUILD | {"name": "two words"}, "its name has other characters than letters"),
        (BUILD | {"name": "gebäude"}, "its name has other characters than letters"),
        (BUILD | {"name": "build\n"}, "its name has other characters than letters"),
        (BUILD | {"name": "b" * 129}, "its name has other characters than letters"),
        (BUILD | {"name": 7}, "Expected `str`, got `int` - at `$.name`"),
        (BUILD | {"name": "receive_event__injected"}, "its name is the runtime's own"),
        (BUILD | {"name": "anything__injected"}, "its name is the runtime's own"),
        (BUILD | {"name": "__harness_x"}, "its name is the runtime's own"),
        (BUILD | {"name": "sleep"}, "its name is the runtime's own"),
        (BUILD | {"name": "spawn_thread"}, "its name is the runtime's own"),
        ({"name": "build", "inputSchema": SCHEMA}, "missing required field `description`"),
        ({"name": "build", "description": ""}, "missing required field `inputSchema`"),
        (BUILD | {"description": "d" * (limits.LONGEST_DESCRIPTION + 1)}, "its description has 16,385 characters"),
        (BUILD | {"displayScript": "d" * (limits.LONGEST_SCRIPT + 1)}, "its displayScript has 4,097 characters"),
        (BUILD | {"displayScript": 1}, "at `$.displayScript`"),
        (BUILD | {"eventSchema": {"type": "nothing"}}, "its eventSchema cannot be used: the schema is not valid"),
        (BUILD | {"eventSchema": {"$ref": "https://x"}}, "its eventSchema cannot be used"),
        (BUILD | {"eventSchema": "object"}, "at `$.eventSchema`"),
        (BUILD | {"inputSchema": True}, "at `$.inputSchema`"),
        (BUILD | {"inputSchema": {"type": "array"}}, "not of type object"),
        (BUILD | {"inputSchema": {"type": ["object", "null"]}}, "not of type object"),
        (BUILD | {"inputSchema": {"type": "object", "properties": 7}}, "the schema is not valid at #/properties"),
        (BUILD | {"inputSchema": {"properties": {"a": {"$ref": "https://evil.example/s"}}}}, "nothing is fetched"),
        (BUILD | {"inputSchema": {"properties": {"a": {"$ref": "file:///etc/passwd"}}}}, "nothing is fetched"),
        (BUILD | {"inputSchema": {"properties": {"a": {"$ref": "#/$defs/none"}}}}, "which it does not have"),
        (BUILD | {"inputSchema": {"$ref": "#"}}, "without end"),
        (BUILD | {"inputSchema": {"description": "d" * 262_144}}, "at most 262,144 are taken"),
        (BUILD | {"annotations": []}, "at `$.annotations`"),
        (BUILD | {"annotations": {"readOnly": 1}}, "its annotation readOnly is neither true nor false"),
        (BUILD | {"annotations": {"destructive": "no"}}, "its annotation destructive is neither true nor false"),
        (BUILD | {"annotations": {"idempotent": []}}, "its annotation idempotent is neither true nor false"),
        (BUILD | {"annotations": {"longRunning": 0}}, "its annotation longRunning is neither true nor false"),
        (BUILD | {"annotations": {"requiresAuth": True}}, "its annotation requiresAuth is not a text"),
        (BUILD | {"annotations": {"requiresAuth": " "}}, "its annotation requiresAuth is not a text"),
        (BUILD | {"annotations": {"acme/x": "x" * limits.LARGEST_ANNOTATIONS}}, "at most 16,384 are taken"),
        ("build", "it is not an object"),
        (None, "it is not an object"),
    ],
)
def test_a_tool_that_is_at_fault_has_the_whole_toolset_refused_and_is_named(tool: Any, reason: str) -> None:
    good = BUILD | {"name": "good"}
    (problem,) = problems(good, tool)
    name = tool.get("name") if isinstance(tool, dict) else None
    assert problem.startswith(f"tool 2 ({name[:60].strip()}" if isinstance(name, str) and name else "tool 2: ")
    assert reason in problem
    assert "good" not in problem


@pytest.mark.parametrize(
    "fields, reason",
    [
        ({"name": ""}, "its name '' is not a text of 1 to 128 characters on one line"),
        ({"name": " "}, "its name ' ' is not a text"),
        ({"name": "a\nb"}, "is not a text of 1 to 128 characters on one line"),
        ({"name": "n" * 129}, "is not a text of 1 to 128 characters on one line"),
        ({"name": None}, "at `$.name`"),
        ({"endpoint": "run"}, "its endpoint 'run' is not an http or https address"),
        ({"endpoint": "ftp://s.example"}, "is not an http or https address"),
        ({"endpoint": "https://u:p@s.example"}, "its endpoint has a user name in it"),
        ({"endpoint": "https://s.example/" + "r" * 2_000}, "its endpoint has 2,018 characters"),
        ({"description": "d" * (limits.LONGEST_DESCRIPTION + 1)}, "its description has 16,385 characters"),
        ({"tools": []}, "it has no tools"),
        ({"tools": None}, "at `$.tools`"),
        ({"tools": {"build": BUILD}}, "at `$.tools`"),
        ({"needsMigration": "yes"}, "at `$.needsMigration`"),
        (
            {"tools": [BUILD | {"name": f"t{number}"} for number in range(limits.MOST_TOOLS + 1)]},
            "it has 513 tools; at most 512 are taken",
        ),
    ],
)
def test_a_server_that_is_at_fault_has_its_toolset_refused(fields: dict[str, Any], reason: str) -> None:
    (problem,) = problems(**fields)
    assert reason in problem


def test_a26_two_tools_of_one_name_in_one_toolset_are_refused() -> None:
    assert problems(BUILD, BUILD | {"description": "Another."}, BUILD) == ("3 tools are called 'build'",)


def test_all_that_is_wrong_is_told_at_once_and_bounded() -> None:
    assert len(problems(BUILD | {"name": "a b"}, 1, BUILD | {"inputSchema": 1}, endpoint="x")) == 4
    many = problems(*list(range(100)))
    assert len(many) == 100
    assert f"; and {100 - MOST_PROBLEMS} more" in str(ToolsetRefused(many))


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"name":"a","name":"b"}', b'{"name":"\xff"}', b"[" * 9_999])
def test_a22_what_is_no_json_object_is_no_manifest(body: bytes) -> None:
    with pytest.raises(MalformedInput, match="the manifest"):
        read_manifest(body)


def test_a_manifest_above_the_bound_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(TooLarge, match="manifest_bytes"):
        read_manifest(b"\xff" * 101, WireLimits(manifest_bytes=100))


@given(
    OBJECTS, st.lists(st.dictionaries(st.sampled_from([*BUILD, "annotations"]), JSON_VALUES) | JSON_VALUES, max_size=3)
)
def test_a22_any_manifest_is_taken_or_refused_by_name(fields: dict[str, Any], tools: list[Any]) -> None:
    tools = [BUILD | tool if isinstance(tool, dict) else tool for tool in tools]
    try:
        read(MANIFEST | {"tools": tools} | fields)
    except ToolsetRefused as refusal:
        words = str(refusal)
    else:
        words = ""
    assert len(words.encode()) < 20_000


def test_a26_arguments_that_do_not_fit_the_schema_are_told_before_they_reach_a_server() -> None:
    (build,) = read(MANIFEST).tools
    assert build.problems({"n": 1}) == []
    assert build.problems({}) == ['at $: "n" is a required property']
    assert len(build.problems({"n": "x"})) == 1


def test_a26_a_name_that_two_servers_use_is_refused_for_both_and_said_so() -> None:
    usable, clashes = merge({"http://a": toolset("build", "lint"), "http://b": toolset("build", "test")})
    assert {name: server for name, (server, _) in usable.items()} == {"lint": "http://a", "test": "http://b"}
    assert clashes == [Clash("build", ("http://a", "http://b"))]
    assert str(clashes[0]) == "the tool 'build' is refused for all of them: http://a and http://b each have one"


def test_a26_a_name_that_the_program_uses_is_refused_for_the_server() -> None:
    usable, clashes = merge({"http://a": toolset("build", "lint")}, taken=["build", "test"])
    assert list(usable) == ["lint"]
    assert clashes == [Clash("build", ("http://a",), own=True)]
    assert str(clashes[0]) == "the tool 'build' of http://a is refused: there is one of that name already"


def test_tools_of_several_servers_keep_their_order() -> None:
    usable, clashes = merge({"http://a": toolset("z", "a"), "http://b": toolset("m")})
    assert (list(usable), clashes) == (["z", "a", "m"], [])


def test_what_a_tool_says_of_its_events_is_read_and_written() -> None:
    watch = RemoteTool("watch", "Watch.", '{"type":"object"}', event_schema='{"type":"string","maxLength":9}')
    body = write_manifest(Toolset("s", "http://127.0.0.1:8/", (watch,)))
    assert b'"eventSchema":{"type":"string","maxLength":9}' in body
    assert read_manifest(body).tools == (watch,)
    assert read(MANIFEST | {"tools": [BUILD | {"eventSchema": None}]}).tools[0].event_schema == ""
