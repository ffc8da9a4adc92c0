"""What a thread says is carried elsewhere: whoever keeps the cursor of what was delivered misses nothing."""

import contextlib
from collections import defaultdict
from pathlib import Path

import pytest
from msgspec.structs import replace

from hibernaut.handle import ThreadHandle
from hibernaut.messages.events import AgentEvent
from hibernaut.messages.items import CallItem
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedTurn, call, last_user_text, say
from hibernaut.testing.clock import ManualClock
from tests.engine.scenario import run, system
from tests.tenancy import opened


class Died(Exception):
    """The relay died here."""


class Relay:
    """Delivers events, then keeps the cursor of the last one. It dies before a certain step, and is begun anew."""

    def __init__(self, dies_before: int) -> None:
        self.delivered: list[AgentEvent] = []
        self.cursor = ""
        self.steps = 0
        self.dies_before = dies_before

    async def carry(self, agent: ThreadHandle, *, tree: bool) -> None:
        async for event in agent.events(self.cursor, follow=False, tree=tree):
            self._step()
            self.delivered.append(event)
            self._step()
            self.cursor = event.cursor

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self.dies_before:
            raise Died


def answer(request: ModelRequest) -> ScriptedTurn:
    if request.thread_id != "t":
        return say("Counted.")
    if any(isinstance(item, CallItem) for item in request.transcript):
        return say(f"You said {last_user_text(request)}.")
    return call("spawn_thread", instructions="Count", child_of=[])


def by_thread(events: list[AgentEvent]) -> dict[str, list[AgentEvent]]:
    found: defaultdict[str, list[AgentEvent]] = defaultdict(list)
    for event in events:
        found[event.thread_id].append(replace(event, cursor=""))
    return dict(found)


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a38_output_is_delivered_once_or_again_and_in_its_order_wherever_the_relay_dies(
    kind: str, tree: bool, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(kind, tmp_path) as store:
            async with system(answer, store=store, clock=ManualClock()) as it:
                agent = await it.launch(thread_id="t", message="one")
                await it.wait_idle()
                lives = [Relay(number) for number in range(1, 100)]
                for relay in lives:
                    with contextlib.suppress(Died):
                        await relay.carry(agent, tree=tree)
                await agent.send("two")
                await it.wait_idle()
                whole = Relay(0)
                await whole.carry(agent, tree=tree)
                assert lives[-1].steps < lives[-1].dies_before
            # Another process goes on from the cursors.
            async with system([], store=store, run=False) as client:
                agent = await client.thread("t")
                for relay in lives:
                    before = len(relay.delivered)
                    unsure = before > 0 and relay.cursor != relay.delivered[-1].cursor
                    relay.dies_before = 0
                    await relay.carry(agent, tree=tree)
                    if unsure:  # it was delivered, and that was not written down
                        first = relay.delivered[before - 1]
                        places = range(before, len(relay.delivered))
                        place = next(at for at in places if relay.delivered[at].thread_id == first.thread_id)
                        again = relay.delivered.pop(place)
                        assert replace(first, cursor="") == replace(again, cursor="")
                        assert tree or first.cursor == again.cursor
                    assert by_thread(relay.delivered) == by_thread(whole.delivered)

    run(scenario)
