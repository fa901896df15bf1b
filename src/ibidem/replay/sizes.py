"""Size of every request of a recorded session, in provider tokens.

If a log has usage, a request has the recorded tokens, or those of the last recorded request plus an estimate of the new
messages (`billing.token_fit`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from ..billing.calibration import Weighed, usual_scale
from ..billing.growth import Answer, Calibration, Growth, calibrated
from ..billing.thinking import keeps_thinking
from ..model import Message, Text, Thinking
from ..recordings import RecordedRequest, RecordedSegment
from .histories import Histories

Weigh = Callable[[Message], Weighed]


class Prefix(NamedTuple):
    """Provider tokens before each entry of a history, for one request."""

    visible: Sequence[float]
    thinking: Sequence[float]
    forgotten: int = 0
    """Index of the first entry whose thinking still counts."""

    def before(self, entry: int) -> float:
        return self.visible[entry] + self.thought(entry)

    def thought(self, entry: int) -> float:
        """Add up the thinking before an entry that still counts."""
        return self.thinking[entry] - self.thinking[min(entry, self.forgotten)]

    def entry_at(self, tokens: float) -> int:
        """Find the last entry with at most this number of tokens before it."""
        return max(0, bisect_right(range(len(self.visible)), tokens, key=self.before) - 1)


class Said(NamedTuple):
    """The part of a response that is one entry of a history."""

    model: str
    answer: Answer
    visible: float
    """Its share of the visible part of the response."""
    thinking: float
    """Its share of the thinking of the response."""


class WeighedSegment:
    """A segment with weighted token counts of its entries."""

    def __init__(self, segment: RecordedSegment, histories: Histories, number: int, weighed: Weigh) -> None:
        history = histories[number]
        self.segment, self.keys = segment, histories.keys(number)
        self.entries = [weighed(message) for message in history]
        self.turns = [place for place, message in enumerate(history) if _begins_turn(message)]
        self._answers = [message.role == "assistant" for message in history]
        self._thinks = [any(isinstance(part, Thinking) for part in message.parts) for message in history]
        self._whole = [0.0, *accumulate(entry.total for entry in self.entries)]

    def answers(self, shown: bool) -> Iterator[tuple[RecordedRequest, range, Answer]]:
        """Yield requests with the entries of their responses. `shown`: the log format records thinking."""
        ends = [sent.length for sent in self.segment.requests[1:]] + [len(self.entries)]
        for sent, end in zip(self.segment.requests, ends, strict=True):
            last = sent.length
            while last < end and self._answers[last]:
                last += 1
            places = range(sent.length, last)
            some = [self.entries[place] for place in places]
            weighed = Weighed(sum(entry.visible for entry in some), sum(entry.thinking for entry in some))
            thinks = any(self._thinks[place] for place in places)
            usage = sent.usage if some else None
            told = True if thinks else False if shown else None
            yield sent, places, Answer(weighed, usage.output, usage.reasoning, told) if usage else Answer(weighed)

    def grown(self, answers: Sequence[tuple[RecordedRequest, range, Answer]]) -> Iterator[tuple[str, Growth]]:
        """Yield the growth between requests of one model, in order."""
        last = None
        for (first, places, answer), (second, _, _) in pairwise(answers):
            if first.usage and second.usage and first.model == second.model:
                rest = self._whole[second.length] - self._whole[places.stop]
                turn = self.turn_before(second.length) >= first.length
                theirs = second.usage.input - first.usage.input
                yield first.model, Growth(theirs, answer, rest, turn, last is not first)
                last = second

    def turn_before(self, length: int) -> int:
        """Find the first entry of the turn of a request with this number of entries; 0 if it is unknown."""
        place = bisect_left(self.turns, length)
        return self.turns[place - 1] if place else 0

    def prefix(self, model: str, calibration: Calibration, said: Mapping[Hashable, Said]) -> Prefix:
        """Compute the sizes of the entries for a model."""
        sizes = []
        for key, entry in zip(self.keys, self.entries, strict=True):
            known = said.get(key)
            if known is None or known.model != model:
                size = calibration.size(Answer(entry))
                # Thinking of another model does not count.
                sizes.append(size if known is None else Weighed(size.visible))
            else:
                size = calibration.size(known.answer)
                sizes.append(Weighed(known.visible * size.visible, known.thinking * size.thinking))
        visible = [0.0, *accumulate(size.visible for size in sizes)]
        return Prefix(visible, [0.0, *accumulate(size.thinking for size in sizes)])


class Sizes:
    """Sizes of a session's entries and requests, for each of its models."""

    def __init__(self, segments: Sequence[RecordedSegment], histories: Histories, weighed: Weigh, shown: bool) -> None:
        """`shown`: the log format records thinking."""
        self._segments = [
            WeighedSegment(segment, histories, number, weighed) for number, segment in enumerate(segments)
        ]
        self._histories, self._weighed = histories, weighed
        self._said: dict[Hashable, Said] = {}
        grown: dict[str, list[Growth]] = {}
        for segment in self._segments:
            answers = list(segment.answers(shown))
            for model, each in segment.grown(answers):
                grown.setdefault(model, []).append(each)
            for sent, places, answer in answers:
                for place in places:
                    self._said.setdefault(segment.keys[place], _said(segment, sent, places, answer, place))
        models = {sent.model for segment in segments for sent in segment.requests}
        self.calibrations = {model: calibrated(grown.get(model, []), _usual(model)) for model in models}
        self._prefixes: dict[tuple[int, str], Prefix] = {}

    def prefix(self, number: int, sent: RecordedRequest) -> Prefix:
        """Get the sizes of a segment's entries for a request."""
        segment, calibration = self._segments[number], self.calibrations[sent.model]
        key = (number, sent.model)
        if key not in self._prefixes:
            self._prefixes[key] = segment.prefix(sent.model, calibration, self._said)
        turn = segment.turn_before(sent.length) if calibration.keeping == "turn" else 0
        return self._prefixes[key]._replace(forgotten=turn)

    def thought(self, message: Message, model: str) -> float:
        """Estimate the weighted tokens that later turns of this model save if the thinking of a message is removed."""
        calibration, said = self.calibrations[model], self._said.get(self._histories.key(message))
        if calibration.keeping != "kept" or not calibration.scale:
            return 0.0
        if said is None:
            return calibration.size(Answer(self._weighed(message))).thinking / calibration.scale
        return (
            said.thinking * calibration.size(said.answer).thinking / calibration.scale if said.model == model else 0.0
        )

    def anchored(self, number: int, head: float) -> list[float]:
        """Compute the size of every request of a segment. `head`: estimated tokens of the request parameters, for
        requests before the first recorded usage."""
        found: list[float] = []
        last: RecordedRequest | None = None
        thought = 0.0
        for sent in self._segments[number].segment.requests:
            prefix = self.prefix(number, sent)
            now = prefix.thought(sent.length)
            grown = prefix.visible[sent.length] - prefix.visible[last.length] + now - thought if last else 0.0
            if last is not None and last.usage:
                found.append(max(0.0, last.usage.input + grown))
            elif sent.usage:
                found.append(float(sent.usage.input))
            else:
                found.append(max(0.0, found[-1] + grown) if last else head + prefix.before(sent.length))
            last, thought = sent, now
        return found


def _usual(model: str) -> Calibration:
    return Calibration(usual_scale(model), keeping="kept" if keeps_thinking(model) else "turn")


def _begins_turn(message: Message) -> bool:
    return message.role == "user" and not message.results and any(isinstance(part, Text) for part in message.parts)


def _said(segment: WeighedSegment, sent: RecordedRequest, places: range, answer: Answer, place: int) -> Said:
    """Split a response of several entries by our weighted counts. If there are none, the first entry gets all of it."""
    entry, whole, alone = segment.entries[place], answer.weighed, float(place == places.start)
    visible = entry.visible / whole.visible if whole.visible else alone
    return Said(sent.model, answer, visible, entry.thinking / whole.thinking if whole.thinking else alone)
