"""What a benchmark says when it cannot measure."""

import asyncio
from pathlib import Path

import pytest

from hibernaut.bench import workload
from hibernaut.bench.places import temporary_folder
from hibernaut.bench.workload import Workload, drive
from hibernaut.errors import ConfigurationError, StoreError, StoreFull
from hibernaut.kernel.commit import SliceCommit
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import Claim
from hibernaut.system import AgentSystem


class FullStore(MemoryStore):
    """Takes what is said, and nothing that agents do."""

    async def commit(self, claim: Claim, commit: SliceCommit, *, keep: bool = False) -> None:
        raise StoreFull("there is no room")


def test_a_store_that_is_full_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "LOOK_EVERY", 0.01)

    async def scenario() -> None:
        made = Workload()
        async with AgentSystem(model=made, tools=[made.tool()], store=FullStore()) as system, asyncio.timeout(20):
            await drive(system, made, ["a"], 1)

    with pytest.raises(StoreError, match="nothing to measure"):
        asyncio.run(scenario())


def test_a_folder_in_which_nothing_can_be_made_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with (
        pytest.raises(ConfigurationError, match=f"nothing can be written in {missing}"),
        temporary_folder(str(missing)),
    ):
        pass
    with temporary_folder(str(tmp_path)) as made:
        (made / "file").touch()
    assert list(tmp_path.iterdir()) == []
