"""A session as one HTML page: its requests in a list, and below every edit, once, at the request that it is new in.

The page holds texts of the session, so that only its user may read it. It is bounded: what does not fit is named, with
the command that shows it.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ...errors import one_line
from ...recordings import Recording
from ...recordings.ids import session_id
from ...report.measure import ReportSettings
from ...report.numbers import dollars, percent, plural, tokens
from ...report.trace import SessionTrace, TracedEdit, TracedRequest
from ..writing import write_private
from .logged import SessionNames, eviction, moment, part_of
from .logged_page import session_head
from .page import EditCards, as_html, document, legend
from .parts import EditTexts, PositionNames, ViewPart, numbered

MAX_EDITS = 400
"""Edits in one page."""
MAX_TEXT = 3_000_000
"""Characters of their texts, original and sent."""
MAX_ROWS = 2_000
"""Requests in the list."""
MAX_COMMANDS = 50
"""Commands for what does not fit."""

_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")


def write_details(recording: Recording, settings: ReportSettings, folder: Path, profile: str) -> str:
    """Writes the page of a session, and returns its file's name inside the folder. Raises InputError.

    The name is the same for one session of one file under one profile, and holds nothing but letters, digits, `-`, `.`.
    """
    trace = SessionTrace(recording, settings, profile)
    name = details_name(recording, profile)
    write_private(folder, name, details_page(trace).encode("utf-8", "replace"))
    return name


def details_name(recording: Recording, profile: str) -> str:
    told = "\0".join((recording.path, recording.name, recording.id, profile))
    digest = hashlib.sha256(told.encode("utf-8", "backslashreplace")).hexdigest()[:10]
    words = _UNSAFE.sub("-", f"{recording.agent}-{session_id(recording)}").strip("-")[:60]
    return f"{words}-{digest}.html"


@dataclass(slots=True)
class _Room:
    """What is left of a page."""

    edits: int
    text: int
    left_out: dict[int, int] = field(default_factory=dict)
    """Edits that did not fit, by request."""

    def takes(self, number: int, each: TracedEdit) -> bool:
        size = sum(map(len, each.edit.removed)) + len(each.edit.added)
        if self.edits < 1 or size > self.text:
            self.left_out[number] = self.left_out.get(number, 0) + 1
            return False
        self.edits, self.text = self.edits - 1, self.text - size
        return True


def details_page(trace: SessionTrace, max_edits: int = MAX_EDITS, max_text: int = MAX_TEXT) -> str:
    names = SessionNames.of(trace.session, trace.profile)
    room = _Room(max_edits, max_text)
    found = {number: [each for each in some if room.takes(number, each)] for number, some in trace.edits_by_request()}
    shown = {number: some for number, some in found.items() if some}
    linked = dict.fromkeys(shown)
    before = {there: here for here, there in pairwise(linked)}
    after = dict(pairwise(linked))
    last = {trace.segment_of(number): number for number in range(len(trace))}
    positions: dict[int, tuple[PositionNames, str]] = {}
    sections = []
    for number, some in shown.items():
        segment = trace.segment_of(number)
        if segment not in positions:
            positions[segment] = _positions(trace, last[segment])
        place, tag = positions[segment]
        parts = [part_of(each, place, number, trace.requests[number].points) for each in some]
        sections.append(_section(trace, number, tag, parts, before.get(number), after.get(number)))
    body = f"""<header id="top">
{session_head(names, _summary(trace))}
{_requests(trace, linked)}
</header>
<main>
<h2>Rewritten</h2>
{legend(linked=False) if sections else "<p>Nothing was rewritten.</p>"}
{_left_out(trace, room.left_out)}
{"".join(sections)}
</main>"""
    return document(as_html(names.title), body)


def _positions(trace: SessionTrace, last: int) -> tuple[PositionNames, str]:
    """Of the last request of a segment: all others begin like it."""
    given = trace.request_at(last)
    tag = numbered(given)[1]
    return PositionNames(given, tag), tag


def _summary(trace: SessionTrace) -> str:
    paid, would_pay = trace.spent(0, len(trace))
    saved = f"{dollars(paid - would_pay)} saved ({percent(1 - would_pay / paid)})" if paid else "nothing to save"
    return f"{plural(len(trace), 'request')}: {dollars(paid)} as sent, {dollars(would_pay)} with ibidem, {saved}"


def _requests(trace: SessionTrace, linked: dict[int, None]) -> str:
    rows = "".join(_row(number, each, number in linked) for number, each in enumerate(trace.requests[:MAX_ROWS]))
    more = len(trace) - MAX_ROWS
    rest = f"<p>{plural(more, 'more request')} not listed.</p>" if more > 0 else ""
    head = (
        '<tr><th>request</th><th class="wide">time</th><th>tokens</th><th class="wide">with ibidem</th>'
        "<th>paid</th><th>with ibidem</th><th>new edits</th></tr>"
    )
    closed = "" if len(trace) > 30 else " open"
    summary = f"<summary>{plural(len(trace), 'request')}</summary>"
    return f'<details class="requests"{closed}>{summary}<table>{head}{rows}</table>{rest}</details>'


def _row(number: int, each: TracedRequest, linked: bool) -> str:
    at = each.step.sent.at
    name = f'<a href="#request-{number + 1}">{number + 1:,}</a>' if linked else f"{number + 1:,}"
    wide = "".join(f'<td class="wide">{cell}</td>' for cell in ("" if at is None else as_html(moment(at)),))
    cells = (dollars(each.paid), dollars(each.would_pay), f"{each.new:,}" if each.new else "")
    sizes = f'<td>{tokens(each.before)}</td><td class="wide">{tokens(each.after)}</td>'
    return f"<tr><td>{name}</td>{wide}{sizes}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _section(
    trace: SessionTrace, number: int, tag: str, parts: list[ViewPart], before: int | None, after: int | None
) -> str:
    found = trace.requests[number]
    cards = EditCards(EditTexts(tag=tag, parts=parts))
    links = [
        f'<a href="#request-{place + 1}">{words} with edits: {place + 1:,}</a>'
        for words, place in (("previous", before), ("next", after))
        if place is not None
    ]
    way = " · ".join([*links, '<a href="#top">all requests</a>'])
    costs = f"{dollars(found.paid)} as sent, {dollars(found.would_pay)} with ibidem"
    sizes = f"{tokens(found.before)} → {tokens(found.after)} tokens"
    notes = "".join(f"<p>{as_html(eviction(point, found))}</p>" for point in found.points)
    return f"""<section id="request-{number + 1}">
<h2>Request {number + 1:,}</h2>
<p class="soft">{sizes} · {costs}</p>
<p class="soft">{way}</p>
{notes}{"".join(map(cards.part, parts))}
</section>
"""


def _left_out(trace: SessionTrace, left_out: dict[int, int]) -> str:
    """What does not fit, with the commands that show it."""
    if not left_out:
        return ""
    session = trace.session
    words = ["ibidem show", shlex.quote(session.path)]
    words += ["--session", shlex.quote(session.name)] if session.name else []
    words += ["--profile", shlex.quote(trace.profile)] if trace.profile != "lossless" else []
    command = as_html(one_line(" ".join(words)))
    some = list(left_out.items())[:MAX_COMMANDS]
    rows = "".join(
        f"<li>{plural(count, 'edit')} of request {number + 1:,}: <code>{command} --request {number + 1}</code></li>"
        for number, count in some
    )
    more = len(left_out) - len(some)
    rest = f"<li>and of {plural(more, 'more request')}</li>" if more > 0 else ""
    total = plural(sum(left_out.values()), "edit")
    summary = f"<summary>{total} not in this page, which would be too large</summary>"
    return f'<details class="requests">{summary}<ul class="commands">{rows}{rest}</ul></details>'
