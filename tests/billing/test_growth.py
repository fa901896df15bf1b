"""What a provider makes of an answer that is sent back, found out from how requests grew."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.billing.calibration import WeighedMessage
from ibidem.billing.token_fit import Calibration, InputGrowth, Keeping, MeasuredResponse, fit_calibration

SCALE = 1.4


class Provider:
    """Counts as it is told, with a tokenizer of its own, and keeps thinking as long as it is told."""

    def __init__(self, keeping: Keeping, *, output: bool = True, reasoning: bool = False, summary: float = 0.0) -> None:
        self.keeping, self.output, self.reasoning, self.summary = keeping, output, reasoning, summary
        self._standing = 0

    def grown(self, number: int, *, turn: bool) -> InputGrowth:
        """An answer with thinking, and a result or a prompt after it; sizes differ from request to request."""
        visible, rest = 50 + number % 7 * 40, 400 + number % 11 * 150
        thought = 200 + number % 5 * 300 if number % 3 else 0
        said = round(SCALE * visible)
        self._standing += thought
        gone = self._standing if turn and self.keeping == "turn" else 0
        self._standing -= gone
        theirs = said + (0 if self.keeping == "never" else thought) - gone + round(SCALE * rest)
        weighed = WeighedMessage(visible, self.summary * thought / SCALE)
        output = said + thought if self.output else 0
        answer = MeasuredResponse(weighed, output, thought if self.reasoning and self.output else 0, thought > 0)
        return InputGrowth(theirs, answer, rest, turn, number == 0)

    def session(self, length: int = 40, every: int = 8) -> list[InputGrowth]:
        return [self.grown(number, turn=number % every == every - 1) for number in range(length)]


KEEPINGS: tuple[Keeping, ...] = ("kept", "turn", "never")


@pytest.mark.parametrize("reasoning", [False, True], ids=["output alone", "reasoning counted apart"])
@pytest.mark.parametrize("keeping", KEEPINGS)
def test_how_long_thinking_counts_is_seen_in_the_growth(keeping: Keeping, reasoning: bool) -> None:
    grown = Provider(keeping, reasoning=reasoning).session()
    found = fit_calibration(grown)
    assert (found.keeping, found.counted) == (keeping, True)
    assert found.scale == pytest.approx(SCALE, rel=0.02)
    for each, predicted in zip(grown, found.predict_growth(grown), strict=True):
        assert predicted == pytest.approx(each.theirs, abs=40)


def test_thinking_is_the_output_that_is_not_visible() -> None:
    found = fit_calibration(Provider("kept").session())
    visible, thinking = found.response_size(MeasuredResponse(WeighedMessage(100.0), 840, thinks=True))
    assert thinking == pytest.approx(700, abs=10)
    assert visible + thinking == 840


def test_an_answer_that_shows_no_thinking_has_none() -> None:
    """What its output is more than our count of it is our mistake, or its provider's tokenizer."""
    found = Calibration(1.0, counted=True)
    assert found.response_size(MeasuredResponse(WeighedMessage(100.0), 180, thinks=False)) == (180, 0)
    assert found.response_size(MeasuredResponse(WeighedMessage(100.0), 180, thinks=None)) == pytest.approx((100, 80))
    assert found.response_size(MeasuredResponse(WeighedMessage(100.0), 110, thinks=None)) == (
        110,
        0,
    )  # too little to tell


def test_output_below_what_is_visible_is_not_believed() -> None:
    found = Calibration(1.0, counted=True)
    assert found.response_size(MeasuredResponse(WeighedMessage(500.0, 100.0), 8, thinks=True)) == (500, 100)


def test_output_that_says_nothing_is_not_used() -> None:
    """Some logs have the count of an answer's first tokens, or one that goes up and down with nothing."""
    grown = [each._replace(answer=each.answer._replace(output=3000)) for each in Provider("kept").session()]
    assert not fit_calibration(grown).counted


def test_a_summary_counts_as_much_as_the_growth_says() -> None:
    found = fit_calibration(Provider("kept", output=False, summary=0.5).session())
    assert (found.counted, found.keeping) == (False, "kept")
    assert found.thinking == pytest.approx(2.0, rel=0.15)


def test_without_anything_to_go_by_thinking_counts_as_it_stands() -> None:
    assert fit_calibration([]) == Calibration()
    usual = Calibration(1.4, keeping="turn")
    assert fit_calibration([], usual) == usual
    one_turn = Provider("turn").session(3, every=9)
    assert fit_calibration(one_turn).keeping == "kept"


def test_a_jump_that_the_log_lacks_decides_nothing() -> None:
    grown = Provider("kept").session()
    grown[15] = grown[15]._replace(theirs=grown[15].theirs - 50_000)  # cleared without a trace, at a new turn
    grown[20] = grown[20]._replace(theirs=grown[20].theirs + 30_000)
    assert fit_calibration(grown).keeping == "kept"


sizes = st.floats(0, 1e6)
answers = st.builds(
    MeasuredResponse,
    st.builds(WeighedMessage, sizes, sizes),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from([True, False, None]),
)
growths = st.lists(
    st.builds(InputGrowth, st.floats(-1e6, 1e6), answers, sizes, st.booleans(), st.booleans()), max_size=12
)


@given(growths, answers)
def test_no_size_is_negative_and_the_scale_is_one(grown: Sequence[InputGrowth], answer: MeasuredResponse) -> None:
    found = fit_calibration(grown)
    assert found.scale > 0
    assert 1 <= found.thinking <= 6
    visible, thinking = found.response_size(answer)
    assert visible >= 0
    assert thinking >= 0
    if found.uses_output(answer) and found.keeping != "never":
        assert visible + thinking == pytest.approx(answer.output)
