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
from .ask import CallOutcome
from .asked import Askable, PointCalls
from .bodies import Arm, ThinkingRung
from .ledger import AnsweredRow, TrialLedger, keys_left
from .order import CallKey, Ceiling, SessionPlan, lanes, most_of, paid_for, probe_lanes
from .outcomes import PointResult
from .planning import LoadedSession
from .providers import ModelReply


class BudgetExhausted(Exception):
    """The next call could cost more than is left of the budget."""


class TrialBudget:
    """Remaining budget, minus the maximum cost of the calls in flight."""

    def __init__(self, ledger: TrialLedger) -> None:
        self._ledger = ledger
        self._held = 0.0
        self._calls = 0
        self._changed = asyncio.Condition()

    @property
    def left(self) -> float:
        return self._ledger.budget - self._ledger.spent - self._held

    async def hold(self, dollars: float) -> None:
        """Reserve an amount; wait until it is free. Raises BudgetExhausted if no call in flight could free some."""
        async with self._changed:
            while dollars > self.left:
                if not self._calls:
                    raise BudgetExhausted
                await self._changed.wait()
            self._held += dollars
            self._calls += 1

    async def free(self, dollars: float) -> None:
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


class Trouble(Enum):
    """Reason to send a request again, with its maximum number of tries and the text of the final error."""

    BUSY = (40, "stays busy")
    AWAY = (6, "cannot be reached")
    BROKEN = (3, "does not complete its responses")
    THINKING = (3, "rejects thinking")

    def __init__(self, most: int, words: str) -> None:
        self.most = most
        self.words = words


class Asks(Protocol):
    """Client that sends one request to a provider, as `ProviderClient` does."""

    async def ask(self, body: bytes, begun: asyncio.Event) -> CallOutcome: ...


class TrialHooks(NamedTuple):
    """Statistics that a running trial needs for its decisions."""

    harm: Callable[[Sequence[PointResult]], float] = lambda points: 0.0
    """Evidence that rewritten requests do harm, as an e-value."""
    needed: Callable[[Sequence[PointResult]], int | None] = lambda points: None
    """Number of points that are enough, computed from samples of originals only; None if unknown."""


class TrialRun:
    """One run of a trial: sends the calls that its run log does not have yet."""

    def __init__(
        self,
        ledger: TrialLedger,
        sessions: Sequence[SessionPlan],
        load: Callable[[SessionPlan], LoadedSession],
        client: Asks,
        price: Price,
        hooks: TrialHooks | None = None,
        say: Callable[[str], None] = lambda text: None,
        asked: Callable[[], None] = lambda: None,
    ) -> None:
        """`report` gets messages about the whole trial. `on_response` is called after each response."""
        self.ledger = ledger
        self._sessions, self._load, self._client, self._price = sessions, load, client, price
        self._hooks, self._say, self._asked = hooks or TrialHooks(), say, asked
        self._budget = TrialBudget(ledger)
        self._ceiling = Ceiling()
        self._ended = ""
        self._over = asyncio.Event()
        self._not_before = 0.0
        self._error: IbidemError | None = None
        refused = (key for key, row in ledger.answers.items() if row.stop == "refused" and not row.usage)
        self._refused = {key.point for key in refused if not key.probe}
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
        if self.ledger.stopped == HARM:  # more samples until the alarm disappears would make the test invalid
            return HARM
        rung = None
        while rung != self.ledger.rung and not self._ended:  # samples of different thinking levels are not comparable
            rung = self.ledger.rung
            await self._try_out()
            await self._pilot()
            await self._side_by_side(self._wanted(), tuple(Arm))
        if self._error is not None:
            raise self._error
        if self._ended != self.ledger.stopped:
            self.ledger.note(stopped=self._ended)
        return self._ended

    def _wanted(self) -> list[SessionPlan]:
        """Return the first sessions that have the planned number of points together."""
        most, found, count = self.ledger.planned, list[SessionPlan](), 0
        for each in self._sessions:
            if most is not None and count >= most:
                break
            found.append(each)
            count += len(each.points)
        return found

    async def _try_out(self) -> None:
        """Send the first request alone, to learn whether the provider accepts its thinking.

        If the profile removes thinking, the variants differ there, so both are sent.
        """
        arms = tuple(Arm) if self.ledger.rung is ThinkingRung.KEPT and self.ledger.setup.lets_thinking_go else ()
        if self._sessions and not self.ledger.answers:
            plan = self._sessions[0]
            loaded = await asyncio.to_thread(self._load, plan)
            for arm in arms or (Arm.ORIGINAL,):
                if not self._ended:
                    key = CallKey(plan.points[0].id, arm, 0)
                    await self._guarded(PointCalls(0, plan, loaded, arm), [key])

    async def _pilot(self) -> None:
        if self.ledger.planned is not None or self._ended:
            return
        pilot, count = list[SessionPlan](), 0
        for each in self._sessions:
            if count >= PILOT_POINTS:
                break
            pilot.append(each)
            count += len(each.points)
        total = len(self.ledger.setup.points)  # includes sessions without logs: a later run may have the logs
        needed = None
        if total > count and self.ledger.setup.samples > 1:
            await self._side_by_side(pilot, (Arm.ORIGINAL,))
            if self._ended:
                return
            results = self.ledger.results((Arm.ORIGINAL,))
            needed = self._hooks.needed([replace(each, rewritten=()) for each in results])
        planned = total if needed is None else min(total, max(needed, count))
        self.ledger.note(planned=planned)
        if planned < total:
            self._say(f"{planned:,} points are enough, computed from the model's agreement with itself")

    async def _side_by_side(self, sessions: Sequence[SessionPlan], arms: Sequence[Arm]) -> None:
        waiting = list(reversed(sessions))

        async def worker() -> None:
            while waiting and not self._ended:
                await self._session(waiting.pop(), arms)

        await asyncio.gather(*(worker() for _ in range(SESSIONS_AT_ONCE)))

    async def _session(self, plan: SessionPlan, arms: Sequence[Arm]) -> None:
        samples = self.ledger.setup.samples
        rows = [list(both) for both in zip(*(lanes(plan, samples, arm) for arm in arms), strict=True)]
        if len(arms) > 1:
            rows = [[*both, *probe_lanes(plan, place)] for place, both in enumerate(rows)]
        if not any(keys_left(self.ledger, keys) for row in rows for keys in row):
            return
        try:
            loaded = await asyncio.to_thread(self._load, plan)
        except (IbidemError, OSError) as error:
            self._fail(error if isinstance(error, IbidemError) else IbidemError(f"cannot read a log again: {error}"))
            return
        for place, row in enumerate(rows):
            for keys in row:
                if self._ended or (len(arms) == 1 and self.ledger.spent > PILOT_SHARE * self.ledger.budget):
                    return
                point = PointCalls(place, plan, loaded, keys[0].arm)
                if point.id in loaded.points and point.id not in self._refused:
                    await self._guarded(point, keys_left(self.ledger, keys))
            if len(arms) > 1 and self._hooks.harm(self.ledger.settled()) >= HARM_EVIDENCE:
                self.stop(HARM)

    async def _guarded(self, point: PointCalls, keys: Sequence[CallKey]) -> None:
        """Send the first request, and the others in parallel after its first response byte.

        From then on the request is in the provider's cache, so the others only read it.
        """
        if not keys:
            return
        begun = asyncio.Event()
        first = asyncio.create_task(self._answer(point.asking(keys[0]), keys[0], begun))
        await begun.wait()
        if not self._ended and point.id not in self._refused:
            await asyncio.gather(*(self._answer(point.asking(key), key, asyncio.Event()) for key in keys[1:]))
        await first

    async def _answer(self, point: Askable, key: CallKey, begun: asyncio.Event) -> None:
        try:
            await self._persist(point, key, begun)
        except BudgetExhausted:
            self.stop("budget")
        except IbidemError as error:
            self._fail(error)
        finally:
            begun.set()

    def _fail(self, error: IbidemError) -> None:
        self._error = self._error or error
        self.stop("error")

    async def _persist(self, point: Askable, key: CallKey, begun: asyncio.Event) -> None:
        """Send one request, with retries, until it has a response or fails for good."""
        tries: Counter[Trouble] = Counter()
        while not self._ended:
            rung = self.ledger.rung
            limit = point.loaded.asker.limit(rung)
            worst = most_of(self._price, self._ceiling.of(point.name, key.arm, point.tokens, point.before), limit)
            await self._wait_for_others()
            await self._budget.hold(worst)
            try:
                if self._ended:
                    return
                self.ledger.ask(key, tries.total(), worst)
                outcome = await self._client.ask(point.body(rung), begun)
                trouble = self._take(point, key, rung, outcome, worst)
            finally:
                await self._budget.free(worst)
            if trouble is None:
                return
            tries[trouble] += 1
            if tries[trouble] >= trouble.most:
                self._give_up(key, trouble, outcome)
                return
            self._postpone(trouble, outcome, tries[trouble])

    def _postpone(self, trouble: Trouble, outcome: CallOutcome, times: int) -> None:
        """Delay all requests, not only this one: others would keep an overloaded provider busy."""
        if trouble is Trouble.THINKING:
            return
        wait = FIRST_WAIT * 2 ** min(times - 1, 10) * random.uniform(0.8, 1.2)
        if outcome.retry_after is not None:
            wait = outcome.retry_after
        self._not_before = max(self._not_before, asyncio.get_running_loop().time() + min(wait, LONGEST_WAIT))

    async def _wait_for_others(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._ended and (left := self._not_before - loop.time()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), left)

    def _give_up(self, key: CallKey, trouble: Trouble, outcome: CallOutcome) -> None:
        if trouble is Trouble.BROKEN and self._answers:
            self.ledger.answered(AnsweredRow(key=key, rung=self.ledger.rung, stop="failed", paid=0.0))
            return
        why = f"{outcome.status}" if outcome.status else outcome.message
        raise IbidemError(f"the provider {trouble.words} ({why}): continue later with --resume")

    def _take(
        self, point: Askable, key: CallKey, rung: ThinkingRung, outcome: CallOutcome, worst: float
    ) -> Trouble | None:
        """Record the outcome of a request. Return the reason to send it again, or None."""
        status = outcome.status
        if status == 200:
            self._heard(point, key, rung, outcome.reply, worst)
            return None
        if status in OVERLOADED or not outcome.reached:
            self.ledger.lost(key, 0.0)
            return Trouble.BUSY if outcome.reached else Trouble.AWAY
        if status == 0 or status >= 500:
            # Only the provider knows whether it bills a broken response. The budget must hold either way.
            self.ledger.lost(key, worst)
            return Trouble.BROKEN
        if status in FATAL:
            self.ledger.lost(key, 0.0)
            raise IbidemError(FATAL[status])
        if self._about_thinking(point, rung, outcome):
            self.ledger.lost(key, 0.0)
            if self.ledger.rung == rung:
                self.ledger.note(rung=int(rung) + 1)
                self._say(f"the provider rejects this thinking: {self.ledger.rung.words}")
            return Trouble.THINKING
        self._refuse(point, key, rung, outcome)
        return None

    def _about_thinking(self, point: Askable, rung: ThinkingRung, outcome: CallOutcome) -> bool:
        if outcome.status != 400 or rung is ThinkingRung.OFF:
            return False
        words = outcome.message.lower()
        said = any(word in words for word in ("thinking", "signature", "reasoning"))
        head = point.loaded.head.fields
        return said and (rung is ThinkingRung.KEPT or point.loaded.asker.provider.thinks(head))

    def _refuse(self, point: Askable, key: CallKey, rung: ThinkingRung, outcome: CallOutcome) -> None:
        """Omit a point whose request was rejected, in both variants. A retry would be rejected too."""
        self.ledger.answered(AnsweredRow(key=key, rung=rung, stop="refused", paid=0.0))
        if key.probe:  # the request of the point itself was accepted
            return
        self._refused.add(point.id)
        self._refusals += 1
        if not self._answers and self._refusals >= MAX_REFUSED:
            why = f": {outcome.message}" if outcome.message else ""
            told = f"the provider rejects these requests ({outcome.status}{why})"
            raise IbidemError(f"{told}: check --model and --upstream, or record complete requests with --record")

    def _heard(self, point: Askable, key: CallKey, rung: ThinkingRung, reply: ModelReply, worst: float) -> None:
        usage = reply.usage if _tells(reply) else None
        paid = worst if usage is None else paid_for(self._price, usage)
        if paid > worst and not self._exceeded:
            self._exceeded = True
            self._say("the provider billed more input tokens than the computed maximum: the budget may be exceeded")
        if usage is not None:
            self._ceiling.learn(point.name, key.arm, point.tokens, usage.input)
        if reply.stop == "failed":
            self._unread += 1
        else:
            self._answers += 1
        row = point.heard(key, rung, reply, paid)
        self.ledger.answered(row, _as_text(reply) if self.ledger.keeps_answers else "")
        self._asked()
        if not self._answers and self._unread >= MAX_REFUSED:
            raise IbidemError(
                f"the provider's responses are not in the {point.loaded.asker.format} format: check --upstream"
            )


def _tells(reply: ModelReply) -> bool:
    """Return whether the usage of a response is complete and plausible.

    A gateway may report no counts or impossible ones. An interrupted response has only the counts of its start.
    """
    usage = reply.usage
    if usage is None or reply.stop == "failed" or not 0 < usage.input < MOST_TOKENS:
        return False
    return usage.output < MOST_TOKENS and (usage.output > 0 or reply.stop != "ok")


def _as_text(reply: ModelReply) -> str:
    calls = [{"tool": call.name, "arguments": call.input} for call in reply.calls]
    return to_json({"text": reply.text, "calls": calls})
