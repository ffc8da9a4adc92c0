"""Where spans of `hibernaut serve` go, as the environment says it to every program that uses OpenTelemetry."""

import os
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from hibernaut.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import TracerProvider

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OTLP: Final = ("otlp_proto_http", "otlp_proto_grpc")
"""What `otlp` may mean: whichever is installed, the first before the second."""

_MISSING: Final = (
    "traces need OpenTelemetry's SDK and an exporter: "
    "pip install 'hibernaut[otel]' opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
)


def tracer_provider(warn: Callable[[str], None], *, wanted: bool | None) -> "TracerProvider | None":
    """Return where spans go: True demands it, False forbids it, None leaves it to the environment.

    What is set up for this process already (by `opentelemetry-instrument`) is taken as it is.

    Raises:
        ConfigurationError: traces are demanded, and something for that is not installed.
    """
    if wanted is False or (wanted is None and not _is_configured(os.environ)):
        return None
    try:
        return _provider(os.environ)
    except ConfigurationError as error:
        if wanted:
            raise
        warn(f"warning: the environment asks for traces, and there will be none: {error}")
        return None


def _is_configured(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get(_EXPORTER) == "none":
        return False
    return any(environment.get(name) for name in (_EXPORTER, *_ENDPOINTS))


def _provider(environment: Mapping[str, str]) -> "TracerProvider":
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigurationError(f"{_MISSING} ({error})") from error
    there = trace.get_tracer_provider()
    if not isinstance(there, trace.ProxyTracerProvider):
        return there
    named = "OTEL_SERVICE_NAME" in environment or "service.name" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "hibernaut"}))
    for name in environment.get(_EXPORTER, "otlp").split(","):
        provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())()))
    return provider


def _exporter(name: str) -> Callable[[], "SpanExporter"]:
    found = {one.name: one for one in entry_points(group="opentelemetry_traces_exporter")}
    chosen = next((one for one in (_OTLP if name == "otlp" else (name,)) if one in found), "")
    if not chosen:
        raise ConfigurationError(
            f"there is no exporter {name!r} ({_EXPORTER}); installed are: {', '.join(found) or 'none'}. {_MISSING}"
        )
    exporter: Callable[[], SpanExporter] = found[chosen].load()
    return exporter
