"""Which requests a report is about; and that the parts of a session add up to it, wherever it is cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem import recordings
from ibidem.recordings import RecordedRequest
from ibidem.report.log_summary import SessionFacts, request_time, summarize_session
from ibidem.report.measure import ReportSettings, measure_session
from ibidem.report.selection import EVERYTHING, RequestFilter, SessionFilter
from ibidem.report.session_result import ProfileOutcome, SessionResult
from tests.recordings.examples import lines
from tests.report.logs import NOON, timed
from tests.report.test_report import TWICE, log
from tests.support.evict import EAGER_PROFILE

ID = "0badcafe-1111-2222-3333-444444444444"
OTHER = "0badcafd-1111-2222-3333-444444444444"

# ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("chosen", "at", "counts"),
    [
        pytest.param(EVERYTHING, 5.0, True, id="everything has a request of any time"),
        pytest.param(EVERYTHING, None, True, id="everything has a request of an unknown time"),
        pytest.param(RequestFilter(since=5), 5.0, True, id="the first moment counts"),
        pytest.param(RequestFilter(since=5), 4.9, False, id="what is before does not"),
        pytest.param(RequestFilter(until=5), 5.0, False, id="the last moment does not count"),
        pytest.param(RequestFilter(until=5), 4.9, True, id="what is before it does"),
        pytest.param(RequestFilter(since=5), None, False, id="an unknown time is in no range that begins"),
        pytest.param(RequestFilter(until=5), None, False, id="an unknown time is in no range that ends"),
        pytest.param(
            RequestFilter(models=("x",)), None, True, id="an unknown time does not matter to a choice by model"
        ),
        pytest.param(RequestFilter(models=("y",)), 5.0, False, id="another model is not asked for"),
        pytest.param(RequestFilter(models=()), 5.0, False, id="no model is no request"),
        pytest.param(RequestFilter(since=-9e9, until=0.0), -5.0, True, id="times before 1970 are times"),
    ],
)
def test_what_counts(chosen: RequestFilter, at: float | None, counts: bool) -> None:
    assert chosen.matches_request(at, "x") is counts


def test_a_request_is_where_its_answer_was_complete() -> None:
    assert request_time(RecordedRequest(1, at=4.0, answered=9.0)) == 9.0
    assert request_time(RecordedRequest(1, at=4.0)) == 4.0
    assert request_time(RecordedRequest(1)) is None
    assert RequestFilter(since=5).matches_recorded(RecordedRequest(1, at=4.0, answered=9.0))


times = st.none() | st.floats(-1e12, 1e12)


@given(st.lists(times), st.floats(-1e12, 1e12))
def test_a_moment_cuts_all_known_times_in_two(every: list[float | None], cut: float) -> None:
    before, after = RequestFilter(until=cut), RequestFilter(since=cut)
    for at in every:
        assert before.matches_request(at, "") + after.matches_request(at, "") == (at is not None)


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────────────

FACTS = SessionFacts("a.jsonl", "claude-code", "anthropic", id=ID, project="/home/me/Shop", models=["claude-opus-4-6"])


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        pytest.param(SessionFilter(), True, id="nothing asked for"),
        pytest.param(SessionFilter(agents=("Claude-Code",)), True, id="its agent, in other letters"),
        pytest.param(SessionFilter(agents=("codex", "claude-code")), True, id="one of several agents"),
        pytest.param(SessionFilter(agents=("claude",)), False, id="half of its agent"),
        pytest.param(SessionFilter(projects=("shop",)), True, id="a part of its project, in other letters"),
        pytest.param(SessionFilter(projects=("bank", "me/")), True, id="one of several projects"),
        pytest.param(SessionFilter(projects=("bank",)), False, id="another project"),
        pytest.param(SessionFilter(session="0BAD"), True, id="the beginning of its id, in other letters"),
        pytest.param(SessionFilter(session=ID), True, id="all of its id"),
        pytest.param(SessionFilter(session="cafe"), False, id="the middle of its id"),
        pytest.param(SessionFilter(agents=("claude-code",), projects=("bank",)), False, id="all of what is asked for"),
        pytest.param(SessionFilter(since=1, until=2), True, id="a time, which is asked of requests"),
    ],
)
def test_what_is_wanted(selection: SessionFilter, wanted: bool) -> None:
    assert selection.matches_session(FACTS) is wanted


def test_a_session_without_a_project_or_an_id_is_none_that_was_named() -> None:
    bare = SessionFacts("a.jsonl", "pi", "anthropic")
    assert SessionFilter().matches_session(bare)
    assert not SessionFilter(projects=("shop",)).matches_session(bare)
    assert not SessionFilter(session="0").matches_session(bare)


def test_words_choose_models_by_parts_of_their_names() -> None:
    several = SessionFacts("a", "pi", "anthropic", models=["claude-opus-4-6", "claude-haiku-4-5", "gpt-5"])
    assert SessionFilter(models=("HAIKU", "gpt")).request_filter(several) == RequestFilter(
        models=("claude-haiku-4-5", "gpt-5")
    )
    assert SessionFilter(models=("gemini",)).request_filter(several) == RequestFilter(models=())
    assert SessionFilter(since=3.0).request_filter(several) == RequestFilter(since=3.0)


def test_what_is_asked_for_is_known() -> None:
    assert SessionFilter().selects_everything
    assert not SessionFilter().has_time_range
    assert SessionFilter(until=0.0).has_time_range
    assert not SessionFilter(session="a").selects_everything


# ── logs that need not be read ──────────────────────────────────────────────────────────────────────────────────────

MAY = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
ROLLOUT = "/home/me/.codex/sessions/2026/05/03/rollout-2026-05-03T10-00-00-{}.jsonl"


@pytest.mark.parametrize(
    ("selection", "path", "written", "agent", "holds"),
    [
        pytest.param(SessionFilter(), "a.jsonl", None, None, True, id="nothing asked for and nothing known"),
        pytest.param(SessionFilter(since=MAY), "a.jsonl", MAY - 1, None, False, id="last written before"),
        pytest.param(SessionFilter(since=MAY), "a.jsonl", MAY, None, True, id="written since"),
        pytest.param(SessionFilter(since=MAY), "a.jsonl", None, None, True, id="written at an unknown time"),
        pytest.param(
            SessionFilter(until=MAY), "a.jsonl", MAY + 9e6, None, True, id="written later may have begun before"
        ),
        pytest.param(SessionFilter(until=MAY), ROLLOUT, MAY, None, False, id="begun later, by its name"),
        pytest.param(
            SessionFilter(until=MAY + 86400), ROLLOUT, MAY, None, True, id="begun a day later, on another clock"
        ),
        pytest.param(SessionFilter(until=MAY), "rollout-2026-13-45T1.jsonl", MAY, None, True, id="a day that is none"),
        pytest.param(SessionFilter(agents=("codex",)), "a", None, "claude-code", False, id="another agent's"),
        pytest.param(SessionFilter(agents=("Codex",)), "a", None, "codex", True, id="the agent's"),
        pytest.param(SessionFilter(agents=("codex",)), "a", None, None, True, id="nobody knows whose"),
        pytest.param(SessionFilter(session="0bad"), f"/p/{ID}.jsonl", None, None, True, id="named after the session"),
        pytest.param(
            SessionFilter(session="0BADCAFE"), f"/p/{ID.upper()}.jsonl", None, None, True, id="in other letters"
        ),
        pytest.param(SessionFilter(session="1"), f"/p/{ID}.jsonl", None, None, False, id="named after another one"),
        pytest.param(
            SessionFilter(session=ID), f"/p/{ID}/subagents/agent-1.jsonl", None, None, True, id="its sub-agent's"
        ),
        pytest.param(
            SessionFilter(session=OTHER), f"/p/{ID}/subagents/agent-1.jsonl", None, None, False, id="another's"
        ),
        pytest.param(SessionFilter(session=ID), rf"C:\p\{OTHER}.jsonl", None, None, False, id="on another machine"),
        pytest.param(SessionFilter(session="x"), "opencode.db", None, None, True, id="named after nothing"),
        pytest.param(SessionFilter(projects=("x",), models=("y",)), "a", None, None, True, id="only reading tells"),
    ],
)
def test_logs_that_can_hold_it(
    selection: SessionFilter, path: str, written: float | None, agent: str | None, holds: bool
) -> None:
    assert selection.may_hold(path, written, agent) is holds


# ── parts add up ────────────────────────────────────────────────────────────────────────────────────────────────────

PROFILES = ("lossless", EAGER_PROFILE, "codetether")


def much() -> bytes:
    """A session in which all profiles find something, and of which the provider forgot twice what it had been sent."""
    data = timed(log(*TWICE, "c.py", "a.py", "d.py", "a.py", prompts=4, thinking=True), NOON)
    rows = [json.loads(line) for line in data.splitlines()]
    for row in [each for each in rows if each["type"] == "assistant"][5::4]:
        used = row["message"]["usage"]
        used["cache_creation_input_tokens"] += used.pop("cache_read_input_tokens")
    return lines(*rows, b"rubbish")


@cache
def part(since: float | None = None, until: float | None = None) -> SessionResult | None:
    """None where nothing counts."""
    [session] = recordings.read("a.jsonl", much())
    found = measure_session(session, ReportSettings(PROFILES), RequestFilter(since, until))
    return found if found.requests else None


ADDED: dict[str, Callable[[SessionResult], float]] = {
    "requests": lambda session: session.requests,
    "cost with nothing done": lambda session: session.baseline.cost,
    "tokens": lambda session: session.baseline.tokens,
    "tokens read": lambda session: session.baseline.read,
    "what was recorded": lambda session: session.recorded.cost if session.recorded else 0.0,
    "requests that have usage": lambda session: session.recorded.requests if session.recorded else 0,
    "what was recorded, as computed": lambda session: session.recorded.baseline if session.recorded else 0.0,
    "thinking": lambda session: session.thinking,
    "results": lambda session: sum(each.count for each in session.tools.values()),
    "tokens of results": lambda session: sum(each.tokens for each in session.files.values()),
    "tokens that were read, as counted": lambda session: session.cached.read if session.cached else 0,
    "misses": lambda session: sum(each.count for each in session.cached.misses.values()) if session.cached else 0,
    "what misses cost": lambda session: (
        sum(each.cost for each in session.cached.misses.values()) if session.cached else 0.0
    ),
    "requests that break a rule": lambda session: session.invalid,
}
OUTCOME: dict[str, Callable[[ProfileOutcome], float]] = {
    "cost": lambda found: found.spent.cost,
    "tokens": lambda found: found.spent.tokens,
    "breaks": lambda found: found.spent.breaks,
    "hits": lambda found: sum(each.hits for each in found.strategies.values()),
    "tokens taken out": lambda found: sum(each.tokens for each in found.strategies.values()),
    "saved, by strategy": lambda found: sum(each.cost for each in found.strategies.values()),
    "saved, by tool": lambda found: sum(each.cost for each in found.tools.values()),
    "hits, by file": lambda found: sum(each.hits for each in found.files.values()),
    "changes of what had been sent": lambda found: sum(found.points.values()),
    "cost after a miss": lambda found: found.worlds["miss"].cost if found.worlds else 0.0,
    "rewrites": lambda found: found.worlds["miss"].rewrites if found.worlds else 0.0,
}


def moments() -> list[float]:
    [session] = recordings.read("a.jsonl", much())
    return [at for at in summarize_session(session).times if at is not None]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.floats(min(moments()) - 100, max(moments()) + 100))
def test_wherever_a_session_is_cut_its_parts_add_up(cut: float) -> None:
    whole, parts = part(), [each for each in (part(until=cut), part(since=cut)) if each]
    assert whole is not None
    for name, number in ADDED.items():
        assert sum(map(number, parts)) == pytest.approx(number(whole), rel=1e-9, abs=1e-12), name
    for profile in PROFILES:
        for name, figure in OUTCOME.items():
            found = sum(figure(each.profiles[profile]) for each in parts)
            assert found == pytest.approx(figure(whole.profiles[profile]), rel=1e-9, abs=1e-12), (profile, name)
    assert [at for each in parts for at in each.times] == whole.times
    for way, costs in whole.costs.items():
        assert [cost for each in parts for cost in each.costs[way]] == pytest.approx(costs)


def test_what_parts_are_made_of_is_not_nothing() -> None:
    whole = part()
    assert whole is not None
    named = {name for name, number in ADDED.items() if number(whole)}
    assert named == {*ADDED} - {"requests that break a rule"}
    for name, figure in OUTCOME.items():
        assert any(figure(whole.profiles[profile]) for profile in PROFILES), name


def test_what_a_part_costs_is_what_it_costs_in_the_whole_conversation() -> None:
    """The second half of a day begins with a history that the cache knows."""
    middle = moments()[6]
    whole, rest = part(), part(since=middle)
    assert whole is not None
    assert rest is not None
    assert rest.costs["nothing done"] == whole.costs["nothing done"][6:]
    assert rest.baseline.peak == whole.baseline.peak


@pytest.mark.parametrize("number", range(4))
def test_models_of_a_session_add_up_too(number: int) -> None:
    data = timed(log(*TWICE, prompts=3), NOON).splitlines(keepends=True)
    mixed = b"".join(
        line.replace(b"claude-opus-4-6", b"claude-haiku-4-5") if place % (number + 2) == 1 else line
        for place, line in enumerate(data)
    )

    def of(models: tuple[str, ...] | None) -> SessionResult:
        [session] = recordings.read("a.jsonl", mixed)
        return measure_session(session, ReportSettings(PROFILES), RequestFilter(models=models))

    whole = of(None)
    parts = [of((model,)) for model in whole.models]
    assert [each.models for each in parts] == [[model] for model in whole.models]
    assert sum(each.baseline.cost for each in parts) == pytest.approx(whole.baseline.cost)
    assert sum(each.requests for each in parts) == whole.requests
