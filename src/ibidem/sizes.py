"""How large a provider will find a request that we can only count ourselves.

No provider's tokenizer but OpenAI's is public, logs lack system prompts and tools, and every message costs a few tokens
of its own. So our count of each part is weighed (constants by provider, from recorded usage), and where a log has
usage, the whole is fitted to it: every request is as large as the last recorded one plus `scale` times our weighed
count of what was added since. The scale is fitted per session and model; it is 1 where there is nothing to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .model import Message, Opaque, Text, Thinking, ToolCall, ToolResult
from .plan import Kind
from .sessions import Segment, Sent


@dataclass(frozen=True, slots=True)
class Weights:
    """Provider tokens per token of ours, by what is counted."""

    result: float = 1.0
    call: float = 1.0
    text: float = 1.0
    thinking: float = 1.0
    part: float = 19.0
    """Tokens that each call, result or text costs beside its own."""

    def of(self, kind: Kind) -> float:
        """The weight of what an edit touches."""
        return {"thinking": self.thinking, "arguments": self.call, "assistant text": self.text}.get(kind, self.result)


WEIGHTS: dict[str, Weights] = {"anthropic": Weights(1.11, 1.07, 1.05, 1.3, 37.0)}
"""By provider; one that is not here uses the encoding we count with, or we do not know better."""

Count = Callable[[str], int]


def size_of(message: Message, weights: Weights, count: Count) -> float:
    """A message in provider tokens, as far as it is text. Images and other opaque parts cost what any part does."""
    total = 0.0
    for part in message.parts:
        total += weights.part
        if isinstance(part, ToolResult):
            total += weights.result * sum(count(seg.text) for seg in part.segments if isinstance(seg, Text))
        elif isinstance(part, ToolCall):
            total += weights.call * (count(part.name) + count(part.arguments))
        elif isinstance(part, Thinking):
            total += weights.thinking * count(part.text)
        elif not isinstance(part, Opaque):
            total += weights.text * count(part.text)
    return total


NOISE = 300.0
"""Tokens that what the log does not show (a reminder, a tool that was added) may add to a turn unnoticed."""


def scale_of(segments: Sequence[tuple[Segment, Sequence[float]]], model: str) -> float:
    """How much larger than our weighed count the provider finds what this model is sent.

    Each segment comes with its sizes, summed up: `sums[n]` is the size of its first n entries. Only the growth between
    two requests is looked at, so what every request carries unseen does not matter; growth that has nothing to do with
    what was logged (an image, a cleared result) is left out.
    """
    grown: list[tuple[float, float]] = []
    for segment, sums in segments:
        for first, second in pairwise(segment.requests):
            if first.usage and second.usage and first.model == second.model == model:
                grown.append((sums[second.length] - sums[first.length], second.usage.input - first.usage.input))
    ratios = [theirs / ours for ours, theirs in grown if ours > NOISE]
    if len(ratios) < 3:
        return 1.0
    rough = median(ratios)
    kept = [(ours, theirs) for ours, theirs in grown if abs(theirs - rough * ours) <= max(NOISE, 0.3 * rough * ours)]
    ours, theirs = sum(pair[0] for pair in kept), sum(pair[1] for pair in kept)
    return theirs / ours if ours > NOISE and theirs > 0 else 1.0


def anchored(segment: Segment, sums: Sequence[float], scale: dict[str, float], head: float) -> list[float]:
    """The size of every request of a segment. `head` is what they carry beside their history, if no usage tells."""
    found: list[float] = []
    last: Sent | None = None
    for sent in segment.requests:
        factor = scale[sent.model]
        if last is not None and last.usage:
            found.append(last.usage.input + factor * (sums[sent.length] - sums[last.length]))
        elif sent.usage:
            found.append(float(sent.usage.input))
        else:
            grown = found[-1] + factor * (sums[sent.length] - sums[last.length]) if last else 0.0
            found.append(grown or head + factor * sums[sent.length])
        last = sent
    return found
