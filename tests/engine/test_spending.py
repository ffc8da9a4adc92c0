"""What completions took is counted, whatever became of them."""

from hibernaut.messages.events import Usage
from hibernaut.models.prices import Prices
from hibernaut.models.protocol import ModelInfo
from hibernaut.models.scripted import ScriptedModel, refuse, turn
from tests.engine.scenario import head_of, run, system

PRICED = ModelInfo(prices=Prices(input=2.0, output=10.0, cached=1.0))


def test_a_completion_that_was_refused_is_paid_for_like_any_other() -> None:
    model = ScriptedModel([turn(refuse("I won't."), usage=Usage(1_000, 20, 400))], info=PRICED)

    async def scenario() -> None:
        async with system(model) as it:
            agent = await it.launch(message="Hello")
            state = await agent.wait_idle()
            receipts = await agent.receipts()
            head = await head_of(agent)
        assert state.status == "parked"
        assert (state.usage, state.cost, state.unpriced) == (Usage(1_000, 20, 400), 1_800, 0)
        assert [receipt.usage for receipt in receipts] == [Usage(1_000, 20, 400)]
        assert head.measured == 0, "what was refused says nothing of the prompt that comes next"

    run(scenario)
