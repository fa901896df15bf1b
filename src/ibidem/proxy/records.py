"""What happened: totals, conversations, requests and events, in memory and bounded. The page and the metrics show it.

No header and no key is ever held here. Of texts, only those that were rewritten are, for the newest requests, so that
what was made of them can be looked at.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import __version__
from ..plan import Edit
from ..prices import Prices
from ..sessions.recorded import Usage
from ..sizes import WEIGHTS, Weights
from ..tokens import estimate
from .bill import Removed, paid, rewritten, untouched
from .rewriting import Outcome
from .settings import Settings

CONVERSATIONS, EXCHANGES, EVENTS, DETAILS = 200, 500, 50, 50
"""Most that are held: conversations that are shown, requests of one, events, requests of one with their texts."""

TEXTS = 0.25
"""The share of the memory setting that texts which are held to be shown may take."""

COLLAPSED = 0.5
"""A provider that reads less than this share of the last request, warm and unchanged, has lost it."""


@dataclass
class Exchange:
    """One request. Field names are those of the page."""

    id: str
    at: float
    path: str
    outcome: str
    reason: str = ""
    status: int = 0
    messages: int = 0
    edits: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    took_ms: float = 0.0
    first_byte_ms: float | None = None
    total_ms: float | None = None
    input: int = 0
    read: int = 0
    written: int = 0
    fresh: int = 0
    output: int = 0
    removed: int = 0
    paid: float | None = None
    would_have_paid: float | None = None
    revision: str | None = None


@dataclass
class Told:
    """One conversation. Field names are those of the page."""

    id: str
    title: str
    client: str
    model: str
    format: str
    first: float
    last: float
    requests: int = 0
    active: bool = False
    paid: float = 0.0
    would_have_paid: float = 0.0
    input: int = 0
    read: int = 0
    written: int = 0
    removed: int = 0
    hits: int = 0
    misses: int = 0
    breaks: int = 0
    stopped: bool = False


@dataclass
class _Watched:
    """What is known of a conversation to judge its next answer by."""

    told: Told
    exchanges: deque[Exchange] = field(default_factory=lambda: deque(maxlen=EXCHANGES))
    tokens: dict[int, tuple[Edit, float]] = field(default_factory=dict)
    """Removed by each edit that stands, by its id; counted once."""
    details: OrderedDict[str, tuple[tuple[Edit, ...], int]] = field(default_factory=OrderedDict)
    """The edits of the newest requests, and how many messages were not new in each."""
    texts: int = 0
    """Bytes of the texts in them, about: requests share them."""
    size: float = 0.0
    """Of the last request in provider tokens, as it came."""
    sent: int = 0
    """The same as it was sent."""
    watch: bool = False
    """The last request changed what had been sent."""
    removed: Removed = field(default_factory=Removed)
    """From the request that is on its way."""


class Records:
    """For one thread."""

    def __init__(self, settings: Settings, started: float) -> None:
        self._settings = settings
        self._started = started
        self._prices = Prices()
        self._made = 0
        self._conversations: OrderedDict[str, _Watched] = OrderedDict()
        self._totals: Counter[str] = Counter()
        self._money = {"paid": 0.0, "would_have_paid": 0.0}
        self._breaks: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._edits: Counter[str] = Counter()
        self._removed: Counter[str] = Counter()
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self.changes = 0
        """Grows with everything that happens."""

    def begin(self, path: str, outcome: Outcome | None, at: float, client: str, format: str, size: int) -> Exchange:
        """A request is on its way out. Without an outcome it passed untouched."""
        self._made += 1
        self.changes += 1
        found = Exchange(f"e{self._made}", at, path, outcome.result if outcome else "passed", bytes_in=size)
        found.bytes_out = len(outcome.body) if outcome and outcome.body is not None else size
        self._totals["requests"] += 1
        self._totals["passed" if found.outcome != "rewritten" else "rewritten"] += 1
        if outcome is None:
            return found
        found.reason, found.took_ms, found.messages = outcome.reason, 1e3 * outcome.took, outcome.messages
        found.edits, found.revision = len(outcome.edits), outcome.revision or None
        if outcome.result == "failed open":
            self._failures[outcome.reason] += 1
            self._totals["failed_open"] += 1
        if outcome.conversation is not None:
            self._converse(found, outcome, client, format)
        return found

    def _converse(self, found: Exchange, outcome: Outcome, client: str, format: str) -> None:
        owner = outcome.conversation
        assert owner is not None
        watched = self._conversations.get(owner.id)
        if watched is None:
            told = Told(owner.id, owner.title, client, outcome.model, format, found.at, found.at)
            watched = self._conversations[owner.id] = _Watched(told)
        self._conversations.move_to_end(owner.id)
        while len(self._conversations) > max(CONVERSATIONS, self._settings.conversations):
            self._conversations.popitem(last=False)
        told = watched.told
        told.requests, told.last, told.active, told.model = told.requests + 1, found.at, True, outcome.model
        watched.exchanges.append(found)
        watched.removed = self._removed_by(watched, outcome)
        found.removed = round(watched.removed.all)
        if outcome.revision:
            self._breaks[outcome.revision] += 1
            told.breaks += 1
        if outcome.edits:
            watched.details[found.id] = (outcome.edits, outcome.first_new)
            watched.texts = found.bytes_in
            if len(watched.details) > DETAILS:
                watched.details.popitem(last=False)
            self._let_go()

    def _let_go(self) -> None:
        """Of texts that are held to be shown, those of the conversation that was quiet for longest."""
        excess = sum(each.texts for each in self._conversations.values()) - TEXTS * self._settings.memory_mb * 2**20
        for each in self._conversations.values():
            if excess <= 0:
                return
            excess -= each.texts
            each.details.clear()
            each.tokens.clear()
            each.texts = 0

    def _removed_by(self, watched: _Watched, outcome: Outcome) -> Removed:
        price = self._prices.of(outcome.model, watched.told.format)
        weight = WEIGHTS.get(price.provider, Weights()).result
        before = new = 0.0
        known, watched.tokens = watched.tokens, {}
        for edit in outcome.edits:
            if id(edit) in known:
                tokens = known[id(edit)][1]
            else:
                tokens = weight * max(0.0, sum(map(estimate, edit.removed)) - estimate(edit.added))
                self._edits[edit.strategy] += 1
            watched.tokens[id(edit)] = edit, tokens
            self._removed[edit.strategy] += round(tokens)
            if edit.message < outcome.first_new:
                before += tokens
            else:
                new += tokens
        return Removed(before, new)

    def end(self, found: Exchange, outcome: Outcome | None, status: int, usage: Usage | None) -> bool:
        """The answer is over. Returns whether what was changed before turned out badly, and should be the last."""
        self.changes += 1
        found.status = status
        owner = outcome.conversation if outcome else None
        watched = self._conversations.get(owner.id) if owner else None
        if watched is not None:
            watched.told.active = False
        if usage is None or outcome is None or watched is None:
            if outcome is not None and outcome.conversation is not None and 200 <= status < 300:
                self._totals["unpriced"] += 1
            return False
        return self._billed(found, outcome, usage, watched)

    def _billed(self, found: Exchange, outcome: Outcome, usage: Usage, watched: _Watched) -> bool:
        told = watched.told
        removed = watched.removed
        price = self._prices.of(outcome.model, told.format)
        found.paid = paid(usage, price)
        other = (
            rewritten(usage, removed)
            if self._settings.observe
            else untouched(usage, removed, watched.size, outcome.revision)
        )
        found.would_have_paid = paid(other, price)
        for name, value in (("input", usage.input), ("read", usage.read), ("fresh", usage.fresh)):
            setattr(found, name, value)
        found.written, found.output = usage.written + usage.written_1h, usage.output
        self._add(told, found)
        collapsed = self._collapsed(usage, watched, outcome)
        hit = bool(watched.sent) and usage.read >= COLLAPSED * min(watched.sent, usage.input)
        if watched.sent:
            told.hits, told.misses = told.hits + hit, told.misses + (not hit)
            self._totals["hits" if hit else "misses"] += 1
        watched.size, watched.sent, watched.watch = float(other.input), usage.input, bool(outcome.revision)
        if collapsed:
            told.stopped = True
            self.event("collapse", found.at, "cache reads fell after a revision: revisions stop here", told.id)
        return collapsed

    def _add(self, told: Told, found: Exchange) -> None:
        assert found.paid is not None
        assert found.would_have_paid is not None
        self._money["paid"] += found.paid
        self._money["would_have_paid"] += found.would_have_paid
        told.paid += found.paid
        told.would_have_paid += found.would_have_paid
        for name in ("input", "read", "written", "removed"):
            self._totals[name] += getattr(found, name)
            setattr(told, name, getattr(told, name) + getattr(found, name))

    @staticmethod
    def _collapsed(usage: Usage, watched: _Watched, outcome: Outcome) -> bool:
        """After a change, and with no other since, the request that follows must find what the one before wrote."""
        if not watched.watch or outcome.revision or not watched.sent or watched.told.stopped:
            return False
        return usage.read < COLLAPSED * min(watched.sent, usage.input)

    def event(self, kind: str, at: float, text: str, conversation: str = "") -> None:
        self.changes += 1
        self._events.appendleft({"at": at, "kind": kind, "conversation": conversation, "text": text})

    # ── what is shown ───────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self, now: float) -> dict[str, Any]:
        names = ("requests", "rewritten", "passed", "failed_open", "unpriced", "hits", "misses")
        tokens = ("input", "read", "written", "removed")
        newest = list(reversed(self._conversations.values()))[:CONVERSATIONS]
        return {
            "version": __version__,
            "profile": self._settings.profile,
            "observe": self._settings.observe,
            "started": self._started,
            "now": now,
            "totals": {
                **{name: self._totals[name] for name in (*names, *tokens)},
                **self._money,
                "breaks": dict(self._breaks),
            },
            "failures": [{"reason": reason, "count": count} for reason, count in self._failures.most_common()],
            "strategies": [
                {"name": name, "edits": self._edits[name], "tokens": tokens}
                for name, tokens in self._removed.most_common()
            ],
            "events": list(self._events),
            "conversations": [asdict(each.told) for each in newest],
        }

    def conversation(self, id: str) -> dict[str, Any] | None:
        found = self._conversations.get(id)
        if found is None:
            return None
        return {"conversation": asdict(found.told), "exchanges": [asdict(each) for each in found.exchanges]}

    def exchange(self, id: str) -> dict[str, Any] | None:
        for each in self._conversations.values():
            for exchange in each.exchanges:
                if exchange.id == id:
                    edits, first_new = each.details.get(id, ((), 0))
                    shown = [_shown(edit, first_new) for edit in edits]
                    return {"exchange": asdict(exchange), "kept": len(shown) == exchange.edits, "edits": shown}
        return None

    @property
    def line(self) -> str:
        """One line about all of it."""
        totals, money = self._totals, self._money
        count = f"{totals['requests']:,} request{'s' if totals['requests'] != 1 else ''}"
        if not money["paid"]:
            return f"{count}, nothing to bill"
        ours, theirs = money["paid"], money["would_have_paid"]
        if self._settings.observe:
            ours, theirs = theirs, ours
        share = 100 * (1 - ours / theirs) if theirs else 0.0
        less = f"{share:.0f} % less" if share >= 0 else f"{-share:.0f} % more"
        if self._settings.observe:
            return f"{count}, paid ${theirs:.2f}; it would have been ${ours:.2f} ({less})"
        return f"{count}, paid ${ours:.2f} instead of ${theirs:.2f} ({less})"


def _shown(edit: Edit, first_new: int) -> Mapping[str, Any]:
    return {
        "message": edit.message,
        "strategy": edit.strategy,
        "label": edit.reason,
        "before": "\n".join(edit.removed),
        "after": edit.added,
        "bytes_saved": edit.bytes_saved,
        "new": edit.message >= first_new,
    }
