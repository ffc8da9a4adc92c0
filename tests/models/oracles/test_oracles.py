"""Our adapters and the SDKs of the providers say the same to a provider, and hear the same from it."""

import pytest

from hibernaut.models.scripted import call
from hibernaut.testing.providers.server import Played
from tests.models.oracles.conversation import Answer, Failure, Held, Oracle, held, oracle_of
from tests.models.oracles.scenes import FAILURES, LAST, STATUSES, WHOLE, gateway
from tests.models.oracles.streams import STREAMS

ORACLES = ("anthropic_messages", "bedrock_converse", "google_gemini", "openai_chat", "openai_responses")


@pytest.fixture(scope="module", params=ORACLES)
def oracle(request: pytest.FixtureRequest) -> Oracle:
    return oracle_of(request.param)


async def both(oracle: Oracle, *script: Played, formed: bool = False, chunks: int | None = None) -> tuple[Held, Held]:
    """Hold a conversation with our adapter and with the SDK, and expect that they have asked alike."""
    ours, theirs = [await held(oracle, script, sdk=sdk, formed=formed, chunks=chunks) for sdk in (False, True)]
    assert [asked.path for asked in ours.asked] == [asked.path for asked in theirs.asked]
    assert [oracle.meaning(asked.body) for asked in ours.asked] == [
        oracle.meaning(asked.body) for asked in theirs.asked
    ]
    return ours, theirs


@pytest.mark.parametrize("scene", WHOLE)
async def test_a_turn_is_heard_and_sent_back_alike(oracle: Oracle, scene: str) -> None:
    ours, theirs = await both(oracle, WHOLE[scene], "Done.")
    assert ours.heard == theirs.heard
    assert len(ours.asked) == 2


async def test_an_answer_is_held_to_a_form_alike(oracle: Oracle) -> None:
    ours, theirs = await both(oracle, call("look", path="a"), '{"path":"a"}', formed=True)
    assert ours.heard == theirs.heard
    assert len(ours.asked) == 2


@pytest.mark.parametrize("chunks", [1, 7, 100])
async def test_a_stream_is_heard_alike_however_it_is_cut(oracle: Oracle, chunks: int) -> None:
    ours, theirs = await both(oracle, WHOLE["everything"], chunks=chunks)
    assert ours.heard == theirs.heard


@pytest.mark.parametrize("scene", LAST)
async def test_why_a_turn_ends_is_heard_alike(oracle: Oracle, scene: str) -> None:
    ours, theirs = await both(oracle, LAST[scene])
    assert ours.heard == theirs.heard


@pytest.mark.parametrize("scene", FAILURES)
async def test_a_failure_means_the_same(oracle: Oracle, scene: str, caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = await both(oracle, FAILURES[scene])
    assert caplog.messages == []
    assert ours.heard == theirs.heard
    assert isinstance(ours.heard[-1], Failure)


@pytest.mark.parametrize("status", STATUSES)
async def test_a_status_means_the_same(oracle: Oracle, status: int) -> None:
    if status in oracle.foreign:
        pytest.skip("the provider has no such status")
    ours, theirs = await both(oracle, gateway(status))
    assert ours.heard == theirs.heard


@pytest.mark.parametrize("oracle,stream", STREAMS, indirect=["oracle"])
async def test_what_only_the_real_provider_sends_is_heard_alike(oracle: Oracle, stream: str) -> None:
    ours, theirs = await both(oracle, STREAMS[oracle.name, stream])
    assert ours.heard == theirs.heard
    assert isinstance(ours.heard[0], Answer)
    assert ours.heard[0].reason
