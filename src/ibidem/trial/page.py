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
from .probed import PROBE_HEAD, ProbeTally, probe_cells, probe_lines
from .stats import Judgement
from .verdict import (
    LIMITS,
    SIMULATED,
    STRATUM_WORDS,
    Setting,
    TrialCall,
    call,
    cells,
    concerned,
    facts,
    level,
    lines,
    signed,
    table_rows,
    within,
)

LOOKS = {
    TrialCall.LOST: "bad",
    TrialCall.HARM: "bad",
    TrialCall.WITHIN: "good",
    TrialCall.UNSETTLED: "",
    TrialCall.NOTHING: "",
}
SCALE_STEP = 5.0
"""The ends of the chart's axis are multiples of this, in points."""


def write_trial_page(judgement: Judgement, setting: Setting, stream: IO[str], probes: ProbeTally | None = None) -> None:
    """Write the page to `stream`, with the probes if there are any."""
    rows = list(table_rows(judgement))
    ends = [100 * abs(end) for row in rows if row.drawn and row.estimate for end in _ends(row.estimate)]
    scale = (max([*ends, setting.margin or 0.0, SCALE_STEP]) // SCALE_STEP + 1) * SCALE_STEP
    stream.write(
        fill_template(
            "trial/page.html",
            **page_assets(read_asset("ibidem.report", "page.css") + read_asset(__package__, "page.css")),
            version=__version__,
            setting=setting,
            look=LOOKS[call(judgement, setting)],
            said=lines(judgement, setting),
            tiles=list(_tiles(judgement, setting)),
            rows=rows,
            scale=scale,
            margin_row=judgement.looks.weighted,
            probes=probes,
            facts=facts(judgement, setting),
            cells=cells,
            probe_cells=probe_cells,
            probe_lines=probe_lines,
            across=lambda points: f"{(points + scale) / (2 * scale):.2%}",
            ends_of=_ends,
            LIMITS=LIMITS,
            SIMULATED=SIMULATED,
            PROBE_HEAD=PROBE_HEAD,
        )
    )


def _ends(told: Estimate) -> tuple[float, ...]:
    return (told.value,) if told.low is None or told.high is None else (told.low, told.high)


class Tile(NamedTuple):
    """A large number at the top of the page, with its title and a note."""

    what: str
    number: str
    note: str
    bad: bool = False


def _tiles(judgement: Judgement, setting: Setting) -> Iterator[Tile]:
    looks, agreement = judgement.looks.weighted, judgement.agreement.weighted
    if looks:
        most = concerned(judgement.looks)
        bad = (judgement.looks.alarm or setting.stopped) and not most
        yield _looks_tile("Extra re-reads per 100 rewritten requests", looks, bad)
        if most:
            yield _looks_tile(f"Extra re-reads if {STRATUM_WORDS[Stratum.FOLLOWS]}", most, True)
    if looks and setting.margin is not None:
        yield Tile("Savings are used up at", signed(setting.margin), "extra re-reads per 100 rewritten requests")
    if agreement:
        most = concerned(judgement.agreement)
        told = most or agreement
        where = f" where {STRATUM_WORDS[Stratum.FOLLOWS]}" if most else ""
        note = f"{within(told)}; the original agrees with itself in {level(told.original)}"
        deficit = signed(100 * told.value).removeprefix("+")
        yield Tile(f"Same action{where}: points missing", deficit, note, judgement.agreement.alarm)


def _looks_tile(what: str, told: Estimate, bad: bool) -> Tile:
    note = f"{within(told)}; {level(told.original)} before, {level(told.rewritten)} after"
    return Tile(what, signed(100 * told.value), note, bad)
