"""The verdict in words: what it says in each case, and what it never says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from ibidem.trial.estimates import Estimate
from ibidem.trial.export import verdict_json
from ibidem.trial.outcomes import DroppedSamples, Stratum
from ibidem.trial.trial_statistics import Comparison, TrialStatistics, compute_statistics
from ibidem.trial.verdict import (
    TrialConditions,
    VerdictKind,
    decide_verdict,
    format_p,
    format_signed,
    list_conditions,
    table_rows,
    verdict_lines,
)
from tests.support.reader import FaultyReader

SETTING = TrialConditions(
    model="model-1",
    date="2026-01-02",
    profile="lossless",
    samples=2,
    margin=11.2,
    spent=14.02,
    saved=28.1,
    drops={"refused": DroppedSamples(1, 2), "cut off": DroppedSamples(1, 0)},
    filled=("tools, from their calls",),
    planned=120,
)

NO_STRATA: Mapping[Stratum, Estimate] = MappingProxyType({})


def told(original: float, rewritten: float, value: float, low: float | None, high: float | None) -> Estimate:
    return Estimate(original, rewritten, value, low, high, 120, 1 if low is None else 24, 120.0, None)


def outcome(
    estimate: Estimate | None, p: float | None = 0.4, *, adjusted: bool = True, problem: str = ""
) -> Comparison:
    return Comparison(estimate, estimate, NO_STRATA, p, p if adjusted else None, problem)


LOOKS = told(0.081, 0.089, 0.008, -0.026, 0.042)
AGREEMENT = told(0.71, 0.698, 0.012, -0.024, 0.048)


def judgement(
    looks: Estimate | None = LOOKS, agreement: Estimate | None = AGREEMENT, *, p: tuple[float, float] = (0.4, 0.4)
) -> TrialStatistics:
    rest = outcome(told(0.0, 0.0, 0.0, -0.03, 0.03), adjusted=False)
    one = outcome(agreement, None if agreement is None else p[0], problem="ask more" * (agreement is None))
    return TrialStatistics(one, outcome(looks, p[1]), rest, rest, rest, rest, rest, 1.3, 120, 24, (240, 238), 5)


def test_what_is_said_where_nothing_was_found() -> None:
    assert verdict_lines(judgement(), SETTING) == (
        "No harm was found. Re-reads increase by at most 4.2 per 100 rewritten requests (95 %); "
        "+11.2 would use up the savings.",
        "Re-reads: 8.1 % → 8.9 % (+0.8, 95 % −2.6…+4.2). +11.2 would use up the savings; "
        "at least 62 % of the savings remain.",
        "Same action: A/A 71.0 %, A/B 69.8 % (deficit 1.2, 95 % −2.4…+4.8). No deficit larger than 4.8 points.",
    )


WIDE = replace(LOOKS, low=-0.12, high=0.136)
ONE_SESSION = replace(LOOKS, low=None, high=None, sessions=1)
LOST = told(0.08, 0.28, 0.2, 0.13, 0.27)
DECIDED = told(0.71, 0.75, -0.04, -0.07, -0.01)

CASES = [
    pytest.param(
        judgement(), SETTING, VerdictKind.WITHIN, "No harm was found.", id="nothing found, and the margin excluded"
    ),
    pytest.param(
        judgement(WIDE),
        SETTING,
        VerdictKind.UNSETTLED,
        "but +13.6 re-reads per 100 rewritten requests are not excluded, and +11.2 would use up the savings. "
        "A new trial of about 182 points could settle it.",
        id="the margin not excluded",
    ),
    pytest.param(
        judgement(ONE_SESSION), SETTING, VerdictKind.UNSETTLED, "all points are from one session", id="one session"
    ),
    pytest.param(
        judgement(),
        replace(SETTING, margin=None),
        VerdictKind.UNSETTLED,
        "but the profile has no savings on these sessions. Re-reads increase by at most 4.2",
        id="nothing is saved",
    ),
    pytest.param(
        judgement(p=(0.4, 0.01)),
        SETTING,
        VerdictKind.HARM,
        "Harm found: with rewritten requests text is re-read more often (p = 0.010). "
        "Extra reads cost less than the profile saves.",
        id="reads again more, for less than is saved",
    ),
    pytest.param(
        judgement(p=(0.0001, 0.4)),
        SETTING,
        VerdictKind.HARM,
        "Harm found: with rewritten requests the next action changes more often than by the model's own noise "
        "(p < 0.001).",
        id="acts otherwise",
    ),
    pytest.param(
        judgement(WIDE, p=(0.01, 0.01)), SETTING, VerdictKind.HARM, "not settled.", id="harm whose cost is not settled"
    ),
    pytest.param(
        judgement(LOST, p=(0.4, 0.01)), SETTING, VerdictKind.LOST, "cost more than the profile saves", id="saving lost"
    ),
    pytest.param(
        replace(judgement(), harm=41.7),
        replace(SETTING, stopped=True),
        VerdictKind.HARM,
        "re-read more often (stopped early, e-value 42)",
        id="stopped",
    ),
    pytest.param(judgement(None), SETTING, VerdictKind.NOTHING, "No result: no point has samples", id="no answers"),
    pytest.param(
        judgement(told(0.08, 0.05, -0.03, -0.05, -0.01)),
        SETTING,
        VerdictKind.WITHIN,
        "Text is re-read less often than before (95 %); +11.2 would use up the savings.",
        id="reads less",
    ),
]


@pytest.mark.parametrize(("judged", "setting", "called", "said"), CASES)
def test_the_first_line(judged: TrialStatistics, setting: TrialConditions, called: VerdictKind, said: str) -> None:
    assert decide_verdict(judged, setting) == called
    assert said in verdict_lines(judged, setting)[0]


@pytest.mark.parametrize(
    ("agreement", "p", "said"),
    [
        pytest.param(None, 1.0, "Same action: not tested (ask more).", id="one answer per arm"),
        pytest.param(DECIDED, 1.0, "which is not a gain.", id="more decided"),
        pytest.param(AGREEMENT, 0.01, "More than noise.", id="alarm"),
        pytest.param(ONE_SESSION, 0.5, "(deficit 0.8, one session, so no interval).", id="one session"),
    ],
)
def test_the_line_on_actions(agreement: Estimate | None, p: float, said: str) -> None:
    assert verdict_lines(judgement(agreement=agreement, p=(p, 1.0)), SETTING)[2].endswith(said)


def test_an_alarm_says_where_it_comes_from() -> None:
    """All requests together may well be read less often: harm is where references are."""
    found = compute_statistics(FaultyReader(samples=4, fails=0.3, mixed=True).draw(2), seed=2)
    for line in verdict_lines(found, SETTING)[1:]:
        assert " over all rewritten requests, " in line
        assert " where a reference must be followed." in line


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reader", [FaultyReader(points=40), FaultyReader(points=40, samples=4, fails=0.3, mixed=True)])
def test_it_never_says_that_there_is_none(reader: FaultyReader, seed: int) -> None:
    found = compute_statistics(reader.draw(seed), seed=seed)
    said = json.dumps(verdict_json(found, SETTING), allow_nan=False) + " ".join(row.words for row in table_rows(found))
    assert not [words for words in ("no difference", "identical", "equivalent", "no loss") if words in said.lower()]
    assert "nan" not in said.lower()


def test_all_that_a_reader_needs_is_told() -> None:
    said = dict(list_conditions(judgement(), replace(SETTING, stopped=True)))
    assert said["Points"] == "120 of 120 points planned, of 24 sessions"
    assert said["Samples"] == "2 per variant requested: 240 of A and 238 of B are valid"
    assert said["Dropped"] == "1 cut off (A 1, B 0), 3 refused (A 1, B 2)"
    assert said["Thinking"] == "off in both variants, so not tested"
    assert said["Filled in"] == "tools, from their calls"
    assert (said["Model"], said["Date"], said["Profile"], said["Seed"]) == ("model-1", "2026-01-02", "lossless", "5")
    assert (said["Spent"], said["Saved on these recordings"]) == ("$14.02", "$28.10")
    assert "too large" in said["Stopped"]


def test_a_program_gets_all_of_it() -> None:
    found = compute_statistics(FaultyReader(points=60, mixed=True).draw(1), seed=1)
    given = json.loads(json.dumps(verdict_json(found, SETTING), allow_nan=False))
    assert found.looks.weighted
    assert given["outcomes"]["looks"]["weighted"]["value"] == found.looks.weighted.value
    assert set(given["outcomes"]["looks"]["strata"]) == {"follows", "touches", "any"}
    assert given["outcomes"]["agreement"]["adjusted_p"] == found.agreement.adjusted
    assert given["lines"] == list(verdict_lines(found, SETTING))
    assert (given["setting"]["margin_per_100"], given["setting"]["simulated"]) == (11.2, False)


def test_numbers() -> None:
    assert [format_signed(each) for each in (0.04, -0.04, 0.05, -1234.56)] == ["0.0", "0.0", "+0.1", "−1,234.6"]
    assert [format_p(each) for each in (None, 0.00099, 0.0215, 1.0)] == [
        "p unknown",
        "p < 0.001",
        "p = 0.022",
        "p = 1.000",
    ]
