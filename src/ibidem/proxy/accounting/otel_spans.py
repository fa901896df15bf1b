"""OpenTelemetry spans and histograms of exchanges. Without an SDK in this process, they have no effect.

A span is created after its exchange, with the measured times: the savings are known only then, and no request waits for
it. Its parent is the client's `traceparent`. That header is also forwarded unchanged, so that a provider's trace has
the same parent as without the proxy.

A span contains numbers, names of models and of our settings, and the proxy's id of the conversation. It never contains
a text, a header, a path, the client's session name, or the `tracestate`, which can hold any text. Attribute names are
strings, because the constants of the conventions for generative AI are deprecated.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ... import __version__
from ...billing.usage import Usage
from ...errors import one_line
from ..exchange import CLIENT_GONE, Exchange
from ..settings import Settings
from .exchange_rows import ExchangeRow
from .telemetry import NoTelemetry

SCOPE = "ibidem"
REWRITE_SPAN = "ibidem rewrite"
NO_SDK = (
    "otel: no OpenTelemetry SDK is set up in this process, so no spans are exported: "
    "start it with opentelemetry-instrument, see docs/proxy.md"
)
PROVIDER_NAMES = {
    "anthropic": "anthropic",
    "openai": "openai",
    "chatgpt": "openai",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "foundry": "azure.ai.inference",
    "mantle": "aws.bedrock",
    "anthropic-aws": "anthropic",
    "anthropic-google": "anthropic",
    "moonshot": "moonshot_ai",
    "openrouter": "openrouter",
}
"""Provider names in the OpenTelemetry conventions."""
OPERATIONS = {"gemini": "generate_content"}
"""Operation names in the conventions, by wire format. Others are `chat`."""
MAX_MODEL_LENGTH = 100
MAX_MODELS, OTHER_MODEL = 100, "_OTHER"
"""Maximum models in histograms. Each is a time series, and clients can send any number of names."""
TOKEN_BOUNDS = tuple(float(4**power) for power in range(14))
SECONDS_BOUNDS = tuple(0.01 * 2**power for power in range(14))
"""Bucket boundaries that the conventions recommend."""


class Telemetry(NoTelemetry):
    """Telemetry with the given OpenTelemetry providers, or those of the process."""

    is_active = True

    def __init__(
        self,
        settings: Settings,
        tracers: trace.TracerProvider | None = None,
        meters: metrics.MeterProvider | None = None,
    ) -> None:
        self._settings = settings
        self._tracer = trace.get_tracer(SCOPE, __version__, tracers)
        self._histograms = Histograms(meters) if settings.otel == "genai" else None
        if tracers is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            self.trouble = NO_SDK

    def report_exchange(self, row: ExchangeRow, exchange: Exchange, parent: str, now: float) -> None:
        if row.kind != "model" or row.outcome == "passed":
            return
        context = _parent_context(parent)
        if self._histograms is None:
            self._add_rewrite_span(row, context)
            return
        attributes, error_type = _call_attributes(row, exchange), _error_type(exchange)
        start = now - (row.total_ms or 0.0) / 1e3
        span = self._start_call_span(row, exchange, attributes, context, start)
        self._add_rewrite_span(row, trace.set_span_in_context(span, context))
        if error_type:
            span.set_attribute("error.type", error_type)
            span.set_status(Status(StatusCode.ERROR))
        span.end(_to_nanoseconds(now))
        self._histograms.count_call(attributes, error_type, exchange.usage, now - start)

    def _add_rewrite_span(self, row: ExchangeRow, context: Context) -> None:
        """Add the span of the rewriting, from the complete request until it is sent."""
        self._start_span(
            REWRITE_SPAN, SpanKind.INTERNAL, context, self._rewrite_attributes(row), row.at - row.took_ms / 1e3
        ).end(_to_nanoseconds(row.at))

    def _start_call_span(
        self, row: ExchangeRow, exchange: Exchange, attributes: dict[str, str], context: Context, at: float
    ) -> Span:
        about: dict[str, Any] = {**attributes, **_status_attribute(row)}
        usage = exchange.usage
        if exchange.answered_by:
            about["gen_ai.response.model"] = one_line(exchange.answered_by[:MAX_MODEL_LENGTH])
        if row.conversation:
            about["gen_ai.conversation.id"] = row.conversation
        if usage is not None:
            about["gen_ai.usage.input_tokens"] = usage.input
            about["gen_ai.usage.output_tokens"] = usage.output
            about["gen_ai.usage.cache_read.input_tokens"] = usage.read
            about["gen_ai.usage.cache_creation.input_tokens"] = usage.written + usage.written_1h
            about["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning
        name = f"{attributes['gen_ai.operation.name']} {attributes.get('gen_ai.request.model', '')}".strip()
        return self._start_span(name, SpanKind.CLIENT, context, about, at)

    def _start_span(self, name: str, kind: SpanKind, context: Context, about: dict[str, Any], at: float) -> Span:
        return self._tracer.start_span(name, context, kind, about, start_time=_to_nanoseconds(at))

    def _rewrite_attributes(self, row: ExchangeRow) -> dict[str, Any]:
        observes = self._settings.observe  # possible savings have another attribute, so that sums never mix the two
        saved = "would_save" if observes else "saved"
        about: dict[str, Any] = {
            "ibidem.outcome": row.outcome,
            "ibidem.profile": self._settings.profile,
            "ibidem.format": row.format,
            "ibidem.edits": row.edits,
            "ibidem.rewrite.duration": row.took_ms / 1e3,
            f"ibidem.tokens.{saved}": row.removed,
            **_status_attribute(row),
        }
        if model := _model_name(row):
            about["ibidem.model"] = model
        if row.conversation:
            about["ibidem.conversation.id"] = row.conversation
        if row.resent:
            about["ibidem.resent"] = True
        if row.paid is not None and row.would_have_paid is not None:
            gained = row.would_have_paid - row.paid
            about["ibidem.cost.paid"] = row.paid
            about[f"ibidem.cost.{saved}"] = -gained if observes else gained
        return about


class Histograms:
    """Token and duration histograms that the conventions define for a client of a model."""

    def __init__(self, meters: metrics.MeterProvider | None) -> None:
        meter = metrics.get_meter(SCOPE, __version__, meters)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=TOKEN_BOUNDS
        )
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", explicit_bucket_boundaries_advisory=SECONDS_BOUNDS
        )
        self._models: set[str] = set()

    def count_call(self, attributes: dict[str, str], error_type: str, usage: Usage | None, seconds: float) -> None:
        """Add a model call. `attributes`: its attributes; `error_type`: the kind of its error."""
        about = {**attributes, **self._bounded_model(attributes.get("gen_ai.request.model", ""))}
        self._seconds.record(seconds, {**about, "error.type": error_type} if error_type else about)
        if usage is not None:
            for kind, tokens in (("input", usage.input), ("output", usage.output)):
                self._tokens.record(tokens, {**about, "gen_ai.token.type": kind})

    def _bounded_model(self, model: str) -> dict[str, str]:
        if model in self._models or not model:
            return {}
        if len(self._models) >= MAX_MODELS:
            return {"gen_ai.request.model": OTHER_MODEL}
        self._models.add(model)
        return {}


def _parent_context(parent: str) -> Context:
    """Return the client's context. Without a valid `traceparent`, a new trace starts, even inside a current span."""
    return TraceContextTextMapPropagator().extract({"traceparent": parent} if parent else {}, Context())


def _call_attributes(row: ExchangeRow, exchange: Exchange) -> dict[str, str]:
    provider = exchange.route.provider if exchange.route is not None else ""
    attributes = {
        "gen_ai.operation.name": OPERATIONS.get(row.format, "chat"),
        "gen_ai.provider.name": PROVIDER_NAMES.get(provider, provider),
    }
    model = _model_name(row)
    return {**attributes, "gen_ai.request.model": model} if model else attributes


def _model_name(row: ExchangeRow) -> str:
    return one_line(row.model[:MAX_MODEL_LENGTH])


def _status_attribute(row: ExchangeRow) -> dict[str, int]:
    return {"http.response.status_code": row.status} if row.status else {}


def _error_type(exchange: Exchange) -> str:
    """Return the kind of an error as one of our own words, because an upstream's message can be anything."""
    if exchange.failure:
        return "client_disconnected" if exchange.failure == CLIENT_GONE else "upstream_failed"
    return str(exchange.status) if exchange.status >= 400 else ""


def _to_nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
