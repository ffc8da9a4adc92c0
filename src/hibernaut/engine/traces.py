"""Spans of slices, completions and tool calls, for the tracer provider of the program that runs them.

Every slice is a trace of its own: a thread may go on for months. It is linked to the slice before it, and the first one
of a child to the slice that made the child; where that stands is kept in the head. What a slice asks of a model is a
span below it, and so is each call that it owes, in whatever process that is worked on. Tokens stand on the spans of
completions alone. Nothing of what is said, called or answered is written down.

What fails here is told in the log, once, and disturbs no slice.
"""

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from hibernaut.engine.work import Work
from hibernaut.errors import HibernautError
from hibernaut.kernel.head import Head
from hibernaut.messages.stream import Finish, StreamPiece
from hibernaut.models.protocol import ModelInfo, ModelRequest
from hibernaut.stores.protocol import Claim
from hibernaut.version import build

logger = logging.getLogger(__name__)

CUSTOM: Final = "custom"
"""The provider of a model that does not say who runs it."""

_TRACE_ID, _SPAN_ID = 16, 8
"""Bytes of the ids in what a head keeps; a byte of flags follows."""


class Traces:
    """Begins spans."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer: Tracer = provider.get_tracer("hibernaut", build())
        self._complained = False

    def slice(self, claim: Claim, head: Head) -> "Traced":
        """Return the span of a slice; from now on the head says where it stands."""
        link = "spawned_by" if head.link is not None and not head.version else "previous"
        links = _links(head.trace, link)
        attributes: dict[str, AttributeValue] = {
            "gen_ai.conversation.id": head.thread_id,
            "hibernaut.tree": head.link.root if head.link else head.thread_id,
            "hibernaut.version": head.version,
            "hibernaut.inputs": len(claim.messages),
            "hibernaut.tries": claim.tries,
        }
        span = Traced(self, "slice", SpanKind.CONSUMER, attributes, Context(), links)
        head.trace = span.place or head.trace
        return span

    def completion(self, request: ModelRequest, info: ModelInfo) -> "Traced":
        """Return the span of a completion, below the slice under way."""
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": info.provider or CUSTOM,
            "gen_ai.request.model": request.model,
            "gen_ai.conversation.id": request.thread_id,
            "hibernaut.purpose": request.purpose,
        }
        return Traced(self, f"chat {request.model}", SpanKind.CLIENT, attributes)

    def tool(self, work: Work, *, repeated: bool) -> "Traced":
        """Return the span of a call that is worked on, below the slice that owes it."""
        effect = work.effect
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": effect.tool,
            "gen_ai.tool.type": "extension" if effect.server else "function",
            "gen_ai.tool.call.id": effect.call_id,
            "gen_ai.conversation.id": work.thread_id,
            "hibernaut.repeated": repeated,
        }
        where = _place(work.trace)
        below = set_span_in_context(NonRecordingSpan(where), Context()) if where else Context()
        return Traced(self, f"execute_tool {effect.tool}", SpanKind.INTERNAL, attributes, below)

    def start(
        self,
        name: str,
        kind: SpanKind,
        attributes: dict[str, AttributeValue],
        below: Context | None,
        links: Sequence[Link],
    ) -> Span | None:
        """Begin a span; None if that fails."""
        try:
            return self._tracer.start_span(name, below, kind, attributes, links)
        except Exception as error:  # noqa: BLE001  # whatever a tracer raises, it is not the slice's affair
            self.complain(error)
            return None

    def complain(self, error: Exception) -> None:
        """Say that tracing fails, the first time."""
        level = logging.DEBUG if self._complained else logging.WARNING
        self._complained = True
        logger.log(level, "a span was not recorded (%s: %s); agents go on untraced", type(error).__name__, error)


class Traced:
    """A span: the current one inside of its context, and over after it."""

    def __init__(
        self,
        traces: Traces,
        name: str,
        kind: SpanKind,
        attributes: dict[str, AttributeValue],
        below: Context | None = None,
        links: Sequence[Link] = (),
    ) -> None:
        self._traces = traces
        self._span = traces.start(name, kind, attributes, below, links)
        self._below = below

    @property
    def place(self) -> bytes:
        """Where it stands, as a head keeps it; b"" if it is not recorded by anybody."""
        where = self._span.get_span_context() if self._span is not None else None
        if where is None or not where.is_valid:
            return b""
        ids = where.trace_id.to_bytes(_TRACE_ID, "big") + where.span_id.to_bytes(_SPAN_ID, "big")
        return ids + bytes([where.trace_flags & 0xFF])

    def __enter__(self) -> Self:
        self._token = current.attach(set_span_in_context(self._span, self._below)) if self._span is not None else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            current.detach(self._token)
        if error is not None:
            self.fail(error.code if isinstance(error, HibernautError) else type(error).__name__)
        self.end()

    def finish(self, pieces: Sequence[StreamPiece], reason: str) -> None:
        """Write down how a completion ended, and what it took."""
        last = pieces[-1] if pieces else None
        if isinstance(last, Finish):
            self.note("gen_ai.response.finish_reasons", [last.reason])
            self.note("gen_ai.usage.input_tokens", last.usage.input)
            self.note("gen_ai.usage.output_tokens", last.usage.output)
            self.note("gen_ai.usage.cache_read.input_tokens", last.usage.cached)
        if reason:
            self.note("hibernaut.cut_short", reason)

    def note(self, name: str, value: AttributeValue) -> None:
        """Write an attribute."""
        try:
            if self._span is not None:
                self._span.set_attribute(name, value)
        except Exception as error:  # noqa: BLE001  # as above
            self._traces.complain(error)

    def fail(self, code: str) -> None:
        """Write down that what it stands for has failed; the code is one of few."""
        self.note("error.type", code)
        try:
            if self._span is not None:
                self._span.set_status(Status(StatusCode.ERROR))
        except Exception as error:  # noqa: BLE001  # as above
            self._traces.complain(error)

    def end(self) -> None:
        """End it now, if it has not ended."""
        try:
            if self._span is not None and self._span.is_recording():
                self._span.end()
        except Exception as error:  # noqa: BLE001  # as above
            self._traces.complain(error)


def _links(kept: bytes, kind: str) -> list[Link]:
    where = _place(kept)
    return [Link(where, {"hibernaut.link": kind})] if where else []


def _place(kept: bytes) -> SpanContext | None:
    if len(kept) != _TRACE_ID + _SPAN_ID + 1:
        return None
    trace, span = kept[:_TRACE_ID], kept[_TRACE_ID:-1]
    where = SpanContext(int.from_bytes(trace, "big"), int.from_bytes(span, "big"), True, TraceFlags(kept[-1]))
    return where if where.is_valid else None
