"""How sessions were cached, in words and as a section of the page: shares, misses by cause, and what asking for caching
in another way would have cost."""

from __future__ import annotations

from collections.abc import Iterator

from ..billing.misses import Shares
from .charts import money_cell, percent, share_cell, table, text, tidy
from .figures import NOTHING_DONE, SessionFigures
from .groups import CachedTotal, Group, MissedTotal, Worlds, share
from .names import Names
from .numbers import dollars, plural, tokens
from .totals import Report

MARKS_COMMAND = "ibidem wrap --cache auto -- …"
ADVICE_PAGE = "docs/caching.md"

ADVICE = f"How to have a provider keep what it is sent, with and without ibidem: {ADVICE_PAGE} in ibidem's repository."

CAUSES = {
    "unmarked": "nothing marked it",
    "pause": "a pause longer than its lifetime",
    "model": "another model",
    "tools": "tools changed",
    "system": "system prompt changed",
    "history": "history changed",
    "look-back": "too many blocks since the last mark",
    "minimum": "shorter than the minimum",
    "unexplained": "unexplained",
}
"""Why less was read than could have been, in words for people; `billing.misses` says what each means."""

ASKED = {
    "recorded": "as recorded",
    "none": "no cache",
    "5m": "5 minutes",
    "1h": "1 hour",
    "auto": "auto",
}
"""Ways to ask for caching, in words."""

SHARES = ("read", "5 min", "1 hour", "not cached")
"""Heads over `Shares`: what was written has its lifetime."""

NAMED_CAUSES = 3
"""Causes whose dearest miss is named."""


def headline(cached: CachedTotal | None) -> str:
    """What it cost that nothing was marked; empty where that is not so, or cost nothing."""
    if cached is None or cached.unmarked_saved <= 0:
        return ""
    with_marks = dollars(cached.unmarked_cost - cached.unmarked_saved)
    they = "it" if cached.unmarked == 1 else "they"
    asked = f"{plural(cached.unmarked, 'session')} asked {'its' if they == 'it' else 'their'} provider to keep nothing"
    return f"{asked}: {they} cost {dollars(cached.unmarked_cost)} and would have cost {with_marks} with marks"


def by_agent(report: Report) -> list[tuple[str, CachedTotal]]:
    """Who was cached how: all, if there is one agent only, else each and all."""
    some = [(name, group.cached) for name, group in report.agents.items() if group.cached]
    some.sort(key=lambda pair: -pair[1].cost)
    total = report.total.cached
    return [*(some if len(some) > 1 else ()), ("in all", total)] if total else []


def by_cost(cached: CachedTotal) -> list[tuple[str, MissedTotal]]:
    """Misses by cause, dearest first."""
    return sorted(cached.misses.items(), key=lambda pair: -pair[1].cost)


def dearest(cause: str, missed: MissedTotal) -> tuple[str, SessionFigures] | None:
    """What the dearest miss was, and where; None for what nothing marked, which is lost with every request."""
    worst = missed.dearest
    if cause == "unmarked" or missed.dearest_in is None:
        return None
    where = f" ({worst.where})" if worst.where else ""
    return f"worst {dollars(worst.dearest)}{where}, request {worst.request:,} of", missed.dearest_in


def not_recorded(report: Report) -> str:
    """How many sessions say nothing of it; empty where all do, or none does."""
    total = report.total
    rest = total.sessions - total.cached.sessions if total.cached else 0
    they = "it was" if rest == 1 else "they were"
    return f"{plural(rest, 'session')} recorded no usage: how {they} cached is not known." if rest else ""


def ways(total: Group) -> Iterator[tuple[str, str, Worlds]]:
    """How caching is asked for, with which profile, and what that costs; for each, nothing done comes first."""
    for caching, found in total.caching.items():
        for way, each in found.items():
            yield ASKED[caching], "" if way == NOTHING_DONE else way, each


def as_they_are(total: Group) -> str:
    """What no way of asking changes; empty where there is nothing of that kind, or nobody asked."""
    if not total.unasked or not total.caching:
        return ""
    have = "has" if total.unasked == 1 else "have"
    return (
        f"{plural(total.unasked, 'session')} {have} a provider that keeps by itself what it is sent: it costs what was"
        " recorded, whatever is asked for; only auto may ask it to keep longer, at no other price."
    )


# --- the page -----------------------------------------------------------------------------------

EXPLAINED = (
    "By what providers counted. A miss is a request of which less was read than the one before had sent; its dollars "
    "are what was paid for that, above the price of reading it. Providers count in blocks: differences of 3% are none."
)
ASKED_EXPLAINED = (
    "The same requests, had caching been asked for in another way, compared with nothing done and caching as recorded. "
    "Misses that a pause explains are decided anew; all others stay as they were."
)


def banner(total: CachedTotal | None) -> str:
    """What comes first where nothing was marked."""
    said = headline(total)
    return f'<p class="banner"><b>{said}</b>: <code>{MARKS_COMMAND}</code>. {text(ADVICE)}</p>' if said else ""


def cached_section(report: Report, names: Names) -> str:
    """Empty where nothing was recorded and nobody asked for other ways."""
    total = report.total.cached
    parts = []
    if total:
        parts = [_shares(report), _misses(total, names)]
        parts.append("".join(f"<p>{line}</p>" for line in filter(None, [not_recorded(report)])))
        parts.append(f'<p class="soft">{EXPLAINED}</p>')
    return "\n".join(filter(None, [*parts, _ways(report.total, names)]))


LOOKS = {"c0": "read", "c1": "written for 5 min", "c2": "written for 1 hour", "c3": "not cached"}
"""Colours of the bars → what they stand for, in the order of `Shares`."""


def _shares(report: Report) -> str:
    keys = "".join(
        f'<th><svg class="key" aria-hidden="true"><rect class="{look}" width="100%" height="100%"/></svg>{name}</th>'
        for look, name in LOOKS.items()
    )
    rows = "".join(
        f'<tr><th scope="row">{text(name)}</th><td class="chart">{_stacked(cached.shares)}</td>'
        f"<td>{cached.sessions:,}</td>{''.join(f'<td>{percent(part)}</td>' for part in cached.shares)}</tr>"
        for name, cached in by_agent(report)
    )
    return table(f"<tr><th></th><td></td><th>sessions</th>{keys}</tr>", rows, "how it was cached", "narrow")


def _stacked(parts: Shares) -> str:
    """Side by side: read, written, written for an hour, not cached."""
    found, left = [], 0.0
    for look, part in zip(LOOKS, parts, strict=True):
        found.append(f'<rect class="{look}" x="{left:.2%}" width="{part:.2%}" height="100%"/>')
        left += part
    return f'<svg class="bar" aria-hidden="true">{"".join(found)}</svg>'


def _misses(total: CachedTotal, names: Names) -> str:
    if not total.misses:
        return "<p>Nothing was missed.</p>"
    rows = "".join(
        f'<tr><th scope="row">{CAUSES[cause]}</th><td>{missed.count:,}</td><td>{tokens(missed.tokens)}</td>'
        f"{money_cell(missed.cost)}<td>{percent(missed.cost / total.cost if total.cost else 0.0)}</td>"
        f"{_dearest(cause, missed, names)}</tr>"
        for cause, missed in by_cost(total)
    )
    head = (
        "<tr><th>cause</th><th>misses</th><th>tokens</th><th>lost</th><th>of the bill</th>"
        '<th class="text">the worst</th><th class="text">in</th></tr>'
    )
    return f"<h3>Where less was read than could have been</h3>\n{table(head, rows, 'misses by cause', 'narrow')}"


def _dearest(cause: str, missed: MissedTotal, names: Names) -> str:
    """Two cells: what it was, and whose."""
    found = dearest(cause, missed)
    if found is None:
        return "<td></td><td></td>"
    what = text(found[0].partition(" ")[2].removesuffix(" of"))  # the head of the column says which one it is
    return f'<td class="text">{what}</td>{_session_cell(found[1], names)}'


def _session_cell(session: SessionFigures, names: Names) -> str:
    """One line, whose end gives way where there is no room."""
    return f'<td class="text session">{names.linked(session)}</td>'


def _ways(total: Group, names: Names) -> str:
    rows, last = "", ""
    for asked, way, each in ways(total):
        named = _session_cell(each.dearest, names) if each.dearest and each.dearer else "<td></td>"
        rows += (
            f'<tr><th scope="row">{text(asked) if asked != last else ""}</th>'
            f'<td class="text">{text(way or NOTHING_DONE)}</td>{money_cell(each.cost)}'
            f"{share_cell(tidy(share(total.baseline.cost, each.cost)))}<td>{each.dearer:,}</td>"
            f"<td>{percent(each.ratio)}</td>{named}</tr>"
        )
        last = asked
    if not rows:
        return ""
    head = (
        '<tr><th>asked to be cached</th><th class="text">profile</th><th>cost</th><th>saved</th><th>cost more</th>'
        '<th>worst bill</th><th class="text">of</th></tr>'
    )
    shown = table(head, rows, "caching, asked for in another way", "narrow")
    said = " ".join(filter(None, [ASKED_EXPLAINED, as_they_are(total)]))
    return f'<h3>Asked for in another way</h3>\n{shown}\n<p class="soft">{said}</p>'
