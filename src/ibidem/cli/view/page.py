"""Self-contained HTML pages of requests and their edits: no network access, one script, light and dark style."""

from __future__ import annotations

from typing import Any

from ...markers.backref import Source
from ...render.templates import fill_template, page_assets, read_asset
from .compact_summary import BeforeAfter
from .edits import EditTexts, EditView, RequestView, collapse_runs, collapsed_label, format_token_change
from .session_request import LoggedRequest

TOOLTIP_LINES = 12
"""Lines of a target in a marker's tooltip."""
TIP_WIDTH = 160
"""Characters per line in a tooltip."""


def request_page(view: RequestView) -> str:
    """Return the page of a request."""
    return fill_page("request.html", view=view, cards=EditCards(view))


def logged_page(request: LoggedRequest) -> str:
    """Return the page of a request of a recorded session."""
    change = BeforeAfter(round(request.traced_request.before), round(request.traced_request.after))
    return fill_page("logged_request.html", shown=request, tokens_change=change, cards=EditCards(request.texts))


def fill_page(name: str, **values: Any) -> str:
    """Fill a template with our styles, scripts and helpers."""
    # The widths of bars are inline styles, which the content security policy must allow.
    assets = page_assets(_read_asset("page.css"), _read_asset("page.js"), style_policy="'unsafe-inline'")
    helpers = {"change": format_token_change, "collapse_runs": collapse_runs, "left_out": collapsed_label}
    limits = {"TOOLTIP_LINES": TOOLTIP_LINES, "TIP_WIDTH": TIP_WIDTH}
    return fill_template(f"cli/view/{name}", **assets, **helpers, **limits, **values)


def _read_asset(name: str) -> str:
    return read_asset(__package__, name)


class EditCards:
    """The edits of a page, with anchors for the targets of their markers."""

    def __init__(self, view: EditTexts) -> None:
        self.view = view
        sent_lines = [line for part in view.parts for block in part.blocks for line in block.sent]
        self.targets = {line: target for line in sent_lines if (target := view.target(line)) is not None}
        self._anchors = {(target.source, target.first) for target in self.targets.values()}
        edited_sources = {part.source for part in view.parts}
        target_sources = dict.fromkeys(target.source for target in self.targets.values())
        self.beside = [source for source in target_sources if source not in edited_sources]
        """Targets of markers that are not edited themselves. They are shown below the edits."""

    def sent_source(self, part: EditView) -> Source | None:
        """Return the source of an edit if its text is a marker's target. A later edit may have replaced the text."""
        place = self.view.places.get(part.source) if part.source else None
        return part.source if place is not None and place.text == part.sent else None

    def line_anchor(self, source: Source | None, place: int) -> str:
        """Return the anchor of a line that a marker points at; "" for other lines."""
        return self.anchor(source, place) if source is not None and (source, place) in self._anchors else ""

    def anchor(self, source: Source, line: int | None = None) -> str:
        """Return an anchor such as `result-2-L17`. A source has no characters that need escaping in HTML."""
        number = [] if line is None else [f"L{line + 1}"]
        return "-".join([source.kind, str(source.number), *filter(None, [source.part]), *number])
