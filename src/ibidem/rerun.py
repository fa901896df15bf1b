"""What a profile does to every request of a recorded session, and for which tool and file.

A profile of arrival edits is run once per segment: what it does to a request is what it does to a longer one, cut off
(law 2). Any other is run on every request anew, as it would have been.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from . import engine, expansion, formats, profiles, rules
from .model import Conversation, Message, Text, ToolCall, ToolResult
from .plan import Edit, Kind, Plan, Strategy, target
from .replay import Change, View
from .revision.look_back import Folding, LookBack
from .sessions import Segment, Sent, Session
from .sizes import Count, Weights
from .timing import Economy, Moment, Point

PATHS = ("file_path", "path", "notebook_path", "filename", "file", "filePath", "target_file", "absolute_path")
"""Arguments of calls that name a file."""


class Asked(NamedTuple):
    """What a result was for."""

    tool: str = ""
    file: str = ""


class Spell(NamedTuple):
    """An edit, and the requests it was in: from `first` on and before `last`, counted through the session."""

    strategy: str
    asked: Asked
    tokens: float
    """Provider tokens that it takes out of each of them, before they are scaled."""
    hits: int
    first: int
    last: int
    new: bool
    """Not the same edit in a message that was carried over from an earlier segment."""


class Rerun:
    """A session under a profile: a view of every request, and the edits behind them."""

    def __init__(
        self,
        session: Session,
        messages: Sequence[Sequence[Message]],
        strategies: Sequence[Strategy],
        weights: Weights,
        count: Count,
        economy: Economy | None = None,
    ) -> None:
        self.points: list[Point] = []
        self.views: list[View] = []
        self.spells: list[Spell] = []
        self.failures: list[str] = []
        """Laws that were broken, and requests that were left as they came because something went wrong."""
        self._weights, self._count = weights, count
        self._strategies = tuple(strategies)
        self._lossless = profiles.lossless(strategies)
        run: Callable[[Session, Segment, Sequence[Message]], None]
        run = self._once if profiles.final(strategies) else self._each
        if isinstance(strategies[0], LookBack):
            looking = strategies[0] if economy is None else replace(strategies[0], economy=economy)
            run = partial(self._look_back, looking)
        for segment, history in zip(session.segments, messages, strict=True):
            run(session, segment, history)

    def _compact(self, session: Session, segment: Segment, length: int) -> engine.Compacted:
        key = formats.named(session.format).history_key
        body = {**session.head, key: segment.history[:length]}
        model = segment.requests[0].model or None
        result = engine.compact(body, strategies=self._strategies, format=session.format, model=model)
        self.failures.extend(result.stats.failures)
        return result

    def _once(self, session: Session, segment: Segment, history: Sequence[Message]) -> None:
        last = segment.requests[-1].length
        result = self._compact(session, segment, last)
        body = {**session.head, formats.named(session.format).history_key: segment.history[:last]}
        if self._lossless and expansion.expand(result.request, format=session.format) != body:
            self.failures.append("law 6: what was sent does not give back what was said")
        edits = by_message(result.plan)
        view, tokens = self._view(edits, history)
        start = len(self.views)
        lengths = [sent.length for sent in segment.requests]
        asked = asked_in(history[:last])
        for message, some in edits.items():
            first = start + bisect_right(lengths, message)
            for edit in some:
                spell = Spell(
                    edit.strategy,
                    _asked(history[message], edit, asked),
                    tokens[id(edit)],
                    edit.hits,
                    first,
                    start + len(lengths),
                    message >= segment.inherited,
                )
                self.spells.append(spell)
        self.views.extend([view] * len(lengths))

    def _each(self, session: Session, segment: Segment, history: Sequence[Message]) -> None:
        def plans() -> Iterator[Plan]:
            for sent in segment.requests:
                result = self._compact(session, segment, sent.length)
                self._check(result, history, sent.length)
                yield result.plan

        self._follow(segment, history, plans())

    def _look_back(self, looking: LookBack, session: Session, segment: Segment, history: Sequence[Message]) -> None:
        """Requests come with their pauses, and with what the provider said of the one before."""
        folding = Folding(looking)
        moments: dict[int, Moment] = {}

        def plans() -> Iterator[Plan]:
            last: Sent | None = None
            for sent in segment.requests:
                idle = sent.at - last.answered if last and last.answered and sent.at is not None else None
                if last is None and segment.cause != "start":
                    idle = float("inf")  # the client rewrote its context: little of it is in the cache
                moments[sent.length] = Moment(idle, last.usage.input if last and last.usage else None)
                yield folding.through(history[: sent.length], moments)
                last = sent

        self._follow(segment, history, plans())
        self.points.extend(folding.points)

    def _follow(self, segment: Segment, history: Sequence[Message], plans: Iterable[Plan]) -> None:
        """Views of requests whose plans may change what was sent before."""
        asked = asked_in(history)
        running: dict[tuple[Any, ...], tuple[int, Edit, float]] = {}
        start = len(self.views)
        seen: set[tuple[Any, ...]] = set()
        for number, plan in enumerate(plans, start):
            edits = by_message(plan)
            view, tokens = self._view(edits, history)
            self.views.append(view)
            now = {_identity(edit): edit for some in edits.values() for edit in some}
            for key in [key for key in running if key not in now]:
                self._end(running.pop(key), number, asked, history, key not in seen)
                seen.add(key)
            for key, edit in now.items():
                running.setdefault(key, (number, edit, tokens[id(edit)]))
        for key, spell in running.items():
            self._end(spell, start + len(segment.requests), asked, history, key not in seen)

    def _end(
        self,
        running: tuple[int, Edit, float],
        last: int,
        asked: Mapping[str, Asked],
        history: Sequence[Message],
        new: bool,
    ) -> None:
        first, edit, tokens = running
        message = history[edit.message] if 0 <= edit.message < len(history) else None
        what = _asked(message, edit, asked) if message else Asked()
        self.spells.append(Spell(edit.strategy, what, tokens, edit.hits, first, last, new))

    def _check(self, result: engine.Compacted, history: Sequence[Message], length: int) -> None:
        """Law 1, where a plan does more than put one text in another's place."""
        if result.plan.structural and result.violations:
            before = Conversation(tuple(history[:length]), formats.named(result.format), {})
            known = {violation.rule for violation in rules.violations(before)}
            broken = {violation.rule for violation in result.violations} - known
            self.failures.extend(f"law 1: {rule}" for rule in sorted(broken))

    def _view(self, edits: Mapping[int, Sequence[Edit]], history: Sequence[Message]) -> tuple[View, dict[int, float]]:
        """The view, and the tokens that each edit removes (by its identity)."""
        tokens: dict[int, float] = {}
        changes = []
        for message, some in edits.items():
            for edit in some:
                kind = _kind(history[message], edit) if 0 <= message < len(history) else "messages"
                removed = sum(map(self._count, edit.removed)) - (self._count(edit.added) if edit.added else 0)
                tokens[id(edit)] = self._weights.of(kind) * removed
            key = hash(tuple((edit.op, edit.path, edit.added) for edit in some))
            changes.append(Change(message, key, sum(tokens[id(edit)] for edit in some)))
        return View(changes), tokens


def by_message(edits: Iterable[Edit]) -> dict[int, list[Edit]]:
    """Edits by the message they are in, in the order of the messages."""
    found: dict[int, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.message, []).append(edit)
    return dict(sorted(found.items()))


def asked_in(history: Iterable[Message]) -> dict[str, Asked]:
    """Call id → tool and file."""
    return {call.id: Asked(call.name, file_of(call)) for message in history for call in message.calls}


def file_of(call: ToolCall) -> str:
    """The file that a call is about, if it names one."""
    given = call.input
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return ""
    if not isinstance(given, dict):
        return ""
    return next((value for key in PATHS if isinstance(value := given.get(key), str) and value), "")


def _identity(edit: Edit) -> tuple[Any, ...]:
    return (edit.strategy, edit.op, edit.message, edit.path, edit.added)


def _kind(message: Message, edit: Edit) -> Kind:
    found = target(message, edit) if edit.path else None
    return found.kind if found else "messages"


def _asked(message: Message, edit: Edit, asked: Mapping[str, Asked]) -> Asked:
    """What an edit of a result was for; for anything else, what was edited."""
    for part in message.parts:
        if isinstance(part, ToolResult) and any(isinstance(s, Text) and s.path == edit.path for s in part.segments):
            return asked.get(part.call_id, Asked(part.name))
        if isinstance(part, ToolCall) and edit.path in (part.path, part.input_path):
            return asked.get(part.id, Asked(part.name))
    return Asked()
