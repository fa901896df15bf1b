"""Run a trial: send the planned calls within the budget, several sessions in parallel.

The points of a session are sent from the first to the last. Both variants of a point follow each other, so a trial that
ends early still has complete pairs.

A call is sent only if the remaining budget covers its maximum cost and that of all active calls. Its real cost is then
computed from the provider's usage. The first points are sent in the original variant only. The model's agreement with
itself there sets the number of points, before any result of the other variant is known.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import NamedTuple, Protocol

from ..billing.prices import Price
from ..errors import IbidemError
from ..model import to_json
from .client import CallOutcome
from .outcomes import PointResult
from .planning import LoadedSession
from .providers import ModelReply
from .request_builder import ThinkingLevel, Variant
from .run_log import ResponseRow, RunLog, remaining_keys
from .schedule import CallKey, SessionPlan, TokenCeiling, call_cost, max_call_cost, schedule_probes, schedule_samples
from .trial_calls import PointRequest, TrialRequest


class BudgetExhausted(Exception):
    """The next call could cost more than is left of the budget."""


class TrialBudget:
    """Remaining budget, minus the maximum cost of the calls in flight."""

    def __init__(self, ledger: RunLog) -> None:
        self._ledger = ledger
        self._held = 0.0
        self._calls = 0
        self._changed = asyncio.Condition()

    @property
    def remaining_dollars(self) -> float:
        return self._ledger.budget - self._ledger.spent - self._held

    async def reserve_dollars(self, dollars: float) -> None:
        """Reserve an amount; wait until it is free. Raises BudgetExhausted if no call in flight could free some."""
        async with self._changed:
            while dollars > self.remaining_dollars:
                if not self._calls:
                    raise BudgetExhausted
                await self._changed.wait()
            self._held += dollars
            self._calls += 1

    async def release_dollars(self, dollars: float) -> None:
        async with self._changed:
            self._held -= dollars
            self._calls -= 1
            if not self._calls:
                self._held = 0.0  # remove rounding errors
            self._changed.notify_all()


PILOT_POINTS = 20
"""Number of points that are sent first, in the original variant only."""
PILOT_SHARE = 0.4
"""Share of the budget that the pilot may spend. The rewritten variant needs as much again."""
SESSIONS_AT_ONCE = 4
HARM = "harm"
"""Reason of an early stop. A trial with this reason cannot be continued."""
HARM_EVIDENCE = 20.0
"""E-value that ends a trial. Without harm, at most one trial in 20 reaches it."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""First and longest wait before a retry, in seconds, if the response has no retry-after header."""
OVERLOADED = frozenset({408, 429, 503, 529})
"""HTTP statuses of requests that the provider did not process and does not bill."""
MOST_TOKENS = 10**9
"""Token counts from this on are invalid."""
MAX_REFUSED = 5
"""Rejected or unreadable responses before the first valid one, after which the trial fails."""
FATAL = {
    401: "the provider does not accept the key (401): check that it is an API key and not revoked",
    403: "the provider does not let this key use the model (403): check the key's permissions and --model",
    404: "the provider has no such model or address (404): check --model and --upstream",
    402: "the provider requires payment (402): check the balance of the account",
}


class RetryReason(Enum):
    """Reason to send a request again, with its maximum number of tries and the text of the final error."""

    BUSY = (40, "stays busy")
    AWAY = (6, "cannot be reached")
    BROKEN = (3, "does not complete its responses")
    THINKING = (3, "rejects thinking")

    def __init__(self, most: int, words: str) -> None:
        self.most = most
        self.words = words


class ModelClient(Protocol):
    """Client that sends one request to a provider, as `ProviderClient` does."""

    async def send_request(self, body: bytes, first_byte: asyncio.Event) -> CallOutcome: ...


class TrialHooks(NamedTuple):
    """Statistics that a running trial needs for its decisions."""

    harm_evalue: Callable[[Sequence[PointResult]], float] = lambda points: 0.0
    """Evidence that rewritten requests do harm, as an e-value."""
    required_points: Callable[[Sequence[PointResult]], int | None] = lambda points: None
    """Number of points that are enough, computed from samples of originals only; None if unknown."""


class TrialRun:
    """One run of a trial: sends the calls that its run log does not have yet."""

    def __init__(
        self,
        ledger: RunLog,
        sessions: Sequence[SessionPlan],
        load: Callable[[SessionPlan], LoadedSession],
        client: ModelClient,
        price: Price,
        hooks: TrialHooks | None = None,
        report: Callable[[str], None] = lambda text: None,
        on_response: Callable[[], None] = lambda: None,
    ) -> None:
        """`report` gets messages about the whole trial. `on_response` is called after each response."""
        self.ledger = ledger
        self._sessions, self._load, self._client, self._price = sessions, load, client, price
        self._hooks, self._say, self._asked = hooks or TrialHooks(), report, on_response
        self._budget = TrialBudget(ledger)
        self._ceiling = TokenCeiling()
        self._ended = ""
        self._over = asyncio.Event()
        self._not_before = 0.0
        self._error: IbidemError | None = None
        rejected_keys = (key for key, row in ledger.responses.items() if row.stop == "refused" and not row.usage)
        self._refused = {key.point for key in rejected_keys if not key.probe}
        self._refusals = 0
        self._answers = self._unread = 0
        self._exceeded = False
        """A call cost more than its maximum."""

    def stop(self, why: str) -> None:
        """Send no more requests, and wait for the active ones. Only the first call sets the reason."""
        self._ended = self._ended or why
        self._over.set()

    async def run(self) -> str:
        """Send all calls that are left. Return the reason of an early stop, or an empty string if complete.

        Raises IbidemError if the trial cannot continue.
        """
        if self.ledger.stop_reason == HARM:  # more samples until the alarm disappears would make the test invalid
            return HARM
        level = None
        while (
            level != self.ledger.thinking_level and not self._ended
        ):  # samples of different thinking levels are not comparable
            level = self.ledger.thinking_level
            await self._send_first_request()
            await self._run_pilot()
            await self._run_sessions(self._planned_sessions(), tuple(Variant))
        if self._error is not None:
            raise self._error
        if self._ended != self.ledger.stop_reason:
            self.ledger.log_change(stopped=self._ended)
        return self._ended

    def _planned_sessions(self) -> list[SessionPlan]:
        """Return the first sessions that have the planned number of points together."""
        most, planned_sessions, count = self.ledger.planned_points, list[SessionPlan](), 0
        for session in self._sessions:
            if most is not None and count >= most:
                break
            planned_sessions.append(session)
            count += len(session.points)
        return planned_sessions

    async def _send_first_request(self) -> None:
        """Send the first request alone, to learn whether the provider accepts its thinking.

        If the profile removes thinking, the variants differ there, so both are sent.
        """
        variants = (
            tuple(Variant)
            if self.ledger.thinking_level is ThinkingLevel.KEPT and self.ledger.setup.lets_thinking_go
            else ()
        )
        if self._sessions and not self.ledger.responses:
            plan = self._sessions[0]
            loaded_session = await asyncio.to_thread(self._load, plan)
            for variant in variants or (Variant.ORIGINAL,):
                if not self._ended:
                    key = CallKey(plan.points[0].id, variant, 0)
                    await self._send_samples(PointRequest(0, plan, loaded_session, variant), [key])

    async def _run_pilot(self) -> None:
        if self.ledger.planned_points is not None or self._ended:
            return
        pilot, count = list[SessionPlan](), 0
        for session in self._sessions:
            if count >= PILOT_POINTS:
                break
            pilot.append(session)
            count += len(session.points)
        total = len(self.ledger.setup.points)  # includes sessions without logs: a later run may have the logs
        required_count = None
        if total > count and self.ledger.setup.samples > 1:
            await self._run_sessions(pilot, (Variant.ORIGINAL,))
            if self._ended:
                return
            results = self.ledger.point_results((Variant.ORIGINAL,))
            required_count = self._hooks.required_points([replace(each, rewritten=()) for each in results])
        planned_points = total if required_count is None else min(total, max(required_count, count))
        self.ledger.log_change(planned=planned_points)
        if planned_points < total:
            self._say(f"{planned_points:,} points are enough, computed from the model's agreement with itself")

    async def _run_sessions(self, sessions: Sequence[SessionPlan], variants: Sequence[Variant]) -> None:
        remaining_sessions = list(reversed(sessions))

        async def run_worker() -> None:
            while remaining_sessions and not self._ended:
                await self._run_session(remaining_sessions.pop(), variants)

        await asyncio.gather(*(run_worker() for _ in range(SESSIONS_AT_ONCE)))

    async def _run_session(self, plan: SessionPlan, variants: Sequence[Variant]) -> None:
        samples = self.ledger.setup.samples
        rows = [
            list(both) for both in zip(*(schedule_samples(plan, samples, variant) for variant in variants), strict=True)
        ]
        if len(variants) > 1:
            rows = [[*both, *schedule_probes(plan, place)] for place, both in enumerate(rows)]
        if not any(remaining_keys(self.ledger, keys) for row in rows for keys in row):
            return
        try:
            loaded_session = await asyncio.to_thread(self._load, plan)
        except (IbidemError, OSError) as error:
            self._record_error(
                error if isinstance(error, IbidemError) else IbidemError(f"cannot read a log again: {error}")
            )
            return
        for place, row in enumerate(rows):
            for keys in row:
                if self._ended or (len(variants) == 1 and self.ledger.spent > PILOT_SHARE * self.ledger.budget):
                    return
                point = PointRequest(place, plan, loaded_session, keys[0].variant)
                if point.point_id in loaded_session.points and point.point_id not in self._refused:
                    await self._send_samples(point, remaining_keys(self.ledger, keys))
            if len(variants) > 1 and self._hooks.harm_evalue(self.ledger.complete_results()) >= HARM_EVIDENCE:
                self.stop(HARM)

    async def _send_samples(self, point: PointRequest, keys: Sequence[CallKey]) -> None:
        """Send the first request, and the others in parallel after its first response byte.

        From then on the request is in the provider's cache, so the others only read it.
        """
        if not keys:
            return
        first_byte = asyncio.Event()
        first = asyncio.create_task(self._send_request(point.request_for(keys[0]), keys[0], first_byte))
        await first_byte.wait()
        if not self._ended and point.point_id not in self._refused:
            await asyncio.gather(
                *(self._send_request(point.request_for(key), key, asyncio.Event()) for key in keys[1:])
            )
        await first

    async def _send_request(self, point: TrialRequest, key: CallKey, first_byte: asyncio.Event) -> None:
        try:
            await self._send_with_retries(point, key, first_byte)
        except BudgetExhausted:
            self.stop("budget")
        except IbidemError as error:
            self._record_error(error)
        finally:
            first_byte.set()

    def _record_error(self, error: IbidemError) -> None:
        self._error = self._error or error
        self.stop("error")

    async def _send_with_retries(self, point: TrialRequest, key: CallKey, first_byte: asyncio.Event) -> None:
        """Send one request, with retries, until it has a response or fails for good."""
        tries: Counter[RetryReason] = Counter()
        while not self._ended:
            level = self.ledger.thinking_level
            limit = point.loaded_session.builder.output_limit(level)
            worst = max_call_cost(
                self._price,
                self._ceiling.max_tokens(point.size_key, key.variant, point.token_estimate, point.prefix_key),
                limit,
            )
            await self._wait_for_retry()
            await self._budget.reserve_dollars(worst)
            try:
                if self._ended:
                    return
                self.ledger.log_call(key, tries.total(), worst)
                outcome = await self._client.send_request(point.build_body(level), first_byte)
                retry_reason = self._handle_outcome(point, key, level, outcome, worst)
            finally:
                await self._budget.release_dollars(worst)
            if retry_reason is None:
                return
            tries[retry_reason] += 1
            if tries[retry_reason] >= retry_reason.most:
                self._give_up(key, retry_reason, outcome)
                return
            self._delay_requests(retry_reason, outcome, tries[retry_reason])

    def _delay_requests(self, retry_reason: RetryReason, outcome: CallOutcome, times: int) -> None:
        """Delay all requests, not only this one: others would keep an overloaded provider busy."""
        if retry_reason is RetryReason.THINKING:
            return
        wait = FIRST_WAIT * 2 ** min(times - 1, 10) * random.uniform(0.8, 1.2)
        if outcome.retry_after is not None:
            wait = outcome.retry_after
        self._not_before = max(self._not_before, asyncio.get_running_loop().time() + min(wait, LONGEST_WAIT))

    async def _wait_for_retry(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._ended and (seconds_left := self._not_before - loop.time()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), seconds_left)

    def _give_up(self, key: CallKey, retry_reason: RetryReason, outcome: CallOutcome) -> None:
        if retry_reason is RetryReason.BROKEN and self._answers:
            self.ledger.log_response(ResponseRow(key=key, rung=self.ledger.thinking_level, stop="failed", paid=0.0))
            return
        why = f"{outcome.status}" if outcome.status else outcome.message
        raise IbidemError(f"the provider {retry_reason.words} ({why}): continue later with --resume")

    def _handle_outcome(
        self, point: TrialRequest, key: CallKey, level: ThinkingLevel, outcome: CallOutcome, worst: float
    ) -> RetryReason | None:
        """Record the outcome of a request. Return the reason to send it again, or None."""
        status = outcome.status
        if status == 200:
            self._record_reply(point, key, level, outcome.reply, worst)
            return None
        if status in OVERLOADED or not outcome.has_connected:
            self.ledger.log_retry(key, 0.0)
            return RetryReason.BUSY if outcome.has_connected else RetryReason.AWAY
        if status == 0 or status >= 500:
            # Only the provider knows whether it bills a broken response. The budget must hold either way.
            self.ledger.log_retry(key, worst)
            return RetryReason.BROKEN
        if status in FATAL:
            self.ledger.log_retry(key, 0.0)
            raise IbidemError(FATAL[status])
        if self._is_about_thinking(point, level, outcome):
            self.ledger.log_retry(key, 0.0)
            if self.ledger.thinking_level == level:
                self.ledger.log_change(rung=int(level) + 1)
                self._say(f"the provider rejects this thinking: {self.ledger.thinking_level.description}")
            return RetryReason.THINKING
        self._record_rejection(point, key, level, outcome)
        return None

    def _is_about_thinking(self, point: TrialRequest, level: ThinkingLevel, outcome: CallOutcome) -> bool:
        if outcome.status != 400 or level is ThinkingLevel.OFF:
            return False
        words = outcome.message.lower()
        is_named = any(word in words for word in ("thinking", "signature", "reasoning"))
        fields = point.loaded_session.parameters.fields
        return is_named and (level is ThinkingLevel.KEPT or point.loaded_session.builder.provider.has_thinking(fields))

    def _record_rejection(self, point: TrialRequest, key: CallKey, level: ThinkingLevel, outcome: CallOutcome) -> None:
        """Omit a point whose request was rejected, in both variants. A retry would be rejected too."""
        self.ledger.log_response(ResponseRow(key=key, rung=level, stop="refused", paid=0.0))
        if key.probe:  # the request of the point itself was accepted
            return
        self._refused.add(point.point_id)
        self._refusals += 1
        if not self._answers and self._refusals >= MAX_REFUSED:
            why = f": {outcome.message}" if outcome.message else ""
            problem = f"the provider rejects these requests ({outcome.status}{why})"
            raise IbidemError(f"{problem}: check --model and --upstream, or record complete requests with --record")

    def _record_reply(
        self, point: TrialRequest, key: CallKey, level: ThinkingLevel, reply: ModelReply, worst: float
    ) -> None:
        usage = reply.usage if _has_complete_usage(reply) else None
        cost = worst if usage is None else call_cost(self._price, usage)
        if cost > worst and not self._exceeded:
            self._exceeded = True
            self._say("the provider billed more input tokens than the computed maximum: the budget may be exceeded")
        if usage is not None:
            self._ceiling.add_count(point.size_key, key.variant, point.token_estimate, usage.input)
        if reply.stop == "failed":
            self._unread += 1
        else:
            self._answers += 1
        row = point.make_row(key, level, reply, cost)
        self.ledger.log_response(row, _reply_json(reply) if self.ledger.stores_texts else "")
        self._asked()
        if not self._answers and self._unread >= MAX_REFUSED:
            expected = point.loaded_session.builder.format
            raise IbidemError(f"the provider's responses are not in the {expected} format: check --upstream")


def _has_complete_usage(reply: ModelReply) -> bool:
    """Return whether the usage of a response is complete and plausible.

    A gateway may report no counts or impossible ones. An interrupted response has only the counts of its start.
    """
    usage = reply.usage
    if usage is None or reply.stop == "failed" or not 0 < usage.input < MOST_TOKENS:
        return False
    return usage.output < MOST_TOKENS and (usage.output > 0 or reply.stop != "ok")


def _reply_json(reply: ModelReply) -> str:
    calls = [{"tool": call.name, "arguments": call.input} for call in reply.calls]
    return to_json({"text": reply.text, "calls": calls})
