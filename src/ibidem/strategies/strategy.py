"""What a strategy is, and how every caller drives one: `compact`, `Session` and replay alike.

A strategy reads a conversation and proposes edits. The simple kind has `plan`: it looks at a whole conversation, afresh
for every request. The kind that grows has `begin`, which gives a *fold*: it is fed each message once, when that is
first sent, and told of every request. What it says of a message when it is fed stays for good; what had been sent
changes only in a `Revision`. Each kind is the other by default, so callers know one protocol only: `Progress` takes a
fold through a conversation, and `adapted` makes a strategy of anything that has the three names every strategy has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, get_args, runtime_checkable

from ..billing.budget import Bank, Economy, Moment, Point
from ..billing.prices import Prices, economy_of
from ..errors import UsageError
from ..model import Conversation, Kind, Message
from ..plan import Edit, Plan

if TYPE_CHECKING:
    from .revision.inventory import Inventory

RECALL_TOOL = re.compile(r"(?:[\w.-]*[_./-])?ibidem[_./-]+recall", re.ASCII)
"""How clients name a tool `recall` of a server `ibidem`."""

NO_MOMENT = Moment()
"""Of a request of which nothing is known."""

RECENT_MESSAGES = 3
"""The last messages of a request: what it asks of a cache stands at its end."""


class Start:
    """What is known of a conversation at its first request."""

    def __init__(
        self,
        conv: Conversation,
        model: str | None = None,
        store: Callable[[], Any] = lambda: None,
        economy: Economy | None = None,
        arrival: Callable[..., Any] | None = None,
        bank: Callable[..., Bank] = Bank,
    ) -> None:
        """Without a store nothing is kept: for measuring only. Without an economy, it is that of the model. `arrival`
        is called in place of `BackrefFold`, where several profiles share what they have in common, and `bank` in place
        of `Bank`, where somebody wants to know what is decided."""
        self.conv = conv
        self._model = model
        self._store = store
        self._economy = economy
        self.arrival, self.bank = arrival, bank

    @cached_property
    def store(self) -> Any:
        """Where originals are kept."""
        return self._store()

    @property
    def refers(self) -> bool:
        """Whether the provider shows the model all that is sent, and nothing else."""
        return not self.conv.dialect.clears_history(self.conv.head)

    @property
    def clears_thinking(self) -> bool:
        """Whether the provider does itself what could be done about the thinking of earlier turns."""
        return self.conv.dialect.clears_thinking(self.conv.head)

    @property
    def drops_unfit_thinking(self) -> bool:
        """Whether thinking that counts on something else than is sent is dropped by the provider, not refused."""
        return self.conv.dialect.drops_unfit_thinking(self.conv.head)

    @property
    def tells_failures(self) -> bool:
        """Whether a result says that its call failed, other than in words of the tool."""
        return self.conv.dialect.tells_failures

    @cached_property
    def recall_tool(self) -> str:
        """The tool of our recall server, by the name that the client gave it, if the request offers it."""
        names = self.conv.dialect.tool_names(self.conv.head)
        return next((name for name in names if RECALL_TOOL.fullmatch(name)), "")

    @cached_property
    def economy(self) -> Economy:
        """What the provider charges."""
        if self._economy is not None:
            return self._economy
        price = Prices().of(self._model or "", self.conv.dialect.name)
        recent = self.conv.messages[-RECENT_MESSAGES:]
        found = economy_of(price, self.conv.dialect.remembered_for_an_hour(self.conv.head, recent))
        return replace(found, preserved_thinking=found.preserved_thinking and not self.drops_unfit_thinking)


class Revision(NamedTuple):
    """What had been sent is sent otherwise from now on."""

    plan: Callable[[], Plan] | None
    """All edits of what was fed so far. None: nothing changes after all."""
    refused: bool = False
    """What was to change could not be kept. Asked again with a moment that says so, a fold decides alike."""
    changes: Mapping[int, tuple[Edit, ...]] | None = None
    """All edits of each message that is sent otherwise now. None: it may be any of them, and `plan` has to tell."""
    points: tuple[Point, ...] = ()
    """Those of the plan, where the changes are told."""


class Fold(Protocol):
    """A strategy's state after some messages of a conversation that grows."""

    inventory: Inventory | None = None
    """The texts it may still change, for those who look for better moments in hindsight."""
    spent: float = 0.0
    """What changing what had been sent has cost so far, in prices of fresh tokens."""

    @property
    def weight(self) -> int:
        """Bytes that it takes in memory beside the texts that came, about."""
        return 0

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        """The edits of one more message: they are final. `as_is`: it was sent as it came, and has to stay so.

        An edit of a whole message (`path=()`) has the conversation worked on from its start at every request.
        """
        ...

    def request(self, moment: Moment) -> Revision | None:
        """All that was fed is sent now. None: what had been sent before stays as it was sent."""
        return None

    def results_cleared(self) -> None:
        """The provider cleared some of what was fed, and may clear more: no later text may refer to an earlier one."""
        return

    def still_used(self) -> None:
        """A request was sent, perhaps the last one again: what is kept for it elsewhere is still needed."""
        return


@dataclass(slots=True)
class ProviderDemands:
    """Whether ported strategies deviate from their original where a provider would reject its result."""

    heeded: bool = True
    deviated: bool = False
    """A strategy deviated."""
    is_certain: bool = False
    """The provider surely rejects the exact result, so that it need not be tried first."""

    def outrank(self, *, is_certain: bool = True) -> bool:
        """Return True if a strategy must not do here what the original does.

        Not certain: a later strategy may remove what the provider would reject.
        """
        self.deviated = self.deviated or self.heeded
        self.is_certain = self.is_certain or (self.heeded and is_certain)
        return self.heeded


class Planner(Protocol):
    """The least that a strategy has to be."""

    @property
    def name(self) -> str: ...
    @property
    def touches(self) -> frozenset[Kind]: ...
    def plan(self, conv: Conversation) -> Iterable[Edit]: ...


@runtime_checkable
class Strategy(Protocol):
    """Reads a conversation, proposes edits. Its fields are its settings. One of `plan` and `begin` is its own."""

    name: ClassVar[str]
    """Edits are counted under it."""
    touches: ClassVar[frozenset[Kind]]
    """What it is named for; an edit of anything else is refused."""
    labels: ClassVar[tuple[str, ...]] = ()
    """The names its edits go by, if these are not its own: it is several in one."""
    final: ClassVar[bool] = False
    """A longer history is sent as the shorter one was, and more (law 2)."""
    revises: ClassVar[bool] = False
    """Its fold changes what had been sent: it has to know when requests came, and keeps originals in a store."""
    exact: ClassVar[bool] = False
    """It reproduces another system: its edits are made even if they save nothing (law 4 does not bind it)."""
    reads: ClassVar[frozenset[Kind]] = frozenset(get_args(Kind))
    """What its decisions depend on; "messages" is their number and order. An exact strategy need not wait for edits of
    anything else."""

    @property
    def lossless(self) -> bool:
        """`expand` gives back what was said, from the request alone (law 6)."""
        return False

    def plan(self, conv: Conversation) -> Iterable[Edit]:
        """The edits of a whole conversation."""
        return planned(self, conv, Start(conv))

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterable[Edit]:
        """The edits of a whole conversation. Only an `exact` strategy asks `demands`."""
        return self.plan(conv)

    def begin(self, start: Start) -> Fold:
        """A fold for a conversation that begins so."""
        return _PlanFold(self, start.conv)


class _PlanFold(Fold):
    """For a strategy that looks at whole conversations: it starts over, at the request that somebody wants to see."""

    def __init__(self, strategy: Strategy, conv: Conversation) -> None:
        self._strategy = strategy
        self._conv = conv
        self._messages: list[Message] = []

    def feed(self, message: Message, as_is: bool = False) -> Iterable[Edit]:
        self._messages.append(message)
        return ()

    def request(self, moment: Moment) -> Revision | None:
        length = len(self._messages)  # cut off only where somebody looks: there is a request for every other message
        return Revision(lambda: self._plan(length))

    def _plan(self, length: int) -> Plan:
        return Plan(tuple(self._strategy.plan(replace(self._conv, messages=tuple(self._messages[:length])))))


class Progress:
    """A fold on its way through a conversation: a request wherever the model spoke, and one at the end."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.length = 0
        """Messages that were fed."""
        self.refused = False
        """At the last request, what was to change could not be kept."""
        self.revised = False
        """What had been sent changed with the last messages that were taken in."""
        self.changes: dict[int, tuple[Edit, ...]] | None = {}
        """All edits of each message that was revised with these, new ones included. None: it may be any message."""
        self._sent = -1
        """Messages of the last request."""
        self._last_role = ""
        self._cleared = 0
        """Length at which the provider cleared results last."""
        self._before: Callable[[], Plan] = Plan
        """All edits up to the last revision."""
        self._points: tuple[Point, ...] | None = ()
        """Where there were revisions; None where only the plan tells."""
        self._since: list[Edit] = []
        """Edits of what was fed since."""

    def take(
        self,
        new: Sequence[Message],
        moments: Mapping[int, Moment] | None = None,
        as_is: Container[int] = (),
        cleared_at: Sequence[int] = (),
    ) -> list[Edit]:
        """More messages, the last of them the end of a request; moments are by length of the history. Their edits.

        At the lengths `cleared_at` the provider reported that it had cleared results, which may be known late.
        """
        moments = moments or {}
        arrived: list[Edit] = []
        self.revised, self.changes = False, {}
        for message in new:
            answered = self.length and message.role == "assistant" and self._last_role != "assistant"
            if answered or self.length in moments:
                self._request(moments.get(self.length, NO_MOMENT))
            if cleared := [length for length in cleared_at if self._cleared < length <= self.length]:
                self._cleared = cleared[-1]
                self.fold.results_cleared()
            edits = [*self.fold.feed(message, message.index in as_is)]
            for edit in edits:
                if edit.message != message.index:
                    told = f"an edit of another message than {message.index}, which was fed: that is a revision"
                    raise ValueError(told)
            arrived += edits
            self._since += edits
            self.length += 1
            self._last_role = message.role
        self._request(moments.get(self.length, NO_MOMENT))
        self.fold.still_used()
        return arrived

    def _request(self, moment: Moment) -> None:
        if self._sent == self.length:  # the same request again is no other request
            return
        self._sent = self.length
        revision = self.fold.request(moment)
        self.refused = revision is not None and revision.refused
        if revision is not None and revision.plan is not None:
            self._before, self._since, self.revised = cache(revision.plan), [], True
            if revision.changes is None:
                self.changes = self._points = None
                return
            self._points = revision.points
            if self.changes is not None:
                self.changes.update(revision.changes)

    @property
    def plan(self) -> Plan:
        """All edits of all that was taken in."""
        before = self._before()
        return Plan(before.edits + tuple(self._since), before.points)

    @property
    def points(self) -> tuple[Point, ...]:
        return self._before().points if self._points is None else self._points


def planned(strategy: Strategy, conv: Conversation, start: Start) -> Plan:
    """What a strategy proposes for a conversation that is seen for the first time."""
    if type(strategy).begin is Strategy.begin:
        return Plan(tuple(strategy.plan(conv)))
    progress = Progress(strategy.begin(start))
    progress.take(conv.messages)
    return progress.plan


def grows(strategies: Sequence[Strategy]) -> bool:
    """Whether a conversation that goes on costs only what is new in it. Several look at each other's work: afresh."""
    return len(strategies) == 1 and type(strategies[0]).begin is not Strategy.begin


@dataclass(frozen=True)
class _Planned(Strategy):
    """Somebody's own: a name, what it touches, and `plan`."""

    of: Planner

    @property
    def name(self) -> str:  # type: ignore[override]  # it is that of another class
        return self.of.name

    @property
    def touches(self) -> frozenset[Kind]:  # type: ignore[override]
        return self.of.touches

    def plan(self, conv: Conversation) -> Iterable[Edit]:
        return self.of.plan(conv)


def is_strategy(value: Any) -> bool:
    return isinstance(value, Strategy)


def adapted(value: Any) -> Strategy:
    """A strategy of it. Raises UsageError for what is none. The one place that asks what kind something is."""
    if isinstance(value, type):
        raise UsageError(f"strategies: {value.__name__} is a class: pass an instance, {value.__name__}()")
    if isinstance(value, Strategy):
        if type(value).plan is Strategy.plan and type(value).begin is Strategy.begin:
            raise UsageError(f"strategies: {value!r} has neither a plan nor a begin of its own: write one of them")
        return value
    if hasattr(value, "begin"):
        raise UsageError(f"strategies: {value!r} has a begin: make its class one of ibidem.Strategy")
    if not (callable(getattr(value, "plan", None)) and hasattr(value, "name") and hasattr(value, "touches")):
        raise UsageError(f"strategies: {value!r} is no strategy: pass instances such as ibidem.Dedup(), or profile=…")
    return _Planned(value)
