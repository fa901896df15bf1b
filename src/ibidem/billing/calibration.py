"""How large a provider will find a request that we can only count ourselves.

No provider's tokenizer but OpenAI's is public, logs lack system prompts and tools, and every message costs a few tokens
of its own. So our count of each part is weighed (constants by provider, from recorded usage), and where a log has
usage, the whole is fitted to it: every request is as large as the last recorded one plus `scale` times our weighed
count of what was added since. The scale is fitted per session and model; it is 1 where there is nothing to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from ..model import Kind, Message, Opaque, Text, Thinking, ToolCall, ToolResult


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


UNSEEN_TOKENS = 300.0
"""Tokens that what a log does not show (a reminder, a tool that was added) may add to a turn unnoticed."""


def scale_of(grown: Iterable[tuple[float, float]]) -> float:
    """How much larger than our weighed count a provider finds what it is sent.

    Each pair is what was added between two requests, as we weigh it and as the provider counted it, so what every
    request carries unseen does not matter. Growth that has nothing to do with what we see (an image, a cleared result)
    is left out. 1 where there is too little to tell.
    """
    pairs = list(grown)
    ratios = [theirs / ours for ours, theirs in pairs if ours > UNSEEN_TOKENS]
    if len(ratios) < 3:
        return 1.0
    rough = median(ratios)
    kept = [
        (ours, theirs) for ours, theirs in pairs if abs(theirs - rough * ours) <= max(UNSEEN_TOKENS, 0.3 * rough * ours)
    ]
    ours, theirs = sum(pair[0] for pair in kept), sum(pair[1] for pair in kept)
    return theirs / ours if ours > UNSEEN_TOKENS and theirs > 0 else 1.0
