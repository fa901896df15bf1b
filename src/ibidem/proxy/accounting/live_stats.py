"""Live statistics: totals, conversations, requests and events, in bounded memory. The page and the metrics show them.

Headers and keys are never stored. Texts are stored only for the edits of the newest requests, so that the page can show
them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from dataclasses import asdict, replace
from typing import Any

from ... import __version__
from ...billing.cache_loss import FOUND_SHARE, BilledRequest, CacheHistory, CacheVerdict
from ...billing.calibration import JSON_BLOCK_TOKENS, WEIGHTS, GrowthFit, TokenWeights, usual_scale
from ...billing.prices import Price, Prices
from ...billing.usage import Usage
from ...live.types import RewriteResult
from ..settings import Settings
from .bill import RemovedInput, RemovedTokens, input_cost, usage_with_edits, usage_without_edits
from .conversation_stats import MAX_EXCHANGES, ConversationStats, edit_row
from .exchange_rows import ConversationRow, ExchangeRow
from .latency import LatencyHistogram
from .miss_cause import explain_exchange
from .shadow_cache import SharedPrefixes, record_request, simulate_client_cache
from .summary_line import SummaryLine, format_summary

__all__ = ["ConversationRow", "ExchangeRow", "LiveStats"]

MAX_CONVERSATIONS, MAX_EVENTS = 200, 50
"""Maximum conversations that are shown, and maximum events."""

ALL_EXCHANGES, EXCHANGE_BYTES = 50_000, 1200
"""Maximum requests of all conversations, and estimated bytes in memory of each."""

MAX_REASONS = 50
"""Maximum different reasons of failures. Further ones are counted together."""

TEXTS_SHARE, EXCHANGES_SHARE = 0.2, 0.05
"""Shares of the memory setting for the texts of edits, and for requests without texts."""
PAGE_SHARE = TEXTS_SHARE + EXCHANGES_SHARE
"""Share of the memory setting for the page. The rest is for live conversations."""

LEFT_SHARE = 0.9
"""Share of the limit that remains after an eviction, so that not every request evicts."""

SUMMED_TOKENS = ("input", "read", "written", "written_1h", "removed")

PLAN_SUMS = ("requests", "paid", "would_have_paid", "input", "removed")
"""Sums of the requests that a subscription covers. They are part of the totals."""

COMPACTED = ("requests", "rewritten", "bytes_in", "bytes_out", "removed")
"""Sums for bodies that are returned to the client: requests, sizes, and our estimate of removed tokens."""

BOUNDARY_ERROR = 0.02
"""Assumed error of our estimate of where a message ends, as a share of the request."""


class LiveStats:
    """Live statistics of one proxy. Not thread-safe."""

    def __init__(self, settings: Settings, started: float, prefix: str = "") -> None:
        """`prefix` is the start of all ids, so that those of several processes differ."""
        self._settings = settings
        self._prefix = prefix
        self._started = started
        self._prices = Prices()
        self._made = 0
        self._conversations: OrderedDict[str, ConversationStats] = OrderedDict()
        self._exchanges = self._texts = 0
        """Stored requests, and bytes of their texts."""
        memory = settings.memory_mb * 2**20
        self._most_texts = TEXTS_SHARE * memory
        self._most_exchanges = min(ALL_EXCHANGES, EXCHANGES_SHARE * memory / EXCHANGE_BYTES)
        self._totals: Counter[str] = Counter()
        self._compacted: Counter[str] = Counter(dict.fromkeys(COMPACTED, 0))
        self._money = {"paid": 0.0, "would_have_paid": 0.0, "by_marks": 0.0}
        self._plan: dict[str, float] = dict.fromkeys(PLAN_SUMS, 0)
        self._missed: dict[str, float] = {}
        self._heads = SharedPrefixes()
        self._breaks: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._edits: Counter[str] = Counter()
        self._took = LatencyHistogram()
        self._removed: Counter[str] = Counter()
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self.summary = SummaryLine(settings.observe)
        self.changes = 0
        """Number of changes so far, so that a page can detect news."""

    def begin_exchange(
        self,
        path: str,
        outcome: RewriteResult | None,
        at: float,
        client: str,
        format: str,
        size: int,
        kind: str = "model",
        plan: bool = False,
    ) -> ExchangeRow:
        """Add a request that is sent. Without `outcome`, it is unchanged. `plan`: a subscription covers it."""
        self._made += 1
        self.changes += 1
        row = ExchangeRow(
            f"{self._prefix}e{self._made}", at, path, outcome.result if outcome else "passed", bytes_in=size
        )
        row.bytes_out = len(outcome.body) if outcome and outcome.body is not None else size
        row.client, row.format, row.model = client, format, outcome.model if outcome else ""
        row.kind, row.plan = kind, plan
        self._totals["requests"] += 1
        self._totals["passed" if row.outcome != "rewritten" else "rewritten"] += 1
        if outcome is None:
            return row
        row.reason, row.took_ms, row.messages = outcome.reason, 1e3 * outcome.seconds, outcome.messages
        row.edits, row.revision = len(outcome.edits), outcome.revision_reason or None
        self._took.add_duration(outcome.seconds)
        if outcome.result == "failed open":
            self._count_failure(outcome, at)
        if outcome.conversation is not None:
            try:
                self._add_to_conversation(row, outcome, client, format)
            except OSError as error:  # e.g. too many open files to read the prices: count the request without cost
                self.add_event("error", at, f"a request is not priced: {error.strerror or type(error).__name__}")
        return row

    def resend_exchange(
        self, row: ExchangeRow, before: RewriteResult, outcome: RewriteResult, kind: str, at: float
    ) -> None:
        """Update a request that was rejected and is sent again with another body."""
        self.changes += 1
        if not row.resent:
            self._count_failure(outcome, at)
            self._totals["refused"] += 1
        row.outcome, row.reason, row.resent = outcome.result, outcome.reason, kind
        row.bytes_out = len(outcome.body) if outcome.body is not None else row.bytes_in
        row.edits, row.revision = len(outcome.edits), None
        conversation = self._find_conversation(before)
        if conversation is None:
            return
        conversation.account.replace_edits(outcome.edits, outcome.edit_tokens)
        row.removed = round(conversation.account.scale * conversation.account.total_tokens)
        if before.revision_reason:
            self._breaks -= Counter((before.revision_reason,))
            conversation.row.breaks -= 1
        if row.id in conversation.details:
            conversation.details[row.id] = (outcome.edits, outcome.first_new)

    def _count_failure(self, outcome: RewriteResult, at: float) -> None:
        reason = outcome.reason
        if reason not in self._failures and len(self._failures) >= MAX_REASONS:
            reason = "other reasons"
        if reason not in self._failures and not outcome.is_client_fault:
            self.add_event("failure", at, f"requests are sent without new edits: {reason}")
        self._failures[reason] += 1
        self._totals["failed_open"] += 1

    def _add_to_conversation(self, exchange_row: ExchangeRow, outcome: RewriteResult, client: str, format: str) -> None:
        owner = outcome.conversation
        assert owner is not None
        conversation = self._conversations.get(owner.id)
        if conversation is None:
            row = ConversationRow(
                owner.id, owner.title, client, outcome.model, format, exchange_row.at, exchange_row.at
            )
            row.arm = owner.assignment.label if owner.assignment is not None else ""
            account = RemovedTokens(self._initial_fit(outcome.model, format))
            conversation = self._conversations[owner.id] = ConversationStats(row, account)
        self._conversations.move_to_end(owner.id)
        row = conversation.row
        row.requests, row.last, row.active, row.model = row.requests + 1, exchange_row.at, True, outcome.model
        row.plan = exchange_row.plan
        conversation.active += 1
        self._exchanges += len(conversation.exchanges) < MAX_EXCHANGES
        conversation.exchanges.append(exchange_row)
        exchange_row.conversation = owner.id
        made = conversation.account.replace_edits(outcome.edits, outcome.edit_tokens)
        if not owner.is_observed:
            self._edits.update(edit.strategy for edit in made)
            exchange_row.removed = round(conversation.account.scale * conversation.account.total_tokens)
        if outcome.revision_reason:
            self._breaks[outcome.revision_reason] += 1
            row.breaks += 1
        if outcome.edits:
            before = conversation.texts
            conversation.add_edits(exchange_row.id, outcome.edits, outcome.first_new, made)
            self._texts += conversation.texts - before
        self._evict_excess()

    def _initial_fit(self, model: str, format: str) -> GrowthFit:
        weights = WEIGHTS.get(self._prices.of(model, format).provider, TokenWeights())
        scale = usual_scale(model)
        return GrowthFit(scale * weights.result, scale * (weights.part - JSON_BLOCK_TOKENS * weights.result))

    def _evict_excess(self) -> None:
        """Evict conversations, texts and requests above the limits, the least recently used first."""
        while len(self._conversations) > max(MAX_CONVERSATIONS, self._settings.conversations):
            evicted = self._conversations.popitem(last=False)[1]
            self._forget_texts(evicted)
            self._exchanges -= len(evicted.exchanges)
        if self._texts > self._most_texts:
            for each in self._conversations.values():
                self._forget_texts(each)
                if self._texts <= LEFT_SHARE * self._most_texts:
                    break
        if self._exchanges > self._most_exchanges:
            for each in self._conversations.values():
                self._forget_texts(each)
                self._exchanges -= len(each.exchanges)
                each.exchanges.clear()
                if self._exchanges <= LEFT_SHARE * self._most_exchanges:
                    break

    def _forget_texts(self, conversation: ConversationStats) -> None:
        self._texts -= conversation.texts
        conversation.forget_texts()

    def cache_history(self, outcome: RewriteResult) -> CacheHistory | None:
        """Return the data to judge the cache use of the next response. None if there is no conversation."""
        conversation = self._find_conversation(outcome)
        if conversation is None:
            return None
        row = conversation.row
        caching = self._prices.of(outcome.model, row.format).caching
        if conversation.shadow.cached_prefix is not None and conversation.shadow.cached_prefix.long:
            caching = replace(caching, lifetime=caching.lifetime_1h)
        directives, before = outcome.new_input().asked, conversation.shadow.directives
        new_head = directives is not None and before is not None and directives.head != before.head
        return CacheHistory(caching, conversation.last_billed, row.hits, row.stopped, new_head)

    def end_exchange(
        self, row: ExchangeRow, outcome: RewriteResult | None, status: int, usage: Usage | None, verdict: CacheVerdict
    ) -> None:
        """Add the response of a request, with its cost."""
        self.changes += 1
        row.status = status
        self.summary.count_exchange(row)
        if row.kind == "compact":
            self._count_returned(row, outcome)
        accepted = 200 <= status < 300
        self._totals["resent"] += bool(row.resent) and accepted
        self._totals["without_thinking"] += outcome is not None and outcome.thinking_dropped > 0 and accepted
        conversation = self._find_conversation(outcome)
        if conversation is not None:
            conversation.active -= 1
            conversation.row.active = conversation.active > 0
        if usage is not None and outcome is not None:
            row.input, row.read, row.fresh, row.output = usage.input, usage.read, usage.fresh, usage.output
            row.written, row.written_1h = usage.written + usage.written_1h, usage.written_1h
        if usage is None or outcome is None or conversation is None:
            self._totals["unpriced"] += outcome is not None and 200 <= status < 300
        else:
            self._bill_exchange(row, outcome, usage, conversation, verdict)

    def _count_returned(self, row: ExchangeRow, outcome: RewriteResult | None) -> None:
        """Count a body that is returned to the client. Only its size is known."""
        edited = row.outcome == "rewritten"
        sizes = Counter(requests=1, rewritten=edited, bytes_in=row.bytes_in, bytes_out=row.bytes_out)
        self._compacted.update(sizes)
        self._compacted["removed"] += round(sum(outcome.edit_tokens)) if outcome is not None and edited else 0

    def _find_conversation(self, outcome: RewriteResult | None) -> ConversationStats | None:
        owner = outcome.conversation if outcome else None
        return self._conversations.get(owner.id) if owner else None

    def _bill_exchange(
        self,
        exchange_row: ExchangeRow,
        outcome: RewriteResult,
        usage: Usage,
        conversation: ConversationStats,
        verdict: CacheVerdict,
    ) -> None:
        row = conversation.row
        price = self._prices.of(outcome.model, row.format)
        self._fit_scale(outcome, usage, conversation)
        other = self._counterfactual_usage(outcome, usage, conversation, price, verdict)
        theirs = self._client_usage(exchange_row, outcome, other, conversation, price)
        exchange_row.paid, exchange_row.would_have_paid = input_cost(usage, price), input_cost(theirs, price)
        exchange_row.by_marks = exchange_row.would_have_paid - input_cost(other, price)
        is_measured = outcome.is_observed
        if is_measured:  # `other` is the usage with edits, and nothing was really saved
            exchange_row.could_save, exchange_row.by_marks = exchange_row.paid - exchange_row.would_have_paid, 0.0
            exchange_row.would_have_paid = exchange_row.paid
        exchange_row.output_paid = usage.output * price.rates(usage.input).output
        self._explain_miss(exchange_row, outcome, usage, conversation, price)
        self._add_sums(row, exchange_row)
        if not is_measured and conversation.account.by_strategy:
            scale = conversation.account.scale
            for strategy, tokens in conversation.account.by_strategy.items():
                self._removed[strategy] += round(scale * tokens)
        if conversation.last_billed is not None:
            row.hits, row.misses = row.hits + verdict.hit, row.misses + (not verdict.hit)
            self._totals["hits" if verdict.hit else "misses"] += 1
        response_time = exchange_row.at + (exchange_row.total_ms or 0.0) / 1e3
        size = float(other.input)
        conversation.add_billed(
            BilledRequest(
                size, usage.input, outcome.messages, outcome.model, response_time, bool(outcome.revision_reason)
            )
        )
        if verdict.collapsed:
            row.stopped = True
            self.add_event(
                "collapse", exchange_row.at, "cache reads fell after a revision: revisions stop here", row.id
            )

    def _client_usage(
        self, row: ExchangeRow, outcome: RewriteResult, other: Usage, conversation: ConversationStats, price: Price
    ) -> Usage:
        """Return the usage with the client's own cache directives, if ours may differ."""
        directives = outcome.new_input().asked or conversation.shadow.directives
        if self._settings.cache_mode == "off" or directives is None or outcome.is_observed:
            return other
        return simulate_client_cache(
            conversation.shadow, self._heads, other, directives, price.caching, outcome.model, row.at
        )

    def _explain_miss(
        self,
        exchange_row: ExchangeRow,
        outcome: RewriteResult,
        usage: Usage,
        conversation: ConversationStats,
        price: Price,
    ) -> None:
        owner = outcome.conversation
        parent = self._conversations.get(owner.parent) if owner is not None else None
        view = conversation.shadow
        miss = explain_exchange(
            exchange_row, conversation.row, view, parent.shadow if parent else None, outcome, usage, price
        )
        view.directives = outcome.new_input().asked or view.directives
        record_request(view, usage, exchange_row.at)
        if miss is not None:
            self._missed[miss.cause] = self._missed.get(miss.cause, 0.0) + miss.dollars

    def _fit_scale(self, outcome: RewriteResult, usage: Usage, conversation: ConversationStats) -> None:
        last, account = conversation.last_billed, conversation.account
        if last is None or outcome.revision_reason or last.messages != outcome.first_new or last.model != outcome.model:
            return
        growth = usage.input - last.sent
        if growth <= 0:  # no growth to fit
            return
        new = account.total_tokens - account.tokens_before(outcome.first_new)
        sent_whole = self._settings.observe or outcome.is_observed
        directives = outcome.new_input().asked
        ours = outcome.new_input().text.count_tokens() - (0.0 if sent_whole else new)
        account.fit.add_growth(ours, growth, (directives.blocks if directives is not None else None) or 0)

    def _counterfactual_usage(
        self, outcome: RewriteResult, usage: Usage, conversation: ConversationStats, price: Price, verdict: CacheVerdict
    ) -> Usage:
        """Return the usage without our edits, or, if the request was only measured, the usage with edits."""
        last, account = conversation.last_billed, conversation.account
        cached_messages = _count_cached_messages(outcome, usage, conversation, price.caching.step)
        scale = account.scale
        before = scale * account.tokens_before(cached_messages)
        removed = RemovedInput(before, scale * account.total_tokens - before)
        revised = outcome.revision_reason not in ("", "cold cache", "new settings")
        if outcome.is_observed:
            return usage_with_edits(usage, removed, outcome.rewritten_tokens, price.caching.minimum)
        if self._settings.observe:
            return usage_with_edits(usage, removed, outcome.rewritten_tokens if revised else 0.0, price.caching.minimum)
        if (
            last is not None
            and verdict.warm
            and (revised or verdict.lost or last.sent < price.caching.minimum <= last.size)
        ):
            return usage_without_edits(usage, removed, last.size)
        return usage_without_edits(usage, removed)

    def _add_sums(self, row: ConversationRow, exchange_row: ExchangeRow) -> None:
        assert exchange_row.paid is not None
        assert exchange_row.would_have_paid is not None
        self._money["paid"] += exchange_row.paid
        self._money["would_have_paid"] += exchange_row.would_have_paid
        self._money["by_marks"] += exchange_row.by_marks
        if exchange_row.plan:
            self._plan["requests"] += 1
            for name in PLAN_SUMS[1:]:
                self._plan[name] += getattr(exchange_row, name)
        row.paid += exchange_row.paid
        row.would_have_paid += exchange_row.would_have_paid
        row.by_marks += exchange_row.by_marks
        for name in SUMMED_TOKENS:
            self._totals[name] += getattr(exchange_row, name)
            setattr(row, name, getattr(row, name) + getattr(exchange_row, name))

    def add_event(self, kind: str, at: float, text: str, conversation: str = "") -> None:
        """Add an event for the page."""
        self.changes += 1
        self._events.appendleft({"at": at, "kind": kind, "conversation": conversation, "text": text})

    # ── views for the page and the API ──────────────────────────────────────────────────────────────────────────────

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return the statistics with the newest conversations."""
        newest = list(reversed(self._conversations.values()))[:MAX_CONVERSATIONS]
        return {**self.statistics_json(now), "conversations": [asdict(each.row) for each in newest]}

    def statistics_json(self, now: float) -> dict[str, Any]:
        """Return the statistics without conversations, which is fast."""
        return {
            "version": __version__,
            "profile": self._settings.profile,
            "cache": self._settings.cache_mode,
            "observe": self._settings.observe,
            "started": self._started,
            "now": now,
            "totals": self._all_totals,
            "rewriting": self._took.histogram_json,
            "failures": [{"reason": reason, "count": count} for reason, count in self._failures.most_common()],
            "strategies": [
                {"name": name, "edits": self._edits[name], "tokens": tokens}
                for name, tokens in self._removed.most_common()
            ],
            "events": list(self._events),
        }

    @property
    def _all_totals(self) -> dict[str, Any]:
        names = ("requests", "rewritten", "passed", "failed_open", "refused", "resent", "unpriced", "hits", "misses")
        return {
            **{name: self._totals[name] for name in (*names, "without_thinking", *SUMMED_TOKENS)},
            **self._money,
            "compacted": dict(self._compacted),
            "plan": dict(self._plan),
            "breaks": dict(self._breaks),
            "missed": dict(self._missed),
            "unmarked": len(self._uncached_rows),
            "marks_would_save": sum(row.marks_would_save for row in self._uncached_rows),
        }

    def conversation_json(self, id: str) -> dict[str, Any] | None:
        """Return a conversation with its requests, or None."""
        conversation = self._conversations.get(id)
        if conversation is None:
            return None
        return {
            "conversation": asdict(conversation.row),
            "exchanges": [asdict(each) for each in conversation.exchanges],
        }

    def exchange_json(self, id: str) -> dict[str, Any] | None:
        """Return a request with its edits, or None."""
        for each in self._conversations.values():
            for exchange in each.exchanges:
                if exchange.id == id:
                    edits, first_new = each.details.get(id, ((), 0))
                    edit_rows = [edit_row(edit, first_new) for edit in edits]
                    return {"exchange": asdict(exchange), "kept": len(edit_rows) == exchange.edits, "edits": edit_rows}
        return None

    @property
    def _uncached_rows(self) -> list[ConversationRow]:
        """Conversations without cache breakpoints, unless `--cache auto` adds them."""
        if self._settings.cache_mode == "auto":
            return []
        return [each.row for each in self._conversations.values() if each.row.unmarked]

    @property
    def summary_line(self) -> str:
        """Summary line."""
        return format_summary(self.summary, self._all_totals)


def _count_cached_messages(outcome: RewriteResult, usage: Usage, conversation: ConversationStats, step: int) -> int:
    """Estimate the number of messages in the part of a request that the provider read from its cache."""
    share, last = usage.read / max(1, usage.input), conversation.last_billed
    if last is not None:
        # A cached prefix ends where an earlier request did. The provider may round down to a multiple of `step`.
        ends = [end for end in conversation.prefix_ends if end.tokens < usage.read + max(1, step)]
        if ends:
            return ends[-1].messages
        return min(last.messages, round(outcome.messages * share))  # less than any request before, so estimate by share
    if outcome.first_new and share >= FOUND_SHARE:
        return outcome.first_new
    return bisect_right(outcome.message_ends, share + step / max(1, usage.input) + BOUNDARY_ERROR) if usage.read else 0
