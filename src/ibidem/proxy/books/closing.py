"""The summary line: the cost of the input instead of what, its value on a subscription, or why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...formats import CHECKSUM_REASON
from ...report.numbers import dollars, fixed, percent, plural, sign
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
    ("checksum", "{they} {are} sent with a checksum of the body, and so cannot be changed"),
)
"""Why requests went out as they came, by what became of them."""


AT_LIST_PRICES, NO_OUTPUT = " at list prices", "output not included"


class InputCost(NamedTuple):
    """Dollars of input at list prices, as sent and the other way; and its tokens, sent and removed."""

    paid: float = 0.0
    would_have_paid: float = 0.0
    tokens: float = 0
    removed: float = 0


NO_COST = InputCost()


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
            why = "checksum" if found.reason == CHECKSUM_REASON else found.outcome
            self._outcomes["signed" if found.kind == "signed" else why] += 1
            self._statuses[found.status] += 1
        elif found.kind == "compact":
            self._compacted += 1
        else:
            self._others += 1

    def line(self, key: InputCost, plan: InputCost = NO_COST) -> str:
        """`key` is for requests that are paid by use, `plan` for those that a subscription covers."""
        given = f"{plural(self._compacted, 'request')} given back to be sent by the client: the cost is not known here"
        if not self._compacted:
            return self._sent(key, plan)
        if not self._outcomes.total() and not self._others:
            return given
        return f"{self._sent(key, plan)}; {given}"

    def _sent(self, key: InputCost, plan: InputCost) -> str:
        asked = self._outcomes.total()
        if not asked and not self._others:
            return NOTHING_CAME
        if not asked:
            return f"no model was asked: {plural(self._others, 'request')} came by, {OTHER_THINGS}"
        count = plural(asked, "request")
        if not key.paid and not plan.paid:
            return f"{count}, nothing to bill{self._unbilled()}"
        if not plan.paid:
            return f"{count}. Input cost {self._change(key)}"
        value = f"worth {self._change(plan, AT_LIST_PRICES)}{self._tokens(plan)}"
        if not key.paid:
            return f"{count} on a subscription. Input {value}"
        return f"{count}. With an API key: input cost {self._change(key)}. On a subscription: input {value}"

    def _change(self, cost: InputCost, basis: str = "") -> str:
        """The amount, and how it differs from the other way."""
        amount, same = f"{money(cost.paid)}{basis}", abs(cost.would_have_paid - cost.paid) <= SAME_SHARE * cost.paid
        if self._observe:
            other = "the same" if same else f"{money(cost.would_have_paid)}, {less(cost.would_have_paid, cost.paid)}"
            return f"{amount} ({NO_OUTPUT}); with ibidem it would have been {other}"
        if same:
            return f"{amount} ({NO_OUTPUT}), nothing saved{self._unsaved()}"
        return f"{amount} instead of {money(cost.would_have_paid)} ({less(*cost[:2])}; {NO_OUTPUT})"

    def _tokens(self, cost: InputCost) -> str:
        if self._observe or cost.removed <= 0:
            return ""
        return f"; {percent(cost.removed / (cost.tokens + cost.removed))} of input tokens saved"

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
    every, plan = (
        InputCost(*(sums.get(name, 0.0) for name in ("paid", "would_have_paid", "input", "removed")))
        for sums in (totals, totals.get("plan", {}))
    )
    # On a subscription alone, rounding must leave no cost.
    key = NO_COST if plan[2:] == every[2:] else InputCost(*(one - part for one, part in zip(every, plan, strict=True)))
    line = counted.line(key, plan)
    return f"{line}{_advice(totals.get('unmarked', 0), totals.get('marks_would_save', 0.0))}"


def _advice(count: int, less: float) -> str:
    if not count or less <= 0:
        return ""
    whose = "its provider" if count == 1 else "their provider"
    asks = f"{count:,} conversation{'s ask' if count != 1 else ' asks'} {whose} to keep nothing"
    return f"; {asks}: with --cache auto about {dollars(less)} less"


def money(amount: float) -> str:
    """With hundredths of cents where sums are small."""
    return f"{sign(amount)}${fixed(abs(amount), 4 if abs(amount) < SMALL_DOLLARS else 2)}"


def less(ours: float, theirs: float) -> str:
    """Than what it would have been."""
    share = 100 * (1 - ours / theirs) if theirs else 0.0
    size = abs(share)
    shown = "under 0.1" if size < 0.1 else fixed(size, 1 if size < SMALL_PERCENT else 0)
    return f"{shown}% {'less' if share > 0 else 'more'}"
