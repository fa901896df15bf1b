"""Decision points of made-up sessions: their strata, which are picked, and what both arms are."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from ibidem import compact, expand, formats
from ibidem.billing.prices import Prices
from ibidem.errors import IbidemError
from ibidem.recordings import Recording, read
from ibidem.testing import conv
from ibidem.trial.decision_points import (
    MAX_PER_SESSION,
    DecisionPoint,
    SessionSurvey,
    choose_points,
    count_points,
    survey_session,
)
from ibidem.trial.outcomes import Stratum
from ibidem.trial.planning import choose_target, select_surveys
from ibidem.trial.rewritten_histories import rewrite_histories

from .sessions import MODELS, Agent

OLD = "\n".join(f"{n:6}→line {n}: something that is long enough to be referred to" for n in range(1, 61))
NEW = OLD.replace("line 30:", "line thirty:")
NEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "shown": ("Edit", {"file_path": "/a.py", "old_string": "line thirty: something", "new_string": "x"}),
    "left_out": ("Edit", {"file_path": "/a.py", "old_string": "line 50: something", "new_string": "x"}),
    "look": ("Read", {"file_path": "/a.py"}),
    "other": ("Read", {"file_path": "/b.py"}),
    "run": ("Bash", {"command": "pytest -q"}),
}
FIRST = {
    "1": ("Read", {"file_path": "/a.py"}),
    "2": ("Bash", {"command": "make"}),
    "3": ("Read", {"file_path": "/a.py"}),
}


def session(*lines: str) -> Recording:
    body = conv(*lines, calls={**FIRST, **NEXT})
    (found,) = read("log", json.dumps({**body, "model": MODELS["anthropic"]}).encode())
    return found


STRATA: dict[str, tuple[str, Stratum]] = {
    "an edit of a line that only the reference shows": ("left_out", Stratum.FOLLOWS),
    "an edit of a line that is sent": ("shown", Stratum.TOUCHES),
    "another look at the file": ("look", Stratum.TOUCHES),
    "a look at another file": ("other", Stratum.ANY),
    "a command": ("run", Stratum.ANY),
}


@pytest.mark.parametrize(("name", "expected"), STRATA.values(), ids=STRATA)
def test_a_stratum_is_what_the_next_action_has_to_do_with_a_reference(name: str, expected: Stratum) -> None:
    made = session("u:go", "a>1", f"r1:{OLD}", "a>2", "r2:done", "a>3", f"r3:{NEW}", f"a>{name}", f"r{name}:ok", "a:so")
    found = survey_session(made, 0, "lossless")
    assert found.requests == 5  # nothing is left out of the first three, and there is no reference to follow at the end
    assert [(point.length, point.stratum) for point in found.points] == [(7, expected), (9, Stratum.ANY)]


def went(name: str, host: str = "", agent: str = "claude-code") -> SessionSurvey:
    found = survey_session(
        session("u:go", "a>1", f"r1:{OLD}", "a>3", f"r3:{OLD}", "a>run", "rrun:ok", "a:so"), 0, "lossless"
    )
    return replace(found, model=name, host=host, agent=agent)


WENT: dict[str, tuple[SessionSurvey, bool]] = {
    "the provider's own client": (went("claude-sonnet-4-5"), True),
    "recorded on its way there": (went("claude-sonnet-4-5", "api.anthropic.com", "ibidem-recording"), True),
    "recorded on its way elsewhere": (went("claude-sonnet-4-5", "gateway.example"), False),
    "a client of many providers": (went("claude-sonnet-4-5", agent="opencode"), False),
    "a model that the provider does not have": (went("acme-internal-7b"), False),
}


@pytest.mark.parametrize(("known", "asked"), WENT.values(), ids=WENT)
def test_requests_go_where_they_came_from_or_where_they_are_told_to(known: SessionSurvey, asked: bool) -> None:
    own = Prices({known.model: Prices().of("claude-sonnet-4-5", "anthropic")})
    assert choose_target([known], own, None, elsewhere=True).model == known.model
    with nullcontext() if asked else pytest.raises(IbidemError, match=r"--upstream https://api\.anthropic\.com"):
        aim = choose_target([known], own, None, elsewhere=False)
        assert select_surveys([known], aim, is_model_given=False, elsewhere=False) == [known]


def test_what_answers_cost_must_be_known() -> None:
    price = Prices().of("claude-sonnet-4-5", "anthropic")
    free = replace(price, tiers=tuple((start, replace(rates, output=0.0)) for start, rates in price.tiers))
    with pytest.raises(IbidemError, match='add "output" to it'):
        choose_target([went("m")], Prices({"m": free}), None, elsewhere=True)


def test_what_comes_after_is_known_or_it_is_no_point() -> None:
    made = session("u:go", "a>1", f"r1:{OLD}", "a>2", "r2:done", "a>3", f"r3:{OLD}")
    assert survey_session(made, 0, "lossless").points == ()


def surveys(*counts: tuple[int, int, int]) -> list[SessionSurvey]:
    """Sessions with so many points of each stratum."""
    found = []
    for number, each in enumerate(counts):
        names = [name for name, count in zip(Stratum, each, strict=True) for _ in range(count)]
        points = [
            DecisionPoint(
                id=f"{number}.{at}", session=str(number), segment=0, number=at, length=at, stratum=name, recorded=""
            )
            for at, name in enumerate(names)
        ]
        found.append(SessionSurvey(str(number), "", 0, "", "anthropic", "m", 99, tuple(points)))
    return found


def test_half_of_the_points_must_follow_a_reference() -> None:
    every = surveys(*[(6, 20, 90)] * 30, *[(0, 3, 40)] * 30)
    chosen = choose_points(every, 100, seed=3)
    counts = Counter(point.stratum for row in chosen for point in row)
    assert sum(counts.values()) == 100
    assert counts[Stratum.FOLLOWS] == pytest.approx(50, abs=2)
    assert counts[Stratum.TOUCHES] == pytest.approx(25, abs=2)
    assert max(map(len, chosen)) <= MAX_PER_SESSION
    assert len(chosen) <= 30  # few sessions, since each is paid for
    assert all(row == sorted(row, key=lambda point: point.number) for row in chosen)


def test_where_there_are_few_of_one_kind_others_fill_the_place() -> None:
    every = surveys(*[(0, 2, 9)] * 10)
    counts = Counter(point.stratum for row in choose_points(every, 40, seed=0) for point in row)
    assert sum(counts.values()) == 40
    assert counts[Stratum.FOLLOWS] == 0


def test_a_seed_draws_the_same_points_in_whatever_order_logs_are_read() -> None:
    every = surveys(*[(3, 9, 30)] * 40)
    assert (
        choose_points(every, 50, seed=1) == choose_points(every[::-1], 50, seed=1) != choose_points(every, 50, seed=2)
    )


def test_a_longer_session_is_drawn_more_often() -> None:
    """In proportion, so that points of it stand for as many others as points of a short one."""
    every = surveys((4, 4, 4), *[(1, 1, 1)] * 8)
    first = Counter(choose_points(every, 5, seed=seed)[0][0].session for seed in range(300))
    assert first["0"] == pytest.approx(100, abs=30)
    assert count_points(every)[Stratum.ANY] == 12


@pytest.mark.parametrize("format", formats.FORMATS)
def test_both_arms_are_requests_as_they_are_sent(format: str) -> None:
    (recording,) = read("log", Agent("p", 6).log(format))
    key = formats.format_named(format).history_key
    points = survey_session(recording, 0, "lossless").points
    assert {point.stratum for point in points} == set(Stratum)
    wanted = {(point.segment, point.number) for point in points[::3]}
    for place, found in zip(sorted(wanted), rewrite_histories(recording, "lossless", wanted), strict=True):
        body = list(recording.requests())[place[1]].body
        assert found.original == body[key]
        assert found.rewritten == compact(body, format=format).request[key] != found.original
        assert expand({key: found.rewritten}, format=format) == {key: found.original}


def test_a_profile_that_looks_back_is_replayed_up_to_the_point() -> None:
    (recording,) = read("log", Agent("p", 6).log("anthropic"))
    points = survey_session(recording, 0, "recoverable").points
    wanted = {(point.segment, point.number) for point in points[-3:]}
    found = list(rewrite_histories(recording, "recoverable", wanted))
    assert len(found) == len(wanted)
    assert all(each.rewritten != each.original for each in found)
    assert list(rewrite_histories(recording, "recoverable", wanted)) == found
