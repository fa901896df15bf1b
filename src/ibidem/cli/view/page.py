"""A view as one HTML page that needs nothing else: no network, no script but its own, light and dark."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from html import escape
from importlib import resources

from ...errors import one_line
from ...markers.backref import Source
from ...report.numbers import percent
from .figures import BeforeAfter
from .parts import Block, EditTexts, LinkTarget, View, ViewLine, ViewPart, change, left_out, shortened

TOOLTIP_LINES = 12
"""Lines of a target that are shown beside its marker."""
TIP_WIDTH = 160


def page(view: View) -> str:
    name = as_html(view.figures.file)
    return document(name, _body(view, name))


def document(title: str, body: str) -> str:
    """A whole page. Both are HTML."""
    style, script = _file("page.css"), _file("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} – ibidem</title>
<style>
{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""


def _body(view: View, name: str) -> str:
    figures = view.figures
    facts = f"{', '.join(figures.formats) or 'no messages'} · profile {figures.profile}"
    notes = "".join(f"<p>Left as it came: {as_html(left.reason)}</p>" for left in figures.left)
    return f"""<header>
<h1>{name}</h1>
<p class="soft">{as_html(facts)} · what is sent instead, and why</p>
{notes}<div class="totals">
<div>{bar("tokens", figures.tokens)}{bar("bytes", figures.size)}</div>
{_strategies(view)}
</div>
</header>
<main>
{rewritten(view, "<p>Nothing was rewritten.</p>")}
</main>"""


def legend(linked: bool) -> str:
    """What colours mean. `linked`: markers lead to what they point at."""
    follow = ": follow it" if linked else ""
    return f"""<p class="legend"><span class="gone">− left out</span><span class="marker">» marker{follow}</span>\
<span class="new">+ written otherwise</span><span class="kept">kept</span></p>"""


def rewritten(texts: EditTexts, nothing: str) -> str:
    """Every edit, and what the markers in them point at."""
    cards = EditCards(texts)
    parts = "\n".join(map(cards.part, texts.parts)) or nothing
    beside = "\n".join(map(cards.target, cards.beside))
    return f"""<h2>Rewritten</h2>
{legend(linked=True)}
{parts}
{"<h2>What the markers point at</h2>" if beside else ""}
{beside}"""


class EditCards:
    """Knows which texts stand in the page, and which of their lines are pointed at."""

    def __init__(self, view: EditTexts) -> None:
        self.view = view
        sent = [line for part in view.parts for block in part.blocks for line in block.sent]
        self.targets = {line: found for line in sent if (found := view.target(line)) is not None}
        self.anchors = {(found.source, found.first) for found in self.targets.values()}
        edited = {part.source for part in view.parts}
        wanted = dict.fromkeys(found.source for found in self.targets.values())
        self.beside = [source for source in wanted if source not in edited]
        """Pointed at, and not rewritten themselves: shown below."""

    def part(self, part: ViewPart) -> str:
        own = part.source is not None and self._is_sent(part)
        anchor = f' id="{_anchor(part.source)}"' if own and part.source else ""
        reason = f": {as_html(part.edit.reason)}" if part.edit.reason else ""
        facts = f'<div class="soft facts">{as_html(part.facts)}</div>' if part.facts else ""
        blocks = "\n".join(self._block(block, part.source if own else None) for block in part.blocks)
        return f"""<details class="part" open{anchor}>
<summary><b>{as_html(part.name)}</b> <code>{as_html(part.position)}</code>
<div class="why"><span>{as_html(part.edit.strategy)}{reason}</span><span>{change(part.tokens)}</span></div>
{facts}</summary>
<div class="pair">
<div class="heads">original</div><div class="heads sent">sent</div>
{blocks}
</div>
</details>"""

    def _is_sent(self, part: ViewPart) -> bool:
        """Whether markers that point at the result mean this text: a later edit may have replaced it."""
        place = self.view.places.get(part.source) if part.source else None
        return place is not None and place.text == part.sent

    def _block(self, block: Block, source: Source | None) -> str:
        same = " same" if block.kept else ""
        original, sent = self._lines(block.original, None), self._lines(block.sent, source)
        return f'<div class="text original{same}">{original}</div><div class="text sent">{sent}</div>'

    def _lines(self, lines: list[ViewLine], source: Source | None) -> str:
        return "".join(
            f'<details class="fold"><summary>{left_out(run)}</summary>{self._run(run, source)}</details>'
            if middle
            else self._run(run, source)
            for middle, run in shortened(lines)
        )

    def _run(self, run: Iterable[ViewLine], source: Source | None) -> str:
        return "".join(self._line(line, source) for line in run)

    def _line(self, line: ViewLine, source: Source | None) -> str:
        anchor = self._line_anchor(source, line.place)
        target = self.targets.get(line) if line.look == "marker" else None
        if target is None:
            return f'<span class="l {line.look}"{anchor}>{as_html(line.text)}</span>'
        place = _anchor(target.source, target.first)
        link = f'<a class="l marker" href="#{place}" data-count="{len(target.lines)}"{anchor}>'
        return f"{link}{as_html(line.text)}{_tip(target)}</a>"

    def _line_anchor(self, source: Source | None, place: int) -> str:
        pointed_at = source is not None and (source, place) in self.anchors
        return f' id="{_anchor(source, place)}"' if source is not None and pointed_at else ""

    def target(self, source: Source) -> str:
        place = self.view.places[source]
        lines = place.text.split("\n")
        numbered = "" if self.view.shown(source).numbering else " numbered"  # else the text shows its own numbers
        rows = "".join(
            f'<span class="l" data-n="{number + 1}"{self._line_anchor(source, number)}>{as_html(line)}</span>'
            for number, line in enumerate(lines)
        )
        label = f" {as_html(place.asked.label)}" if place.asked.label else ""
        return f"""<details class="target" id="{_anchor(source)}">
<summary><b>{source}</b>{label} <span class="soft">{len(lines):,} line{"s" * (len(lines) != 1)}</span></summary>
<div class="text sent{numbered}">{rows}</div>
</details>"""


def _tip(target: LinkTarget) -> str:
    shown = "\n".join(as_html(line[:TIP_WIDTH]) for line in target.lines[:TOOLTIP_LINES])
    more = len(target.lines) - TOOLTIP_LINES
    rest = f"<i>… {more:,} more lines</i>" if more > 0 else ""
    return f'<span class="tip" role="tooltip"><i>{target.source}</i>{shown}{rest}</span>'


def bar(name: str, change: BeforeAfter | None) -> str:
    if change is None:
        return f'<div class="bar"><p><b>{name}</b><span>not counted</span></p></div>'
    width = min(100.0, 100 * (1 - change.saved))
    numbers = f"{change.before:,} → {change.after:,} ({escape(percent(-change.saved, signed=True))})"
    track = f'<div class="track"><div style="width:{width:.1f}%"></div></div>'
    return f'<div class="bar"><p><b>{name}</b><span>{numbers}</span></p>{track}</div>'


def _strategies(view: View) -> str:
    rows = "".join(f"<tr>{''.join(_cells(name, saved.values()))}</tr>" for name, saved in _used(view))
    head = "<tr><th>strategy</th><th>hits</th><th>bytes</th><th>tokens</th></tr>"
    return f"<table>{head}{rows}</table>" if rows else ""


def _used(view: View) -> Iterator[tuple[str, dict[str, int]]]:
    for name, saved in view.figures.strategies.items():
        if saved["hits"]:
            yield name, {key: saved[key] for key in ("hits", "bytes", "tokens")}


def _cells(name: str, values: Iterable[int]) -> Iterator[str]:
    yield f"<td>{as_html(name)}</td>"
    yield from (f"<td>{value:,}</td>" for value in values)


def _anchor(source: Source, line: int | None = None) -> str:
    """`result-2-17`; of the parts of a source none has a sign that means something in HTML."""
    return "-".join(
        [source.kind, str(source.number), *filter(None, [source.part]), *([] if line is None else [f"L{line + 1}"])]
    )


def as_html(text: str) -> str:
    """Control characters are spelt out and nothing is markup. Tabs stay what they are."""
    return escape("\t".join(one_line(piece) for piece in text.split("\t")))


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")
