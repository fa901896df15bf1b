"""What must be true after each request of a world, and the counts of what was not."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ibidem
from ibidem.store import Store
from ibidem.testing.clearing import PLACEHOLDER
from tests.support.world_client import PLAIN_MODEL, SIGNING_MODEL, Branch, Message, Sent
from tests.support.world_provider import UpstreamRequest, accepts

MAX_BODIES = 4

FAILURES = (
    "refused",
    "refused for good",
    "not restored",
    "prefix changed",
    "refers to cleared text",
    "invalid",
    "too many requests",
    "sent twice",
    "errors",
)
"""Counters that must be 0."""


@dataclass
class Exchange:
    """One request of the client, and what became of it."""

    number: int
    branch: Branch
    body: bytes
    came: list[Message]
    shadow: dict[str, Any]
    """The request that the client would have sent without Ibidem."""
    run: str = ""
    """Process that got it."""
    expected: int = 0
    """Status that the script wants, if it wants a failure."""
    status: int = 0
    upstream: list[UpstreamRequest] = field(default_factory=list)
    cleared: frozenset[str] = frozenset()
    """Calls whose results the provider cleared for this request."""
    row: dict[str, Any] | None = None
    seconds: float = 0.0
    """Time until the client had the response."""
    repeated: bool = False
    """The client repeats what was refused."""
    lost: bool = False
    """The client did not wait for a response, or the process was killed."""

    @cached_property
    def accepted_directly(self) -> bool:
        return accepts(self.shadow)

    @property
    def rejections(self) -> int:
        return sum(each.is_rejected for each in self.upstream)

    @property
    def accepted(self) -> UpstreamRequest | None:
        return next((each for each in self.upstream if 200 <= each.status < 300), None)


class Oracle:
    """Checks one world."""

    def __init__(self, profile: str, store: Store, counts: Counter[str]) -> None:
        self.lossless = profile == "lossless"
        self.store = store
        self.counts = counts
        self.failures: list[str] = []
        self.store_lost = False
        """The store forgot originals or notes."""
        self.faulty = False
        """A note may be missing from the store."""
        self.calm = False
        """Nothing of the world loses knowledge."""
        self.notable: list[str] = []
        """Requests that were accepted, but not in the best way."""

    def fail(self, kind: str, exchange: Exchange | None, what: str) -> None:
        self.counts[kind] += 1
        where = f"request {exchange.number} of {exchange.branch.name}: " if exchange is not None else ""
        self.failures.append(f"{kind}: {where}{what}")

    def _remark(self, kind: str, exchange: Exchange) -> None:
        self.counts[kind] += 1
        self.notable.append(f"{kind}: request {exchange.number} of {exchange.branch.name}")

    def lose_notes(self, branches: list[Branch]) -> None:
        """What is known beside the histories may be lost: from here on a changed prefix is no fault."""
        self.faulty = True
        for branch in branches:
            branch.excused = branch.excused or branch.impure or not self.lossless

    def kill(self, exchange: Exchange, switched: bool) -> None:
        """What a request left to be noted may be lost."""
        branch = exchange.branch
        unusual = branch.impure or switched or exchange.rejections > 0
        branch.excused = branch.excused or unusual or not self.lossless

    def check(self, exchange: Exchange) -> None:
        self.counts["requests"] += 1
        self.counts["sent upstream"] += len(exchange.upstream)
        self.counts["rejections"] += exchange.rejections
        if self.calm and exchange.rejections and exchange.branch.fields["model"] == SIGNING_MODEL:
            self._remark("rejected first, nothing lost", exchange)
        self._check_bodies(exchange)
        self._check_status(exchange)
        self._note_row(exchange)
        for sent in exchange.upstream:
            self._check_restored(exchange, sent)
        if exchange.accepted is not None:
            self._check_references(exchange, exchange.accepted)
            self._check_prefix(exchange, exchange.accepted)
            if not exchange.lost:
                exchange.branch.cleared = exchange.cleared

    def _check_bodies(self, exchange: Exchange) -> None:
        bodies = [each.body for each in exchange.upstream]
        if len(bodies) > MAX_BODIES:
            self.fail("too many requests", exchange, f"{len(bodies)} requests upstream")
        if len(set(bodies)) < len(bodies):
            self.fail("sent twice", exchange, f"{len(bodies)} requests upstream, {len(set(bodies))} different")
        for each in exchange.upstream:
            if each.status == 400 and not each.is_rejected and exchange.expected != 400 and exchange.accepted_directly:
                self.fail("invalid", exchange, each.message)

    def _check_status(self, exchange: Exchange) -> None:
        if exchange.lost or exchange.repeated:
            return
        if exchange.expected:
            if exchange.status != exchange.expected:
                self.fail("errors", exchange, f"status {exchange.status} instead of {exchange.expected}")
        elif 200 <= exchange.status < 300:
            return
        elif not exchange.accepted_directly:
            self.counts["refused directly too"] += 1
        else:
            row = exchange.row or {}
            told = (
                f"{exchange.status} after {len(exchange.upstream)} upstream, {row.get('outcome')}: {row.get('reason')}"
            )
            self.fail("refused", exchange, told)

    def _note_row(self, exchange: Exchange) -> None:
        """What the proxy says about the request decides what may change."""
        row, branch = exchange.row, exchange.branch
        if row is None:  # nobody waited for it: anything may have been planned
            branch.revisions, branch.impure = branch.revisions + 1, True
            return
        if row["outcome"] in ("off", "failed open") or row["resent"]:
            branch.impure = True
        # A request that was refused in each way keeps what was planned for it, and its row does not say so.
        branch.revisions += bool(row["revision"]) or exchange.expected == 400
        if self.faulty and (branch.impure or not self.lossless):
            branch.excused = True

    def _check_restored(self, exchange: Exchange, sent: UpstreamRequest) -> None:
        if sent.body == exchange.body:
            return
        back = ibidem.expand(sent.body, store=self.store)
        if back == exchange.body or (not self.lossless and json.loads(back) == json.loads(exchange.body)):
            return
        family = exchange.branch.family
        if _lacks_thinking(sent.body, exchange.body) and (exchange.rejections or family.dropped):
            self.counts["without thinking, later" if family.dropped else "without thinking"] += 1
            if self.calm and not family.dropped:
                self._remark("without thinking, nothing lost", exchange)
            family.dropped = True
        elif self.store_lost and not self.lossless:
            self.counts["originals lost with the store"] += 1
        else:
            self.fail("not restored", exchange, _difference(json.loads(exchange.body), json.loads(back)))

    def _check_references(self, exchange: Exchange, accepted: UpstreamRequest) -> None:
        """What is new refers to nothing that the provider had cleared when it gave its last response."""
        branch = exchange.branch
        known = len(branch.accepted[-1].came) if branch.accepted else 0
        if not branch.cleared or not branch.linear or branch.family.dropped:
            return
        blank = without_results(json.loads(accepted.body), branch.cleared)
        back = ibidem.expand(blank, store=self.store)["messages"]
        if back[known:] != exchange.came[known:]:
            if self.faulty or self.store_lost:
                self.counts["refers to cleared text, knowledge lost"] += 1
            else:
                self.fail("refers to cleared text", exchange, f"after message {known}")

    def _check_prefix(self, exchange: Exchange, accepted: UpstreamRequest) -> None:
        """What was sent is sent the same way again. A provider's cache and signatures are those of one model.

        After a rewind, it is sent as it was before a revision or after it.
        """
        branch, sent = exchange.branch, json.loads(accepted.body)["messages"]
        model = branch.fields["model"]
        known = branch.accepted if branch.linear else branch.older + branch.accepted
        own = [each for each in known if each.model == model or not branch.linear]
        if (place := self._changed(exchange, sent, own)) is None:
            place = self._changed(exchange, sent, known)
        if place is not None and any(each.model != model for each in known):
            # What a profile evicts depends on prices, and a cache belongs to one model.
            self._remark("prefix changed with the model", exchange)
        elif place is not None:
            self.fail("prefix changed", exchange, f"from message {place} on")
        branch.accepted.append(Sent(exchange.came, sent, model, branch.revisions))
        branch.linear, branch.run = True, exchange.run

    def _changed(self, exchange: Exchange, sent: list[Message], known: list[Sent]) -> int | None:
        """First message that was sent otherwise by the last of these requests (after a rewind, by all of them), if that
        is a fault."""
        branch = exchange.branch
        most = self._known_elsewhere(exchange)
        shared = [(common(each.came, exchange.came[:most]), each) for each in known[-1 if branch.linear else 0 :]]
        longest = max((length for length, _ in shared), default=0)
        shared = [(length, each) for length, each in shared if length == longest]
        if not shared or any(each.sent[:length] == sent[:length] for length, each in shared):
            return None
        if any(each.came == exchange.came and each.sent == sent for each in branch.older + branch.accepted):
            return None  # the same history again after a rewind, with the revision that it was sent with
        revised = not self.lossless and any(each.revisions < branch.revisions for _, each in shared)
        if revised or branch.excused or branch.family.dropped or exchange.rejections:
            self.counts["prefix changed, declared"] += 1
            return None
        return common(known[-1].sent, sent)

    def _known_elsewhere(self, exchange: Exchange) -> int | None:
        """Number of messages that a process has to send as another process did; None for all.

        While it does not rewrite, it knows the earlier requests from their notes, but not the last one. `lossless`
        leaves no notes. If no thinking is signed, a changed prefix costs the cache only: nothing is waited for, and
        without notes nothing is worked out.
        """
        row, branch = exchange.row or {}, exchange.branch
        if exchange.run == branch.run or row.get("outcome") not in ("off", "failed open"):
            return None
        if branch.fields["model"] == PLAIN_MODEL and (self.lossless or row["outcome"] == "failed open"):
            return 0
        roles = [message["role"] for message in exchange.came]
        return len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0


def without_results(body: dict[str, Any], calls: frozenset[str]) -> dict[str, Any]:
    """The request as the model sees it after the results of these calls were cleared."""

    def blank(block: dict[str, Any]) -> dict[str, Any]:
        return {**block, "content": PLACEHOLDER} if block.get("tool_use_id") in calls else block

    messages = [
        {**message, "content": [blank(block) for block in message["content"]]}
        if isinstance(message["content"], list)
        else message
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


def common(left: list[Message], right: list[Message]) -> int:
    """Number of messages that two histories share from the start."""
    pairs = zip(left, right, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))


def _lacks_thinking(sent: bytes, came: bytes) -> bool:
    given, left = json.loads(came), json.loads(sent)
    asks = "block_binding" in (left.get("thinking") or {}) and "block_binding" not in (given.get("thinking") or {})
    return asks or _thoughts(left) < _thoughts(given)


def _thoughts(body: dict[str, Any]) -> int:
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    return sum(block["type"] == "thinking" for blocks in contents for block in blocks)


def _difference(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    place = common(wanted["messages"], found["messages"])
    thoughts = f"thinking blocks {_thoughts(found)} of {_thoughts(wanted)}"
    return f"first differs at message {place} of {len(wanted['messages'])}, {thoughts}"
