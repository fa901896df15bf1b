"""Fit how a provider counts responses that are sent back: their size, and for how long their thinking counts.

Each request is larger than the previous one by its new messages. A response that is sent back has the size of its
recorded output, including thinking. So output less the visible part is thinking. If thinking stops counting, later
requests are smaller by that amount. One calibration is fitted to all requests of a model in a session: all ways to
count are tried, and the one with the best predictions is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from .calibration import UNSEEN_TOKENS, WeighedMessage, estimate_scale

Keeping = Literal["kept", "turn", "never"]
"""How long thinking counts as input: as long as it is sent, until the user starts a new turn, or never."""

FINAL_SHARE = 0.7
"""Recorded output is used if it is at least this share of our count: some logs have only the count at its start."""

UNTOLD_SHARE = 0.25
"""If a log cannot show thinking, output beyond the visible part counts as thinking above this share of the output."""

MOST_ERROR = 2000.0
"""Maximum error of one request in the fit, in tokens. Larger errors come from content that the log lacks."""

MOST_THINKING = 6.0
"""Maximum tokens of thinking per token of its summary. The minimum is 1."""

LITTLE_SHARE = 0.1
"""Thinking of unknown size is ignored in the fit up to this share of the visible growth."""


class MeasuredResponse(NamedTuple):
    """A response, with our count and the provider's."""

    weighed: WeighedMessage
    output: int = 0
    """Recorded output tokens; 0 if unknown."""
    reasoning: int = 0
    """Output tokens for reasoning, if the provider reports them."""
    thinks: bool | None = False
    """Whether the response has thinking; None if the log cannot show it."""


class InputGrowth(NamedTuple):
    """Growth of the input between two requests."""

    theirs: float
    """Growth in the provider's count."""
    answer: MeasuredResponse
    rest: float
    """Our weighted count of the messages after the response."""
    turn: bool
    """The user started a new turn."""
    first: bool
    """Earlier responses are unknown."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted parameters of a provider's token count for one model."""

    scale: float = 1.0
    """Provider tokens per weighted token of ours."""
    thinking: float = 1.0
    """Additional factor for thinking, whose text can be a summary."""
    counted: bool = False
    """Recorded output is the size of a response that is sent back."""
    keeping: Keeping = "kept"

    def response_size(self, answer: MeasuredResponse) -> WeighedMessage:
        """Estimate the provider tokens of a response during its turn."""
        visible = self.scale * answer.weighed.visible
        thinking = self.scale * self.thinking * answer.weighed.thinking
        if self.uses_output(answer):
            thinking = self._thinking_tokens(answer, visible)
            visible = answer.output - thinking
        return WeighedMessage(visible, 0.0 if self.keeping == "never" else thinking)

    def uses_output(self, answer: MeasuredResponse) -> bool:
        """Whether the recorded output is used as the size of the response."""
        return self.counted and answer.output > 0 and answer.output >= FINAL_SHARE * self.scale * answer.weighed.total

    def _thinking_tokens(self, answer: MeasuredResponse, visible: float) -> float:
        if answer.reasoning:
            return float(min(answer.output, answer.reasoning))
        rest_tokens = max(0.0, answer.output - visible)
        is_thinking = rest_tokens > UNTOLD_SHARE * answer.output if answer.thinks is None else answer.thinks
        return rest_tokens if is_thinking else 0.0

    def predict_growth(self, growths: Sequence[InputGrowth]) -> list[float]:
        """Predict the growth of each request in provider tokens."""
        sizes = []
        turn_thinking = 0.0
        for each in growths:
            visible, thinking = self.response_size(each.answer)
            turn_thinking = thinking + (0.0 if each.first else turn_thinking)
            drop = turn_thinking if each.turn and self.keeping == "turn" else 0.0
            turn_thinking -= drop
            sizes.append(visible + thinking + self.scale * each.rest - drop)
        return sizes


USUAL = Calibration()


def fit_calibration(growths: Sequence[InputGrowth], usual: Calibration = USUAL) -> Calibration:
    """Fit the calibration with the best predictions. Recorded output and the usual `keeping` are preferred, unless
    another choice is better by `UNSEEN_TOKENS`. The usual scale applies to too few requests."""
    counts = (True, False) if any(each.answer.output for each in growths) else (False,)
    whole = estimate_scale([(each.rest + each.answer.weighed.total, each.theirs) for each in growths], usual.scale)
    candidates = [each for counted in counts for each in _fit_candidates(growths, counted, whole)]
    doubts = {each: (each.keeping != usual.keeping) + 2 * (each.counted != counts[0]) for each in candidates}
    return min(candidates, key=lambda each: _prediction_error(each, growths) + doubts[each] * UNSEEN_TOKENS)


def _prediction_error(calibration: Calibration, growths: Sequence[InputGrowth]) -> float:
    pairs = zip(growths, calibration.predict_growth(growths), strict=True)
    return sum(min(MOST_ERROR, abs(each.theirs - predicted)) for each, predicted in pairs)


def _fit_candidates(growths: Sequence[InputGrowth], uses_output: bool, whole: float) -> list[Calibration]:
    """Fit one calibration for each `Keeping`. Without visible thinking and recorded output, all three are equal."""
    ways: tuple[Keeping, ...] = ("kept", "turn", "never")
    has_thinking = any(each.answer.weighed.thinking for each in growths)
    if has_thinking or uses_output:
        keeps, turn, never = (Calibration(whole, 1.0, uses_output, keeping) for keeping in ways)
        first, last = _fit_scales(growths, keeps, has_thinking), _fit_scales(growths, never, has_thinking)
        one_turn = not any(each.turn for each in growths)  # without a second turn, "turn" counts as "kept"
        return [first, replace(first, keeping="turn") if one_turn else _fit_scales(growths, turn, has_thinking), last]
    fit = _fit_scales(growths, Calibration(whole), has_thinking)
    return [replace(fit, keeping=keeping) for keeping in ways]


def _fit_scales(growths: Sequence[InputGrowth], calibration: Calibration, has_thinking: bool) -> Calibration:
    """Fit the scales in two rounds: each improves the estimate of thinking. Its scale needs thinking in the log
    (`has_thinking`)."""
    whole = calibration.scale
    for _ in range(2):
        calibration = replace(calibration, scale=estimate_scale(_visible_growth(calibration, growths), whole))
        if has_thinking:
            calibration = replace(
                calibration,
                thinking=max(1.0, min(MOST_THINKING, estimate_scale(_thinking_growth(calibration, growths)))),
            )
    return calibration


def _visible_growth(calibration: Calibration, growths: Sequence[InputGrowth]) -> Iterator[tuple[float, float]]:
    """Yield growth without recorded output and thinking, in our weighted count and the provider's."""
    for each, prediction in zip(growths, calibration.predict_growth(growths), strict=True):
        ours = each.rest
        if not calibration.uses_output(each.answer):
            ours += each.answer.weighed.visible
            if each.answer.weighed.thinking > LITTLE_SHARE * ours:
                continue
        yield ours, each.theirs - (prediction - calibration.scale * ours)


def _thinking_growth(calibration: Calibration, growths: Sequence[InputGrowth]) -> Iterator[tuple[float, float]]:
    """Yield thinking without a recorded size, in our weighted count and as the rest of the provider's growth."""
    for each, prediction in zip(growths, calibration.predict_growth(growths), strict=True):
        ours = calibration.scale * each.answer.weighed.thinking
        if ours and calibration.keeping != "never" and not calibration.uses_output(each.answer):
            yield ours, each.theirs - (prediction - calibration.thinking * ours)
