"""Estimate a provider's token count of a request from our own count.

Only OpenAI's tokenizer is public, logs lack system prompts and tools, and every message costs a few extra tokens. So
our count of each part is multiplied by a weight (constants by provider, from recorded usage). If a log has usage, sizes
are fitted to it: a request has the tokens of the last recorded one plus `scale` times our weighted count of the new
part. The scale is fitted per session and model; without usage it is 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..model import Kind, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from .model_versions import ANY, FIRST_CLAUDES, NEVER, Versions, is_version
from .thinking_size import thinking_tokens


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """Provider tokens per token of our count, by kind of content."""

    result: float = 1.0
    call: float = 1.0
    text: float = 1.0
    thinking: float = 1.0
    part: float = 19.0
    """Extra tokens for each call, result or text."""

    def for_kind(self, kind: Kind) -> float:
        """Look up the weight for the kind of text that an edit changes."""
        return {"thinking": self.thinking, "arguments": self.call, "assistant text": self.text}.get(kind, self.result)


_CLAUDE = TokenWeights(1.11, 1.07, 1.05, 1.3, 37.0)

WEIGHTS: dict[str, TokenWeights] = {"anthropic": _CLAUDE, "aws": _CLAUDE, "openai": TokenWeights(part=10.0)}
"""Provider → weights. Providers that are not listed use our encoding, or are unknown."""

OPAQUE_TOKENS: dict[str, float] = {
    **dict.fromkeys(("image", "input_image", "image_url", "inline_data", "inlineData"), 1200.0),
    **{"tool_reference": 650.0, "tool_search_output": 1500.0},
}
"""Kind of a part without text → its usual tokens: an image of medium size, a tool that is loaded by a search."""

FINER_TOKENS = 1.4
"""Provider tokens per weighted token, for models with an encoding of shorter tokens."""

FIRST_FINER: Versions = {
    **{"opus": (4, 7), "mythos": ANY},
    **dict.fromkeys(("sonnet", "haiku", "fable"), (5, 0)),
    **dict.fromkeys(FIRST_CLAUDES, NEVER),
    "claude": ANY,
}
"""First versions with such an encoding."""

Count = Callable[[str], int]


def usual_scale(model: str) -> float:
    """Provider tokens per weighted token of ours, for a model without recorded usage."""
    return FINER_TOKENS if is_version(model, FIRST_FINER, unknown=False) else 1.0


class WeighedMessage(NamedTuple):
    """Weighted token count of a message. Multiply it by the scale to get provider tokens."""

    visible: float
    """Tokens of results, calls and texts, with the extra tokens of each part, and the usual size of parts without
    text."""
    thinking: float = 0.0
    """Tokens of thinking, by its text or by the length of its signature or encrypted content."""

    @property
    def total(self) -> float:
        return self.visible + self.thinking


def weigh_message(message: Message, weights: TokenWeights, count: Count) -> WeighedMessage:
    """Count a message with weights."""
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
    return WeighedMessage(visible, thinking)


def weigh_thinking(part: Thinking, weights: TokenWeights, count: Count) -> float:
    """Estimate the tokens of a thinking part from its text and its encrypted content."""
    return weights.result * thinking_tokens(part, weights.thinking / weights.result * count(part.text))


# ── provider tokens per token of ours ───────────────────────────────────────────────────────────────────────────────

UNSEEN_TOKENS = 300.0
"""Tokens by which content that we do not see, such as a reminder or a new tool, can change a turn."""
PLAUSIBLE_SCALES = (0.6, 2.0)
"""Plausible provider tokens per token of ours for text. Outside, the growth has another cause, such as an image."""
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
    """Sums of squares and products over all plausible growth: of our count, the blocks and the provider's count."""
    _blocks: float = 0.0
    _both: float = 0.0
    _ours_theirs: float = 0.0
    _blocks_theirs: float = 0.0

    def __post_init__(self) -> None:
        self._ours, self._blocks = SCALE_WEIGHT, BLOCK_WEIGHT
        self._ours_theirs, self._blocks_theirs = SCALE_WEIGHT * self.scale, BLOCK_WEIGHT * self.per_block

    def add_growth(self, ours: float, theirs: float, blocks: int = 0) -> None:
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


MIN_GROWTH = 500.0
"""Growth of a request in tokens that is enough to estimate the scale of text."""
MIN_TOTAL_GROWTH = 4000.0
"""Total growth in tokens that is needed for the first estimate."""
SCALE_QUANTILE = 0.25
"""Quantile of the scales, weighted by growth, that is the estimate."""
MAX_TEXT_SCALE = 1.6
"""Upper bound of the estimate."""
GROWTHS = 64
"""Number of last growths in the estimate."""


class TextScale:
    """Low estimate of provider tokens per token of ours, for text that may be removed: savings are not overstated.

    Content that we do not see (hidden thinking, a reminder, an image) only adds to the provider's count. So the turns
    with the lowest ratio of the provider's count to ours have the scale of plain text.
    """

    def __init__(self) -> None:
        self.scale = 1.0
        self._grown: deque[tuple[float, float]] = deque(maxlen=GROWTHS)
        """Provider tokens per token of ours, and our tokens, for each growth."""

    def add_growth(self, ours: float, theirs: float) -> None:
        """Add the growth between two requests, in our count and the provider's."""
        if ours < MIN_GROWTH or theirs <= 0:
            return
        self._grown.append((theirs / ours, ours))
        total = sum(ours for _, ours in self._grown)
        if total < MIN_TOTAL_GROWTH:
            return
        below = 0.0
        for scale, tokens in sorted(self._grown):
            below += tokens
            if below >= SCALE_QUANTILE * total:
                self.scale = min(MAX_TEXT_SCALE, scale)
                return


def estimate_scale(growths: Iterable[tuple[float, float]], usual: float = 1.0) -> float:
    """Estimate provider tokens per weighted token of ours, from all requests of a log.

    Each pair is the growth between two requests, in our weighted count and the provider's. Pairs far from the median
    ratio have another cause, such as an image or a cleared result, and are left out. Returns `usual` with too few
    pairs.
    """
    from statistics import median  # imported here because it is slow, and only log readers need it

    pairs = list(growths)
    ratios = [theirs / ours for ours, theirs in pairs if ours > UNSEEN_TOKENS]
    if len(ratios) < 3:
        return usual
    rough = median(ratios)
    plausible = [pair for pair in pairs if abs(pair[1] - rough * pair[0]) <= max(UNSEEN_TOKENS, 0.3 * rough * pair[0])]
    ours, theirs = (sum(counts) for counts in zip(*plausible, strict=True)) if plausible else (0.0, 0.0)
    return theirs / ours if ours > UNSEEN_TOKENS and theirs > 0 else usual
