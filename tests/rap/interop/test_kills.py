"""What was acknowledged by either side is not lost, whichever of them dies, and is not done twice."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from hibernaut.messages.items import EventItem
from hibernaut.messages.parts import plain_text
from hibernaut.system import AgentSystem
from tests.engine.scenario import story
from tests.rap.interop.parties import WITHIN, Desk, HurriedClock, agents, owed, read, tell, until_owed
from tests.rap.interop.processes import COMMAND, ROOT, line_of, process

CLOCK = ROOT / "examples" / "rap" / "clock.py"


@asynccontextmanager
async def nobody(url: str) -> AsyncIterator[asyncio.Event]:
    """Hang up on whoever comes to an address, and tell that somebody has come."""
    came = asyncio.Event()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", urlsplit(url).port):
        yield came


async def test_a_runtime_that_was_killed_goes_on_with_an_answer_that_nobody_listened_for(tmp_path: Path) -> None:
    desk, store = Desk(clock=HurriedClock()), tmp_path / "agents.db"
    async with desk.server.running() as there:
        async with process("-m", "tests.rap.interop.runtime", str(store), there.url, "wait {}") as runtime:
            address = await line_of(runtime)
            await desk.waits.wait()
            async with AgentSystem(store=store, run=False) as onlooker:
                await until_owed(await onlooker.thread("t"), "invoke: accepted")
        async with nobody(address) as came:
            desk.may_answer.set()
            async with asyncio.timeout(WITHIN):
                await came.wait()
        async with agents(there.url, store=store) as system:
            assert system.callbacks == address
            handle = await system.thread("t")
            await read(handle, "calls: wait {}", "result: at last", "says: I read: at last")
            assert await owed(handle) == []
            assert (await handle.state()).refused == 0
    assert desk.waited == 1


async def test_the_front_door_alone_takes_answers_for_engines_that_come_later_or_run_beside_it(tmp_path: Path) -> None:
    desk, store = Desk(), tmp_path / "agents.db"
    async with desk.server.running() as there:
        async with agents(there.url, store=store) as system:
            address = system.callbacks
            handle = await tell(system, "wait")
            await until_owed(handle, "invoke: accepted")
        door = (*COMMAND, "serve", "--inbox-only", "--store", str(store))
        async with process(*door, ends=signal.SIGTERM) as front, AgentSystem(store=store, run=False) as onlooker:
            assert f"taking callbacks for {store} at {address} " in await line_of(front)
            seen = await onlooker.thread(handle.thread_id)
            desk.may_answer.set()
            async with asyncio.timeout(WITHIN):
                while not await onlooker.store.read_inbox(seen.thread_id):
                    pass
            assert (await story(seen))[1:] == ["calls: wait {}"]
            async with agents(there.url, store=store) as system:
                assert system.callbacks == address
                await read(await system.thread(seen.thread_id), "result: at last", "says: I read: at last")
                await read(await tell(system, "echo", {"text": "hello"}), "says: I read: hello")
                assert await system.store.read_effects() == []
        assert front.returncode == 0
    assert desk.waited == 1


async def test_a_server_hears_of_the_new_address_of_a_runtime_whose_old_one_is_taken(tmp_path: Path) -> None:
    desk, store = Desk(), tmp_path / "agents.db"
    async with desk.server.running() as there:
        async with agents(there.url, store=store) as system:
            address = system.callbacks
            open_call, subscription = await tell(system, "wait"), await tell(system, "hold")
            await until_owed(open_call, "invoke: accepted")
            await read(subscription, "result: it begins")
        async with nobody(address), agents(there.url, store=store) as system:
            assert system.callbacks != address
            desk.may_answer.set()
            await read(await system.thread(open_call.thread_id), "result: at last", "says: I read: at last")
            await read(await system.thread(subscription.thread_id), "event: hold at last [final]")
            assert await system.store.read_effects() == []
    assert desk.waited == 1


async def test_a35_a_subscription_outlives_the_death_of_its_server(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    clock = (*COMMAND, "rap", "serve", f"{CLOCK}:server", "--port", port)
    served = (*clock, "--state", str(tmp_path / "clock.db"))
    async with process(*served) as first:
        await line_of(first)
        async with agents(f"http://127.0.0.1:{port}", store=tmp_path / "agents.db") as system:
            handle = await tell(system, "tick", {"seconds": 0.02, "count": 30})
            await read(handle, "event: tick tick 3 of 30")
            first.kill()
            await first.wait()
            assert await owed(handle) == ["invoke: accepted"]
            async with process(*served) as second:
                await line_of(second)
                await read(handle, "event: tick The subscription has ended. [final]")
            events = [item for item in await handle.history() if isinstance(item, EventItem)]
            assert [plain_text(event.content) for event in events] == [
                *(f"tick {number} of 30" for number in range(1, 31)),
                "The subscription has ended.",
            ]
            assert await owed(handle) == []
