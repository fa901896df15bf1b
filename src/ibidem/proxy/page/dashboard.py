"""The page at /ibidem, one HTML document that only uses the proxy's API, and the same numbers for Prometheus.

Both show the object of /ibidem/api/state. `paid` is the real cost. `would_have_paid` is the cost without ibidem; while
observing, with it. `removed` counts removed tokens; while observing, those that would have been removed.
The page treats everything in that object as text, never as markup. Its content security policy blocks other scripts.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from ...render.templates import fill_template, read_asset

STYLES = (("ibidem.report", "page.css"), (__package__, "dashboard.css"))
"""Style sheets: the report's, and the page's own."""
SCRIPTS = ("dashboard.js", "dashboard_views.js", "dashboard_edits.js", "dashboard_live.js")
"""Scripts in loading order. They run after the report's script, which formats numbers."""


def _csp_digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


@cache
def _page_parts() -> dict[str, str]:
    """Return style, script and content security policy. Our scripts share a block, apart from the report's names."""
    style = "\n".join(read_asset(*each) for each in STYLES)
    own_script = "\n".join(read_asset(__package__, name) for name in SCRIPTS)
    script = f"{read_asset('ibidem.report', 'page.js')}\n{{\n{own_script}\n}}"
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; "
        f"style-src {_csp_digest(style)}; script-src {_csp_digest(script)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return {"style": style, "script": script, "policy": policy}


CSP: str = f"{_page_parts()['policy']}; frame-ancestors 'none'"
"""Policy as a header. The page contains the same policy, except `frame-ancestors`, which only works in a header."""
PAGE_HEADERS: Mapping[str, str] = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": CSP,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def render_page(token: str | None = None, page_token: str | None = None) -> str:
    """Return the page. With tokens, the page sends them in its API requests."""
    return fill_template("proxy/page/dashboard.html", **_page_parts(), token=token or "", page_token=page_token or "")


# --- for Prometheus -------------------------------------------------------------------------------------------------

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Samples = Iterable[tuple[dict[str, str], Any]]


class MetricFamily(NamedTuple):
    """Prometheus metric with its samples."""

    name: str
    kind: str
    help: str
    samples: Samples


def format_metrics(state: Mapping[str, Any]) -> str:
    """Return the state in Prometheus text format 0.0.4. Unknown values have no sample."""
    return "".join(_format_family(family) for family in _metric_families(state)) + _format_histogram(
        state.get("rewriting")
    )


def _metric_families(state: Mapping[str, Any]) -> Iterator[MetricFamily]:
    totals = state["totals"]
    about = {
        "version": state["version"],
        "profile": state["profile"],
        "cache": state["cache"],
        "observe": "true" if state["observe"] else "false",
    }
    yield MetricFamily("ibidem_info", "gauge", "Version and settings of this proxy.", [(about, 1)])
    yield MetricFamily(
        "ibidem_start_time_seconds", "gauge", "Start time of this proxy, in Unix seconds.", [({}, state["started"])]
    )
    yield MetricFamily(
        "ibidem_conversations", "gauge", "Conversations in memory, as listed.", [({}, len(state["conversations"]))]
    )
    if "memory" in state:
        yield MetricFamily(
            "ibidem_memory_bytes",
            "gauge",
            "Estimated memory of conversations, in bytes. The limit is --memory-mb.",
            [({}, state["memory"]["bytes"])],
        )
    yield MetricFamily(
        "ibidem_saved_by_marks_dollars",
        "gauge",
        "Part of the savings due to added cache breakpoints and changed TTLs, in dollars; negative if they cost more.",
        [({}, _known_dollars(totals, "by_marks"))],
    )
    yield MetricFamily(
        "ibidem_unmarked_conversations",
        "gauge",
        "Conversations in memory without prompt caching.",
        [({}, totals["unmarked"])],
    )
    for name, help_text, samples in _counter_metrics(state, totals):
        yield MetricFamily(f"ibidem_{name}_total", "counter", help_text, samples)


def _counter_metrics(state: Mapping[str, Any], totals: Mapping[str, Any]) -> Iterator[tuple[str, str, Samples]]:
    yield (
        "requests",
        "Requests, by outcome.",
        _labeled_samples("outcome", {n: totals[n] for n in ("rewritten", "passed")}),
    )
    given_back = totals.get("compacted", {})
    if given_back.get("requests"):
        outcomes = {"rewritten": given_back["rewritten"], "passed": given_back["requests"] - given_back["rewritten"]}
        yield (
            "compact_requests",
            "Requests returned to the client, which sends them.",
            _labeled_samples("outcome", outcomes),
        )
        sizes = {"in": given_back["bytes_in"], "out": given_back["bytes_out"]}
        yield "compact_bytes", "Bytes of compact requests, as received and as returned.", _labeled_samples("way", sizes)
        yield "compact_removed_tokens", "Estimated tokens removed from these requests.", [({}, given_back["removed"])]
    failures = Counter[str]()
    for each in state["failures"]:
        failures[each["reason"]] += each["count"]
    yield "failed_open", "Requests sent without new edits because of a failure.", _labeled_samples("reason", failures)
    yield "refused", "Rewritten requests that the provider rejected.", [({}, totals["refused"])]
    yield "resent", "Rejected requests that were accepted when sent again.", [({}, totals["resent"])]
    dropped = totals.get("without_thinking", 0)
    yield "without_thinking", "Requests accepted only without their thinking.", [({}, dropped)]
    yield "paid_dollars", "Input cost at list prices, in dollars.", [({}, _known_dollars(totals, "paid"))]
    other = "with ibidem" if state["observe"] else "without ibidem"
    would = _known_dollars(totals, "would_have_paid")
    yield "would_have_paid_dollars", f"Input cost {other}, in dollars.", [({}, would)]
    yield "unpriced_requests", "Requests of unknown cost. They are in no cost total.", [({}, totals["unpriced"])]
    yield "tokens", "Input tokens by the provider's count.", _labeled_samples("kind", _tokens_by_kind(totals))
    removed = "Input tokens removed; while observing, those that would have been removed."
    yield "removed_tokens", removed, [({}, totals["removed"])]
    strategies = state["strategies"]
    yield "edits", "Edits.", _labeled_samples("strategy", {each["name"]: each["edits"] for each in strategies})
    by_strategy = {each["name"]: each["tokens"] for each in strategies}
    yield "strategy_removed_tokens", "Tokens removed, summed over requests.", _labeled_samples("strategy", by_strategy)
    yield "cache_hits", "Requests whose prefix was in the provider's cache.", [({}, totals["hits"])]
    yield "cache_misses", "Requests whose prefix should have been in the cache and was not.", [({}, totals["misses"])]
    lookups = "Requests by the state of their conversation: in memory (warm), in the store, with unknown past, or new."
    yield "conversation_lookups", lookups, _labeled_samples("found", state.get("lookups", {}))
    missed = "Additional cost of cache misses, in dollars."
    yield "cache_missed_dollars", missed, _labeled_samples("cause", totals["missed"] if _is_priced(totals) else {})
    yield "cache_breaks", "Requests with a revision by ibidem.", _labeled_samples("reason", totals["breaks"])


def _known_dollars(totals: Mapping[str, Any], name: str) -> float | None:
    return totals[name] if _is_priced(totals) else None


def _is_priced(totals: Mapping[str, Any]) -> bool:
    return totals["paid"] is not None and not totals["unpriced"] >= max(1, totals["requests"])


def _tokens_by_kind(totals: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input tokens by kind. Their sum is the whole input."""
    plain = totals["input"] - totals["read"] - totals["written"]
    short = totals["written"] - totals["written_1h"]
    return {
        "read": totals["read"],
        "written": short,
        "written_1h": totals["written_1h"],
        "uncached": max(0, plain),
    }


def _labeled_samples(label: str, values: Mapping[str, Any]) -> Samples:
    return [({label: name}, value) for name, value in values.items()]


def _format_family(family: MetricFamily) -> str:
    head = f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    return head + "".join(
        f"{family.name}{_format_labels(labels)} {value!r}\n" for labels, value in family.samples if value is not None
    )


def _format_histogram(histogram: Mapping[str, Any] | None) -> str:
    if histogram is None:
        return ""
    name, help_text = "ibidem_rewrite_duration_seconds", "Time that rewriting a request took, in seconds."
    within = {**histogram["within"], "+Inf": histogram["count"]}
    buckets = "".join(f"{name}_bucket{_format_labels({'le': bound})} {count!r}\n" for bound, count in within.items())
    head = f"# HELP {name} {help_text}\n# TYPE {name} histogram\n"
    return f"{head}{buckets}{name}_sum {histogram['seconds']!r}\n{name}_count {histogram['count']!r}\n"


def _format_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels.items()) + "}"


def _escape_label(value: str) -> str:
    """Escape a label value. A lone surrogate, which UTF-8 cannot encode, becomes a backslash escape."""
    encodable = value.encode("utf-8", "backslashreplace").decode()
    return encodable.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
