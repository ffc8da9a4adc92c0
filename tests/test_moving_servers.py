"""Trees that move with their tool servers: state moves along, and open calls answer to where the tree went."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hibernaut import AgentSystem, RemoteServer, ScriptedModel, ToolContext, ToolError
from hibernaut.errors import ServersNotMoved
from hibernaut.models.scripted import call, say
from hibernaut.rap import ToolServer
from hibernaut.stores.memory import MemoryStore
from tests.engine.scenario import story, until_told


class Shell:
    """A server that keeps something for a conversation, and moves it when it is asked."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.begun = asyncio.Event()
        self.moved: list[tuple[str, str]] = []
        self.refuses = False
        self.times = 0
        self.server = ToolServer("shell", migrate=self.migrate)
        self.server.tool(self.work)

    async def work(self, context: ToolContext) -> str:
        """Work for a while."""
        self.times += 1
        self.begun.set()
        await self.done.wait()
        return f"done for {context.thread_id}"

    async def migrate(self, session_id: str, destination_url: str) -> None:
        if self.refuses:
            raise ToolError("the disk is full")
        self.moved.append((session_id, destination_url))


@asynccontextmanager
async def working(shell: Shell, *script: object) -> AsyncIterator[tuple[AgentSystem, str]]:
    """Let an agent call the shell, and give its system and the server's address while the call is open."""
    async with shell.server.running() as there:
        servers = [RemoteServer(url=there.url, name="shell")]
        model = ScriptedModel([call("work"), *script])  # type: ignore[list-item]
        async with AgentSystem(model=model, store=MemoryStore(), servers=servers) as system:
            agent = await system.launch(thread_id="a")
            await agent.send("Work")
            await shell.begun.wait()
            await system.wait_idle()
            yield system, there.url


async def test_a40_what_a_server_keeps_moves_along_and_open_calls_answer_to_where_the_tree_went() -> None:
    shell = Shell()
    async with working(shell) as (source, url):
        servers = [RemoteServer(url=url, name="shell")]
        model = ScriptedModel([say("It is done.")])
        async with AgentSystem(model=model, store=MemoryStore(), servers=servers) as destination:
            assert await source.migrate("a", destination) == 1
            assert shell.moved == [("a", url)]
            agent = await destination.thread("a")
            await agent.thaw()
            shell.done.set()
            await until_told(agent, "result: done for a", "says: It is done.")
            assert shell.times == 1
            assert await source.threads() == []


async def test_a40_a_server_that_refuses_leaves_everything_where_it_was() -> None:
    shell = Shell()
    shell.refuses = True
    async with working(shell, say("It is done.")) as (source, url):
        servers = [RemoteServer(url=url, name="shell")]
        async with AgentSystem(model=ScriptedModel([]), store=MemoryStore(), servers=servers) as destination:
            with pytest.raises(ServersNotMoved, match="shell"):
                await source.migrate("a", destination)
            assert await destination.threads() == []
            shell.done.set()
            agent = await source.thread("a")
            await until_told(agent, "says: It is done.")
            assert "result: done for a" in await story(agent)
