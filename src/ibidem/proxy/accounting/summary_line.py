"""The summary line of a session: the cost of its input, the cost without Ibidem, and why nothing was saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...formats import CHECKSUM_REASON
from ...render.number_format import dollars, format_fixed, percent, plural, sign
from .exchange_rows import ExchangeRow

NO_REQUESTS = "no requests seen"
OTHER_REQUESTS = "token counts, model lists, or a format that Ibidem does not know"
SMALL_DOLLARS, SMALL_PERCENT = 10.0, 9.95
"""Below these, amounts and percentages have more digits, so that two different values look different."""
SAME_SHARE = 1e-6
"""Share of the cost below which a difference is rounding."""

_WHY_UNCHANGED = (
    ("unchanged", "nothing in {them} had been sent before"),
    ("failed open", "{they} could not be rewritten"),
    ("off", "rewriting was paused"),
    ("observed", "the experiment only measured {them}"),
    ("signed", "the client signs {them}, so {they} cannot be changed"),
    ("checksum", "the client sends a checksum of the body, so {they} cannot be changed"),
)
"""Why requests were forwarded unchanged, by outcome."""


AT_LIST_PRICES, NO_OUTPUT = " at list prices", "output not included"


class InputCost(NamedTuple):
    """Dollars of input at list prices, as sent and without Ibidem; and input tokens, sent and removed."""

    paid: float = 0.0
    would_have_paid: float = 0.0
    tokens: float = 0
    removed: float = 0


NO_COST = InputCost()


class SummaryLine:
    """Counter of model calls, for the summary line.

    Other requests (token counts, model lists, telemetry) are mentioned only if there were no model calls.
    """

    def __init__(self, observe: bool) -> None:
        self._observe = observe
        self._outcomes: Counter[str] = Counter()
        self._statuses: Counter[int] = Counter()
        self._others = 0
        self._compacted = 0

    def count_exchange(self, row: ExchangeRow) -> None:
        """Count a finished exchange."""
        if row.kind in ("model", "signed"):
            why = "checksum" if row.reason == CHECKSUM_REASON else row.outcome
            self._outcomes["signed" if row.kind == "signed" else why] += 1
            self._statuses[row.status] += 1
        elif row.kind == "compact":
            self._compacted += 1
        else:
            self._others += 1

    def format_line(self, key: InputCost, plan: InputCost = NO_COST) -> str:
        """Return the summary. `key`: input that is paid per token. `plan`: input that a subscription covers."""
        returned_note = (
            f"{plural(self._compacted, 'request')} returned to the client, which sends them: their cost is not known"
        )
        if not self._compacted:
            return self._describe_calls(key, plan)
        if not self._outcomes.total() and not self._others:
            return returned_note
        return f"{self._describe_calls(key, plan)}; {returned_note}"

    def _describe_calls(self, key: InputCost, plan: InputCost) -> str:
        calls = self._outcomes.total()
        if not calls and not self._others:
            return NO_REQUESTS
        if not calls:
            return f"no model calls in {plural(self._others, 'request')} ({OTHER_REQUESTS})"
        count = plural(calls, "request")
        if not key.paid and not plan.paid:
            return f"{count}, {self._without_cost()}"
        if not plan.paid:
            return f"{count}. Input cost {self._describe_cost(key)}"
        value = f"worth {self._describe_cost(plan, AT_LIST_PRICES)}{self._describe_tokens(plan)}"
        if not key.paid:
            return f"{count} on a subscription. Input {value}"
        return f"{count}. With an API key: input cost {self._describe_cost(key)}. On a subscription: input {value}"

    def _describe_cost(self, cost: InputCost, basis: str = "") -> str:
        """Return the cost, and how it differs from the cost without Ibidem."""
        amount, same = (
            f"{format_dollars(cost.paid)}{basis}",
            abs(cost.would_have_paid - cost.paid) <= SAME_SHARE * cost.paid,
        )
        if self._observe:
            other = (
                "the same"
                if same
                else f"{format_dollars(cost.would_have_paid)}, {format_reduction(cost.would_have_paid, cost.paid)}"
            )
            return f"{amount} ({NO_OUTPUT}); with Ibidem it would have been {other}"
        if same:
            return f"{amount} ({NO_OUTPUT}), nothing saved{self._reason_unsaved()}"
        return (
            f"{amount} instead of {format_dollars(cost.would_have_paid)} ({format_reduction(*cost[:2])}; {NO_OUTPUT})"
        )

    def _describe_tokens(self, cost: InputCost) -> str:
        if self._observe or cost.removed <= 0:
            return ""
        return f"; {percent(cost.removed / (cost.tokens + cost.removed))} of input tokens saved"

    def _without_cost(self) -> str:
        failed = {status: count for status, count in self._statuses.items() if not 200 <= status < 300}
        if sum(failed.values()) < self._statuses.total():
            # A signed request is passed through without reading its response, so it never has a known cost.
            why = self._reason_unsaved()
            return f"nothing saved{why}" if why else "cost unknown: no response reported its token usage"
        status = max(failed, key=lambda each: failed[each])
        return f"no cost: {f'all responses were errors ({status})' if status else 'no response arrived'}"

    def _reason_unsaved(self) -> str:
        """Return the most frequent reason, or nothing if requests were rewritten."""
        if self._outcomes["rewritten"] or self._observe:
            return ""
        name, why = max(_WHY_UNCHANGED, key=lambda each: self._outcomes[each[0]])
        if not self._outcomes[name]:
            return ""
        one = self._outcomes.total() == 1
        words = {"them": "it", "they": "it"} if one else {"them": "them", "they": "they"}
        return f": {why.format(**words)}"


def format_summary(summary: SummaryLine, totals: Mapping[str, Any]) -> str:
    """Return the summary line. `totals`: the totals of the dashboard."""
    every, plan = (
        InputCost(*(sums.get(name, 0.0) for name in ("paid", "would_have_paid", "input", "removed")))
        for sums in (totals, totals.get("plan", {}))
    )
    # On a subscription alone, rounding must leave no cost.
    key = NO_COST if plan[2:] == every[2:] else InputCost(*(one - part for one, part in zip(every, plan, strict=True)))
    line = summary.format_line(key, plan)
    thinking_note = _thinking_note(totals.get("without_thinking", 0))
    return f"{line}{thinking_note}{_caching_advice(totals.get('unmarked', 0), totals.get('marks_would_save', 0.0))}"


def _thinking_note(count: int) -> str:
    """Return a note about requests sent without thinking (the last step of the fallback), and what the user can do."""
    if not count:
        return ""
    note = f"; {plural(count, 'request')} sent without earlier thinking, because the provider rejected it"
    return f"{note}: how the conversation was sent before is no longer known. A new conversation keeps its thinking"


def _caching_advice(count: int, less: float) -> str:
    if not count or less <= 0:
        return ""
    uses = f"{count:,} conversation{'s use' if count != 1 else ' uses'} no prompt caching"
    return f"; {uses}: --cache auto would save about {dollars(less)}"


def format_dollars(amount: float) -> str:
    """Format dollars, with hundredths of a cent if the amount is small."""
    return f"{sign(amount)}${format_fixed(abs(amount), 4 if abs(amount) < SMALL_DOLLARS else 2)}"


def format_reduction(ours: float, theirs: float) -> str:
    """Format the relative difference of two costs, like `13% less`."""
    share = 100 * (1 - ours / theirs) if theirs else 0.0
    size = abs(share)
    percent_text = "under 0.1" if size < 0.1 else format_fixed(size, 1 if size < SMALL_PERCENT else 0)
    return f"{percent_text}% {'less' if share > 0 else 'more'}"
