"""A request of a recorded session for display: its neighbors, its edits, and the savings of each edit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, isfinite
from typing import Any

from ...billing.budget import Point, Reason
from ...errors import one_line
from ...plan import Plan, apply
from ...recordings import Recording
from ...recordings.ids import session_id
from ...render.number_format import NO_NUMBER, dollars, percent, plural, tokens
from ...report.trace import SessionTrace, TracedEdit, TracedRequest
from .edits import EditTexts, PositionNames, ViewPart, index_texts
from .summary import BeforeAfter

REASON_WORDS: dict[Reason, str] = {
    "cold cache": "the provider's cache had expired, so there was no extra cost",
    "new settings": "the model or its effort changed, so the provider's cache was empty anyway",
    "it pays": "the savings exceed the cost",
    "price tier": "the request was close to a size above which all tokens cost more",
    "window": "the request was close to the size of the context window",
}
"""Explanation of each reason for a revision."""

MAX_TITLE = 120
"""Longest title that is shown in full, in characters."""


@dataclass(frozen=True, slots=True)
class SessionNames:
    """Title, facts and id of a session, shown above its requests."""

    title: str
    facts: str
    id: str

    @classmethod
    def of(cls, session: Recording, profile: str) -> SessionNames:
        """Return the names of a session."""
        name = session_id(session)
        title = session.title or session.project or name
        facts = [session.agent, *session.models[:3], f"session {name}", f"profile {profile}"]
        short = title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1] + "…"
        return cls(one_line(short), one_line(", ".join(facts)), one_line(name))


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request of a recorded session. Request numbers start at 1."""

    names: SessionNames
    number: int
    total: int
    found: TracedRequest
    spent: tuple[float, float]
    """Cost in dollars of all requests up to this one, as sent and with Ibidem."""
    edits: list[TracedEdit]
    texts: EditTexts
    """Texts of the edits that are shown."""
    hidden: int
    """Number of edits from earlier requests that are not shown."""
    previous: int | None
    next: int | None
    """Numbers of the nearest requests with new edits."""
    command: str
    """The `ibidem show` command for this session, to which `--request N` can be added."""

    @property
    def when(self) -> str:
        """Time of the request."""
        at = self.found.step.sent.at
        return "" if at is None else moment(at)

    @property
    def title(self) -> str:
        return f"request {self.number:,} of {self.total:,}"

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Table rows: tokens and dollars of this request, and dollars so far, each before, after and saved."""
        found = self.found
        paid, would_pay = self.spent
        return [
            ("", "as sent", "with ibidem", "saved"),
            ("tokens", tokens(found.before), tokens(found.after), _share(found.before, found.after)),
            ("dollars", dollars(found.paid), dollars(found.would_pay), _share(found.paid, found.would_pay)),
            (f"dollars, requests 1-{self.number:,}", dollars(paid), dollars(would_pay), _share(paid, would_pay)),
        ]

    @property
    def notes(self) -> list[str]:
        """Sentences about evictions in this request, and about edits that are not shown."""
        new = self.found.new
        lines = [told for point in self.found.points if (told := eviction(point, self.found))]
        lines.append(f"{plural(new, 'new edit')} in this request." if new else "No new edits in this request.")
        if self.hidden:
            noun = "more edit" if new else "edit"
            lines.append(f"{plural(self.hidden, noun)} from earlier requests: --all shows them.")
        return lines

    @property
    def neighbours(self) -> list[tuple[str, int]]:
        """Labels and numbers of requests that the user may want to see next."""
        found = []
        if self.number > 1:
            found.append(("previous request", self.number - 1))
        if self.number < self.total:
            found.append(("next request", self.number + 1))
        known = {number for _, number in found}
        edited = (("previous with new edits", self.previous), ("next with new edits", self.next))
        return [*found, *((words, number) for words, number in edited if number and number not in known)]

    def as_dict(self) -> dict[str, Any]:
        """Return the object for `--json`."""
        found = self.found
        return {
            "request": self.number,
            "requests": self.total,
            "at": found.step.sent.at,
            "model": found.step.sent.model or None,
            "tokens": {"before": round(found.before), "after": round(found.after)},
            "dollars": {"before": found.paid, "after": found.would_pay},
            "dollars_so_far": {"before": self.spent[0], "after": self.spent[1]},
            "new_edits": found.new,
            "evictions": [_point(point) for point in found.points],
            "dollars_rewritten": found.rewritten,
            "previous_with_new_edits": self.previous,
            "next_with_new_edits": self.next,
            "edits": [
                {**part.as_dict(), "position": part.position, "name": part.name, **_edit(each)}
                for part, each in zip(self.texts.parts, self.edits, strict=True)
            ],
        }


def _edit(each: TracedEdit) -> dict[str, Any]:
    return {
        "since_request": each.since + 1,
        "changes_what_was_sent": each.revises,
        "dollars_saved": each.saved,
        "dollars_saved_so_far": each.saved_so_far,
        "dollars_saved_in_session": each.saved_in_all,
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "reason": point.reason,
        "tokens_removed": point.removed,
        "tokens_rewritten": point.rewritten,
        "break_even_requests": point.break_even if isfinite(point.break_even) else None,
    }


def logged_request(trace: SessionTrace, number: int, command: str, *, everything: bool, linked: bool) -> LoggedRequest:
    """Return request `number` (from 0) of a session. `linked` includes the targets of markers."""
    edits = trace.edits(number)
    shown = edits if everything else [each for each in edits if each.since == number]
    given = trace.request_at(number)
    sent = apply(given, Plan(tuple(each.edit for each in edits))) if linked else given
    places, tag = index_texts(sent)
    names = PositionNames(given, tag)
    parts = [part_of(each, names, number, trace.requests[each.since].points) for each in shown]
    edited = [place for place, each in enumerate(trace.requests) if each.new]
    return LoggedRequest(
        names=SessionNames.of(trace.session, trace.profile),
        number=number + 1,
        total=len(trace),
        found=trace.requests[number],
        spent=trace.spent(0, number + 1),
        edits=shown,
        texts=EditTexts(tag=tag, parts=parts, places=places if linked else {}),
        hidden=len(edits) - len(shown),
        previous=max((place + 1 for place in edited if place < number), default=None),
        next=min((place + 1 for place in edited if place > number), default=None),
        command=command,
    )


def part_of(each: TracedEdit, names: PositionNames, number: int, points: Sequence[Point]) -> ViewPart:
    """Return an edit of request `number` with its savings. `points` are the revisions of the request that made it."""
    facts = [_since(each, number, points), _saving(each, each.since == number)]
    change = BeforeAfter(round(each.before), round(each.after))
    return names.part(each.edit, change, "; ".join(filter(None, facts)))


def _since(each: TracedEdit, number: int, points: Iterable[Point]) -> str:
    where = "here" if each.since == number else f"in request {each.since + 1:,}"
    if each.revises:
        reason = next((point.reason for point in points), "")
        return f"evicted {where} ({reason})" if reason else f"already sent, changed {where}"
    return "" if each.since == number else f"since request {each.since + 1:,}"


def _saving(each: TracedEdit, new: bool) -> str:
    so_far = "" if new else f", {dollars(each.saved_so_far)} so far"
    return f"saved: {dollars(each.saved)} in this request{so_far}, {dollars(each.saved_in_all)} in the whole session"


def eviction(point: Point, found: TracedRequest) -> str:
    """Describe a revision: evicted tokens, reason, cost of the cache rewrite, and when it pays off."""
    told = f"Evicted here: {tokens(point.removed)} tokens that were already sent ({REASON_WORDS[point.reason]})."
    if point.rewritten:
        told += f" The text after them was written to the cache again, for {dollars(found.rewritten)}"
        paid_back = isfinite(point.break_even) and point.break_even
        told += f"; this pays off after {plural(ceil(point.break_even), 'more request')}." if paid_back else "."
    return told


def moment(at: float) -> str:
    """Format a time in UTC; "" if it is out of range."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):  # a log may contain any number
        return ""


def _share(before: float, after: float) -> str:
    return percent(1 - after / before) if before else NO_NUMBER
