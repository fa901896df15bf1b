"""What a provider would have charged for what a peer sent: the replay behind `ibidem report`, and its cache rules.

A worker says which entries of each request are not as recorded. Each becomes a change of that message: how many tokens
it takes out, and a key that tells whether the next request sends the same. Where messages were dropped or merged, what
stands in the place of a run of messages counts as a change of the first, and the others as gone.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from ibidem import formats
from ibidem.billing.calibration import weigh_message
from ibidem.model import to_json
from ibidem.replay.replay_bill import AfterBreak, Charge, Replay, ReplayStep
from ibidem.replay.sent_views import AS_RECORDED, MessageChange, SentView

from .sessions import SYSTEM, Json, Sampled, head_of

HEAD = -1
"""The place of what stands before the history: system prompt and tools."""
GONE = 0
"""The key of a message that was dropped."""


@dataclass(frozen=True)
class Outcome:
    """One session as a peer sent it. Dollars for input."""

    session: str
    base: float
    """With nothing done."""
    hit: float
    """If the provider still finds what stands before a change."""
    miss: float
    """If it finds nothing of the conversation then."""
    turns: int
    changed_turns: int
    """Requests that changed what had been sent before."""
    seconds: float
    floor: float
    texts: int
    """Of the last request, those that are not as recorded."""
    restored: int | None
    """Of these, those that the peer gives back; None where it has no way to ask for them."""
    marks_lost: int = 0
    """Requests that came out with fewer cache marks than they went in with."""
    failed: str = ""
    """Why the session counts as sent unchanged."""


def failed(one: Sampled, why: str, floor: float) -> Outcome:
    base = one.replay.bill().cost
    return Outcome(one.name, base, base, base, len(one.replay.steps), 0, 0.0, floor, 0, None, failed=why)


def priced(one: Sampled, answer: Json, floor: float) -> Outcome:
    """What a worker said of a session, in dollars."""
    sent = list(views_of(one, answer["turns"]))
    hit, miss = charged(one.replay, sent, "hit"), charged(one.replay, sent, "miss")
    return Outcome(
        one.name,
        one.replay.bill().cost,
        sum(charge.cost for charge in hit),
        sum(charge.cost for charge in miss),
        len(sent),
        sum(charge.broken for charge in hit),
        answer["seconds"],
        floor,
        answer["changed_texts"],
        answer["restored_texts"],
        answer["marks_lost"],
    )


class Head(NamedTuple):
    """What stands before the history of a request that was sent."""

    key: int = 0
    """Two requests have the same if these are equal."""
    tools: int = 0
    extended: bool = True
    """The recorded system prompt stands at its beginning, whatever follows it."""


RECORDED_HEAD = Head()


class Sent(NamedTuple):
    """A request as it was sent."""

    view: SentView
    head: Head = RECORDED_HEAD


def charged(replay: Replay, requests: Sequence[Sent], world: AfterBreak) -> list[Charge]:
    """By request."""
    before = [None, *requests]
    return [_charge(step, sent, last, world) for step, sent, last in zip(replay.steps, requests, before, strict=False)]


def _charge(step: ReplayStep, sent: Sent, last: Sent | None, world: AfterBreak) -> Charge:
    if last is None or last.head == sent.head or step.shared <= 0:
        before = last.view if last is not None else None
        return step.price_request(sent.view, step.unchanged_entries(sent.view, before), world, by_rule=False)
    return step.price_request(sent.view, 0, world, by_rule=False, cache_read=_still_found(step, last, sent))


class Provider:
    """Counts the requests of a session as they come, and finds in its cache what stands before a change."""

    def __init__(self, one: Sampled) -> None:
        self._turns: deque[Json] = deque()
        self._views = zip(one.replay.steps, views_of(one, iter(self._turns.popleft, None)), strict=False)
        self._last: Sent | None = None

    def count(self, turn: Json) -> Json:
        """What it says of a request, as far as the recorded one tells how it counts."""
        self._turns.append(turn)
        step, sent = next(self._views)
        charge = _charge(step, sent, self._last, "hit")
        self._last, usage = sent, step.sent.usage
        size = usage.input - step.scale * sent.view.removed_before(step.sent.length) if usage else None
        return {"context": None if size is None else max(0, round(size)), "cached": round(charge.read)}


def _still_found(step: ReplayStep, last: Sent, sent: Sent) -> float:
    """Tokens in the cache of a request with another head than the one before: what was only added to is found as far
    as it was there before, and nothing behind it."""
    if last.head.tools != sent.head.tools or not (last.head.extended and sent.head.extended):
        return 0.0
    could = step.price_request(AS_RECORDED, step.shared, "hit", by_rule=False).read
    # `charge` takes off what the view takes out before that place: here, what was added to the head.
    return min(step.head, could) + step.scale * sent.view.removed_before(0)


def views_of(one: Sampled, turns: Iterable[Json]) -> Iterator[Sent]:
    """Every request as it was sent."""
    weighing = _Weighing(one)
    changes: dict[int, MessageChange] = {}
    segment = HEAD
    for step, turn in zip(one.replay.steps, turns, strict=False):
        if step.segment != segment:
            segment, changes = step.segment, {}
        head = RECORDED_HEAD
        before: list[MessageChange] = []
        if "head" in turn:
            head, before = weighing.head(turn["head"])
        if "whole" in turn:
            changes = {}
            yield Sent(SentView([*before, *weighing.aligned(segment, step.sent.length, turn["whole"])]), head)
            continue
        for place in turn["unset"]:
            changes.pop(int(place), None)
        for place, entry in turn["set"].items():
            changes[int(place)] = weighing.change(segment, int(place), entry)
        yield Sent(SentView([*before, *(changes[place] for place in sorted(changes))]), head)


class _Weighing:
    """Changes of a session's messages, in tokens as the replay weighs them."""

    def __init__(self, one: Sampled) -> None:
        self.one, self.replay = one, one.replay
        self.dialect = formats.format_named(one.recording.format)

    def change(self, segment: int, place: int, entry: Any) -> MessageChange:
        return MessageChange(place, hash(_text(entry)), self._weight(segment, place) - self._new(segment, place, entry))

    def head(self, head: Json) -> tuple[Head, list[MessageChange]]:
        def size(values: Json) -> int:
            texts = (value if isinstance(value, str) else to_json(value) for value in values.values())
            return sum(map(self.one.count, texts))

        recorded = head_of(self.one)
        tools, before = _text(head.get("tools")), _text(recorded.get("tools"))
        extended = all(_extends(head.get(name), recorded.get(name)) for name in SYSTEM.values())
        key = hash(_text(head))
        known = Head(key, 0 if tools == before else hash(tools), extended)
        removed = self.replay.weights.text * (size(recorded) - size(head))
        return known, [MessageChange(HEAD, key, removed)]

    def aligned(self, segment: int, length: int, sent: Sequence[Any]) -> Iterator[MessageChange]:
        """A request with another number of messages than was recorded."""
        before = [_text(entry) for entry in self.one.recording.segments[segment].history[:length]]
        after = [_text(entry) for entry in sent]
        for kind, first, end, start, stop in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if kind == "equal":
                continue
            removed = sum(self._weight(segment, place) for place in range(first, end))
            added = sum(self._new(segment, min(first, length - 1), entry) for entry in sent[start:stop])
            key = hash(tuple(after[start:stop])) if stop > start else GONE
            yield MessageChange(first if end > first else max(0, first - 1), key, removed - added)
            yield from (MessageChange(place, GONE, 0.0) for place in range(first + 1, end))

    def _weight(self, segment: int, place: int) -> float:
        message = self.replay.messages[segment][place]
        weighed = weigh_message(message, self.replay.weights, self.one.count)
        return weighed.visible + (self.replay.thinking_tokens(message) if weighed.thinking else 0.0)

    def _new(self, segment: int, place: int, entry: Any) -> float:
        """Thinking that is still there is as large as it was: most of it is sealed."""
        weighed = weigh_message(self.dialect.read_message(place, entry), self.replay.weights, self.one.count)
        before = self.replay.messages[segment][place]
        whole = weigh_message(before, self.replay.weights, self.one.count).thinking
        thought = self.replay.thinking_tokens(before) * weighed.thinking / whole if whole else weighed.thinking
        return weighed.visible + thought


def _extends(sent: Any, recorded: Any) -> bool:
    """Whether a system prompt begins as it was recorded."""
    if not recorded:
        return True
    ours, theirs = (
        [{"type": "text", "text": each}] if isinstance(each, str) else each or [] for each in (recorded, sent)
    )
    first = theirs[: len(ours)]
    return bool(first == ours) or (isinstance(sent, str) and isinstance(recorded, str) and sent.startswith(recorded))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
