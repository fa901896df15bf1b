"""Requests and their edits as HTML pages that need nothing else: no network, one script, light and dark."""

from __future__ import annotations

from typing import Any

from ...markers.backref import Source
from ...render.templates import fill_template, page_assets, read_asset
from .edits import EditTexts, RequestView, ViewPart, change, collapse_runs, left_out
from .session_request import LoggedRequest
from .summary import BeforeAfter

TOOLTIP_LINES = 12
"""Lines of a target that are shown beside its marker."""
TIP_WIDTH = 160
"""Characters of such a line."""


def request_page(view: RequestView) -> str:
    return fill_page("request.html", view=view, cards=EditCards(view))


def logged_page(shown: LoggedRequest) -> str:
    change = BeforeAfter(round(shown.found.before), round(shown.found.after))
    return fill_page("logged_request.html", shown=shown, tokens_change=change, cards=EditCards(shown.texts))


def fill_page(name: str, **values: Any) -> str:
    # Bars have their width as a style.
    assets = page_assets(_asset("page.css"), _asset("page.js"), style_policy="'unsafe-inline'")
    helpers = {"change": change, "collapse_runs": collapse_runs, "left_out": left_out}
    limits = {"TOOLTIP_LINES": TOOLTIP_LINES, "TIP_WIDTH": TIP_WIDTH}
    return fill_template(f"cli/view/{name}", **assets, **helpers, **limits, **values)


def _asset(name: str) -> str:
    return read_asset(__package__, name)


class EditCards:
    """Edits of a page, with the anchors of the texts and lines that markers point at."""

    def __init__(self, view: EditTexts) -> None:
        self.view = view
        sent = [line for part in view.parts for block in part.blocks for line in block.sent]
        self.targets = {line: target for line in sent if (target := view.target(line)) is not None}
        self._anchors = {(target.source, target.first) for target in self.targets.values()}
        edited = {part.source for part in view.parts}
        wanted = dict.fromkeys(target.source for target in self.targets.values())
        self.beside = [source for source in wanted if source not in edited]
        """Sources that markers point at and that have no edit. They are shown below the edits."""

    def sent_source(self, part: ViewPart) -> Source | None:
        """The source of an edit, if markers that point at it mean this text. A later edit may have replaced it."""
        place = self.view.places.get(part.source) if part.source else None
        return part.source if place is not None and place.text == part.sent else None

    def line_anchor(self, source: Source | None, place: int) -> str:
        """The anchor of a line that a marker points at; empty for other lines."""
        return self.anchor(source, place) if source is not None and (source, place) in self._anchors else ""

    def anchor(self, source: Source, line: int | None = None) -> str:
        """`result-2-17`. No part of a source has a character with a meaning in HTML."""
        number = [] if line is None else [f"L{line + 1}"]
        return "-".join([source.kind, str(source.number), *filter(None, [source.part]), *number])
