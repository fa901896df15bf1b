"""A request of a recorded session for display: its neighbors, its edits, and the savings of each edit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, isfinite
from typing import Any

from ...billing.revision_budget import PricedRevision, Reason
from ...errors import one_line
from ...plan import Plan, apply_plan
from ...recordings import Recording
from ...recordings.session_ids import session_id
from ...render.number_format import NO_NUMBER, dollars, percent, plural, tokens
from ...report.trace import SessionTrace, TracedEdit, TracedRequest
from .compact_summary import BeforeAfter
from .edits import EditTexts, EditView, PositionNames, index_texts

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
    def from_session(cls, session: Recording, profile: str) -> SessionNames:
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
    traced_request: TracedRequest
    dollars_so_far: tuple[float, float]
    """Cost in dollars of all requests up to this one, as sent and with Ibidem."""
    edits: list[TracedEdit]
    texts: EditTexts
    """Texts of the edits that are shown."""
    hidden_count: int
    """Number of edits from earlier requests that are not shown."""
    previous: int | None
    next: int | None
    """Numbers of the nearest requests with new edits."""
    command: str
    """The `ibidem show` command for this session, to which `--request N` can be added."""

    @property
    def when(self) -> str:
        """Time of the request."""
        at = self.traced_request.step.sent.at
        return "" if at is None else format_utc_time(at)

    @property
    def title(self) -> str:
        return f"request {self.number:,} of {self.total:,}"

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Table rows: tokens and dollars of this request, and dollars so far, each before, after and saved."""
        traced = self.traced_request
        paid_dollars, would_pay = self.dollars_so_far
        return [
            ("", "as sent", "with ibidem", "saved"),
            ("tokens", tokens(traced.before), tokens(traced.after), _saved_share(traced.before, traced.after)),
            ("dollars", dollars(traced.paid), dollars(traced.would_pay), _saved_share(traced.paid, traced.would_pay)),
            (
                f"dollars, requests 1-{self.number:,}",
                dollars(paid_dollars),
                dollars(would_pay),
                _saved_share(paid_dollars, would_pay),
            ),
        ]

    @property
    def notes(self) -> list[str]:
        """Sentences about evictions in this request, and about edits that are not shown."""
        new = self.traced_request.new
        lines = [
            sentence
            for point in self.traced_request.points
            if (sentence := describe_eviction(point, self.traced_request))
        ]
        lines.append(f"{plural(new, 'new edit')} in this request." if new else "No new edits in this request.")
        if self.hidden_count:
            noun = "more edit" if new else "edit"
            lines.append(f"{plural(self.hidden_count, noun)} from earlier requests: --all shows them.")
        return lines

    @property
    def neighbours(self) -> list[tuple[str, int]]:
        """Labels and numbers of requests that the user may want to see next."""
        rows = []
        if self.number > 1:
            rows.append(("previous request", self.number - 1))
        if self.number < self.total:
            rows.append(("next request", self.number + 1))
        numbers = {number for _, number in rows}
        edited_requests = (("previous with new edits", self.previous), ("next with new edits", self.next))
        return [*rows, *((words, number) for words, number in edited_requests if number and number not in numbers)]

    def as_dict(self) -> dict[str, Any]:
        """Return the object for `--json`."""
        traced = self.traced_request
        return {
            "request": self.number,
            "requests": self.total,
            "at": traced.step.sent.at,
            "model": traced.step.sent.model or None,
            "tokens": {"before": round(traced.before), "after": round(traced.after)},
            "dollars": {"before": traced.paid, "after": traced.would_pay},
            "dollars_so_far": {"before": self.dollars_so_far[0], "after": self.dollars_so_far[1]},
            "new_edits": traced.new,
            "evictions": [_revision_row(point) for point in traced.points],
            "dollars_rewritten": traced.rewritten,
            "previous_with_new_edits": self.previous,
            "next_with_new_edits": self.next,
            "edits": [
                {**part.as_dict(), "position": part.position, "name": part.name, **_edit_row(each)}
                for part, each in zip(self.texts.parts, self.edits, strict=True)
            ],
        }


def _edit_row(each: TracedEdit) -> dict[str, Any]:
    return {
        "since_request": each.since + 1,
        "changes_what_was_sent": each.revises,
        "dollars_saved": each.saved,
        "dollars_saved_so_far": each.saved_so_far,
        "dollars_saved_in_session": each.saved_in_all,
    }


def _revision_row(point: PricedRevision) -> dict[str, Any]:
    return {
        "reason": point.reason,
        "tokens_removed": point.removed,
        "tokens_rewritten": point.rewritten,
        "break_even_requests": point.break_even if isfinite(point.break_even) else None,
    }


def view_logged_request(
    trace: SessionTrace, number: int, command: str, *, everything: bool, with_targets: bool
) -> LoggedRequest:
    """Return request `number` (from 0) of a session. `with_targets` includes the targets of markers."""
    edits = trace.edits_at(number)
    page_edits = edits if everything else [each for each in edits if each.since == number]
    conversation = trace.request_at(number)
    sent_conversation = (
        apply_plan(conversation, Plan(tuple(each.edit for each in edits))) if with_targets else conversation
    )
    places, tag = index_texts(sent_conversation)
    names = PositionNames(conversation, tag)
    parts = [view_traced_edit(each, names, number, trace.requests[each.since].points) for each in page_edits]
    edited_indexes = [place for place, each in enumerate(trace.requests) if each.new]
    return LoggedRequest(
        names=SessionNames.from_session(trace.session, trace.profile),
        number=number + 1,
        total=len(trace),
        traced_request=trace.requests[number],
        dollars_so_far=trace.costs_between(0, number + 1),
        edits=page_edits,
        texts=EditTexts(tag=tag, parts=parts, places=places if with_targets else {}),
        hidden_count=len(edits) - len(page_edits),
        previous=max((place + 1 for place in edited_indexes if place < number), default=None),
        next=min((place + 1 for place in edited_indexes if place > number), default=None),
        command=command,
    )


def view_traced_edit(each: TracedEdit, names: PositionNames, number: int, points: Sequence[PricedRevision]) -> EditView:
    """Return an edit of request `number` with its savings. `points` are the revisions of the request that made it."""
    facts = [_edit_origin(each, number, points), _savings_text(each, each.since == number)]
    change = BeforeAfter(round(each.before), round(each.after))
    return names.view_edit(each.edit, change, "; ".join(filter(None, facts)))


def _edit_origin(each: TracedEdit, number: int, points: Iterable[PricedRevision]) -> str:
    where = "here" if each.since == number else f"in request {each.since + 1:,}"
    if each.revises:
        reason = next((point.reason for point in points), "")
        return f"evicted {where} ({reason})" if reason else f"already sent, changed {where}"
    return "" if each.since == number else f"since request {each.since + 1:,}"


def _savings_text(each: TracedEdit, is_new: bool) -> str:
    so_far = "" if is_new else f", {dollars(each.saved_so_far)} so far"
    return f"saved: {dollars(each.saved)} in this request{so_far}, {dollars(each.saved_in_all)} in the whole session"


def describe_eviction(point: PricedRevision, traced: TracedRequest) -> str:
    """Describe a revision: evicted tokens, reason, cost of the cache rewrite, and when it pays off."""
    sentence = f"Evicted here: {tokens(point.removed)} tokens that were already sent ({REASON_WORDS[point.reason]})."
    if point.rewritten:
        sentence += f" The text after them was written to the cache again, for {dollars(traced.rewritten)}"
        paid_back = isfinite(point.break_even) and point.break_even
        sentence += f"; this pays off after {plural(ceil(point.break_even), 'more request')}." if paid_back else "."
    return sentence


def format_utc_time(at: float) -> str:
    """Format a time in UTC; "" if it is out of range."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):  # a log may contain any number
        return ""


def _saved_share(before: float, after: float) -> str:
    return percent(1 - after / before) if before else NO_NUMBER
