"""How large a provider will find a request that we can only count ourselves.

No provider's tokenizer but OpenAI's is public, logs lack system prompts and tools, and every message costs a few tokens
of its own. So our count of each part is weighed (constants by provider, from recorded usage), and where a log has
usage, the whole is fitted to it: every request is as large as the last recorded one plus `scale` times our weighed
count of what was added since. The scale is fitted per session and model; it is 1 where there is nothing to fit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..model import Kind, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from .thinking import thinking_tokens
from .versions import ANY, FIRST_CLAUDES, NEVER, Versions, reaches


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


_CLAUDE = Weights(1.11, 1.07, 1.05, 1.3, 37.0)

WEIGHTS: dict[str, Weights] = {"anthropic": _CLAUDE, "aws": _CLAUDE, "openai": Weights(part=10.0)}
"""By provider; one that is not here uses the encoding we count with, or we do not know better."""

OPAQUE_TOKENS: dict[str, float] = {
    **dict.fromkeys(("image", "input_image", "image_url", "inline_data", "inlineData"), 1200.0),
    **{"tool_reference": 650.0, "tool_search_output": 1500.0},
}
"""What is usual for a part that is no text, by its kind: a picture of middle size, a tool that is shown from then on.
"""

FINER_TOKENS = 1.4
"""Provider tokens for one that is weighed so, with an encoding of more and shorter tokens."""

FIRST_FINER: Versions = {
    **{"opus": (4, 7), "mythos": ANY},
    **dict.fromkeys(("sonnet", "haiku", "fable"), (5, 0)),
    **dict.fromkeys(FIRST_CLAUDES, NEVER),
    "claude": ANY,
}
"""The first version with such an encoding."""

Count = Callable[[str], int]


def usual_scale(model: str) -> float:
    """Provider tokens for one of ours, weighed, where nothing was recorded to fit it to."""
    return FINER_TOKENS if reaches(model, FIRST_FINER, unknown=False) else 1.0


class Weighed(NamedTuple):
    """A message in provider tokens, before they are scaled, as far as it is text."""

    visible: float
    """Results, calls and texts, and what each of them costs beside; what is no text, as is usual for its kind."""
    thinking: float = 0.0
    """By its text, or by what is sealed beside it."""

    @property
    def total(self) -> float:
        return self.visible + self.thinking


def weigh(message: Message, weights: Weights, count: Count) -> Weighed:
    """The size of a message that we count ourselves."""
    visible = thinking = 0.0
    for part in message.parts:
        if isinstance(part, Thinking):
            thinking += weigh_thinking(part, weights, count)
            continue
        visible += weights.part
        if isinstance(part, ToolResult):
            visible += weights.result * sum(count(seg.text) for seg in part.segments if isinstance(seg, Text))
            visible += sum(OPAQUE_TOKENS.get(seg.kind, 0.0) for seg in part.segments if isinstance(seg, Opaque))
        elif isinstance(part, ToolCall):
            visible += weights.call * (count(part.name) + count(part.arguments))
        elif isinstance(part, Opaque):
            visible += OPAQUE_TOKENS.get(part.kind, 0.0)
        else:
            visible += weights.text * count(part.text)
    return Weighed(visible, thinking)


def weigh_thinking(part: Thinking, weights: Weights, count: Count) -> float:
    """The size of thinking by what a request shows of it."""
    return weights.result * thinking_tokens(part, weights.thinking / weights.result * count(part.text))


# ── provider tokens per token of ours ───────────────────────────────────────────────────────────────────────────────

UNSEEN_TOKENS = 300.0
"""Tokens that what we do not see (a reminder, a tool that was added) may add to a turn unnoticed."""
PLAUSIBLE_SCALES = (0.6, 2.0)
"""Provider tokens for one of ours that can be true of text. Beyond, it was something else, such as an image."""
JSON_BLOCK_TOKENS = 30.0
"""Tokens of ours that the JSON around a content block takes: braces, keys, its type and id."""
SCALE_WEIGHT, BLOCK_WEIGHT = 250_000.0, 14.0
"""Weights of the initial values in a `GrowthFit`. They follow from the usual errors: 150 tokens in the growth of a
request, 0.3 in the initial scale, and 40 tokens in the initial value per block."""


@dataclass(slots=True)
class GrowthFit:
    """Provider tokens per token of ours in text, fitted while a conversation runs.

    Our count of a new message includes the JSON around each content block, which providers count in their own way. So
    two values are fitted by least squares: the scale of text, and the provider's tokens per block beyond it. With the
    scale alone, a conversation of many short results would make removed text look smaller than it is.
    """

    scale: float = 1.0
    per_block: float = 0.0
    _ours: float = 0.0
    """Sums of squares and products over all growth that is believed: of our count, the blocks and the provider's."""
    _blocks: float = 0.0
    _both: float = 0.0
    _ours_theirs: float = 0.0
    _blocks_theirs: float = 0.0

    def __post_init__(self) -> None:
        self._ours, self._blocks = SCALE_WEIGHT, BLOCK_WEIGHT
        self._ours_theirs, self._blocks_theirs = SCALE_WEIGHT * self.scale, BLOCK_WEIGHT * self.per_block

    def grew(self, ours: float, theirs: float, blocks: int = 0) -> None:
        """Add the growth between two requests: our count, the provider's, and the number of new content blocks."""
        low, high = PLAUSIBLE_SCALES
        if ours < UNSEEN_TOKENS or not low <= theirs / ours <= high:
            return
        self._ours += ours * ours
        self._blocks += blocks * blocks
        self._both += ours * blocks
        self._ours_theirs += ours * theirs
        self._blocks_theirs += blocks * theirs
        determinant = self._ours * self._blocks - self._both * self._both
        scale = (self._ours_theirs * self._blocks - self._blocks_theirs * self._both) / determinant
        self.scale = min(max(scale, low), high)
        self.per_block = (self._blocks_theirs - self.scale * self._both) / self._blocks


TELLING_GROWTH = 500.0
"""Tokens by which a request must have grown to tell something about the scale of text."""
BELIEVED_GROWTH = 4000.0
"""Tokens of growth before which nothing is believed."""
BELIEVED_SHARE = 0.25
"""The share of the growth that may have a smaller scale than the one that is believed."""
MAX_TEXT_SCALE = 1.6
"""The largest scale of text that is believed."""
GROWTHS = 64
"""How many of the last growths count."""


class TextScale:
    """How many provider tokens there are for one of ours in text that may be spared: better too few than too many.

    What comes with a turn unseen (thinking that is not shown, a reminder, an image) can only add to what the provider
    counts. So it is the turns that grew least for what we saw of them that tell the scale of the text alone.
    """

    def __init__(self) -> None:
        self.scale = 1.0
        self._grown: deque[tuple[float, float]] = deque(maxlen=GROWTHS)
        """Provider tokens for one of ours, and how many of ours."""

    def grew(self, ours: float, theirs: float) -> None:
        """What was added between two requests, as we count it and as the provider does."""
        if ours < TELLING_GROWTH or theirs <= 0:
            return
        self._grown.append((theirs / ours, ours))
        total = sum(ours for _, ours in self._grown)
        if total < BELIEVED_GROWTH:
            return
        below = 0.0
        for scale, tokens in sorted(self._grown):
            below += tokens
            if below >= BELIEVED_SHARE * total:
                self.scale = min(MAX_TEXT_SCALE, scale)
                return


def scale_of(grown: Iterable[tuple[float, float]], usual: float = 1.0) -> float:
    """How much larger than our weighed count a provider finds what it is sent, from all that a log tells.

    Each pair is what was added between two requests, as we weigh it and as the provider counted it. Since all of them
    are known, what is plausible is told by their median: growth that has nothing to do with what we see (an image, a
    cleared result) is left out. `usual` where there is too little to tell.
    """
    from statistics import median  # for those who read logs: it takes as long to import as all the rest

    pairs = list(grown)
    ratios = [theirs / ours for ours, theirs in pairs if ours > UNSEEN_TOKENS]
    if len(ratios) < 3:
        return usual
    rough = median(ratios)
    believed = [pair for pair in pairs if abs(pair[1] - rough * pair[0]) <= max(UNSEEN_TOKENS, 0.3 * rough * pair[0])]
    ours, theirs = (sum(counts) for counts in zip(*believed, strict=True)) if believed else (0.0, 0.0)
    return theirs / ours if ours > UNSEEN_TOKENS and theirs > 0 else usual
