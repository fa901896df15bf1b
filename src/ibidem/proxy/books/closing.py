"""The line that is said at the end: what was paid instead of what, or why there is nothing of the kind to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...report.numbers import dollars, fixed, plural, sign
from .rows import ExchangeRow

NOTHING_CAME = "nothing came by"
OTHER_THINGS = "for a size or a list, or in a format that ibidem does not know"
SMALL_DOLLARS, SMALL_PERCENT = 10.0, 9.95
"""Below these, sums and shares have more digits: what differs is to look different."""
SAME_SHARE = 1e-6
"""Of what is paid: less than this is rounding."""

_WHY_AS_THEY_CAME = (
    ("unchanged", "nothing in {them} had been said before"),
    ("failed open", "{they} could not be rewritten"),
    ("off", "rewriting was switched off"),
    ("observed", "the coin of the trial had {them} only measured"),
    ("signed", "{they} {are} signed by the client, and so cannot be changed"),
)
"""Why requests went out as they came, by what became of them."""


class ClosingLine:
    """Counts requests that asked a model, and tells of them. Others (sizes, lists of models, telemetry) are counted
    only where there was nothing else."""

    def __init__(self, observe: bool, counts: Mapping[str, Any] | None = None) -> None:
        """`counts` are what others have counted, as they tell it."""
        counts = counts or {}
        self._observe = observe
        self._outcomes: Counter[str] = Counter(counts.get("outcomes"))
        self._statuses = Counter({int(status): count for status, count in counts.get("statuses", {}).items()})
        self._others: int = counts.get("others", 0)
        self._compacted: int = counts.get("compacted", 0)

    @property
    def counts(self) -> dict[str, Any]:
        statuses = {str(status): count for status, count in self._statuses.items()}
        return {
            "outcomes": dict(self._outcomes),
            "statuses": statuses,
            "others": self._others,
            "compacted": self._compacted,
        }

    def count(self, found: ExchangeRow) -> None:
        """An exchange that is over."""
        if found.kind in ("model", "signed"):
            self._outcomes["signed" if found.kind == "signed" else found.outcome] += 1
            self._statuses[found.status] += 1
        elif found.kind == "compact":
            self._compacted += 1
        else:
            self._others += 1

    def line(self, paid: float, would_have_paid: float) -> str:
        given = f"{plural(self._compacted, 'request')} given back to be sent by the client: the cost is not known here"
        if not self._compacted:
            return self._sent(paid, would_have_paid)
        if not self._outcomes.total() and not self._others:
            return given
        return f"{self._sent(paid, would_have_paid)}; {given}"

    def _sent(self, paid: float, would_have_paid: float) -> str:
        asked = self._outcomes.total()
        if not asked and not self._others:
            return NOTHING_CAME
        if not asked:
            return f"no model was asked: {plural(self._others, 'request')} came by, {OTHER_THINGS}"
        count = plural(asked, "request")
        if not paid:
            return f"{count}, nothing to bill{self._unbilled()}"
        if self._observe:
            return f"{count}, paid {money(paid)}; {_other_way(paid, would_have_paid)}"
        if abs(would_have_paid - paid) > SAME_SHARE * paid:
            return f"{count}, paid {money(paid)} instead of {money(would_have_paid)}, {less(paid, would_have_paid)}"
        return f"{count}, paid {money(paid)}, nothing saved{self._unsaved()}"

    def _unbilled(self) -> str:
        failed = {status: count for status, count in self._statuses.items() if not 200 <= status < 300}
        if sum(failed.values()) < self._statuses.total():
            return self._unsaved() if not self._outcomes["rewritten"] else ": no answer told what it cost"
        status = max(failed, key=lambda each: failed[each])
        return f": {f'all were answered with an error ({status})' if status else 'none was answered'}"

    def _unsaved(self) -> str:
        """The commonest reason."""
        if self._outcomes["rewritten"] or self._observe:
            return ""
        name, why = max(_WHY_AS_THEY_CAME, key=lambda each: self._outcomes[each[0]])
        if not self._outcomes[name]:
            return ""
        one = self._outcomes.total() == 1
        words = {"them": "it", "they": "it", "are": "is"} if one else {"them": "them", "they": "they", "are": "are"}
        return f": {why.format(**words)}"


def closing_line(counted: ClosingLine, totals: Mapping[str, Any]) -> str:
    """One line about all of it; `totals` are those that the page shows."""
    line = counted.line(totals.get("paid", 0.0), totals.get("would_have_paid", 0.0))
    return f"{line}{_advice(totals.get('unmarked', 0), totals.get('marks_would_save', 0.0))}"


def _advice(count: int, less: float) -> str:
    if not count or less <= 0:
        return ""
    whose = "its provider" if count == 1 else "their provider"
    asks = f"{count:,} conversation{'s ask' if count != 1 else ' asks'} {whose} to keep nothing"
    return f"; {asks}: with --cache auto about {dollars(less)} less"


def _other_way(paid: float, would_have_paid: float) -> str:
    if abs(would_have_paid - paid) <= SAME_SHARE * paid:
        return "with ibidem it would have been the same"
    return f"with ibidem it would have been {money(would_have_paid)}, {less(would_have_paid, paid)}"


def money(amount: float) -> str:
    """With hundredths of cents where sums are small."""
    return f"{sign(amount)}${fixed(abs(amount), 4 if abs(amount) < SMALL_DOLLARS else 2)}"


def less(ours: float, theirs: float) -> str:
    """Than what it would have been."""
    share = 100 * (1 - ours / theirs) if theirs else 0.0
    size = abs(share)
    shown = "under 0.1" if size < 0.1 else fixed(size, 1 if size < SMALL_PERCENT else 0)
    return f"{shown} % {'less' if share > 0 else 'more'}"
