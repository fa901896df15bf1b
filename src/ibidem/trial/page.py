"""Write the verdict as one HTML page without scripts and external files. It supports light mode, dark mode and print.

It uses the report's stylesheet with some additions. The markup is in `page.html`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

from .. import __version__
from ..render.templates import fill_template, page_assets, read_asset
from .estimates import Estimate
from .outcomes import Stratum
from .probe_results import PROBE_HEAD, ProbeTally, probe_cells, probe_lines
from .trial_statistics import TrialStatistics
from .verdict import (
    LIMITS,
    SIMULATED,
    STRATUM_WORDS,
    TrialConditions,
    VerdictKind,
    decide_verdict,
    estimate_cells,
    format_level,
    format_signed,
    interval_text,
    likely_cause,
    list_conditions,
    table_rows,
    verdict_lines,
)

LOOKS = {
    VerdictKind.LOST: "bad",
    VerdictKind.HARM: "bad",
    VerdictKind.WITHIN: "good",
    VerdictKind.UNSETTLED: "",
    VerdictKind.NOTHING: "",
}
SCALE_STEP = 5.0
"""The ends of the chart's axis are multiples of this, in points."""


def write_trial_page(
    statistics: TrialStatistics, conditions: TrialConditions, stream: IO[str], probes: ProbeTally | None = None
) -> None:
    """Write the page to `stream`, with the probes if there are any."""
    rows = list(table_rows(statistics))
    ends = [100 * abs(end) for row in rows if row.drawn and row.estimate for end in _interval_ends(row.estimate)]
    scale = (max([*ends, conditions.margin or 0.0, SCALE_STEP]) // SCALE_STEP + 1) * SCALE_STEP
    stream.write(
        fill_template(
            "trial/page.html",
            **page_assets(read_asset("ibidem.report", "page.css") + read_asset(__package__, "page.css")),
            version=__version__,
            setting=conditions,
            look=LOOKS[decide_verdict(statistics, conditions)],
            said=verdict_lines(statistics, conditions),
            tiles=list(_build_tiles(statistics, conditions)),
            rows=rows,
            scale=scale,
            margin_row=statistics.looks.weighted,
            probes=probes,
            facts=list_conditions(statistics, conditions),
            cells=estimate_cells,
            probe_cells=probe_cells,
            probe_lines=probe_lines,
            across=lambda points: f"{(points + scale) / (2 * scale):.2%}",
            ends_of=_interval_ends,
            LIMITS=LIMITS,
            SIMULATED=SIMULATED,
            PROBE_HEAD=PROBE_HEAD,
        )
    )


def _interval_ends(estimate: Estimate) -> tuple[float, ...]:
    return (estimate.value,) if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


class Tile(NamedTuple):
    """A large number at the top of the page, with its title and a note."""

    what: str
    number: str
    note: str
    bad: bool = False


def _build_tiles(statistics: TrialStatistics, conditions: TrialConditions) -> Iterator[Tile]:
    looks, agreement = statistics.looks.weighted, statistics.agreement.weighted
    if looks:
        cause = likely_cause(statistics.looks)
        bad = (statistics.looks.has_alarm or conditions.stopped) and not cause
        yield _looks_tile("Extra re-reads per 100 rewritten requests", looks, bad)
        if cause:
            yield _looks_tile(f"Extra re-reads if {STRATUM_WORDS[Stratum.FOLLOWS]}", cause, True)
    if looks and conditions.margin is not None:
        yield Tile(
            "Savings are used up at", format_signed(conditions.margin), "extra re-reads per 100 rewritten requests"
        )
    if agreement:
        cause = likely_cause(statistics.agreement)
        estimate = cause or agreement
        where = f" where {STRATUM_WORDS[Stratum.FOLLOWS]}" if cause else ""
        note = f"{interval_text(estimate)}; the original agrees with itself in {format_level(estimate.original)}"
        deficit = format_signed(100 * estimate.value).removeprefix("+")
        yield Tile(f"Same action{where}: points missing", deficit, note, statistics.agreement.has_alarm)


def _looks_tile(what: str, estimate: Estimate, bad: bool) -> Tile:
    note = (
        f"{interval_text(estimate)}; {format_level(estimate.original)} before, {format_level(estimate.rewritten)} after"
    )
    return Tile(what, format_signed(100 * estimate.value), note, bad)
