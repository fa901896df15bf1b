"""The verdict as one HTML page that needs nothing else: no network, no script at all, light and dark, on paper.

It looks as the report does, with its rules and a few more. Whatever came with the recordings is text, never markup:
`charts.text` is the way into the page.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import IO

from .. import __version__
from ..report.charts import table, text
from ..report.numbers import fixed
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
    TrialRow,
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
"""The charts' ends are a multiple of this, in points."""


def write_trial_page(judgement: Judgement, setting: Setting, stream: IO[str], probes: ProbeTally | None = None) -> None:
    style = _css("ibidem.report") + _css("ibidem.trial")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    asked = "" if probes is None else f"{_section('Probes', _probes(probes))}\n"
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    stream.write(f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Does it act as before? – ibidem trial</title>
<style>{style}</style>
</head>
<body>
{_header(judgement, setting)}
<main>
{_section("Figures", _figures(judgement, setting))}
{asked}{_section("How it was asked", _facts(judgement, setting))}
{_section("How to read it", _reading(setting))}
</main>
<footer>ibidem {text(__version__)}</footer>
</body>
</html>
""")


def _css(package: str) -> str:
    return (resources.files(package) / "page.css").read_text("utf-8")


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{body}\n</section>"


# --- the first screen -------------------------------------------------------------------------------------------------


def _header(judgement: Judgement, setting: Setting) -> str:
    first, looks, agreement = lines(judgement, setting)
    banner = f'<p class="banner"><b>{SIMULATED}</b></p>' if setting.simulated else ""
    return f"""<header>
<h1>Does the agent act as before with rewritten requests?</h1>
<p class="soft">{text(setting.model)} · {text(setting.profile)} · {text(setting.date)}</p>
{banner}
<p class="verdict {LOOKS[call(judgement, setting)]}">{text(first)}</p>
<p>{text(looks)}</p>
<p>{text(agreement)}</p>
{_tiles(judgement, setting)}
</header>"""


def _tiles(judgement: Judgement, setting: Setting) -> str:
    looks, agreement = judgement.looks.weighted, judgement.agreement.weighted
    tiles = []
    if looks:
        most = concerned(judgement.looks)
        bad = (judgement.looks.alarm or setting.stopped) and not most
        tiles.append(_looks_tile("Extra looks per 100 rewritten requests", looks, bad))
        if most:
            tiles.append(_looks_tile(f"The same where {STRATUM_WORDS[Stratum.FOLLOWS]}", most, True))
    if looks and setting.margin is not None:
        tiles.append(
            _tile("The saving is lost at", signed(setting.margin), "extra looks per 100 rewritten requests", False)
        )
    if agreement:
        most = concerned(judgement.agreement)
        told = most or agreement
        where = f" where {STRATUM_WORDS[Stratum.FOLLOWS]}" if most else ""
        note = f"{within(told)}; the original agrees with itself in {level(told.original)}"
        deficit = signed(100 * told.value).removeprefix("+")
        tiles.append(_tile(f"Same action{where}: points missing", deficit, note, judgement.agreement.alarm))
    return f'<dl class="answers">{"".join(tiles)}</dl>'


def _looks_tile(what: str, told: Estimate, bad: bool) -> str:
    note = f"{within(told)}; {level(told.original)} before, {level(told.rewritten)} after"
    return _tile(what, signed(100 * told.value), note, bad)


def _tile(what: str, number: str, note: str, bad: bool) -> str:
    look = "minus" if bad else "plain"
    return f'<div class="nothing {look}"><dt>{what}</dt><dd><b>{number}</b><span>{text(note)}</span></dd></div>'


# --- the table --------------------------------------------------------------------------------------------------------


def _figures(judgement: Judgement, setting: Setting) -> str:
    found = list(table_rows(judgement))
    ends = [100 * abs(end) for row in found if row.drawn and row.estimate for end in _ends(row.estimate)]
    scale = (max([*ends, setting.margin or 0.0, SCALE_STEP]) // SCALE_STEP + 1) * SCALE_STEP
    head = (
        '<tr><th></th><th>difference</th><th>95 % interval</th><td class="chart"></td><th>A</th><th>B</th>'
        "<th>p</th><th>points</th></tr>"
    )
    # The margin is one of looks over all requests: it stands beside that row alone.
    rows = [_row(row, scale, setting.margin if row.estimate is judgement.looks.weighted else None) for row in found]
    note = (
        f'<p class="soft">Charts go from −{fixed(scale, 0)} to +{fixed(scale, 0)} points; the thin line is zero'
        f"{', the dashed one is where the saving is lost' if setting.margin is not None else ''}.</p>"
    )
    return f"{table(head, ''.join(rows), 'all outcomes', 'trial')}\n{note}"


def _ends(told: Estimate) -> tuple[float, ...]:
    return (told.value,) if told.low is None or told.high is None else (told.low, told.high)


def _row(row: TrialRow, scale: float, margin: float | None) -> str:
    told = row.estimate
    if told is None:
        title = f'<th scope="rowgroup" colspan="6">{text(row.words)}</th>'
        return f'<tr class="title">{title}<td>{text(row.p)}</td><td></td></tr>'
    before, after, change, interval = cells(told, row.unit)
    chart = _forest(told, scale, margin) if row.drawn else ""
    return (
        f'<tr><th scope="row">{text(row.words)}</th><td>{change}</td><td>{interval}</td><td class="chart">{chart}</td>'
        f"<td>{before}</td><td>{after}</td><td></td><td>{told.points:,}</td></tr>"
    )


def _forest(told: Estimate, scale: float, margin: float | None) -> str:
    """The interval as a line with its middle; the numbers stand beside it."""

    def across(points: float) -> str:
        return f"{(points + scale) / (2 * scale):.2%}"

    def upright(points: float, look: str) -> str:
        return f'<line class="{look}" x1="{across(points)}" x2="{across(points)}" y1="0" y2="100%"/>'

    limit = upright(margin, "limit") if margin is not None else ""
    ends = [across(100 * end) for end in _ends(told)]
    line = f'<line class="range" x1="{ends[0]}" x2="{ends[-1]}" y1="50%" y2="50%"/>'
    middle = f'<circle class="mid" cx="{across(100 * told.value)}" cy="50%" r="4.5"/>'
    return f'<svg class="forest p1" aria-hidden="true">{upright(0.0, "zero")}{limit}{line}{middle}</svg>'


def _probes(found: ProbeTally) -> str:
    head = "".join(f"<th>{text(name)}</th>" for name in PROBE_HEAD)
    rows = []
    for row in found.rows:
        cells = "".join(f"<td>{text(cell)}</td>" for cell in probe_cells(row))
        look = "" if row.part else ' class="title"'
        rows.append(f'<tr{look}><th scope="row">{text(row.words)}</th>{cells}</tr>')
    told = "".join(f"<p>{text(line)}</p>" for line in probe_lines(found))
    return f"{told}\n{table(f'<tr>{head}</tr>', ''.join(rows), 'probes', 'trial')}"


# --- the rest ---------------------------------------------------------------------------------------------------------


def _facts(judgement: Judgement, setting: Setting) -> str:
    told = "".join(f"<dt>{name}</dt><dd>{text(words)}</dd>" for name, words in facts(judgement, setting))
    return f'<dl class="facts">{told}</dl>'


def _reading(setting: Setting) -> str:
    said = (
        *LIMITS,
        "Asked twice, a model does not always do the same. So the original is asked several times too, and what counts "
        "is how much less often the rewritten request leads to the same action than the original itself does.",
        "Points were picked where a reference matters. “Weighted back” is what that comes to over all rewritten "
        "requests of the recordings, and is what the saving is set against. The p, how often chance alone does as "
        "much, counts a point fourfold where a reference must be followed and twofold where the file has one; for the "
        "first two outcomes it allows for there being two.",
        "Intervals hold the true value in 95 of 100 trials. They allow for the points of a session being alike.",
        "What is not found is not proved absent: the upper end of an interval is what is left open.",
    )
    return f"<ul>{''.join(f'<li>{each}</li>' for each in said)}</ul>"
