"""Receipts in their published form: what follows from what is stored, and nothing else."""

from importlib.resources import files
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from hibernaut.codec import sha256
from hibernaut.errors import StoreCorrupt
from hibernaut.kernel.published_receipts import EffectFate, Ends, PublishedReceipt, Publisher, named
from hibernaut.kernel.queue import digest_of
from hibernaut.kernel.receipt import Receipt, TurnCommit, decode_receipt, encode_receipt
from hibernaut.messages.inputs import Command, Drop, Edit, ToolResult
from hibernaut.messages.items import encode_page
from tests.kernel.scenario import MINUTE, OVERLOADED, Thread, calls, says

SCHEMA = msgspec.json.decode(files("hibernaut.kernel").joinpath("resume_contract_v1.json").read_bytes())


def published(thread: Thread, outbox: dict[str, EffectFate] | None = None, **more: Any) -> list[PublishedReceipt]:
    """Return the receipts of a thread, each checked against the schema."""
    ends = Ends()
    for _, stored in thread.log:
        ends.note(decode_receipt(stored))
    publisher = Publisher(thread.name, ends, outbox or {}, start=thread.start, **more)
    validator = jsonschema_rs.validator_for(SCHEMA)
    found = []
    for page, stored in thread.log:
        receipt = publisher.publish(page, stored, payloads=True)
        validator.validate(msgspec.json.decode(msgspec.json.encode(receipt)))
        found.append(receipt)
    return found


def test_a_call_that_waits_for_another_is_held_until_the_round_that_sends_it_out() -> None:
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build", "check"))
    first_call, second_call = thread.calls
    thread.result(1)
    thread.run()
    one, two = published(thread, {second_call: "sent"})
    assert [(request.tool, request.dispatch, request.effect_state) for request in one.tool_requests] == [
        ("build", "dispatched", "settled"),
        ("check", "held", "sent"),
    ]
    (sent,) = two.tool_requests
    assert (sent.request_id, sent.tool, sent.dispatch) == (second_call, "check", "dispatched")
    assert [(end.request_id, end.input) for end in two.settled] == [(first_call, two.inputs[0].id)]


def test_an_operators_command_is_shown_with_its_reason_and_what_it_cancelled() -> None:
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build"))
    (name,) = thread.calls
    message = thread.put(Command("cancel", name, "too slow"))
    thread.run(says("Cancelled."))
    first, second = published(thread)
    (decision,) = second.operator_decision
    assert (decision.action, decision.call, decision.reason, decision.input) == ("cancel", name, "too slow", message)
    (request,) = first.tool_requests
    assert request.effect_state == "cancelled"
    (notice,) = second.tool_requests
    assert (notice.kind, notice.tool, notice.effect_state) == ("cancel", "build", "done")


def test_what_an_operator_changed_of_what_waited_is_shown_with_the_digests_of_what_it_said() -> None:
    thread = Thread()
    dropped, first, second = thread.user("Wipe it"), thread.user("One"), thread.user("Two")
    thread.put(Edit(first, "Three"))
    thread.put(Drop(dropped, "a slip"))
    thread.put(Edit(second, "Four"))
    late = thread.put(Edit(dropped, "Five"))
    thread.run(says("Yes."))
    (receipt,) = published(thread)
    told = [(one.action, one.message, one.before, one.after, one.reason) for one in receipt.operator_decision]
    assert told == [
        ("edit", first, named(digest_of("One")), named(digest_of("Three")), ""),
        ("drop", dropped, msgspec.UNSET, msgspec.UNSET, "a slip"),
        ("edit", second, named(digest_of("Two")), named(digest_of("Four")), ""),
    ]
    fates = {one.id: one.disposition for one in receipt.inputs}
    assert (fates[dropped], fates[late], fates[first]) == ("dropped", "stale", "accepted")


def test_a_call_whose_end_nobody_knows_is_shown_as_unknown_until_its_result_comes() -> None:
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build"))
    (name,) = thread.calls
    unknown = ToolResult(name, "It is unknown.", is_error=True, unknown=True)
    thread.put(unknown, f"unknown:{name}")
    thread.run(says("Hm."))
    (request,) = published(thread)[0].tool_requests
    assert (request.effect_state, request.result) == ("unknown", f"unknown:{name}")
    thread.put(ToolResult(name, "built"), f"result:{name}")
    thread.run(says("So it was."))
    (request,) = published(thread)[0].tool_requests
    assert (request.effect_state, request.result) == ("settled", f"result:{name}")


def test_a_failed_completion_names_the_model_the_prompt_and_how_often_it_failed() -> None:
    thread = Thread()
    thread.user("Hello")
    thread.round(OVERLOADED)
    thread.wait(MINUTE)
    thread.round(says("Hi."))
    first, second = published(thread, model="echo")
    assert (first.turn_commit, first.retry_count, first.model) == ("failed", 1, "echo")
    assert (second.turn_commit, second.retry_count) == ("complete", 0)
    assert first.history_before is None
    assert second.history_before == first.history_after


def test_the_prompt_is_what_the_page_says_it_is() -> None:
    thread = Thread()
    thread.user("Hello")
    thread.round(says("Hi."))
    (receipt,) = published(thread)
    shown = encode_page(thread.items[: decode_receipt(thread.log[0][1]).shown])
    assert receipt.prompt == "sha256:" + sha256(bytes(32), shown).hex()


def test_a_round_that_asks_nobody_has_neither_model_nor_prompt() -> None:
    thread = Thread()
    thread.put(ToolResult("call_unknown", "?"))
    thread.run()
    (receipt,) = published(thread, model="echo")
    assert (receipt.model, receipt.prompt, receipt.page, receipt.turn_commit) == (None, None, None, "none")
    assert [one.disposition for one in receipt.inputs] == ["stale"]


def test_an_input_that_waits_has_no_provenance_yet() -> None:
    thread = Thread()
    thread.user("Build")
    thread.run(calls("build"))
    thread.stop()
    thread.run()
    thread.put(ToolResult("call_unknown", "?"))
    thread.put(Command("stop"))
    thread.round()
    held = [one for one in published(thread)[-1].inputs if one.disposition == "held"]
    assert [one.provenance for one in held] == [None]


def test_a_receipt_that_makes_no_sense_is_corrupt() -> None:
    odd = Receipt(1, b"", b"", (("m1", 99),), TurnCommit.NONE)
    with pytest.raises(StoreCorrupt, match="there is no disposition 99"):
        Publisher("t", Ends(), {}).publish(b"", encode_receipt(odd))
    for wrong in (msgspec.structs.replace(odd, owes=(0,)), msgspec.structs.replace(odd, provenance=(0, 1))):
        with pytest.raises(StoreCorrupt):
            decode_receipt(encode_receipt(wrong))
