"""The page at /ibidem, one HTML document that needs nothing but the proxy's API; and the same figures for Prometheus.

Both show the object that /ibidem/api/state gives. `paid` is what was paid. `would_have_paid` is the other way: without
ibidem; while observing, with it. `removed` counts tokens that were left out; while observing, that would have been.
Everything in that object is text to the page, never markup: its policy lets no other script in, and no text become one.
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
"""The report's look, and what the page has besides."""
SCRIPTS = ("dashboard.js", "dashboard_views.js", "dashboard_edits.js", "dashboard_live.js")
"""In this order. They run after the report's script, which writes numbers."""


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


@cache
def _parts() -> dict[str, str]:
    """The scripts share one block, so that no name of theirs meets one of the report's."""
    style = "\n".join(read_asset(*each) for each in STYLES)
    own = "\n".join(read_asset(__package__, name) for name in SCRIPTS)
    script = f"{read_asset('ibidem.report', 'page.js')}\n{{\n{own}\n}}"
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; "
        f"style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return {"style": style, "script": script, "policy": policy}


CSP: str = f"{_parts()['policy']}; frame-ancestors 'none'"
"""As a header; the page says the same of itself, but for who may frame it, which only a header can say."""
PAGE_HEADERS: Mapping[str, str] = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": CSP,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page(token: str | None = None, page_token: str | None = None) -> str:
    """With tokens, the page sends them along with whatever it asks for."""
    return fill_template("proxy/page/dashboard.html", **_parts(), token=token or "", page_token=page_token or "")


# --- for Prometheus -------------------------------------------------------------------------------------------------

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Samples = Iterable[tuple[dict[str, str], Any]]


class MetricFamily(NamedTuple):
    name: str
    kind: str
    help: str
    samples: Samples


def metrics(state: Mapping[str, Any]) -> str:
    """The state as Prometheus text, version 0.0.4. What is not known has no sample."""
    return "".join(_lines(family) for family in _families(state)) + _histogram(state.get("rewriting"))


def _families(state: Mapping[str, Any]) -> Iterator[MetricFamily]:
    totals = state["totals"]
    about = {
        "version": state["version"],
        "profile": state["profile"],
        "cache": state["cache"],
        "observe": "true" if state["observe"] else "false",
    }
    yield MetricFamily("ibidem_info", "gauge", "What runs here.", [(about, 1)])
    yield MetricFamily(
        "ibidem_start_time_seconds", "gauge", "When it started, in Unix seconds.", [({}, state["started"])]
    )
    yield MetricFamily(
        "ibidem_conversations", "gauge", "Conversations in memory, as listed.", [({}, len(state["conversations"]))]
    )
    if "memory" in state:
        yield MetricFamily(
            "ibidem_memory_bytes",
            "gauge",
            "Bytes of memory that conversations take, about, of those that --memory-mb allows.",
            [({}, state["memory"]["bytes"])],
        )
    yield MetricFamily(
        "ibidem_saved_by_marks_dollars",
        "gauge",
        "Of what was saved, what other marks and lifetimes than the clients' did; below 0 what they cost.",
        [({}, _money(totals, "by_marks"))],
    )
    yield MetricFamily(
        "ibidem_unmarked_conversations",
        "gauge",
        "Conversations in memory that ask their provider to keep nothing.",
        [({}, totals["unmarked"])],
    )
    for name, help_text, samples in _counters(state, totals):
        yield MetricFamily(f"ibidem_{name}_total", "counter", help_text, samples)


def _counters(state: Mapping[str, Any], totals: Mapping[str, Any]) -> Iterator[tuple[str, str, Samples]]:
    yield (
        "requests",
        "Requests, by what became of them.",
        _by("outcome", {n: totals[n] for n in ("rewritten", "passed")}),
    )
    given_back = totals.get("compacted", {})
    if given_back.get("requests"):
        went = {"rewritten": given_back["rewritten"], "passed": given_back["requests"] - given_back["rewritten"]}
        yield "compact_requests", "Of these, requests given back to be sent by the client.", _by("outcome", went)
        sizes = {"in": given_back["bytes_in"], "out": given_back["bytes_out"]}
        yield "compact_bytes", "Bytes of these, as they came and as they were given back.", _by("way", sizes)
        yield "compact_removed_tokens", "Tokens left out of these, by our count.", [({}, given_back["removed"])]
    failures = Counter[str]()
    for each in state["failures"]:
        failures[each["reason"]] += each["count"]
    yield "failed_open", "Requests sent without new edits because of a failure.", _by("reason", failures)
    yield "refused", "Rewritten requests that their provider refused.", [({}, totals["refused"])]
    yield "resent", "Of these, those that were taken when they were sent again.", [({}, totals["resent"])]
    dropped = totals.get("without_thinking", 0)
    yield "without_thinking", "Requests accepted only without their thinking.", [({}, dropped)]
    yield "paid_dollars", "What was paid for input, at list prices, in dollars.", [({}, _money(totals, "paid"))]
    other = "with ibidem" if state["observe"] else "without ibidem"
    would = _money(totals, "would_have_paid")
    yield "would_have_paid_dollars", f"The same {other}, in dollars.", [({}, would)]
    yield "unpriced_requests", "Requests whose cost is not known; no sum has them.", [({}, totals["unpriced"])]
    yield "tokens", "Input tokens as the providers counted them.", _by("kind", _tokens(totals))
    removed = "Input tokens left out; while observing, that would have been."
    yield "removed_tokens", removed, [({}, totals["removed"])]
    strategies = state["strategies"]
    yield "edits", "Edits that were made.", _by("strategy", {each["name"]: each["edits"] for each in strategies})
    by_strategy = {each["name"]: each["tokens"] for each in strategies}
    yield "strategy_removed_tokens", "Tokens left out, summed over requests.", _by("strategy", by_strategy)
    yield "cache_hits", "Requests whose beginning the provider's cache knew.", [({}, totals["hits"])]
    yield "cache_misses", "Requests whose beginning it should have known and did not.", [({}, totals["misses"])]
    lookups = (
        "Requests by what was known of their conversation: in memory (warm), in the store, its past unknown, or new."
    )
    yield "conversation_lookups", lookups, _by("found", state.get("lookups", {}))
    missed = "What was paid above the price of reading what had been sent before, in dollars."
    yield "cache_missed_dollars", missed, _by("cause", totals["missed"] if _is_priced(totals) else {})
    yield "cache_breaks", "Requests in which ibidem changed what had been sent.", _by("reason", totals["breaks"])


def _money(totals: Mapping[str, Any], name: str) -> float | None:
    return totals[name] if _is_priced(totals) else None


def _is_priced(totals: Mapping[str, Any]) -> bool:
    return totals["paid"] is not None and not totals["unpriced"] >= max(1, totals["requests"])


def _tokens(totals: Mapping[str, Any]) -> dict[str, Any]:
    """Parts that add up to all input."""
    plain = totals["input"] - totals["read"] - totals["written"]
    short = totals["written"] - totals["written_1h"]
    return {
        "read": totals["read"],
        "written": short,
        "written_1h": totals["written_1h"],
        "uncached": max(0, plain),
    }


def _by(label: str, found: Mapping[str, Any]) -> Samples:
    return [({label: name}, value) for name, value in found.items()]


def _lines(family: MetricFamily) -> str:
    head = f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    return head + "".join(
        f"{family.name}{_labels(labels)} {value!r}\n" for labels, value in family.samples if value is not None
    )


def _histogram(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    name, help_text = "ibidem_rewrite_duration_seconds", "Time that rewriting a request took, in seconds."
    within = {**found["within"], "+Inf": found["count"]}
    buckets = "".join(f"{name}_bucket{_labels({'le': bound})} {count!r}\n" for bound, count in within.items())
    head = f"# HELP {name} {help_text}\n# TYPE {name} histogram\n"
    return f"{head}{buckets}{name}_sum {found['seconds']!r}\n{name}_count {found['count']!r}\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    """A lone surrogate, which no encoding has, is spelt out."""
    written = value.encode("utf-8", "backslashreplace").decode()
    return written.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
