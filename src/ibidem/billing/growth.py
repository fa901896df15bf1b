"""What a provider makes of an answer that is sent back: its size, and for how long its thinking counts.

Recorded requests tell both. A request is larger than the one before by what was added to it, and an answer that is
added has the size that was counted for it as output, thinking included. So output less what is visible of an answer is
its thinking, and whether that is still counted later shows in what is missing when it is not. One calibration is fitted
to all requests of a model in a session: every way in which a provider may count is tried, and the one is taken that
predicts the requests best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from .calibration import UNSEEN_TOKENS, Weighed, scale_of

Keeping = Literal["kept", "turn", "never"]
"""How long thinking counts: as long as it is sent, until the user begins a new turn, or never."""

FINAL_SHARE = 0.7
"""Recorded output is believed from this share of what is visible of the answer on: some logs have its first tokens."""

UNTOLD_SHARE = 0.25
"""Where thinking leaves no trace in a log, output that is not visible is thinking from this share of it on."""

MOST_ERROR = 2000.0
"""Tokens by which a prediction can be wrong for one request: beyond, it is about something that the log lacks."""

MOST_THINKING = 6.0
"""Tokens of thinking for one of its summary, at most; at least 1."""

LITTLE_SHARE = 0.1
"""Thinking of unknown size is little if it is no more of what was added than this."""


class Answer(NamedTuple):
    """An answer, as we count it and as its provider did."""

    weighed: Weighed
    output: int = 0
    """Tokens that were counted for it; 0 where that is not known."""
    reasoning: int = 0
    """Of the output, where they are counted apart."""
    thinks: bool | None = False
    """Whether it holds thinking; None where the log would not show it."""


class Growth(NamedTuple):
    """What was added between two requests."""

    theirs: float
    """As the provider counted it."""
    answer: Answer
    rest: float
    """Our weighed count of what came after the answer."""
    turn: bool
    """The user began a new turn."""
    first: bool
    """Nothing is known of the answers before."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How a model's provider counts."""

    scale: float = 1.0
    """Its tokens for one of ours, weighed."""
    thinking: float = 1.0
    """Further tokens for one of thinking as we count it, which may be a summary."""
    counted: bool = False
    """Recorded output is what an answer costs when it is sent back."""
    keeping: Keeping = "kept"

    def size(self, answer: Answer) -> Weighed:
        """Provider tokens of an answer while its turn lasts."""
        visible = self.scale * answer.weighed.visible
        thinking = self.scale * self.thinking * answer.weighed.thinking
        if self.believes(answer):
            thinking = self._hidden(answer, visible)
            visible = answer.output - thinking
        return Weighed(visible, 0.0 if self.keeping == "never" else thinking)

    def believes(self, answer: Answer) -> bool:
        """Whether the recorded output is the size of the answer."""
        return self.counted and answer.output > 0 and answer.output >= FINAL_SHARE * self.scale * answer.weighed.total

    def _hidden(self, answer: Answer, visible: float) -> float:
        if answer.reasoning:
            return float(min(answer.output, answer.reasoning))
        hidden = max(0.0, answer.output - visible)
        told = hidden > UNTOLD_SHARE * answer.output if answer.thinks is None else answer.thinks
        return hidden if told else 0.0

    def predicted(self, grown: Sequence[Growth]) -> list[float]:
        """By how many tokens each request is larger than the one before."""
        found = []
        standing = 0.0
        for each in grown:
            visible, thinking = self.size(each.answer)
            standing = thinking + (0.0 if each.first else standing)
            gone = standing if each.turn and self.keeping == "turn" else 0.0
            standing -= gone
            found.append(visible + thinking + self.scale * each.rest - gone)
        return found


USUAL = Calibration()


def calibrated(grown: Sequence[Growth], usual: Calibration = USUAL) -> Calibration:
    """The calibration that predicts these best. Recorded output is believed, and thinking counts for as long as is
    usual, unless more speaks against it than what we do not see. The usual scale holds if there is too little."""
    counts = (True, False) if any(each.answer.output for each in grown) else (False,)
    whole = scale_of([(each.rest + each.answer.weighed.total, each.theirs) for each in grown], usual.scale)
    found = [each for counted in counts for each in _fitted(grown, counted, whole)]
    doubts = {each: (each.keeping != usual.keeping) + 2 * (each.counted != counts[0]) for each in found}
    return min(found, key=lambda each: _error(each, grown) + doubts[each] * UNSEEN_TOKENS)


def _error(calibration: Calibration, grown: Sequence[Growth]) -> float:
    pairs = zip(grown, calibration.predicted(grown), strict=True)
    return sum(min(MOST_ERROR, abs(each.theirs - predicted)) for each, predicted in pairs)


def _fitted(grown: Sequence[Growth], counted: bool, whole: float) -> list[Calibration]:
    """For every way to keep thinking. Where none is shown and no output is believed, how it is kept says nothing."""
    ways: tuple[Keeping, ...] = ("kept", "turn", "never")
    shown = any(each.answer.weighed.thinking for each in grown)
    if shown or counted:
        kept, turn, never = (Calibration(whole, 1.0, counted, keeping) for keeping in ways)
        first, last = _fit(grown, kept, shown), _fit(grown, never, shown)
        one_turn = not any(each.turn for each in grown)  # then it is kept either way
        return [first, replace(first, keeping="turn") if one_turn else _fit(grown, turn, shown), last]
    found = _fit(grown, Calibration(whole), shown)
    return [replace(found, keeping=keeping) for keeping in ways]


def _fit(grown: Sequence[Growth], found: Calibration, shown: bool) -> Calibration:
    """Each round knows better which part of an answer is thinking. Unless some is `shown`, there is nothing to scale
    in it."""
    whole = found.scale
    for _ in range(2):
        found = replace(found, scale=scale_of(_unknown(found, grown), whole))
        if shown:
            found = replace(found, thinking=max(1.0, min(MOST_THINKING, scale_of(_summaries(found, grown)))))
    return found


def _unknown(calibration: Calibration, grown: Sequence[Growth]) -> Iterator[tuple[float, float]]:
    """What is added beside recorded output and thinking, as we weigh it and as it was counted."""
    for each, predicted in zip(grown, calibration.predicted(grown), strict=True):
        ours = each.rest
        if not calibration.believes(each.answer):
            ours += each.answer.weighed.visible
            if each.answer.weighed.thinking > LITTLE_SHARE * ours:
                continue
        yield ours, each.theirs - (predicted - calibration.scale * ours)


def _summaries(calibration: Calibration, grown: Sequence[Growth]) -> Iterator[tuple[float, float]]:
    """Thinking whose size was not recorded, as we weigh it and by what remains of the growth."""
    for each, predicted in zip(grown, calibration.predicted(grown), strict=True):
        ours = calibration.scale * each.answer.weighed.thinking
        if ours and calibration.keeping != "never" and not calibration.believes(each.answer):
            yield ours, each.theirs - (predicted - calibration.thinking * ours)
