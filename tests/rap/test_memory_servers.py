"""Tool servers in memory do what real ones do, as far as an engine can tell."""

from collections.abc import Iterator

import pytest

from hibernaut.errors import MalformedInput
from hibernaut.rap.manifest import RemoteTool, Toolset, read_manifest
from hibernaut.rap.replies import NoAnswer
from hibernaut.rap.requests import AskStatus, CancelToolCall, CloseThread, Invocation, Migrate, Selected
from hibernaut.rap.tool_servers import DiscoveryFailed, ToolServers, UnknownServer
from hibernaut.testing.tool_servers import MemoryToolServers, Received

TOOLSET = Toolset("ci", "https://ci.example/invoke", (RemoteTool("build", "Build it.", "{}"),))


def call(number: int = 1) -> Invocation:
    return Invocation("build", {}, f"call_{number}", None, "https://h.example/x", "t", None)


def key(number: int = 1) -> dict[str, str]:
    return {"Idempotency-Key": f"key_{number}"}


async def test_what_is_told_is_kept_and_taken() -> None:
    memory = MemoryToolServers({"ci": TOOLSET})
    servers: ToolServers = memory
    found = await servers.discover("ci")
    assert found.toolset == read_manifest(found.manifest) == TOOLSET
    assert (await servers.invoke("ci", call(), key(), TOOLSET.endpoint)).status == 200
    await servers.invoke("ci", call(), key(), TOOLSET.endpoint)
    assert await servers.status("ci", AskStatus("t", "call_1")) == "alive"
    await servers.cancel("ci", CancelToolCall("t", "call_1"))
    assert await servers.status("ci", AskStatus("t", "call_1")) == "dead"
    await servers.close_thread("ci", CloseThread("t"))
    await servers.migrate("ci", Migrate("s", "https://b.example"))
    await servers.select("ci", "https://ci.example/choice", Selected("call_1", 1))
    assert memory.calls == [call(), call()]
    assert memory.work == {"key_1": call()}
    assert memory.received[-1] == Received("ci", Selected("call_1", 1), url="https://ci.example/choice", status=200)
    assert memory.discoveries == ["ci"]


async def test_a_test_decides_what_a_server_answers_and_what_reaches_it() -> None:
    answers: Iterator[int | NoAnswer] = iter(
        [500, NoAnswer("ci", "lost", reached=False), NoAnswer("ci", "broke off", reached=True), 422, 503, 404]
    )
    memory = MemoryToolServers({"ci": TOOLSET}, lambda _: next(answers))
    assert (await memory.invoke("ci", call(1), key(1), "")).status == 500
    for number in (2, 3):
        with pytest.raises(NoAnswer):
            await memory.invoke("ci", call(number), key(number), "")
    assert (await memory.invoke("ci", call(4), key(4), "")).status == 422
    assert memory.calls == [call(1), call(3), call(4)]
    assert memory.work == {"key_3": call(3)}
    assert memory.alive == {"call_3"}
    memory.finish("call_3")
    assert memory.alive == set()
    assert [await memory.status("ci", AskStatus("t", "call_3")) for _ in range(2)] == ["unknown", "dead"]


async def test_a_server_that_is_off_answers_nothing() -> None:
    memory = MemoryToolServers({"ci": TOOLSET})
    memory.unreachable.add("ci")
    with pytest.raises(DiscoveryFailed) as caught:
        await memory.discover("ci")
    assert caught.value.unreachable
    with pytest.raises(NoAnswer):
        await memory.invoke("ci", call(), key(), "")
    assert await memory.status("ci", AskStatus("t", "call_1")) == "unknown"
    assert memory.received == []
    with pytest.raises(UnknownServer):
        await memory.discover("other")


async def test_what_could_not_be_written_to_a_real_server_reaches_none() -> None:
    memory = MemoryToolServers({"ci": TOOLSET})
    with pytest.raises(MalformedInput):
        await memory.invoke("ci", Invocation("build", {"n": float("inf")}, "c", None, "u", "t", None), key(), "")
    assert memory.received == []
