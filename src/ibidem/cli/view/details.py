"""HTML page of one session: a list of its requests, and every edit once, at the first request that has it.

The page contains texts of the session, so only the user can read the file. Its size is limited. For edits that do not
fit, it lists the commands that show them.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...errors import one_line
from ...recordings import Recording
from ...recordings.session_ids import session_id
from ...render.number_format import dollars, percent, plural
from ...report.measure import ReportSettings
from ...report.trace import SessionTrace, TracedEdit
from ..output_file import write_private
from .edits import EditTexts, PositionNames, index_texts
from .page import EditCards, fill_page
from .session_request import SessionNames, describe_eviction, format_utc_time, view_traced_edit

MAX_EDITS = 400
"""Largest number of edits in a page."""
MAX_TEXT = 3_000_000
"""Largest number of characters in the original and sent texts of a page."""
MAX_ROWS = 2_000
"""Largest number of requests in the list."""
MAX_COMMANDS = 50
"""Largest number of commands for edits that do not fit."""

_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")


def write_details(recording: Recording, settings: ReportSettings, folder: Path, profile: str) -> str:
    """Write the page of a session, and return its file name in `folder`. Raises InputError.

    The name depends only on the session, its file and the profile. It has only letters, digits, `-` and `.`.
    """
    trace = SessionTrace(recording, settings, profile)
    name = details_name(recording, profile)
    write_private(folder, name, details_page(trace).encode("utf-8", "replace"))
    return name


def details_name(recording: Recording, profile: str) -> str:
    """Return the page's file name."""
    identity = "\0".join((recording.path, recording.name, recording.id, profile))
    digest = hashlib.sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()[:10]
    words = _UNSAFE.sub("-", f"{recording.agent}-{session_id(recording)}").strip("-")[:60]
    return f"{words}-{digest}.html"


@dataclass(slots=True)
class _PageBudget:
    """Edits and characters that still fit into a page."""

    edits: int
    text: int
    omitted_edits: dict[int, int] = field(default_factory=dict)
    """Edits that did not fit, by request."""

    def reserve(self, number: int, edit: TracedEdit) -> bool:
        """Return whether an edit of request `number` fits, and count it."""
        size = sum(map(len, edit.edit.removed)) + len(edit.edit.added)
        if self.edits < 1 or size > self.text:
            self.omitted_edits[number] = self.omitted_edits.get(number, 0) + 1
            return False
        self.edits, self.text = self.edits - 1, self.text - size
        return True


class _Section(NamedTuple):
    """A request with its new edits."""

    number: int
    cards: EditCards


def details_page(trace: SessionTrace, max_edits: int = MAX_EDITS, max_text: int = MAX_TEXT) -> str:
    """Return the page of a session."""
    budget = _PageBudget(max_edits, max_text)
    last = {trace.segment_of(number): number for number in range(len(trace))}
    positions: dict[int, tuple[PositionNames, str]] = {}
    sections = []
    for number, edits in trace.edits_by_request():
        page_edits = [edit for edit in edits if budget.reserve(number, edit)]
        if not page_edits:
            continue
        segment = trace.segment_of(number)
        if segment not in positions:
            positions[segment] = _position_names(trace, last[segment])
        names, tag = positions[segment]
        parts = [view_traced_edit(edit, names, number, trace.requests[number].points) for edit in page_edits]
        sections.append(_Section(number, EditCards(EditTexts(tag=tag, parts=parts))))
    return fill_page(
        "session.html",
        trace=trace,
        names=SessionNames.from_session(trace.session, trace.profile),
        summary=_summary_line(trace),
        sections=sections,
        linked={section.number for section in sections},
        skipped=budget.omitted_edits,
        command=_show_command(trace),
        moment=format_utc_time,
        eviction=describe_eviction,
        MAX_ROWS=MAX_ROWS,
        MAX_COMMANDS=MAX_COMMANDS,
    )


def _position_names(trace: SessionTrace, last: int) -> tuple[PositionNames, str]:
    """Return names and tag from the last request of a segment. The segment's other requests are prefixes of it."""
    request = trace.request_at(last)
    tag = index_texts(request)[1]
    return PositionNames(request, tag), tag


def _summary_line(trace: SessionTrace) -> str:
    paid_dollars, would_pay = trace.costs_between(0, len(trace))
    savings_text = (
        f"{dollars(paid_dollars - would_pay)} saved ({percent(1 - would_pay / paid_dollars)})"
        if paid_dollars
        else "no known cost"
    )
    costs = f"{dollars(paid_dollars)} as sent, {dollars(would_pay)} with ibidem"
    return f"{plural(len(trace), 'request')}: {costs}, {savings_text}"


def _show_command(trace: SessionTrace) -> str:
    """Return the `ibidem show` command for the session, to which `--request N` can be added."""
    session = trace.session
    words = ["ibidem show", shlex.quote(session.path)]
    words += ["--session", shlex.quote(session.name)] if session.name else []
    words += ["--profile", shlex.quote(trace.profile)] if trace.profile != "lossless" else []
    return one_line(" ".join(words))
