"""Replay a recorded session in another caching mode: no caching, five minutes, an hour, or the choices of `choose_ttl`.

The idle time before a request decides what is read: the whole common prefix, the part with a TTL of an hour, or
nothing. Recorded cache reads are used unless the caching mode changes them:

- A recorded miss after an idle time above the recorded TTL is decided by the TTL of the caching mode.
- Other recorded misses happen with every TTL, also those after a compaction or a change of model.
- A recorded hit after such an idle time counts as if the idle time had been just within the TTL.
- A log without any caching has no such information, so only the cache rules apply.

Tokens after the last breakpoint of a recorded request stay uncached. A request below the minimum of its model is not
cached at all. Providers that cache automatically get no directives, so every mode is as recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from .. import formats
from ..billing.cache_ttl import (
    CREDIT,
    NO_IDLE_TIMES,
    NOTHING_LONG,
    PHI,
    CacheRequest,
    IdleTimes,
    TtlDecision,
    add_idle_time,
    choose_ttl,
)
from ..billing.usage import Usage
from ..markers.thinking_records import is_user_message
from ..model import Message
from ..recordings import Recording
from .replay_bill import (
    AfterBreak,
    Bill,
    Charge,
    Replay,
    ReplayStep,
    ReportedUsage,
    cached_tokens,
    entry_position,
    idle_between,
)
from .sent_views import AS_RECORDED, SentView

CachingName = Literal["recorded", "none", "5m", "1h", "auto"]
CACHING_NAMES: tuple[CachingName, ...] = get_args(CachingName)


def bill_with_caching(
    replay: Replay,
    views: Sequence[SentView] | None,
    caching: CachingName,
    prior: IdleTimes = NO_IDLE_TIMES,
    *,
    start: CachingName = "recorded",
    after_break: AfterBreak = "hit",
    by_rule: bool = False,
    phi: float = PHI,
    credit: float = CREDIT,
) -> Bill:
    """Bill the session in a caching mode. `start`: the client's own caching, which `auto` starts from."""
    if caching == "recorded":
        return replay.bill(views, after_break=after_break, by_rule=by_rule)
    policy_run = CachePolicyRun(replay, caching, prior, start=start, after_break=after_break, by_rule=by_rule)
    policy_run.phi, policy_run.credit = phi, credit
    return policy_run.serve_rest(views or ())


def count_idle_times(session: Recording, messages: Sequence[Sequence[Message]] | None = None) -> IdleTimes:
    """Count the idle times of a recorded session, of requests with times. `messages`: the parsed histories of its
    segments, if the caller has them."""
    idle_times, dialect = IdleTimes(conversations=1), formats.format_named(session.format)
    requests = [(number, each) for number, segment in enumerate(session.segments) for each in segment.requests]
    for (_, last), (number, each) in pairwise(requests):
        idle = idle_between(last, each)
        if idle is not None and each.length:
            place = each.length - 1
            wire = session.segments[number].history[place]
            last_message = dialect.read_message(place, wire) if messages is None else messages[number][place]
            idle_times = add_idle_time(idle_times, is_user_message(last_message), idle)
    return idle_times


def recorded_caching(replay: Replay) -> Literal["none", "5m", "1h"]:
    """Determine the client's caching from the recorded usage; five minutes without usage."""
    usages = [step.sent.usage for step in replay.steps if step.sent.usage is not None]
    if any(usage.written_1h for usage in usages):
        return "1h"
    return "none" if usages and not any(map(_uses_cache, usages)) else "5m"


def _hour_flags(replay: Replay, hour: bool) -> list[bool]:
    """List for each request whether the last cache write had a TTL of an hour. `hour`: the value before the first
    write."""
    flags = []
    for step in replay.steps:
        usage = step.sent.usage
        if usage is not None and (usage.written or usage.written_1h):
            hour = usage.written_1h > 0
        flags.append(hour)
    return flags


def _uses_cache(usage: Usage) -> bool:
    return bool(usage.read or usage.written or usage.written_1h)


class _CacheNote(NamedTuple):
    """Journal entry of a simulated request: its TTL decision."""

    kept: TtlDecision
    number: int
    """Number of the request."""


class CachePolicyRun:
    """Simulation of a session in another caching mode. For each request, call `decide_ttl`, then `serve_request`."""

    def __init__(
        self,
        replay: Replay,
        caching: CachingName,
        prior: IdleTimes = NO_IDLE_TIMES,
        *,
        start: CachingName = "recorded",
        after_break: AfterBreak = "hit",
        by_rule: bool = False,
    ) -> None:
        self.phi, self.credit = PHI, CREDIT
        self.bill = Bill()
        self.charges: list[Charge] = []
        self.decisions: list[TtlDecision] = []
        self._replay, self._caching, self._prior = replay, caching, prior
        self._after_break = after_break
        self._recorded = recorded_caching(replay)
        self._ruled = by_rule or self._recorded == "none"
        self._hours = _hour_flags(replay, self._recorded == "1h")
        self.start = start if start in ("none", "5m", "1h") else self._recorded
        self._fixed = start in ("none", "5m", "1h") or self._recorded == "none"
        self._last_view: SentView | None = None
        self._removed: list[float] = []
        """Removed tokens of each request, in our count."""
        self._notes: dict[int, _CacheNote] = {}
        """Length of a request's history → its entry."""

    def serve_rest(self, views: Sequence[SentView]) -> Bill:
        """Serve the remaining requests as these views, or as recorded if there are none."""
        for number in range(len(self.charges), len(self._replay.steps)):
            if number == len(self.decisions):
                self.decide_ttl(number)
            self.serve_request(number, views[number] if views else AS_RECORDED)
        return self.bill

    def reported_usage(self) -> ReportedUsage:
        """Simulate the provider's usage reports and the TTL decisions."""

        def decide_request(number: int, view: SentView | None, revision_cost: float) -> TtlDecision:
            if view is not None and len(self.charges) < number:
                self.serve_request(number - 1, view)
            return self.decide_ttl(number, revision_cost)

        def read_tokens(number: int, view: SentView, last: SentView | None) -> int:
            return round(self.charges[number].read)

        return ReportedUsage(
            [step.scale for step in self._replay.steps], self._replay.thinking_tokens, read_tokens, decide_request
        )

    def decide_ttl(self, number: int, revision_cost: float = 0.0) -> TtlDecision:
        """Choose the TTL of a request. `revision_cost`: cost of revisions so far."""
        step = self._replay.steps[number]
        if self._caching != "auto":
            hour = self._caching == "1h" and step.price.caching.hour
            decision = TtlDecision(step.sent.length if hour else NOTHING_LONG)
        else:
            note = self._previous_note(number)
            decision = choose_ttl(
                step.price,
                note.kept if note else None,
                self._cache_request(number, note, revision_cost),
                self._prior,
                self.phi,
                self.credit,
            )
            self._notes[step.sent.length] = _CacheNote(decision, number)
        self.decisions.append(decision)
        return decision

    def _previous_note(self, number: int) -> _CacheNote | None:
        """Find the entry of the last request whose history this one continues; None if there is none."""
        step = self._replay.steps[number]
        if number and self._replay.steps[number - 1].segment != step.segment:
            self._notes = {length: note for length, note in self._notes.items() if length <= step.shared}
        shorter = [length for length in self._notes if length < step.sent.length]
        return self._notes[max(shorter)] if shorter else None

    def _client_ttl(self, number: int) -> bool | None:
        """The client's TTL, as `CacheRequest.long`."""
        if self.start == "none":
            return None
        return self.start == "1h" if self._fixed else self._hours[number]

    def _cache_request(self, number: int, note: _CacheNote | None, revision_cost: float) -> CacheRequest:
        step = self._replay.steps[number]
        last = self._replay.steps[note.number] if note else None
        scale = step.scale or 1.0
        before = step.prefix.tokens_before(last.sent.length) if last else 0.0
        history = self._replay.messages[step.segment]
        request = CacheRequest(
            step.sent.length,
            self._client_ttl(number),
            bool(step.sent.length) and is_user_message(history[step.sent.length - 1]),
            idle_between(last.sent, step.sent) if last else None,
            new=step.held * (step.prefix.tokens_before(step.sent.length) - before) / scale,
            spent=revision_cost,
            head=step.head / scale,
        )
        if note is None:
            return request
        charge = self.charges[note.number]
        return request._replace(
            context=round(charge.size), cached=round(charge.read), removed=self._removed[note.number]
        )

    def serve_request(self, number: int, view: SentView) -> Charge:
        """Price a request with the chosen TTL."""
        step = self._replay.steps[number]
        last = self._replay.steps[number - 1] if number else None
        unchanged = step.unchanged_entries(view, self._last_view)
        size = max(0.0, step.size - step.scale * view.removed_before(step.sent.length))
        factor = step.tier_factor(size)
        if self._caching == "none" and step.price.caching.marks:
            charge = Charge(factor * size * step.rates.fresh, size, 0.0, 0.0)
        elif not step.price.caching.marks:
            charge = step.price_request(view, unchanged, self._after_break, self._ruled, step.found)
        else:
            charge = self._charge_with_breakpoints(number, step, last, view, unchanged, size)
        charge = charge._replace(broken=unchanged < step.shared)
        self.bill.add(charge)
        self.charges.append(charge)
        self._removed.append(view.removed_before(step.sent.length))
        self._last_view = view
        return charge

    def _charge_with_breakpoints(
        self, number: int, step: ReplayStep, last: ReplayStep | None, view: SentView, unchanged: int, size: float
    ) -> Charge:
        could = min(size, self._cached_tokens(number, step, last, view))
        uncached_share = self._uncached_share(step, size)
        factor = step.tier_factor(size)
        if uncached_share == 1.0 and not could:
            return Charge(factor * size * step.rates.fresh, size, 0.0, 0.0)
        read = could
        if unchanged < step.shared and self._after_break != "free":
            read = min(could, entry_position(step, view, unchanged if self._after_break == "hit" else 0))
        read = max(0.0, read)
        long = self.decisions[number].long
        hour = 0.0 if long < 0 else size if long >= step.sent.length else min(size, entry_position(step, view, long))

        def cost_with_read(read_tokens: float) -> float:
            written_1h = max(0.0, hour - read_tokens)
            dear = written_1h * step.rates.write_1h + (size - read_tokens - written_1h) * step.rates.write
            plain = read_tokens * step.rates.read + uncached_share * (size - read_tokens) * step.rates.fresh
            return factor * (plain + (1 - uncached_share) * dear)

        return Charge(cost_with_read(read), size, read, cost_with_read(read) - cost_with_read(could))

    def _uncached_share(self, step: ReplayStep, size: float) -> float:
        """Share of the unread tokens that are not written either."""
        usage = step.sent.usage
        if size < step.price.caching.minimum and (step.whole or usage is not None):
            return 1.0
        if self._ruled or usage is None or usage.input == usage.read:
            return 0.0
        return usage.fresh / (usage.input - usage.read)

    def _cached_tokens(self, number: int, step: ReplayStep, last: ReplayStep | None, view: SentView) -> float:
        """Compute the tokens in the cache if no sent text was revised."""
        recorded_read = None if self._ruled else step.found
        is_known = recorded_read is not None and recorded_read != float("inf")
        if last is None or (step.sent.model != last.sent.model and recorded_read != float("inf")):
            return cached_tokens(step, view, recorded_read) if is_known else 0.0
        caching, idle = step.price.caching, idle_between(last.sent, step.sent) or 0.0
        recorded_ttl = caching.lifetime_1h if self._hours[number - 1] else caching.lifetime
        if recorded_read == float("inf"):
            idle = min(idle, recorded_ttl)
        reach = step.shared
        if idle > caching.lifetime_1h:
            reach = -1
        elif idle > caching.lifetime:
            reach = min(reach, self.decisions[number - 1].long)
        by_rule = cached_tokens(step, view, recorded_read if recorded_read == float("inf") else None, reach)
        if not is_known:
            return by_rule
        return (
            max(by_rule, cached_tokens(step, view, recorded_read))
            if idle > recorded_ttl
            else min(by_rule, cached_tokens(step, view, recorded_read))
        )
