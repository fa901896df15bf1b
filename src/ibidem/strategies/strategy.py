"""The interface of a strategy, and how `compact`, `Session` and replay run one.

A strategy reads a conversation and proposes edits. A simple strategy has `plan`, which gets the whole conversation at
every request. An incremental strategy has `begin`, which returns a `Fold`: the strategy state of one conversation. The
state gets each message once, when it is first sent, and is notified of every request. Its edits of a new message are
final. Text that was already sent changes only by a `Revision`. Each kind implements the other by default, so callers
use one protocol: `StrategyRun` feeds a conversation to a state, and `adapt_strategy` wraps any object that has
`name`, `touches` and `plan`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, get_args, runtime_checkable

from ..billing.prices import Prices, cache_pricing_for
from ..billing.revision_budget import CachePricing, PricedRevision, RequestContext, SavingsBalance
from ..errors import UsageError
from ..model import Conversation, Kind, Message
from ..plan import Edit, FullText, Plan

if TYPE_CHECKING:
    from .revision.inventory import Inventory

RECALL_TOOL = re.compile(r"(?:[\w.-]*[_./-])?ibidem[_./-]+recall", re.ASCII)
"""Matches the names that clients give to the tool `recall` of an MCP server `ibidem`."""

UNKNOWN_CONTEXT = RequestContext()
"""Context of a request without known idle time or usage."""

RECENT_MESSAGES = 3
"""Number of last messages that are searched for cache directives: clients put them near the end."""


class ConversationStart:
    """Facts about a conversation at its first request."""

    def __init__(
        self,
        conv: Conversation,
        model: str | None = None,
        store: Callable[[], Any] = lambda: None,
        economy: CachePricing | None = None,
        arrival: Callable[..., Any] | None = None,
        bank: Callable[..., SavingsBalance] = SavingsBalance,
    ) -> None:
        """Without `store`, originals are not stored: for measurements only. `economy` defaults to that of the model.

        Replay passes `arrival` in place of `BackReferenceState`, to share arrival edits between profiles, and `bank` in
        place of `SavingsBalance`, to record the decisions.
        """
        self.conv = conv
        self._model = model
        self._store = store
        self._economy = economy
        self.arrival, self.bank = arrival, bank

    @cached_property
    def store(self) -> Any:
        """Store for the originals of evicted texts."""
        return self._store()

    @property
    def refers(self) -> bool:
        """True if the provider shows the model everything that is sent, so that references can be followed."""
        return not self.conv.dialect.clears_history(self.conv.head)

    @property
    def clears_thinking(self) -> bool:
        """True if the provider removes the thinking of earlier turns itself."""
        return self.conv.dialect.clears_thinking(self.conv.head)

    @property
    def drops_unfit_thinking(self) -> bool:
        """True if the provider drops thinking whose signature does not match the sent text, instead of rejecting it."""
        return self.conv.dialect.drops_unfit_thinking(self.conv.head)

    @property
    def tells_failures(self) -> bool:
        """True if results have an error flag, so that a failed call does not depend on the tool's wording."""
        return self.conv.dialect.tells_failures

    @cached_property
    def recall_tool(self) -> str:
        """The client's name for the recall tool, if the request offers it; else an empty string."""
        names = self.conv.dialect.tool_names(self.conv.head)
        return next((name for name in names if RECALL_TOOL.fullmatch(name)), "")

    @cached_property
    def economy(self) -> CachePricing:
        """Cache pricing of the provider."""
        if self._economy is not None:
            return self._economy
        price = Prices().of(self._model or "", self.conv.dialect.name)
        recent = self.conv.messages[-RECENT_MESSAGES:]
        pricing = cache_pricing_for(price, self.conv.dialect.has_one_hour_ttl(self.conv.head, recent))
        return replace(pricing, preserved_thinking=pricing.preserved_thinking and not self.drops_unfit_thinking)


class Revision(NamedTuple):
    """A change of text that was already sent."""

    plan: Callable[[], Plan] | None
    """Returns all edits of the messages fed so far. None: no change after all."""
    refused: bool = False
    """The store could not save the originals. With a context that reports this, a state decides the same again."""
    changes: Mapping[int, tuple[Edit, ...]] | None = None
    """All edits of each changed message, by message index. None: unknown, so callers must compute `plan`."""
    points: tuple[PricedRevision, ...] = ()
    """The plan's revisions, if `changes` is given."""


class StrategyState(Protocol):
    """A strategy's state after some messages of a growing conversation."""

    inventory: Inventory | None = None
    """The texts that may still change. Replay uses it to find the offline optimum."""
    spent: float = 0.0
    """Cost of all revisions so far, in tokens at the input price."""

    @property
    def weight(self) -> int:
        """Approximate memory use in bytes, without the texts of the request."""
        return 0

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        """Return the final edits of one more message. `as_is`: it was sent unchanged, and must stay unchanged.

        If a strategy edits a whole message (`path=()`), each request is processed from its start.
        """
        ...

    def request(self, moment: RequestContext) -> Revision | None:
        """Note that all messages fed so far are sent now. Return a change of earlier text, or None."""
        return None

    def results_cleared(self) -> None:
        """Note that the provider cleared results, and may clear more. Later texts must not refer to earlier ones."""
        return

    def still_used(self) -> None:
        """Note that a request was sent, perhaps the last one again, so that stored originals do not expire."""
        return


@dataclass(slots=True)
class ProviderDemands:
    """Decides if ported strategies deviate from their original because a provider would reject its result."""

    is_enforced: bool = True
    has_deviated: bool = False
    """A strategy deviated."""
    is_certain: bool = False
    """The provider surely rejects the exact result, so that it need not be tried first."""

    def override_original(self, *, is_certain: bool = True) -> bool:
        """Return True if a strategy must not do here what the original does.

        Not certain: a later strategy may remove what the provider would reject.
        """
        self.has_deviated = self.has_deviated or self.is_enforced
        self.is_certain = self.is_certain or (self.is_enforced and is_certain)
        return self.is_enforced


class Planner(Protocol):
    """The minimal interface of a user's strategy."""

    @property
    def name(self) -> str: ...
    @property
    def touches(self) -> frozenset[Kind]: ...
    def plan(self, conv: Conversation) -> Iterable[Edit]: ...


@runtime_checkable
class Strategy(Protocol):
    """Reads a conversation and proposes edits. Its fields are its settings. Subclasses define `plan` or `begin`."""

    name: ClassVar[str]
    """Name under which edits are counted."""
    touches: ClassVar[frozenset[Kind]]
    """Kinds of content that it may edit; other edits are rejected."""
    labels: ClassVar[tuple[str, ...]] = ()
    """Names of its kinds of edits, if these differ from `name`."""
    final: ClassVar[bool] = False
    """True if edits never change when the history grows (invariant 2)."""
    revises: ClassVar[bool] = False
    """True if its state changes text that was already sent. It then needs request times and a store for originals."""
    exact: ClassVar[bool] = False
    """True if it reproduces another system. Its edits apply even without a saving (invariant 4 is waived)."""
    reads: ClassVar[frozenset[Kind]] = frozenset(get_args(Kind))
    """Kinds of content that its decisions depend on; "messages" is their number and order. For an exact strategy,
    pending edits of other kinds need not be applied first."""

    @property
    def lossless(self) -> bool:
        """True if `expand` restores the original from the request without a store (invariant 6)."""
        return False

    def plan(self, conv: Conversation) -> Iterable[Edit]:
        """Return the edits of a whole conversation."""
        return plan_once(self, conv, ConversationStart(conv))

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterable[Edit]:
        """Return the edits of a whole conversation. Only an `exact` strategy uses `demands`."""
        return self.plan(conv)

    def begin(self, start: ConversationStart) -> StrategyState:
        """Return the state for a conversation that starts like this."""
        return _PlanState(self, start.conv)


class _PlanState(StrategyState):
    """State of a strategy that has only `plan`. It plans the whole conversation when a caller reads the plan."""

    def __init__(self, strategy: Strategy, conv: Conversation) -> None:
        self._strategy = strategy
        self._conv = conv
        self._messages: list[Message] = []

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        self._messages.append(message)
        return ()

    def request(self, moment: RequestContext) -> Revision | None:
        length = len(self._messages)  # the slice is made on access: every second message is a request
        return Revision(lambda: self._plan_prefix(length))

    def _plan_prefix(self, length: int) -> Plan:
        return Plan(tuple(self._strategy.plan(replace(self._conv, messages=tuple(self._messages[:length])))))


class StrategyRun:
    """Feeds a conversation to a strategy state. Each response of the model ends a request; so does the last message."""

    def __init__(self, fold: StrategyState) -> None:
        self.fold = fold
        self.length = 0
        """Number of messages fed."""
        self.has_store_failed = False
        """True if the store could not save the originals at the last request."""
        self.has_revised = False
        """True if the last call of `add_messages` changed text that was already sent."""
        self.changes: dict[int, tuple[Edit, ...]] | None = {}
        """All edits of each message that the last call revised. None: unknown, it may be any message."""
        self._last_request_length = -1
        """Length of the history at the last request."""
        self._last_role = ""
        self._cleared_length = 0
        """Length of the history when the provider last cleared results."""
        self._plan_until_revision: Callable[[], Plan] = Plan
        """Returns all edits up to the last revision."""
        self._points: tuple[PricedRevision, ...] | None = ()
        """All revisions; None if only the plan has them."""
        self._edits_since_revision: list[Edit] = []
        """Edits of the messages fed since the last revision."""

    def add_messages(
        self,
        new: Sequence[Message],
        moments: Mapping[int, RequestContext] | None = None,
        as_is: Container[int] = (),
        cleared_at: Sequence[int] = (),
    ) -> list[Edit]:
        """Feed more messages, which end a request, and return their edits.

        `moments` has the context of each request, by length of the history. `cleared_at` has the lengths at which the
        provider reported that it had cleared results, which may be known late.
        """
        moments = moments or {}
        new_edits: list[Edit] = []
        self.has_revised, self.changes = False, {}
        for message in new:
            starts_response = self.length and message.role == "assistant" and self._last_role != "assistant"
            if starts_response or self.length in moments:
                self._record_request(moments.get(self.length, UNKNOWN_CONTEXT))
            if cleared_lengths := [length for length in cleared_at if self._cleared_length < length <= self.length]:
                self._cleared_length = cleared_lengths[-1]
                self.fold.results_cleared()
            edits = [*self.fold.feed(message, message.index in as_is)]
            for edit in edits:
                if edit.message != message.index:
                    problem = (
                        f"feed of message {message.index} returned an edit of message {edit.message}: use a Revision"
                    )
                    raise ValueError(problem)
            new_edits += edits
            self._edits_since_revision += edits
            self.length += 1
            self._last_role = message.role
        self._record_request(moments.get(self.length, UNKNOWN_CONTEXT))
        self.fold.still_used()
        return new_edits

    def _record_request(self, moment: RequestContext) -> None:
        if self._last_request_length == self.length:  # a request that is sent again counts once
            return
        self._last_request_length = self.length
        revision = self.fold.request(moment)
        self.has_store_failed = revision is not None and revision.refused
        if revision is not None and revision.plan is not None:
            self._plan_until_revision, self._edits_since_revision, self.has_revised = cache(revision.plan), [], True
            if revision.changes is None:
                self.changes = self._points = None
                return
            self._points = revision.points
            if self.changes is not None:
                self.changes.update(revision.changes)

    @property
    def plan(self) -> Plan:
        """All edits of all messages fed so far."""
        earlier = self._plan_until_revision()
        return Plan(earlier.edits + tuple(self._edits_since_revision), earlier.points, self.full_texts)

    @property
    def full_texts(self) -> tuple[FullText, ...]:
        """Texts sent in full although they were sent before."""
        return getattr(self.fold, "full_texts", ())  # a user's strategy state may not have it

    @property
    def points(self) -> tuple[PricedRevision, ...]:
        """All revisions so far."""
        return self._plan_until_revision().points if self._points is None else self._points


def plan_once(strategy: Strategy, conv: Conversation, start: ConversationStart) -> Plan:
    """Return the edits that a strategy proposes for a conversation without earlier state."""
    if type(strategy).begin is Strategy.begin:
        return Plan(tuple(strategy.plan(conv)))
    progress = StrategyRun(strategy.begin(start))
    progress.add_messages(conv.messages)
    return progress.plan


def is_incremental(strategies: Sequence[Strategy]) -> bool:
    """Return True if later requests cost only the work for new messages. Several strategies depend on each other."""
    return len(strategies) == 1 and type(strategies[0]).begin is not Strategy.begin


@dataclass(frozen=True)
class _PlanOnlyStrategy(Strategy):
    """Wrapper for a user's object that has `name`, `touches` and `plan`."""

    planner: Planner

    @property
    def name(self) -> str:  # type: ignore[override]  # a class attribute in the base class
        return self.planner.name

    @property
    def touches(self) -> frozenset[Kind]:  # type: ignore[override]
        return self.planner.touches

    def plan(self, conv: Conversation) -> Iterable[Edit]:
        return self.planner.plan(conv)


def is_strategy(value: Any) -> bool:
    """Return True for a Strategy, or an object with all its attributes."""
    return isinstance(value, Strategy)


def adapt_strategy(value: Any) -> Strategy:
    """Return `value` as a Strategy; UsageError if it is not one. No other code checks types of strategies."""
    if isinstance(value, type):
        raise UsageError(f"strategies: {value.__name__} is a class: pass an instance, {value.__name__}()")
    if isinstance(value, Strategy):
        if type(value).plan is Strategy.plan and type(value).begin is Strategy.begin:
            raise UsageError(f"strategies: {value!r} does not define plan or begin: define one")
        return value
    if hasattr(value, "begin"):
        raise UsageError(f"strategies: {value!r} has begin: derive its class from ibidem.Strategy")
    if not (callable(getattr(value, "plan", None)) and hasattr(value, "name") and hasattr(value, "touches")):
        raise UsageError(
            f"strategies: {value!r} is not a strategy: pass instances such as ibidem.Dedup(), or profile=…"
        )
    return _PlanOnlyStrategy(value)
