"""Size of every request of a recorded session, in provider tokens.

If a log has usage, a request has the recorded tokens, or those of the last recorded request plus an estimate of the new
messages (`billing.token_fit`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from ..billing.calibration import WeighedMessage, usual_scale
from ..billing.thinking_size import keeps_thinking
from ..billing.token_fit import Calibration, InputGrowth, MeasuredResponse, fit_calibration
from ..model import Message, Text, Thinking
from ..recordings import RecordedRequest, RecordedSegment
from .histories import Histories

Weigh = Callable[[Message], WeighedMessage]


class Prefix(NamedTuple):
    """Provider tokens before each entry of a history, for one request."""

    visible: Sequence[float]
    thinking: Sequence[float]
    forgotten: int = 0
    """Index of the first entry whose thinking still counts."""

    def tokens_before(self, entry: int) -> float:
        return self.visible[entry] + self.thinking_before(entry)

    def thinking_before(self, entry: int) -> float:
        """Add up the thinking before an entry that still counts."""
        return self.thinking[entry] - self.thinking[min(entry, self.forgotten)]

    def entry_at(self, tokens: float) -> int:
        """Find the last entry with at most this number of tokens before it."""
        return max(0, bisect_right(range(len(self.visible)), tokens, key=self.tokens_before) - 1)


class ResponsePart(NamedTuple):
    """The part of a response that is one entry of a history."""

    model: str
    answer: MeasuredResponse
    visible: float
    """Its share of the visible part of the response."""
    thinking: float
    """Its share of the thinking of the response."""


class WeighedSegment:
    """A segment with weighted token counts of its entries."""

    def __init__(self, segment: RecordedSegment, histories: Histories, number: int, weigh: Weigh) -> None:
        history = histories[number]
        self.segment, self.keys = segment, histories.entry_keys(number)
        self.entries = [weigh(message) for message in history]
        self.turns = [place for place, message in enumerate(history) if _starts_turn(message)]
        self._answers = [message.role == "assistant" for message in history]
        self._thinks = [any(isinstance(part, Thinking) for part in message.parts) for message in history]
        self._whole = [0.0, *accumulate(entry.total for entry in self.entries)]

    def list_responses(self, shows_thinking: bool) -> Iterator[tuple[RecordedRequest, range, MeasuredResponse]]:
        """Yield requests with the entries of their responses. `shows_thinking`: the log format records thinking."""
        ends = [request.length for request in self.segment.requests[1:]] + [len(self.entries)]
        for sent, end in zip(self.segment.requests, ends, strict=True):
            last = sent.length
            while last < end and self._answers[last]:
                last += 1
            places = range(sent.length, last)
            entries = [self.entries[place] for place in places]
            total = WeighedMessage(sum(entry.visible for entry in entries), sum(entry.thinking for entry in entries))
            thinks = any(self._thinks[place] for place in places)
            usage = sent.usage if entries else None
            has_thinking = True if thinks else False if shows_thinking else None
            yield (
                sent,
                places,
                MeasuredResponse(total, usage.output, usage.reasoning, has_thinking)
                if usage
                else MeasuredResponse(total),
            )

    def input_growth(
        self, answers: Sequence[tuple[RecordedRequest, range, MeasuredResponse]]
    ) -> Iterator[tuple[str, InputGrowth]]:
        """Yield the growth between requests of one model, in order."""
        last = None
        for (first, places, answer), (second, _, _) in pairwise(answers):
            if first.usage and second.usage and first.model == second.model:
                rest_tokens = self._whole[second.length] - self._whole[places.stop]
                turn = self.turn_before(second.length) >= first.length
                theirs = second.usage.input - first.usage.input
                yield first.model, InputGrowth(theirs, answer, rest_tokens, turn, last is not first)
                last = second

    def turn_before(self, length: int) -> int:
        """Find the first entry of the turn of a request with this number of entries; 0 if it is unknown."""
        place = bisect_left(self.turns, length)
        return self.turns[place - 1] if place else 0

    def make_prefix(self, model: str, calibration: Calibration, parts: Mapping[Hashable, ResponsePart]) -> Prefix:
        """Compute the sizes of the entries for a model."""
        sizes = []
        for key, entry in zip(self.keys, self.entries, strict=True):
            part = parts.get(key)
            if part is None or part.model != model:
                size = calibration.response_size(MeasuredResponse(entry))
                # Thinking of another model does not count.
                sizes.append(size if part is None else WeighedMessage(size.visible))
            else:
                size = calibration.response_size(part.answer)
                sizes.append(WeighedMessage(part.visible * size.visible, part.thinking * size.thinking))
        visible = [0.0, *accumulate(size.visible for size in sizes)]
        return Prefix(visible, [0.0, *accumulate(size.thinking for size in sizes)])


class Sizes:
    """Sizes of a session's entries and requests, for each of its models."""

    def __init__(
        self, segments: Sequence[RecordedSegment], histories: Histories, weigh: Weigh, shows_thinking: bool
    ) -> None:
        """`shows_thinking`: the log format records thinking."""
        self._segments = [WeighedSegment(segment, histories, number, weigh) for number, segment in enumerate(segments)]
        self._histories, self._weighed = histories, weigh
        self._said: dict[Hashable, ResponsePart] = {}
        growths: dict[str, list[InputGrowth]] = {}
        for segment in self._segments:
            answers = list(segment.list_responses(shows_thinking))
            for model, each in segment.input_growth(answers):
                growths.setdefault(model, []).append(each)
            for sent, places, answer in answers:
                for place in places:
                    self._said.setdefault(segment.keys[place], _response_part(segment, sent, places, answer, place))
        models = {sent.model for segment in segments for sent in segment.requests}
        self.calibrations = {
            model: fit_calibration(growths.get(model, []), _usual_calibration(model)) for model in models
        }
        self._prefixes: dict[tuple[int, str], Prefix] = {}

    def request_prefix(self, number: int, request: RecordedRequest) -> Prefix:
        """Get the sizes of a segment's entries for a request."""
        segment, calibration = self._segments[number], self.calibrations[request.model]
        key = (number, request.model)
        if key not in self._prefixes:
            self._prefixes[key] = segment.make_prefix(request.model, calibration, self._said)
        turn = segment.turn_before(request.length) if calibration.keeping == "turn" else 0
        return self._prefixes[key]._replace(forgotten=turn)

    def thinking_tokens(self, message: Message, model: str) -> float:
        """Estimate the weighted tokens that later turns of this model save if the thinking of a message is removed."""
        calibration, part = self.calibrations[model], self._said.get(self._histories.entry_key(message))
        if calibration.keeping != "kept" or not calibration.scale:
            return 0.0
        if part is None:
            return calibration.response_size(MeasuredResponse(self._weighed(message))).thinking / calibration.scale
        return (
            part.thinking * calibration.response_size(part.answer).thinking / calibration.scale
            if part.model == model
            else 0.0
        )

    def request_sizes(self, number: int, head: float) -> list[float]:
        """Compute the size of every request of a segment. `head`: estimated tokens of the request parameters, for
        requests before the first recorded usage."""
        sizes: list[float] = []
        last: RecordedRequest | None = None
        thinking = 0.0
        for request in self._segments[number].segment.requests:
            prefix = self.request_prefix(number, request)
            now = prefix.thinking_before(request.length)
            growth = prefix.visible[request.length] - prefix.visible[last.length] + now - thinking if last else 0.0
            if last is not None and last.usage:
                sizes.append(max(0.0, last.usage.input + growth))
            elif request.usage:
                sizes.append(float(request.usage.input))
            else:
                sizes.append(max(0.0, sizes[-1] + growth) if last else head + prefix.tokens_before(request.length))
            last, thinking = request, now
        return sizes


def _usual_calibration(model: str) -> Calibration:
    return Calibration(usual_scale(model), keeping="kept" if keeps_thinking(model) else "turn")


def _starts_turn(message: Message) -> bool:
    return message.role == "user" and not message.results and any(isinstance(part, Text) for part in message.parts)


def _response_part(
    segment: WeighedSegment, request: RecordedRequest, places: range, answer: MeasuredResponse, place: int
) -> ResponsePart:
    """Split a response of several entries by our weighted counts. If there are none, the first entry gets all of it."""
    entry, whole, alone = segment.entries[place], answer.weighed, float(place == places.start)
    visible = entry.visible / whole.visible if whole.visible else alone
    return ResponsePart(request.model, answer, visible, entry.thinking / whole.thinking if whole.thinking else alone)
