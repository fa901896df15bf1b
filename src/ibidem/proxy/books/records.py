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
from ...billing.calibration import JSON_BLOCK_TOKENS, WEIGHTS, GrowthFit, Weights, usual_scale
from ...billing.collapse import FOUND_SHARE, Billed, CacheHistory, Verdict
from ...billing.prices import Price, Prices
from ...billing.usage import Usage
from ...live.types import RewriteResult
from ..settings import Settings
from .bill import Account, Removed, paid, rewritten, untouched
from .closing import ClosingLine, closing_line
from .durations import Durations
from .explained import explained
from .ledger import SharedHeads, as_asked, sent
from .rows import ConversationRow, ExchangeRow
from .watched import MAX_EXCHANGES, WatchedConversation, shown_edit

__all__ = ["ConversationRow", "ExchangeRow", "Records"]

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


class Records:
    """Live statistics of one proxy. Not thread-safe."""

    def __init__(self, settings: Settings, started: float, prefix: str = "") -> None:
        """`prefix` is the start of all ids, so that those of several processes differ."""
        self._settings = settings
        self._prefix = prefix
        self._started = started
        self._prices = Prices()
        self._made = 0
        self._conversations: OrderedDict[str, WatchedConversation] = OrderedDict()
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
        self._heads = SharedHeads()
        self._breaks: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._edits: Counter[str] = Counter()
        self._took = Durations()
        self._removed: Counter[str] = Counter()
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self.closing = ClosingLine(settings.observe)
        self.changes = 0
        """Number of changes so far, so that a page can detect news."""

    def begin(
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
        found = ExchangeRow(
            f"{self._prefix}e{self._made}", at, path, outcome.result if outcome else "passed", bytes_in=size
        )
        found.bytes_out = len(outcome.body) if outcome and outcome.body is not None else size
        found.client, found.format, found.model = client, format, outcome.model if outcome else ""
        found.kind, found.plan = kind, plan
        self._totals["requests"] += 1
        self._totals["passed" if found.outcome != "rewritten" else "rewritten"] += 1
        if outcome is None:
            return found
        found.reason, found.took_ms, found.messages = outcome.reason, 1e3 * outcome.took, outcome.messages
        found.edits, found.revision = len(outcome.edits), outcome.revision or None
        self._took.count(outcome.took)
        if outcome.result == "failed open":
            self._failed(outcome, at)
        if outcome.conversation is not None:
            try:
                self._converse(found, outcome, client, format)
            except OSError as error:  # e.g. too many open files to read the prices: count the request without cost
                self.event("error", at, f"a request is not priced: {error.strerror or type(error).__name__}")
        return found

    def resent(self, found: ExchangeRow, before: RewriteResult, outcome: RewriteResult, kind: str, at: float) -> None:
        """Update a request that was rejected and is sent again with another body."""
        self.changes += 1
        if not found.resent:
            self._failed(outcome, at)
            self._totals["refused"] += 1
        found.outcome, found.reason, found.resent = outcome.result, outcome.reason, kind
        found.bytes_out = len(outcome.body) if outcome.body is not None else found.bytes_in
        found.edits, found.revision = len(outcome.edits), None
        watched = self._watched_of(before)
        if watched is None:
            return
        watched.account.take(outcome.edits, outcome.freed)
        found.removed = round(watched.account.scale * watched.account.all)
        if before.revision:
            self._breaks -= Counter((before.revision,))
            watched.row.breaks -= 1
        if found.id in watched.details:
            watched.details[found.id] = (outcome.edits, outcome.first_new)

    def _failed(self, outcome: RewriteResult, at: float) -> None:
        reason = outcome.reason
        if reason not in self._failures and len(self._failures) >= MAX_REASONS:
            reason = "other reasons"
        if reason not in self._failures and not outcome.theirs:
            self.event("failure", at, f"requests are sent without new edits: {reason}")
        self._failures[reason] += 1
        self._totals["failed_open"] += 1

    def _converse(self, found: ExchangeRow, outcome: RewriteResult, client: str, format: str) -> None:
        owner = outcome.conversation
        assert owner is not None
        watched = self._conversations.get(owner.id)
        if watched is None:
            row = ConversationRow(owner.id, owner.title, client, outcome.model, format, found.at, found.at)
            row.arm = owner.assignment.label if owner.assignment is not None else ""
            account = Account(self._initial_fit(outcome.model, format))
            watched = self._conversations[owner.id] = WatchedConversation(row, account)
        self._conversations.move_to_end(owner.id)
        row = watched.row
        row.requests, row.last, row.active, row.model = row.requests + 1, found.at, True, outcome.model
        row.plan = found.plan
        watched.active += 1
        self._exchanges += len(watched.exchanges) < MAX_EXCHANGES
        watched.exchanges.append(found)
        found.conversation = owner.id
        made = watched.account.take(outcome.edits, outcome.freed)
        if not owner.measured:
            self._edits.update(edit.strategy for edit in made)
            found.removed = round(watched.account.scale * watched.account.all)
        if outcome.revision:
            self._breaks[outcome.revision] += 1
            row.breaks += 1
        if outcome.edits:
            before = watched.texts
            watched.note_edits(found.id, outcome.edits, outcome.first_new, made)
            self._texts += watched.texts - before
        self._let_go()

    def _initial_fit(self, model: str, format: str) -> GrowthFit:
        weights = WEIGHTS.get(self._prices.of(model, format).provider, Weights())
        scale = usual_scale(model)
        return GrowthFit(scale * weights.result, scale * (weights.part - JSON_BLOCK_TOKENS * weights.result))

    def _let_go(self) -> None:
        """Evict conversations, texts and requests above the limits, the least recently used first."""
        while len(self._conversations) > max(MAX_CONVERSATIONS, self._settings.conversations):
            gone = self._conversations.popitem(last=False)[1]
            self._forget_texts(gone)
            self._exchanges -= len(gone.exchanges)
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

    def _forget_texts(self, watched: WatchedConversation) -> None:
        self._texts -= watched.texts
        watched.forget_texts()

    def cache_history(self, outcome: RewriteResult) -> CacheHistory | None:
        """Return the data to judge the cache use of the next response. None if there is no conversation."""
        watched = self._watched_of(outcome)
        if watched is None:
            return None
        row = watched.row
        caching = self._prices.of(outcome.model, row.format).caching
        if watched.seen.ours is not None and watched.seen.ours.long:
            caching = replace(caching, lifetime=caching.lifetime_1h)
        asked, before = outcome.new().asked, watched.seen.asked
        new_head = asked is not None and before is not None and asked.head != before.head
        return CacheHistory(caching, watched.last, row.hits, row.stopped, new_head)

    def end(
        self, found: ExchangeRow, outcome: RewriteResult | None, status: int, usage: Usage | None, verdict: Verdict
    ) -> None:
        """Add the response of a request, with its cost."""
        self.changes += 1
        found.status = status
        self.closing.count(found)
        if found.kind == "compact":
            self._given_back(found, outcome)
        accepted = 200 <= status < 300
        self._totals["resent"] += bool(found.resent) and accepted
        self._totals["without_thinking"] += outcome is not None and outcome.thinking_dropped > 0 and accepted
        watched = self._watched_of(outcome)
        if watched is not None:
            watched.active -= 1
            watched.row.active = watched.active > 0
        if usage is not None and outcome is not None:
            found.input, found.read, found.fresh, found.output = usage.input, usage.read, usage.fresh, usage.output
            found.written, found.written_1h = usage.written + usage.written_1h, usage.written_1h
        if usage is None or outcome is None or watched is None:
            self._totals["unpriced"] += outcome is not None and 200 <= status < 300
        else:
            self._billed(found, outcome, usage, watched, verdict)

    def _given_back(self, found: ExchangeRow, outcome: RewriteResult | None) -> None:
        """Count a body that is returned to the client. Only its size is known."""
        edited = found.outcome == "rewritten"
        sizes = Counter(requests=1, rewritten=edited, bytes_in=found.bytes_in, bytes_out=found.bytes_out)
        self._compacted.update(sizes)
        self._compacted["removed"] += round(sum(outcome.freed)) if outcome is not None and edited else 0

    def _watched_of(self, outcome: RewriteResult | None) -> WatchedConversation | None:
        owner = outcome.conversation if outcome else None
        return self._conversations.get(owner.id) if owner else None

    def _billed(
        self, found: ExchangeRow, outcome: RewriteResult, usage: Usage, watched: WatchedConversation, verdict: Verdict
    ) -> None:
        row = watched.row
        price = self._prices.of(outcome.model, row.format)
        self._calibrate(outcome, usage, watched)
        other = self._other(outcome, usage, watched, price, verdict)
        theirs = self._as_asked(found, outcome, other, watched, price)
        found.paid, found.would_have_paid = paid(usage, price), paid(theirs, price)
        found.by_marks = found.would_have_paid - paid(other, price)
        measured = outcome.measured
        if measured:  # `other` is the usage with edits, and nothing was really saved
            found.could_save, found.by_marks = found.paid - found.would_have_paid, 0.0
            found.would_have_paid = found.paid
        found.output_paid = usage.output * price.rates(usage.input).output
        self._explain(found, outcome, usage, watched, price)
        self._add(row, found)
        if not measured and watched.account.by_strategy:
            scale = watched.account.scale
            for strategy, tokens in watched.account.by_strategy.items():
                self._removed[strategy] += round(scale * tokens)
        if watched.last is not None:
            row.hits, row.misses = row.hits + verdict.hit, row.misses + (not verdict.hit)
            self._totals["hits" if verdict.hit else "misses"] += 1
        answered = found.at + (found.total_ms or 0.0) / 1e3
        size = float(other.input)
        watched.note_billed(
            Billed(size, usage.input, outcome.messages, outcome.model, answered, bool(outcome.revision))
        )
        if verdict.collapsed:
            row.stopped = True
            self.event("collapse", found.at, "cache reads fell after a revision: revisions stop here", row.id)

    def _as_asked(
        self, found: ExchangeRow, outcome: RewriteResult, other: Usage, watched: WatchedConversation, price: Price
    ) -> Usage:
        """Return the usage with the client's own cache directives, if ours may differ."""
        asked = outcome.new().asked or watched.seen.asked
        if self._settings.asks_to_keep == "off" or asked is None or outcome.measured:
            return other
        return as_asked(watched.seen, self._heads, other, asked, price.caching, outcome.model, found.at)

    def _explain(
        self, found: ExchangeRow, outcome: RewriteResult, usage: Usage, watched: WatchedConversation, price: Price
    ) -> None:
        owner = outcome.conversation
        parent = self._conversations.get(owner.parent) if owner is not None else None
        view = watched.seen
        miss = explained(found, watched.row, view, parent.seen if parent else None, outcome, usage, price)
        view.asked = outcome.new().asked or view.asked
        sent(view, usage, found.at)
        if miss is not None:
            self._missed[miss.cause] = self._missed.get(miss.cause, 0.0) + miss.dollars

    def _calibrate(self, outcome: RewriteResult, usage: Usage, watched: WatchedConversation) -> None:
        last, account = watched.last, watched.account
        if last is None or outcome.revision or last.messages != outcome.first_new or last.model != outcome.model:
            return
        grown = usage.input - last.sent
        if grown <= 0:  # no growth to fit
            return
        new = account.all - account.before(outcome.first_new)
        sent_whole = self._settings.observe or outcome.measured
        asked = outcome.new().asked
        ours = outcome.new().text.tokens() - (0.0 if sent_whole else new)
        account.fit.grew(ours, grown, (asked.blocks if asked is not None else None) or 0)

    def _other(
        self, outcome: RewriteResult, usage: Usage, watched: WatchedConversation, price: Price, verdict: Verdict
    ) -> Usage:
        """Return the usage without our edits, or, if the request was only measured, the usage with edits."""
        last, account = watched.last, watched.account
        known = _read_messages(outcome, usage, watched, price.caching.step)
        scale = account.scale
        before = scale * account.before(known)
        removed = Removed(before, scale * account.all - before)
        revised = outcome.revision not in ("", "cold cache", "new settings")
        if outcome.measured:
            return rewritten(usage, removed, outcome.rewritten, price.caching.minimum)
        if self._settings.observe:
            return rewritten(usage, removed, outcome.rewritten if revised else 0.0, price.caching.minimum)
        if (
            last is not None
            and verdict.warm
            and (revised or verdict.lost or last.sent < price.caching.minimum <= last.size)
        ):
            return untouched(usage, removed, last.size)
        return untouched(usage, removed)

    def _add(self, row: ConversationRow, found: ExchangeRow) -> None:
        assert found.paid is not None
        assert found.would_have_paid is not None
        self._money["paid"] += found.paid
        self._money["would_have_paid"] += found.would_have_paid
        self._money["by_marks"] += found.by_marks
        if found.plan:
            self._plan["requests"] += 1
            for name in PLAN_SUMS[1:]:
                self._plan[name] += getattr(found, name)
        row.paid += found.paid
        row.would_have_paid += found.would_have_paid
        row.by_marks += found.by_marks
        for name in SUMMED_TOKENS:
            self._totals[name] += getattr(found, name)
            setattr(row, name, getattr(row, name) + getattr(found, name))

    def event(self, kind: str, at: float, text: str, conversation: str = "") -> None:
        """Add an event for the page."""
        self.changes += 1
        self._events.appendleft({"at": at, "kind": kind, "conversation": conversation, "text": text})

    # ── views for the page and the API ──────────────────────────────────────────────────────────────────────────────

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return the statistics with the newest conversations."""
        newest = list(reversed(self._conversations.values()))[:MAX_CONVERSATIONS]
        return {**self.figures(now), "conversations": [asdict(each.row) for each in newest]}

    def figures(self, now: float) -> dict[str, Any]:
        """Return the statistics without conversations, which is fast."""
        return {
            "version": __version__,
            "profile": self._settings.profile,
            "cache": self._settings.asks_to_keep,
            "observe": self._settings.observe,
            "started": self._started,
            "now": now,
            "totals": self._all_totals,
            "rewriting": self._took.figures,
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
            "unmarked": len(self._unmarked),
            "marks_would_save": sum(row.marks_would_save for row in self._unmarked),
        }

    def conversation(self, id: str) -> dict[str, Any] | None:
        """Return a conversation with its requests, or None."""
        found = self._conversations.get(id)
        if found is None:
            return None
        return {"conversation": asdict(found.row), "exchanges": [asdict(each) for each in found.exchanges]}

    def exchange(self, id: str) -> dict[str, Any] | None:
        """Return a request with its edits, or None."""
        for each in self._conversations.values():
            for exchange in each.exchanges:
                if exchange.id == id:
                    edits, first_new = each.details.get(id, ((), 0))
                    shown = [shown_edit(edit, first_new) for edit in edits]
                    return {"exchange": asdict(exchange), "kept": len(shown) == exchange.edits, "edits": shown}
        return None

    @property
    def _unmarked(self) -> list[ConversationRow]:
        """Conversations without cache breakpoints, unless `--cache auto` adds them."""
        if self._settings.asks_to_keep == "auto":
            return []
        return [each.row for each in self._conversations.values() if each.row.unmarked]

    @property
    def line(self) -> str:
        """Summary line."""
        return closing_line(self.closing, self._all_totals)


def _read_messages(outcome: RewriteResult, usage: Usage, watched: WatchedConversation, step: int) -> int:
    """Estimate the number of messages in the part of a request that the provider read from its cache."""
    share, last = usage.read / max(1, usage.input), watched.last
    if last is not None:
        # A cached prefix ends where an earlier request did. The provider may round down to a multiple of `step`.
        ends = [end for end in watched.prefix_ends if end.tokens < usage.read + max(1, step)]
        if ends:
            return ends[-1].messages
        return min(last.messages, round(outcome.messages * share))  # less than any request before, so estimate by share
    if outcome.first_new and share >= FOUND_SHARE:
        return outcome.first_new
    return bisect_right(outcome.ends, share + step / max(1, usage.input) + BOUNDARY_ERROR) if usage.read else 0
