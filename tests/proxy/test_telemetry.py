"""`--otel`: what OpenTelemetry's own SDK is told of a request, and that nothing of it is ever in a request's way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ibidem.environment import install_command
from ibidem.errors import IbidemError
from ibidem.providers.addresses import PROVIDERS
from ibidem.proxy.accounting.otel_spans import MAX_MODELS, NO_SDK, OTHER_MODEL, PROVIDER_NAMES, Telemetry
from ibidem.proxy.accounting.telemetry import NoTelemetry, open_telemetry
from ibidem.proxy.settings import Settings
from ibidem.testing import Answer, Fails, Halves, Says, Slow
from ibidem.testing.prompt_cache import PromptCache
from tests.support.proxied import PATHS, PATIENCE, Talk, dumped, growing, talk, waited_for

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE:032x}-{PARENT:016x}-01"


class Told:
    """An SDK that keeps what it is told."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def spans(self, count: int) -> list[ReadableSpan]:
        """Once there are so many: a client has its answer before they are made."""
        found: Sequence[ReadableSpan] = waited_for(
            lambda: made if len(made := self._spans.get_finished_spans()) >= count else None
        )
        assert len(found) == count
        return [*found]

    @property
    def histograms(self) -> dict[str, list[Any]]:
        found = self._reader.get_metrics_data()
        scopes = [scope for each in found.resource_metrics for scope in each.scope_metrics] if found else []
        return {metric.name: [*metric.data.data_points] for scope in scopes for metric in scope.metrics}

    @property
    def everything(self) -> str:
        points = [dict(point.attributes) for points in self.histograms.values() for point in points]
        return "".join(span.to_json() for span in self._spans.get_finished_spans()) + json.dumps(points)


@contextmanager
def traced(mode: str = "spans", script: Any = lambda _: Says("ok"), **more: Any) -> Iterator[tuple[Talk, Told]]:
    told = Told()
    with talk(script, otel=mode, cache=PromptCache(), **more) as found:
        found.service.telemetry = Telemetry(found.service.settings, told.tracers, told.meters)
        yield found, told


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def converse(found: Talk, format: str = "anthropic", count: int = 8, **headers: str) -> Any:
    for body in growing(format, count, marks=format == "anthropic"):
        found.send(format, body, traceparent=TRACEPARENT, **headers)
    return found.settled(count + 1)


def test_a_rewritten_request_is_a_span_below_the_clients_own() -> None:
    with traced() as (found, told):
        state = converse(found)
        spans = told.spans(9)
        rows = found.page(f"conversation/{state['conversations'][0]['id']}")["exchanges"]
        sent = [each.headers for each in found.upstream.seen]
    assert {(span.name, span.kind) for span in spans} == {("ibidem rewrite", SpanKind.INTERNAL)}
    assert {(span.context.trace_id, span.parent and span.parent.span_id) for span in spans} == {(TRACE, PARENT)}
    assert {dict(each)["traceparent"] for each in sent} == {TRACEPARENT}
    assert any(row["edits"] for row in rows)
    for span, row in zip(spans, rows, strict=True):
        assert span.start_time is not None
        assert span.end_time is not None
        assert (span.end_time - span.start_time) / 1e6 == pytest.approx(row["took_ms"], abs=1e-3)
        assert about(span) == {
            "ibidem.outcome": row["outcome"],
            "ibidem.profile": "lossless",
            "ibidem.format": "anthropic",
            "ibidem.model": "claude-sonnet-4-5",
            "ibidem.conversation.id": row["conversation"],
            "ibidem.edits": row["edits"],
            "ibidem.rewrite.duration": row["took_ms"] / 1e3,
            "ibidem.tokens.saved": row["removed"],
            "ibidem.cost.paid": row["paid"],
            "ibidem.cost.saved": row["would_have_paid"] - row["paid"],
            "http.response.status_code": 200,
        }
    assert not told.histograms


@pytest.mark.parametrize("parent", ["", "00-zz-1-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_what_names_no_trace_begins_one(parent: str) -> None:
    with traced() as (found, told):
        for body in growing("anthropic", 1):
            found.send("anthropic", body, traceparent=parent)
        spans = told.spans(2)
    assert [span.parent for span in spans] == [None, None]
    assert len({span.context.trace_id for span in spans}) == 2


def test_a_trace_that_the_client_does_not_keep_is_not_kept_here() -> None:
    with traced() as (found, told):
        found.send("anthropic", next(growing("anthropic", 1)), traceparent=TRACEPARENT[:-1] + "0")
        found.settled(1)
        found.send("anthropic", next(growing("anthropic", 1)), traceparent=TRACEPARENT)
        told.spans(1)


def test_what_would_have_been_saved_has_a_name_of_its_own() -> None:
    with traced(observe=True) as (found, told):
        converse(found)
        last = about(told.spans(9)[-1])
    assert last["ibidem.outcome"] == "observed"
    assert last["ibidem.tokens.would_save"] > 0 < last["ibidem.cost.would_save"]
    assert not {"ibidem.tokens.saved", "ibidem.cost.saved"} & {*last}


@pytest.mark.parametrize("format", PATHS)
def test_a_call_of_a_model_is_a_span_of_the_conventions(format: str) -> None:
    """Streamed, where the format says that in the body."""
    with traced("genai") as (found, told):
        for body in growing(format, 8, marks=format == "anthropic"):
            if format != "gemini":
                body["stream"] = True
            if format == "openai-chat":
                body["stream_options"] = {"include_usage": True}
            found.send(format, body, traceparent=TRACEPARENT)
        state = found.settled(9)
        spans, histograms = told.spans(18), told.histograms
    inner, outer = spans[::2], spans[1::2]
    model = "gemini-2.5-pro" if format == "gemini" else state["conversations"][0]["model"]
    operation = "generate_content" if format == "gemini" else "chat"
    assert {(span.name, span.kind) for span in outer} == {(f"{operation} {model}", SpanKind.CLIENT)}
    assert {span.parent and span.parent.span_id for span in outer} == {PARENT}
    assert [span.parent and span.parent.span_id for span in inner] == [span.context.span_id for span in outer]
    last = about(outer[-1])
    assert last["gen_ai.provider.name"] == {"anthropic": "anthropic", "gemini": "gcp.gemini"}.get(format, "openai")
    assert (last["gen_ai.operation.name"], last["gen_ai.request.model"]) == (operation, model)
    assert last["gen_ai.response.model"] == model, "who answered, by its own word"
    total = state["totals"]
    for name, figure in (("input", "input"), ("cache_read.input", "read"), ("cache_creation.input", "written")):
        assert sum(about(span)[f"gen_ai.usage.{name}_tokens"] for span in outer) == total[figure]
    assert total["read"] > 0
    tokens = {point.attributes["gen_ai.token.type"]: point for point in histograms["gen_ai.client.token.usage"]}
    assert (tokens["input"].sum, tokens["input"].count, tokens["output"].count) == (total["input"], 9, 9)
    [seconds] = histograms["gen_ai.client.operation.duration"]
    assert (seconds.count, "error.type" in seconds.attributes) == (9, False)


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        pytest.param(Fails(529), 529, "529", id="the provider is overloaded"),
        pytest.param(Halves(Says("hello")), 200, "upstream_failed", id="the answer breaks off"),
        pytest.param(None, None, "upstream_failed", id="nobody is there"),
    ],
)
def test_a_call_that_fails_says_how_and_quotes_nobody(answer: Answer | None, status: int | None, error: str) -> None:
    with traced("genai", lambda _: answer or Says(""), down="" if answer else "anthropic") as (found, told):
        try:
            found.send("anthropic", next(growing("anthropic", 1)))
        except HTTPException:
            assert status == 200  # it had begun
        inner, outer = told.spans(2)
        [seconds] = told.histograms["gen_ai.client.operation.duration"]
    assert (about(outer)["error.type"], about(outer).get("http.response.status_code")) == (error, status)
    assert (outer.status.status_code, outer.status.description) == (StatusCode.ERROR, None)
    assert inner.status.status_code is StatusCode.UNSET
    assert seconds.attributes["error.type"] == error


def test_a_client_that_goes_away_is_told_as_such() -> None:
    with traced("genai", lambda _: Slow(Says("hello"), wait=PATIENCE)) as (found, told):
        connection = HTTPConnection(found.proxy.url.removeprefix("http://"))
        connection.request("POST", PATHS["anthropic"], dumped(next(growing("anthropic", 1))), {"x-api-key": "k"})
        waited_for(lambda: found.upstream.seen)
        connection.close()
        _, outer = told.spans(2)
    assert about(outer)["error.type"] == "client_disconnected"


def test_no_text_and_no_header_is_told() -> None:
    planted = "PLANTED-text"
    with traced("genai", lambda _: Fails(400, message=planted), profile="recoverable") as (found, told):
        for body in growing("anthropic", 8, first=planted):
            body["system"], body["metadata"] = planted, {"user_id": planted}
            body["messages"][-1]["content"] = [{"type": "text", "text": planted * 99}]
            found.ask(
                "POST",
                f"/v1/messages?key={planted}",
                json.dumps(body).encode(),
                traceparent=TRACEPARENT,
                tracestate=f"vendor={planted}",
                baggage=f"user={planted}",
                authorization=planted,
                user_agent=planted,
                x_claude_code_session_id=planted,
            )
        found.send("anthropic", f'{{"messages": "{planted}'.encode())
        told.spans(20)
        assert planted not in told.everything


def test_a_name_of_a_model_may_be_anything() -> None:
    with traced("genai") as (found, told):
        for number in range(MAX_MODELS + 5):
            found.send("anthropic", next(growing("anthropic", 1, model=f"m{number}\x1b[31m" + "x" * 500)))
        spans = told.spans(2 * (MAX_MODELS + 5))
        points = told.histograms["gen_ai.client.operation.duration"]
    assert all(len(span.name) < 200 and span.name.isprintable() for span in spans)
    models = {point.attributes["gen_ai.request.model"]: point.count for point in points}
    assert (len(models), models[OTHER_MODEL]) == (MAX_MODELS + 1, 5)


def test_only_what_asks_a_model_is_told() -> None:
    with traced("genai") as (found, told):
        found.ask("GET", "/v1/models")
        found.ask("POST", "/v1/messages/count_tokens", json.dumps(next(growing("anthropic", 1))).encode())
        found.send("anthropic", next(growing("anthropic", 1)))
        told.spans(2)


class BreaksOnExport(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise RuntimeError("secret")


class BreaksAtOnce(SpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("secret")


@pytest.mark.parametrize("broken", [SimpleSpanProcessor(BreaksOnExport()), BreaksAtOnce()], ids=["exporter", "tracer"])
def test_what_breaks_in_it_never_reaches_a_request(broken: SpanProcessor) -> None:
    with talk() as plain, talk(otel="spans") as found:
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(broken)
        found.service.telemetry = Telemetry(found.service.settings, tracers)
        for each in (plain, found):
            assert [each.send("anthropic", body)[0] for body in growing("anthropic", 4)] == [200] * 5
        state = found.settled(5)
        assert [each.body for each in found.upstream.seen] == [each.body for each in plain.upstream.seen]
    told = [each["text"] for each in state["events"] if each["kind"] == "error"]
    assert len(told) == isinstance(broken, BreaksAtOnce)
    assert all(text.startswith("telemetry: ") and "secret" not in text for text in told)


def test_nothing_is_loaded_unless_it_is_asked_for() -> None:
    code = "import sys; from ibidem.proxy.edge.app import Proxy; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "opentelemetry" not in done.stdout
    assert type(open_telemetry(Settings())) is NoTelemetry


def test_every_provider_has_the_name_that_the_conventions_give_it() -> None:
    assert {*PROVIDER_NAMES} == {*PROVIDERS}


def test_a_missing_package_names_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "ibidem.proxy.accounting.otel_spans")
    with pytest.raises(IbidemError, match=re.escape(f"opentelemetry: needs: {install_command('otel')}")):
        open_telemetry(Settings(otel="spans"))


def test_without_an_sdk_that_is_told_once_and_all_goes_on() -> None:
    """In a process of its own: an SDK is for a whole process."""
    code = "from ibidem.proxy.accounting.telemetry import *; print(open_telemetry(Settings(otel='genai')).trouble)"
    found = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=found)
    assert done.stdout.strip() == NO_SDK
