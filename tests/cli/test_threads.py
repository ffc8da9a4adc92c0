"""Threads, seen and steered from outside."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke, serve_until_idle

STORE = ("--store", "agents.db")
MODEL = ("--model", "agent.py:model", "--tools", "agent.py")


def test_a_store_that_is_not_there_is_not_made(invoke: Invoke, folder: Path) -> None:
    for words in (["threads", "list"], ["threads", "show", "t"], ["verify", "--all"], ["deliver", "token", "result"]):
        result = invoke(*words, *STORE)
        assert (result.exit_code, result.stdout) == (6, "")
        assert "there is no store agents.db" in result.stderr
    assert not (folder / "agents.db").exists()


def test_a_store_in_memory_is_nobody_elses(invoke: Invoke) -> None:
    result = invoke("threads", "list", "--store", ":memory:")
    assert result.exit_code == 6
    assert "name a file" in result.stderr


def test_a_store_must_be_named(invoke: Invoke) -> None:
    result = invoke("threads", "list")
    assert result.exit_code == 2
    assert "--store" in result.stderr


def test_threads_are_listed_the_last_updated_first(invoke: Invoke) -> None:
    invoke("run", "one", "--thread", "first", "--model", "echo", *STORE)
    invoke("run", "call ask", "--thread", "second", *MODEL, *STORE, "--no-wait")
    heads, *rows = [line.split() for line in invoke("threads", "list", *STORE).stdout.splitlines()]
    assert heads == ["THREAD", "STATE", "ITEMS", "INBOX", "BELOW", "UPDATED", "WAITS", "FOR", "TITLE"]
    assert [row[:4] for row in rows] == [["second", "waiting", "2", "0"], ["first", "idle", "2", "0"]]
    assert rows[0][-1] == "ask"


def test_a_list_can_be_bounded(invoke: Invoke) -> None:
    for name in ("a", "b", "c"):
        invoke("send", name, "hello", *STORE)
    result = invoke("threads", "list", *STORE, "--limit", "2", "--json")
    assert [json.loads(line)["thread_id"] for line in result.stdout.splitlines()] == ["c", "b"]
    assert "There are more" in invoke("threads", "list", *STORE, "--limit", "2").stderr


def test_a_thread_with_unread_messages_is_ready(invoke: Invoke) -> None:
    invoke("send", "t", "hello", *STORE)
    assert invoke("threads", "list", *STORE).stdout.splitlines()[1].split()[1] == "ready"
    assert json.loads(invoke("threads", "show", "t", *STORE, "--json").stdout)["activity"] == "ready"


def test_a_thread_shows_what_it_waits_for(invoke: Invoke) -> None:
    invoke("run", "call ask", "--thread", "t", *MODEL, *STORE, "--no-wait", "--instructions", "Be kind.")
    shown = invoke("threads", "show", "t", *STORE).stdout
    assert "State    open, waiting\n" in shown
    assert "Tools    add, ask\n" in shown
    assert "Told     Be kind.\n" in shown
    assert "open, deferred  ask {}" in shown


def test_a_thread_shows_its_timers_and_sizes(invoke: Invoke) -> None:
    invoke("run", 'call sleep {"seconds": 3600}', "--thread", "t", *MODEL, *STORE, "--no-wait")
    record = json.loads(invoke("threads", "show", "t", *STORE, "--json").stdout)
    assert [timer["purpose"] for timer in record["timers"]] == ["sleep"]
    assert record["timers"][0]["due"] > record["updated"]
    assert min(record["bytes"].values()) > 0
    assert "Timer    sleep at " in invoke("threads", "show", "t", *STORE).stdout


def test_a_history_is_shown_item_by_item(invoke: Invoke) -> None:
    invoke("run", 'call add {"a": 1, "b": 2}', "--thread", "t", *MODEL, *STORE)
    lines = invoke("threads", "history", "t", *STORE).stdout.splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines] == ["1", "2", "3", "4"]
    assert [line[7:29].strip() for line in lines] == ["user", "call add", "result add", "agent"]
    assert [line[42:] for line in lines] == ['call add {"a": 1, "b": 2}', '{"a":1,"b":2}', "3", "It says: 3"]


def test_the_last_items_of_a_history_can_be_had_alone(invoke: Invoke) -> None:
    invoke("run", 'call add {"a": 1, "b": 2}', "--thread", "t", *MODEL, *STORE)
    lines = invoke("threads", "history", "t", *STORE, "--last", "2").stdout.splitlines()
    assert [line[7:29].strip() for line in lines] == ["result add", "agent"]


def test_full_texts_are_whole_though_they_were_put_aside(invoke: Invoke) -> None:
    text = "x" * 100_000 + "\nend"
    invoke("run", "-", "--thread", "t", "--model", "echo", *STORE, stdin=text)
    assert text in invoke("threads", "history", "t", *STORE, "--full").stdout
    assert max(map(len, invoke("threads", "history", "t", *STORE).stdout.splitlines())) < 300


def test_a_thread_is_found_by_the_beginning_of_its_id(invoke: Invoke) -> None:
    invoke("run", "hello", "--model", "echo", *STORE)
    name = json.loads(invoke("threads", "list", *STORE, "--json").stdout)["thread_id"]
    for given in (name, name[:-4], name.removeprefix("thread_")[:12]):
        assert f"Thread   {name}\n" in invoke("threads", "show", given, *STORE).stdout


def test_a_beginning_that_several_share_is_refused(invoke: Invoke) -> None:
    for name in ("build-1", "build-2", "build"):
        invoke("send", name, "hello", *STORE)
    result = invoke("threads", "show", "bui", *STORE)
    assert result.exit_code == 1
    assert "several threads begin with 'bui': build, build-1, build-2" in result.stderr
    assert "Thread   build\n" in invoke("threads", "show", "build", *STORE).stdout


def talk_and_compact(invoke: Invoke) -> None:
    for number in range(1, 6):
        invoke("run", f"message {number} " + "word " * 200, "--thread", "t", "--model", "echo", *STORE)
    assert invoke("threads", "compact", "t", *STORE).stdout.startswith("accepted: compact t.")
    serve_until_idle()


def test_a_history_that_was_compacted_is_shown_from_its_summary_on(invoke: Invoke) -> None:
    talk_and_compact(invoke)
    lines = invoke("threads", "history", "t", *STORE).stdout.splitlines()
    kinds = [line[7:29].strip() for line in lines]
    assert kinds == ["summary", "user", "agent", "notice compacting"]
    assert [int(line[:5]) for line in lines] == [12, 9, 10, 11]
    before, after = lines[0][42:].removeprefix("compacted: ").split(" tokens")[0].split(" -> ")
    assert int(before.replace(",", "")) > int(after.replace(",", "")) > 0
    records = [json.loads(line) for line in invoke("threads", "history", "t", *STORE, "--json").stdout.splitlines()]
    assert [record["number"] for record in records] == [12, 9, 10, 11]
    assert records[0]["covers"] == 8
    last = invoke("threads", "history", "t", *STORE, "--last", "2").stdout.splitlines()
    assert [line[7:29].strip() for line in last] == ["summary", "notice compacting"]


def test_all_of_a_history_that_was_compacted_can_still_be_had(invoke: Invoke) -> None:
    talk_and_compact(invoke)
    records = invoke("threads", "history", "t", *STORE, "--full", "--json").stdout.splitlines()
    assert [json.loads(record)["number"] for record in records] == list(range(1, 13))
    whole = invoke("threads", "history", "t", *STORE, "--full").stdout
    assert "message 1 word" in whole
    assert "compacted: " in whole
    events = [json.loads(line) for line in invoke("run", "more", "--thread", "t", "--json", *STORE).stdout.splitlines()]
    assert events[-1]["type"] == "CompletionFinished"
    assert invoke("verify", "t", *STORE).exit_code == 0


def test_a_child_shows_what_it_inherited_when_asked_for_everything(invoke: Invoke) -> None:
    spawn = 'call spawn_thread {"instructions": "Count.", "child_of": []}'
    invoke("run", spawn, "--thread", "t", *MODEL, *STORE)
    serve_until_idle()
    listed = [json.loads(line) for line in invoke("threads", "list", "--all", *STORE, "--json").stdout.splitlines()]
    (child,) = [state["thread_id"] for state in listed if state["thread_id"] != "t"]
    own = invoke("threads", "history", child, *STORE).stdout
    assert spawn not in own
    records = [
        json.loads(line) for line in invoke("threads", "history", child, *STORE, "--full", "--json").stdout.splitlines()
    ]
    assert [record.get("inherited", False) for record in records[:3]] == [True, True, False]
    assert records[0]["content"] == spawn
    assert "    ↑  user" in invoke("threads", "history", child, *STORE, "--full").stdout
    assert invoke("verify", child, *STORE).exit_code == 0


@pytest.mark.parametrize("words", [("show",), ("history",), ("stop",), ("resume",), ("compact",)])
def test_a_thread_that_is_not_there_is_said_not_to_be(words: tuple[str, ...], invoke: Invoke) -> None:
    invoke("send", "t", "hello", *STORE)
    result = invoke("threads", *words, "nobody", *STORE)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no thread 'nobody'" in result.stderr


def test_the_threads_of_another_tenant_are_not_found(invoke: Invoke) -> None:
    invoke("send", "t", "hello", *STORE, "--tenant", "ours")
    assert invoke("threads", "show", "t", *STORE).exit_code == 1
    assert invoke("threads", "show", "t", *STORE, "--tenant", "ours").exit_code == 0


def test_a_thread_is_stopped_and_resumed_by_the_next_engine(invoke: Invoke) -> None:
    invoke("run", "one", "--thread", "t", "--model", "echo", *STORE)
    assert invoke("threads", "stop", "t", *STORE, "--reason", "enough").stdout.startswith("accepted: stop t.")
    serve_until_idle()
    assert json.loads(invoke("threads", "show", "t", *STORE, "--json").stdout)["status"] == "stopped"
    assert "Reason   enough\n" in invoke("threads", "show", "t", *STORE).stdout
    assert invoke("threads", "resume", "t", *STORE).exit_code == 0
    serve_until_idle()
    assert json.loads(invoke("threads", "show", "t", *STORE, "--json").stdout)["status"] == "open"


def test_a_file_that_is_no_store_is_refused_and_left_alone(invoke: Invoke, folder: Path) -> None:
    (folder / "agents.db").write_bytes(b"no store" * 1_000)
    result = invoke("threads", "list", *STORE)
    assert result.exit_code == 6
    assert result.stderr.startswith("Error: ")
    assert (folder / "agents.db").read_bytes() == b"no store" * 1_000


def test_a_command_that_talks_to_one_thread_leaves_the_others_alone(invoke: Invoke) -> None:
    invoke("run", "one", "--thread", "t", "--model", "echo", *STORE)
    invoke("send", "t", "two", *STORE)
    invoke("run", "other", "--thread", "other", "--model", "echo", *STORE)
    assert json.loads(invoke("threads", "show", "t", *STORE, "--json").stdout)["waiting"] == 1


# Trees


def spawned(invoke: Invoke) -> str:
    """Make a thread with a child that has answered; return the child's id."""
    invoke("run", 'call spawn_thread {"instructions": "Count.", "child_of": []}', "--thread", "t", *MODEL, *STORE)
    listed = [json.loads(line) for line in invoke("threads", "list", "--all", *STORE, "--json").stdout.splitlines()]
    (child,) = [state["thread_id"] for state in listed if state["thread_id"] != "t"]
    return str(child)


def test_a_list_leaves_out_what_other_threads_have_made(invoke: Invoke) -> None:
    spawned(invoke)
    (row,) = invoke("threads", "list", *STORE).stdout.splitlines()[1:]
    assert row.split()[:5] == ["t", "idle", row.split()[2], "0", "1"]


def test_a_tree_is_drawn(invoke: Invoke) -> None:
    child = spawned(invoke)
    _, root, below = invoke("threads", "tree", "t", *STORE).stdout.splitlines()
    assert root.split()[:2] == ["t", "idle"]
    assert below.startswith(f"└─ {child}")
    assert below.endswith("Count.")
    record = json.loads(invoke("threads", "tree", "t", *STORE, "--json").stdout)
    assert [one["thread_id"] for one in record["children"]] == [child]
    assert (record["living_children"], record["children"][0]["parent"]) == (1, "t")


def test_a_closed_thread_closes_what_is_below_it_and_is_left_out_of_the_tree(invoke: Invoke) -> None:
    child = spawned(invoke)
    assert invoke("threads", "close", "t", *STORE, "--reason", "over").exit_code == 0
    serve_until_idle()
    result = invoke("threads", "tree", "t", *STORE)
    assert child not in result.stdout
    assert "1 more has ended" in result.stderr
    assert child in invoke("threads", "tree", "t", "--all", *STORE).stdout


def test_a_tree_is_stopped_and_resumed_as_a_whole(invoke: Invoke) -> None:
    child = spawned(invoke)
    invoke("threads", "stop", "t", "--tree", *STORE)
    serve_until_idle()
    states = [invoke("threads", "show", name, *STORE).stdout for name in ("t", child)]
    assert ["State    stopped" in state for state in states] == [True, True]
    invoke("threads", "resume", "t", "--tree", *STORE)
    serve_until_idle()
    states = [invoke("threads", "show", name, *STORE).stdout for name in ("t", child)]
    assert ["State    open" in state for state in states] == [True, True]


def test_c66_a_conversation_is_deleted_with_all_below_it_and_only_when_that_is_meant(invoke: Invoke) -> None:
    child = spawned(invoke)
    result = invoke("threads", "delete", "t", *STORE)
    assert result.exit_code == 2
    assert "t and 1 below it would be removed for good" in result.stderr
    assert invoke("threads", "delete", child, "--yes", *STORE).exit_code != 0
    assert invoke("threads", "delete", "t", "--yes", *STORE).stdout == "removed: 2 threads\n"
    assert invoke("threads", "list", "--all", *STORE).stdout == ""


def test_c66_what_ended_long_ago_is_pruned_and_the_rest_is_not(invoke: Invoke) -> None:
    spawned(invoke)
    invoke("send", "other", "hello", *STORE)
    invoke("threads", "close", "t", *STORE)
    serve_until_idle()
    assert invoke("threads", "prune", *STORE).stdout == "removed: 0 threads\n"
    assert invoke("threads", "prune", "--older-than", "0h", *STORE).stdout == "removed: 2 threads\n"
    assert [line.split()[0] for line in invoke("threads", "list", *STORE).stdout.splitlines()[1:]] == ["other"]


@pytest.mark.parametrize("age", ["", "3", "-1d", "1y", "1.5h"])
def test_what_is_no_age_is_refused(age: str, invoke: Invoke) -> None:
    invoke("send", "t", "hello", *STORE)
    assert invoke("threads", "prune", "--older-than", age, *STORE).exit_code == 2


def test_a_subscription_shows_what_is_at_work_and_what_waits(invoke: Invoke, folder: Path) -> None:
    (folder / "listener.py").write_text(
        "from hibernaut import ScriptedModel, ThreadOptions, ToolContext, tool\n"
        "from hibernaut.models.scripted import call, say\n"
        "@tool(resumable=True)\n"
        "async def watch(context: ToolContext):\n"
        '    "Watch."\n'
        '    yield "watching"\n'
        "    for number in range(12):\n"
        '        yield f"event {number}"\n'
        "    import asyncio\n"
        "    await asyncio.Event().wait()\n"
        "@tool\n"
        "async def hang() -> str:\n"
        '    "Hang."\n'
        "    import asyncio\n"
        "    await asyncio.Event().wait()\n"
        '    return ""\n'
        "def answer(request):\n"
        "    if request.thread_id != 't':\n"
        "        return call('hang')\n"
        "    return call('watch') if len(request.transcript) == 1 else say('I listen.')\n"
        "model = ScriptedModel(answer)\n"
    )
    invoke(
        "run",
        "listen",
        "--thread",
        "t",
        "--model",
        "listener.py:model",
        "--tools",
        "listener.py",
        *STORE,
        "--timeout",
        "3",
    )
    shown = invoke("threads", "show", "t", *STORE).stdout
    assert "Below    8 living children\n" in shown
    (listens,) = [line for line in shown.splitlines() if line.startswith("Listens")]
    assert "8 events at work, 4 waiting, the last #8" in listens
