"""Spans: what they are called and say, how the slices of threads are linked, and that they disturb nobody."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from hibernaut.messages.events import Usage
from hibernaut.models.errors import Overloaded
from hibernaut.models.protocol import ModelRequest
from hibernaut.models.scripted import ScriptedModel, ScriptedTurn, call, fail, say, turn
from hibernaut.rap.manifest import RemoteTool, Toolset
from hibernaut.stores.memory import MemoryStore
from hibernaut.stores.protocol import DEAD_AFTER
from hibernaut.testing.clock import ManualClock
from hibernaut.tools.context import Deferred, ToolContext
from hibernaut.tools.tool import tool
from tests.engine.far import CI, PUBLIC, SCHEMA, Far
from tests.engine.scenario import head_of, killed, run, settle, system, until_told


class Recorder:
    """A tracer provider, and what it was given."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self, *, named: str = "") -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(named)]

    def only(self, named: str) -> ReadableSpan:
        (span,) = self.spans(named=named)
        return span


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def place(span: ReadableSpan) -> tuple[int, int]:
    context = span.context
    assert context is not None
    return context.trace_id, context.span_id


def above(span: ReadableSpan) -> tuple[int, int] | None:
    return (span.parent.trace_id, span.parent.span_id) if span.parent is not None else None


def linked(span: ReadableSpan) -> list[tuple[tuple[int, int], Any]]:
    return [
        ((link.context.trace_id, link.context.span_id), (link.attributes or {})["hibernaut.link"])
        for link in span.links
    ]


@tool
async def build(commit: str) -> str:
    """Build a commit."""
    if commit == "rotten":
        raise ValueError("it is broken")
    trace.get_tracer("the tool's own", tracer_provider=_own[-1]).start_span("compile").end()
    return "built"


_own: list[TracerProvider] = [TracerProvider(shutdown_on_exit=False)]


def test_a_slice_a_completion_and_a_call_have_spans_with_the_names_of_the_conventions() -> None:
    recorder = Recorder()
    _own.append(recorder.provider)

    async def scenario() -> None:
        script = [turn(call("build", commit="abc"), usage=Usage(100, 20, 60)), turn("Done.", usage=Usage(150, 5))]
        async with system(script, build, tracer_provider=recorder.provider) as it:
            await it.send("t", "Build it")
            await it.wait_idle()

    run(scenario)
    first, second = recorder.spans(named="slice")
    asked, _ = recorder.spans(named="chat")
    ran, own = recorder.only("execute_tool build"), recorder.only("compile")
    assert first.kind is SpanKind.CONSUMER
    assert first.parent is second.parent is None
    assert said(first) == {
        "gen_ai.conversation.id": "t",
        "hibernaut.tree": "t",
        "hibernaut.version": 0,
        "hibernaut.inputs": 1,
        "hibernaut.tries": 1,
        "hibernaut.status": "open",
    }
    assert (asked.kind, above(asked)) == (SpanKind.CLIENT, place(first))
    model = said(asked)["gen_ai.request.model"]
    assert asked.name == f"chat {model}"
    assert said(asked) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "custom",
        "gen_ai.request.model": model,
        "gen_ai.conversation.id": "t",
        "gen_ai.response.finish_reasons": ("end",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "hibernaut.purpose": "turn",
    }
    assert (ran.kind, above(ran), above(own)) == (SpanKind.INTERNAL, place(first), place(ran))
    assert said(ran)["gen_ai.operation.name"] == "execute_tool"
    assert said(ran)["gen_ai.tool.name"] == "build"
    assert said(ran)["gen_ai.tool.type"] == "function"
    assert said(ran)["gen_ai.tool.call.id"].startswith("call_")
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    used = {name for span in recorder.spans() for name in said(span) if name.startswith("gen_ai.")}
    assert used <= known


def test_the_slices_of_a_thread_are_linked_over_restarts_and_a_child_to_the_slice_that_made_it() -> None:
    recorder, store, clock = Recorder(), MemoryStore(), ManualClock()

    def answer(request: ModelRequest) -> ScriptedTurn:
        if request.thread_id == "t" and len(request.transcript) == 1:
            return turn(call("spawn_thread", instructions="Look", child_of=["t"]), usage=Usage(10, 1))
        return turn("Done.", usage=Usage(10, 1))

    async def scenario() -> None:
        for text in ("Go", "Go on"):
            given: dict[str, Any] = {"store": store, "clock": clock, "tracer_provider": recorder.provider}
            async with system(ScriptedModel(answer, clock=clock), **given) as it:
                await it.send("t", text)
                await it.wait_idle()

    run(scenario)
    own = [span for span in recorder.spans(named="slice") if said(span)["gen_ai.conversation.id"] == "t"]
    child = [span for span in recorder.spans(named="slice") if said(span)["gen_ai.conversation.id"] != "t"]
    assert linked(own[0]) == []
    for before, after in pairwise(own):
        assert linked(after) == [(place(before), "previous")]
    assert linked(child[0]) == [(place(own[0]), "spawned_by")]
    assert {said(span)["hibernaut.tree"] for span in child} == {"t"}
    traces = [place(span)[0] for span in own + child]
    assert len(set(traces)) == len(traces), "every slice is a trace of its own"
    tokens = [said(span).get("gen_ai.usage.input_tokens", 0) for span in recorder.spans()]
    assert sum(tokens) == 10 * len(recorder.spans(named="chat"))


def test_a_call_that_is_run_again_after_a_restart_is_below_the_slice_that_owed_it() -> None:
    recorder, store, clock = Recorder(), MemoryStore(), ManualClock()
    runs: list[int] = []

    @tool(idempotent=True)
    async def note() -> str:
        """Write a note."""
        runs.append(1)
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "noted"

    async def scenario() -> None:
        given: dict[str, Any] = {"store": store, "clock": clock, "tracer_provider": recorder.provider}
        async with killed([call("note")], note, **given) as it:
            await it.send("t", "Go")
            while not runs:
                await settle()
        clock.advance(DEAD_AFTER)
        async with system(say("Done."), note, **given) as it:
            await until_told(await it.thread("t"), "says: Done.")

    run(scenario)
    first, _ = recorder.spans(named="slice")
    again = recorder.spans(named="execute_tool")[-1]
    assert said(again)["hibernaut.repeated"] is True
    assert above(again) == place(first)


def test_what_fails_is_said_by_its_kind_and_nothing_of_what_was_said() -> None:
    recorder, clock = Recorder(), ManualClock()

    async def scenario() -> None:
        script = [fail(Overloaded("come back later")), call("build", commit="rotten"), say("I see.")]
        async with system(script, build, clock=clock, tracer_provider=recorder.provider) as it:
            await it.send("t", "Hello, secret")
            while not recorder.spans(named="execute_tool"):
                clock.advance(60_000)
                await settle()
            await it.wait_idle()

    run(scenario)
    failed, *_ = recorder.spans(named="chat")
    assert (failed.status.status_code, said(failed)["error.type"]) == (StatusCode.ERROR, Overloaded.code)
    ran = recorder.only("execute_tool")
    assert (ran.status.status_code, said(ran)["error.type"]) == (StatusCode.ERROR, "tool_error")
    told = "".join(span.to_json() for span in recorder.spans())
    assert not any(word in told for word in ("secret", "broken", "later", "I see", "rotten"))


def test_calls_that_are_deferred_or_posted_to_a_server_end_when_they_are_handed_over() -> None:
    recorder = Recorder()
    there = Far(MemoryStore(), ManualClock(), Toolset("ci", CI.endpoint, (RemoteTool("deploy", "Deploy.", SCHEMA),)))

    @tool
    async def later(context: ToolContext) -> Deferred:
        """Answer later."""
        return context.defer()

    async def scenario() -> None:
        given: dict[str, Any] = {"store": there.store, "clock": there.clock, "servers": there.servers}
        script = [turn(call("later")), turn(call("deploy", commit="a"))]
        async with system(script, later, callbacks=PUBLIC, tracer_provider=recorder.provider, **given) as it:
            for name in ("t", "u"):
                await it.send(name, "Go")
                await it.wait_idle()

    run(scenario)
    assert said(recorder.only("execute_tool later"))["hibernaut.deferred"] is True
    assert said(recorder.only("execute_tool deploy"))["gen_ai.tool.type"] == "extension"


class Broken(SpanProcessor):
    """What a program must not do, and does."""

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        raise RuntimeError("no")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("no")


class BrokenExporter(InMemorySpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> Any:
        raise RuntimeError("the collector is on fire")


@pytest.mark.parametrize("processor", [Broken(), SimpleSpanProcessor(BrokenExporter())])
def test_tracing_that_fails_disturbs_no_slice(processor: SpanProcessor) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)

    async def scenario() -> None:
        async with system([call("build", commit="abc"), say("Done.")], build, tracer_provider=provider) as it:
            agent = await it.launch(thread_id="t", message="Build it")
            await until_told(agent, "result: built", "says: Done.")
            await it.wait_idle()
            assert it._metrics.slices_failed == 0

    run(scenario)


def test_without_a_provider_nothing_of_it_is_loaded_or_stored() -> None:
    async def scenario() -> None:
        async with system(say("Hello.")) as it:
            agent = await it.launch(message="Hello")
            await it.wait_idle()
            assert (await head_of(agent)).trace == b""

    run(scenario)
    program = (
        "import asyncio, sys\nfrom hibernaut import AgentSystem, ScriptedModel\n"
        "async def main():\n"
        "    async with AgentSystem(model=ScriptedModel(['Hello.'])) as system:\n"
        "        await system.send('t', 'Hello')\n        await system.wait_idle()\n"
        "asyncio.run(main())\nprint([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, encoding="utf-8")
    assert done.stdout == "[]\n"
