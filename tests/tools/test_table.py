import functools
import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hibernaut.errors import ToolDefinitionError
from hibernaut.kernel.authority import Authority, Judge
from hibernaut.kernel.fold import CallJudge, Judged, Refusal, Rest, Run, Settled
from hibernaut.messages.items import EVENT_TOOL
from hibernaut.tools.table import MOST_NAMED, ToolTable
from hibernaut.tools.tool import AnyTool, tool

NOW = 1_700_000_000_000
BUILT_IN = [
    "spawn_thread",
    "report_to_parent",
    "close_thread",
    "send_message_to_child",
    "cancel_subscription",
    "sleep_until_event_or_input",
    "sleep",
    "sleep_until",
    "set_title",
]


@tool(deadline=60)
async def build(commit: str, jobs: int = 1) -> str:
    """Build a commit."""
    return f"{commit} {jobs}"


@tool(inline=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(passive=True)
async def wait_for_person() -> str:
    """Wait until somebody has looked."""
    return "seen"


class Window(msgspec.Struct):
    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise ValueError("first is after last")
        if self.last > 9_000:
            raise LookupError("no such line")


@tool
async def read(path: Annotated[str, msgspec.Meta(min_length=1)], window: Window | None = None) -> str:
    """Read lines of a file."""
    return f"{path} {window}"


TABLE = ToolTable([build, add, wait_for_person, read])


def named(*names: str) -> list[AnyTool]:
    async def work() -> None: ...

    return [tool(work, name=name) for name in names]


def names_of(table: ToolTable) -> list[str]:
    return [spec.name for spec in table.specs]


def refusal(judged: Judged) -> str:
    assert isinstance(judged.verdict, Refusal), judged
    return judged.verdict.reason


def test_a_table_is_what_the_kernel_asks_about_calls() -> None:
    judge: CallJudge = TABLE
    assert judge.judge("build", '{"commit":"abc"}', NOW).verdict == Run("background", 60_000)


@pytest.mark.parametrize(
    "name,arguments,run",
    [
        ("build", '{"commit":"abc"}', Run("background", 60_000)),
        ("add", '{"a":1,"b":2}', Run("inline")),
        ("wait_for_person", "{}", Run("background", passive=True)),
    ],
)
def test_a_good_call_is_run_as_its_tool_says(name: str, arguments: str, run: Run) -> None:
    assert TABLE.judge(name, arguments, NOW) == Judged(run, arguments)


def test_arguments_are_kept_in_one_way_of_writing_them() -> None:
    judged = TABLE.judge("build", ' { "jobs" : 2,\n "commit": "\\u00e4\\ud83d" } ', NOW)
    assert judged.arguments == '{"jobs":2,"commit":"ä\ufffd"}'
    assert isinstance(judged.verdict, Run)


def test_the_built_in_tools_are_judged_with_the_moment_of_the_call() -> None:
    assert TABLE.judge("sleep_until_event_or_input", "", NOW) == Judged(Rest(), "{}")
    assert TABLE.judge("sleep", '{"seconds":0.5,"reason":null}', NOW).verdict == Rest(delay=500)
    tomorrow, today = ('{"date":"2023-11-15","time":"00:00"}', '{"date":"2023-11-14","time":"00:00"}')
    assert TABLE.judge("sleep_until", tomorrow, NOW).verdict == Rest(due=1_700_006_400_000)
    assert isinstance(TABLE.judge("sleep_until", today, NOW).verdict, Settled)
    assert TABLE.judge("set_title", '{"title":"a b"}', NOW).verdict == Settled("The title is now: a b", "a b")


def test_the_reference_arguments_of_the_built_in_tools_are_ours() -> None:
    schemas = {spec.name: json.loads(spec.parameters) for spec in TABLE.specs[-4:]}
    found = {name: (list(schema["properties"]), schema["required"]) for name, schema in schemas.items()}
    assert found == {
        "sleep_until_event_or_input": ([], []),
        "sleep": (["seconds", "reason"], ["seconds"]),
        "sleep_until": (["date", "time", "timezone"], ["date", "time"]),
        "set_title": (["title"], ["title"]),
    }


def test_every_built_in_tool_and_every_argument_is_explained_to_the_model() -> None:
    for spec in TABLE.specs[-len(BUILT_IN) :]:
        assert spec.description
        for schema in json.loads(spec.parameters)["properties"].values():
            assert schema["description"]


def test_c15_an_unknown_tool_is_refused_with_the_closest_name_first() -> None:
    reason = refusal(TABLE.judge("raed", "{}", NOW))
    assert "there is no tool named raed" in reason
    assert "There are: read, build, add," in reason


def test_c15_c36_a_thread_goes_on_without_a_tool_that_is_gone() -> None:
    table = ToolTable([build], ["make", "build", "sleep"])
    assert table.missing == ("make",)
    assert names_of(table) == ["build", *BUILT_IN]
    assert "there is no tool named make. There are: build," in refusal(table.judge("make", '{"commit":"abc"}', NOW))
    assert isinstance(table.judge("build", '{"commit":"abc"}', NOW).verdict, Run)


def test_c15_a_refusal_names_a_bounded_number_of_tools() -> None:
    table = ToolTable(named(*(f"tool_{n:03}" for n in range(500))))
    reason = refusal(table.judge("tool_477x", "{}", NOW))
    assert reason.partition("There are: ")[2].startswith("tool_477,")
    assert reason.endswith(f" and {500 + len(BUILT_IN) - MOST_NAMED} more.")
    assert reason.count("tool_") == MOST_NAMED + 1


def test_c15_where_there_is_no_tool_a_refusal_says_so() -> None:
    assert refusal(ToolTable([], builtins=False).judge("build", "{}", NOW)).endswith("There are no tools.")


@pytest.mark.parametrize("name", ["", "x" * 1_000_000, "a\x00b", "\ud83d", "a\nb", "💥" * 100])
def test_c15_whatever_name_a_model_makes_up_is_refused_shortly_in_text_that_can_be_stored(name: str) -> None:
    reason = refusal(TABLE.judge(name, "{}", NOW))
    assert len(reason.encode()) < 600
    assert "\x00" not in reason


@pytest.mark.parametrize("name", [EVENT_TOOL, "other__injected", "__harness_begin_compaction__"])
def test_a_reserved_name_is_refused_from_the_model(name: str) -> None:
    reason = refusal(TABLE.judge(name, '{"a":1}', NOW))
    assert f"{name} is a name of the runtime" in reason


BAD = {
    '{"path": "a': "ends inside a string",
    "[]": "must be a JSON object",
    "null": "must be a JSON object",
    '"str"': "must be a JSON object",
    '{"n": NaN}': "NaN is not JSON",
    '{"n": ' + "9" * 5_000 + "}": "5,000 digits",
    "[" * 100_000: "nested deeper",
    '{"a":1,"a":2}': "twice",
}


@pytest.mark.parametrize("name", ["build", "sleep", "no_such_tool", EVENT_TOOL])
@pytest.mark.parametrize("arguments", BAD, ids=range(len(BAD)))
def test_c16_arguments_that_cannot_be_read_run_nothing_and_leave_valid_json(name: str, arguments: str) -> None:
    judged = TABLE.judge(name, arguments, NOW)
    assert judged.arguments == "{}"
    assert len(refusal(judged)) < 1_000
    if name in ("build", "sleep"):
        assert BAD[arguments] in refusal(judged)


@pytest.mark.parametrize(
    "name,arguments,said",
    [
        ("build", "{}", "commit"),
        ("build", '{"commit":5}', "$.commit"),
        ("build", '{"commit":"abc","job":2}', "job"),
        ("read", '{"path":""}', "$.path"),
        ("read", '{"path":"a","window":{"first":1}}', "last"),
        ("read", '{"path":"a","window":{"first":2,"last":1}}', "first is after last"),
        ("read", '{"path":"a","window":{"first":1,"last":9001}}', "LookupError: no such line"),
        ("sleep", '{"seconds":"long"}', "$.seconds"),
        ("sleep", "{}", "seconds"),
        ("set_title", '{"title":["a"]}', "$.title"),
    ],
)
def test_c16_arguments_that_do_not_fit_run_nothing_and_the_model_reads_why(
    name: str, arguments: str, said: str
) -> None:
    judged = TABLE.judge(name, arguments, NOW)
    assert said in refusal(judged)
    assert judged.arguments == arguments


@given(st.sampled_from([*names_of(TABLE), "other"]), st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_a22_no_text_as_arguments_makes_a_table_fail(name: str, arguments: str) -> None:
    judged = TABLE.judge(name, arguments, NOW)
    assert isinstance(json.loads(judged.arguments), dict)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from([*names_of(TABLE), "other"]),
    st.dictionaries(st.sampled_from(["commit", "a", "b", "path", "window", "seconds", "title"]), json_values),
)
def test_a22_no_values_as_arguments_make_a_table_fail(name: str, values: dict[str, Any]) -> None:
    judged = TABLE.judge(name, json.dumps(values), NOW)
    assert isinstance(json.loads(judged.arguments), dict)
    assert isinstance(judged.verdict, Run | Rest | Settled | Refusal)


def test_the_model_is_shown_the_tools_in_the_order_of_the_launch_and_the_built_in_ones_last() -> None:
    assert names_of(ToolTable([build, add, read])) == ["build", "add", "read", *BUILT_IN]
    assert names_of(ToolTable([build, add, read], ["read", "build"])) == ["read", "build", *BUILT_IN]
    assert names_of(ToolTable([build, add, read], ["read", "read"])) == ["read", *BUILT_IN]
    assert names_of(ToolTable([build, add, read], [])) == BUILT_IN
    assert names_of(ToolTable([build, add, read], builtins=False)) == ["build", "add", "read"]


def test_a_tool_that_the_thread_was_not_launched_with_is_unknown_to_it() -> None:
    table = ToolTable([build, add], ["build"])
    assert "there is no tool named add" in refusal(table.judge("add", '{"a":1,"b":2}', NOW))


def test_without_the_built_in_tools_their_names_are_free() -> None:
    table = ToolTable(named("sleep"), ["sleep", "set_title"], builtins=False)
    assert names_of(table) == ["sleep"]
    assert table.missing == ("set_title",)


@pytest.mark.parametrize(
    "patterns,allowed",
    [
        (["*"], ["read_file", "read_dir", "write_file", "re.d"]),
        (["read_*"], ["read_file", "read_dir"]),
        (["*_file", "re.d"], ["read_file", "write_file", "re.d"]),
        (["*e*_d*"], ["read_dir"]),
        (["read_file"], ["read_file"]),
        (["READ_FILE", "read", "re?d_file", "[r]ead_file", "read_.*"], []),
        ([], []),
        ([""], []),
    ],
)
def test_a_thread_has_the_tools_that_its_authority_allows_and_the_built_in_ones(
    patterns: list[str], allowed: list[str]
) -> None:
    tools = named("read_file", "read_dir", "write_file", "re-d")
    allowed = [name.replace(".", "-") for name in allowed]
    authority = Authority(tools=tuple(pattern.replace("re.d", "re-d") for pattern in patterns))
    table = ToolTable(tools, None, Judge(authority).shows)
    assert names_of(table) == [*allowed, *BUILT_IN]
    assert table.missing == ()


def test_a_call_beyond_the_authority_is_refused_as_such() -> None:
    table = ToolTable([build, add], None, Judge(Authority(tools=("add",))).shows)
    reason = refusal(table.judge("build", '{"commit":"abc"}', NOW))
    assert "this thread may not use build. There are: add," in reason


def test_a26_two_tools_of_one_name_are_refused_and_both_are_named() -> None:
    other = tool(functools.partial(build.function, jobs=4), name="build")
    with pytest.raises(ToolDefinitionError, match=r"called 'build', .*test_table\.build and .*test_table\.build: give"):
        ToolTable([build, other])


def test_a26_a_tool_with_the_name_of_a_built_in_one_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"called 'sleep', the built-in sleep and .*named\.<locals>\.work"):
        ToolTable(named("sleep"))


def test_the_digest_tells_whether_the_model_was_shown_the_same() -> None:
    same = ToolTable([build, add]).digest
    assert ToolTable([build, add]).digest == same
    assert ToolTable([build, add, read], ["build", "add"]).digest == same
    described = tool(add.function, inline=True, description="Add two integers.")
    others: list[list[AnyTool]] = [[add, build], [build], [build, described], [build, tool(read.function, name="add")]]
    assert len({same, *(ToolTable(tools).digest for tools in others)}) == 1 + len(others)
