"""Agents that are made for a benchmark are as good as those that have run: their receipts prove what they hold."""

import asyncio
from pathlib import Path

import pytest

from hibernaut.bench.answering import Answering
from hibernaut.bench.population import name_of, populate
from hibernaut.errors import ConfigurationError
from hibernaut.system import AgentSystem


def test_made_agents_verify_and_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "agents.db"
        assert await populate(path, 30) > 0
        model = Answering()
        async with AgentSystem(model=model, store=path) as system:
            assert len(await system.threads(limit=100)) == 30
            await system.send(name_of(7), "Has anything happened?")
            await system.wait_idle()
            assert list(model.asked) == [name_of(7)]
            agent = await system.thread(name_of(7))
            assert (await agent.state()).items == 4
            assert await system.verify(name_of(7)) == 2

    asyncio.run(scenario())


def test_a_file_that_is_there_is_filled_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "agents.db"
        await populate(path, 3)
        await populate(path, 5)
        assert await populate(path, 5) == 0
        async with AgentSystem(store=path, run=False) as system:
            assert {one.thread_id for one in await system.threads()} == {name_of(number) for number in range(5)}

    asyncio.run(scenario())


@pytest.mark.parametrize("names", [["mine"], [name_of(number) for number in range(9)]])
def test_a_file_with_other_threads_is_left_as_it_is(names: list[str], tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "agents.db"
        async with AgentSystem(store=path, run=False) as system:
            for name in names:
                await system.launch(thread_id=name)
        with pytest.raises(ConfigurationError, match="name another file"):
            await populate(path, 5)
        async with AgentSystem(store=path, run=False) as system:
            assert len(await system.threads()) == len(names)

    asyncio.run(scenario())
