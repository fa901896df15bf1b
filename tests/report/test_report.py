"""The report: figures of logs that are made up here, their totals, and the ways in which they are shown."""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from rich.cells import cell_len

from ibidem.billing.prices import own_prices
from ibidem.recordings import READERS
from ibidem.render.number_format import dollars, percent, tokens
from ibidem.report.aggregate import NAMED_SESSIONS, Report, add_up
from ibidem.report.export import report_to_dict, write_csv, write_json
from ibidem.report.measure import ReportSettings, measure_log
from ibidem.report.session_result import (
    BilledCheck,
    FileResult,
    ProfileOutcome,
    Removal,
    Scenario,
    SendCost,
    SessionResult,
    ToolResultTotals,
    UnreadFile,
    decode_result,
    encode_result,
)
from ibidem.report.terminal import draw_report
from ibidem.strategies.profiles import PROFILES
from tests.recordings import codex
from tests.recordings.claude_code import OPUS, Script, call, result, text
from tests.recordings.examples import Example, lines

EXAMPLES: list[Example] = [
    example
    for reader in READERS
    for example in importlib.import_module(f"tests.recordings.{reader.agent.replace('-', '_')}").EXAMPLES
]
ALL = tuple(PROFILES)


def content(file: str) -> str:
    """What is in a file: the same whenever it is read."""
    return "\n".join(f"{file} line {n}: value_{n} = compute({n * 7 % 13}, offset={n * n % 97})" for n in range(150))


def log(
    *files: str,
    id: str = "a",
    model: str = OPUS,
    usage: str = "all",
    thinking: bool = False,
    prompts: int = 0,
    project: str = "/home/me/shop",
    known: int = 0,
) -> bytes:
    """A Claude Code session that reads files, one after the other, and is then asked `prompts` times more.

    `usage` is in "all", "some" (every other) or "no" answers. The first `known` answers have the ids of session a's.
    """
    script, rows, sizes = Script(cwd=project), [], [0, 9000]
    thought = [{"type": "thinking", "thinking": "Let me think about that. " * 40, "signature": "s"}] * thinking

    def answer(block: dict[str, Any], grown: int) -> None:
        number = len(sizes) - 2
        row = script.answer(f"msg_{'a' if number < known else id}{number:08}", *thought, block)
        read, size = sizes[-2:]
        used = {"input_tokens": 3, "cache_read_input_tokens": read, "cache_creation_input_tokens": size - read - 3}
        row["message"] |= {"model": model, "usage": {**used, "output_tokens": 9}}
        if usage == "no" or (usage == "some" and number % 2):
            del row["message"]["usage"]
        sizes.append(size + grown)
        rows.append(row)

    rows.append(script.user("Begin"))
    for number, file in enumerate(files):
        answer(call(f"t{number}", file), 5000)
        rows.append(script.user([result(f"t{number}", content(file))]))
    answer(text("Done"), 60)
    for number in range(prompts):
        rows.append(script.user(f"And what about point {number}?"))
        answer(text("That is fine"), 60)
    return lines(*rows)


TWICE = ("a.py", "b.py", "a.py")


def session(data: bytes, *profiles: str, **settings: Any) -> SessionResult:
    [found] = measure_log("some.jsonl", data, ReportSettings(profiles or ("lossless",), **settings)).sessions
    return found


def report(*logs: bytes, profiles: Sequence[str] = ("lossless",)) -> Report:
    settings = ReportSettings(tuple(profiles))
    files = [measure_log(f"/logs/{number}.jsonl", data, settings) for number, data in enumerate(logs)]
    return add_up(profiles, files, lambda _: None)


# ── one log ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_is_read_twice_is_paid_once() -> None:
    found = session(log(*TWICE, prompts=2))
    outcome = found.profiles["lossless"]
    assert (found.path, found.agent, found.project) == ("some.jsonl", "claude-code", "/home/me/shop")
    assert (found.model, found.models, found.priced_as) == (OPUS, [OPUS], {})
    assert (found.requests, found.restarts, found.skipped, found.invalid) == (6, {}, [], 0)
    assert 0.5 * found.baseline.cost < outcome.spent.cost < 0.95 * found.baseline.cost
    assert outcome.spent.tokens < found.baseline.tokens
    assert outcome.spent.peak < found.baseline.peak
    assert (outcome.worst, outcome.spent.breaks, outcome.law_failures, outcome.failures) == (0, 0, 0, [])
    assert outcome.strategies.keys() == {"dedup"}
    assert outcome.strategies["dedup"].hits == 1


def test_a_file_that_is_read_once_is_left_alone() -> None:
    found = session(log("a.py", "b.py"))
    assert found.profiles["lossless"] == ProfileOutcome(found.baseline, restored=1)


def test_what_was_saved_is_told_by_tool_and_by_file() -> None:
    found = session(log(*TWICE))
    outcome = found.profiles["lossless"]
    assert {name: each.count for name, each in found.tools.items()} == {"Read": 3}
    assert {name: each.count for name, each in found.files.items()} == {"a.py": 2, "b.py": 1}
    assert outcome.tools == {"Read": outcome.strategies["dedup"]}
    assert outcome.files == {"a.py": outcome.strategies["dedup"]}
    assert 0.9 * found.files["a.py"].tokens / 2 < outcome.files["a.py"].tokens < found.files["a.py"].tokens / 2


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("thinking", [False, True], ids=["without thinking", "with thinking"])
@pytest.mark.parametrize("usage", ["all", "some", "no"])
def test_the_parts_add_up(profile: str, thinking: bool, usage: str) -> None:
    found = session(log(*TWICE, "c.py", "a.py", prompts=3, usage=usage, thinking=thinking), profile)
    outcome = found.profiles[profile]
    saved = found.baseline.cost - outcome.spent.cost
    assert sum(each.cost for each in outcome.strategies.values()) == pytest.approx(saved, rel=1e-9)
    by_tool = sum(each.cost for each in outcome.tools.values())
    elsewhere = outcome.strategies.get("thinking", Removal()).cost
    assert by_tool + elsewhere == pytest.approx(saved, rel=1e-9)
    assert outcome.law_failures == 0


def test_arrival_edits_are_never_dearer_and_never_break_the_cache() -> None:
    found = session(log(*TWICE, "a.py", prompts=3, thinking=True), "lossless", "devboy")
    for outcome in found.profiles.values():
        assert (outcome.worst, outcome.spent.breaks) == (0, 0)
        assert outcome.spent.cost < found.baseline.cost


def test_a_profile_that_revises_breaks_the_cache() -> None:
    found = session(log("a.py", "b.py", prompts=4, thinking=True), "codetether")
    outcome = found.profiles["codetether"]
    assert outcome.strategies["thinking"].hits >= 2
    assert outcome.spent.breaks >= 2
    assert outcome.spent.tokens < found.baseline.tokens
    assert outcome.spent.cost > found.baseline.cost
    assert outcome.worst >= outcome.spent.cost / found.baseline.cost - 1 > 0
    assert outcome.strategies["thinking"].cost < 0


def test_several_profiles_are_compared_with_the_same_baseline() -> None:
    together = session(log(*TWICE, thinking=True), *ALL)
    assert tuple(together.profiles) == ALL
    for profile in ALL:
        alone = session(log(*TWICE, thinking=True), profile)
        assert (alone.baseline, alone.profiles[profile]) == (together.baseline, together.profiles[profile])


def test_figures_that_were_stored_are_the_same_figures() -> None:
    found = measure_log("some.jsonl", log(*TWICE, model="house-model-7") + b"rubbish\n", ReportSettings(ALL))
    assert decode_result(encode_result(found)) == found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.agent}: {example.name}")
def test_every_log_that_can_be_read_can_be_assessed(example: Example) -> None:
    found = measure_log("some.log", example.data, ReportSettings(ALL))
    assert (found.unread, found.size) == ([], len(example.data))
    assert [each.requests for each in found.sessions] == [sum(map(len, each)) for each in example.lengths]
    assert bool(sum(each.invalid for each in found.sessions)) == example.invalid
    for each in found.sessions:
        assert (each.profiles["lossless"].worst, each.profiles["lossless"].law_failures) == (0, 0)
        assert example.invalid or not any(outcome.law_failures for outcome in each.profiles.values())
        assert each.baseline.cost > 0
    json.dumps(report_to_dict(add_up(ALL, [found], lambda _: None)), allow_nan=False)


# ── what is recorded ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_recorded_bill_is_added_up_by_hand() -> None:
    found = session(log("a.py"))
    first, second = 9000, 14_000
    dollars_ = (3 * 5 + (first - 3) * 6.25) + (3 * 5 + first * 0.5 + (second - first - 3) * 6.25)
    assert found.recorded is not None
    assert found.recorded.cost == pytest.approx(dollars_ / 1e6)
    assert found.recorded.requests == 2
    assert found.recorded.baseline == pytest.approx(found.baseline.cost)


def test_without_usage_there_is_no_recorded_bill() -> None:
    found = session(log(*TWICE, usage="no"))
    assert found.recorded is None
    assert found.baseline.cost > found.profiles["lossless"].spent.cost > 0
    total = report(log(*TWICE, usage="no")).total
    assert (total.recorded, total.errors, total.error, total.error_at(0.5)) == (None, [], None, None)


def test_usage_in_some_answers_is_a_bill_for_these() -> None:
    whole, part = session(log(*TWICE)), session(log(*TWICE, usage="some"))
    assert whole.recorded is not None
    assert part.recorded is not None
    assert (whole.recorded.requests, part.recorded.requests) == (4, 2)
    assert part.recorded.cost < whole.recorded.cost
    assert part.recorded.baseline < part.baseline.cost


def test_the_error_is_that_of_the_baseline_against_the_recorded_bill() -> None:
    found = report(log(*TWICE), log("a.py"), log("a.py", usage="no"))
    recorded = [each.recorded for each in found.sessions if each.recorded]
    assert len(recorded) == 2
    assert found.total.error == pytest.approx(sum(r.baseline for r in recorded) / sum(r.cost for r in recorded) - 1)
    assert found.total.errors == pytest.approx([r.baseline / r.cost - 1 for r in recorded])


def test_a_model_that_costs_nothing_has_a_recorded_bill_of_nothing() -> None:
    own = own_prices('{"house-model-7": {"input": 0}}', "p.json")
    data = log(*TWICE, model="house-model-7")
    files = [measure_log("1.jsonl", data, ReportSettings(prices=own))]
    exported = report_to_dict(add_up(("lossless",), files, lambda _: None))
    assert exported["sessions"][0]["recorded"]["cost"] == 0
    assert exported["totals"]["recorded"]["cost"] == 0


# ── what is odd about a log ─────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_model_is_priced_as_another() -> None:
    found = session(log(*TWICE, model="house-model-7"))
    assert (found.model, found.priced_as) == ("house-model-7", {"house-model-7": "claude-sonnet-4-5"})
    assert found.baseline == session(log(*TWICE, model="claude-sonnet-4-5")).baseline
    own = own_prices('{"house-model-7": {"input": 1}}', "p.json")
    assert session(log(*TWICE, model="house-model-7"), prices=own).priced_as == {}
    as_one = session(log(*TWICE, model="house-model-7"), model="claude-sonnet-4-5")
    assert (as_one.model, as_one.priced_as, as_one.baseline) == ("house-model-7", {}, found.baseline)


def test_lines_that_cannot_be_used_are_counted_and_named() -> None:
    good = log(*TWICE)
    found = session(good + b'{"parentUuid": "u1", "type": "assis\n' + b"[]\n")
    assert [line for line, _ in found.skipped] == [good.count(b"\n") + 1, good.count(b"\n") + 2]
    assert found.baseline == session(good).baseline


def test_requests_that_break_a_rule_are_counted_by_rule_and_those_that_the_provider_took() -> None:
    """Reasoning with nothing behind it spoils every request from then on, not those before; the first was counted."""
    found = session(codex.interrupted())
    assert (found.requests, found.invalid, found.accepted) == (4, 2, 1)
    assert found.violations == {"reasoning-before-its-item": 2}


def test_the_parts_add_up_where_nothing_but_a_break_is_paid() -> None:
    """A call whose result comes late is repaired at first, and then it is not: no token less, but a break."""
    late: list[dict[str, Any]] = [{"role": "user", "content": "Begin"}]
    late += [{"role": "assistant", "content": [text("I look"), call("t1")]}]
    later = [*late, {"role": "user", "content": [result("t1")]}]
    bodies = [{"model": OPUS, "system": "s" * 9000, "messages": each} for each in (late, later)]
    found = session(lines(*bodies), "codetether")
    outcome = found.profiles["codetether"]
    saved = found.baseline.cost - outcome.spent.cost
    assert sum(each.cost for each in outcome.strategies.values()) == pytest.approx(saved, rel=1e-9)


def test_restarts_are_counted_by_cause() -> None:
    [example] = [each for each in EXAMPLES if each.agent == "codex" and "compactions" in each.name]
    assert session(example.data).restarts == {"compaction": 2}


def test_a_file_that_is_no_log_is_named_with_the_reason() -> None:
    found = measure_log("notes.json", b'{"a": 1}', ReportSettings())
    assert found.sessions == []
    [unread] = found.unread
    assert (unread.path, found.size) == ("notes.json", 8)
    assert unread.why.startswith("not a log of an agent that is known here")


def test_answers_that_are_known_are_not_counted_again() -> None:
    """Their history stays: it was sent again."""
    data = log(*TWICE, prompts=1)
    [whole] = measure_log("a.jsonl", data, ReportSettings()).sessions
    known = frozenset(f"msg_a{n:08}" for n in range(3))
    [rest] = measure_log("a.jsonl", data, ReportSettings(), known).sessions
    assert (whole.requests, rest.requests) == (5, 2)
    assert rest.baseline.peak == pytest.approx(whole.baseline.peak, rel=0.01)
    assert rest.baseline.cost < whole.baseline.cost
    every = frozenset(f"msg_a{n:08}" for n in range(5))
    assert measure_log("a.jsonl", data, ReportSettings(), every).sessions == []


Rows = list[dict[str, Any]]


def every(rows: Rows, **fields: Any) -> None:
    for row in rows:
        row |= fields


def first_answer(rows: Rows, **fields: Any) -> None:
    rows[1]["message"] |= fields


def sub_agent(name: Any) -> Rows:
    script = Script(isSidechain=True, agentId=name)
    return [script.user("Search"), script.answer("msg_sub00000000", text("Found"))]


SOUND = [
    pytest.param(lambda rows: every(rows, cwd="/home/\ud800"), id="a project that is no text"),
    pytest.param(lambda rows: first_answer(rows, model="\ud800"), id="a model that is no text"),
    pytest.param(lambda rows: first_answer(rows, usage=[]), id="usage that is none"),
    pytest.param(lambda rows: first_answer(rows, usage={"input_tokens": "many"}), id="usage in words"),
    pytest.param(lambda rows: first_answer(rows, usage={"input_tokens": -5}), id="usage below zero"),
    pytest.param(lambda rows: first_answer(rows, usage={"input_tokens": 0.5}), id="usage of half a token"),
    pytest.param(lambda rows: first_answer(rows, content=7), id="an answer that is a number"),
    pytest.param(lambda rows: first_answer(rows, content=[7]), id="an answer with a number in it"),
    pytest.param(lambda rows: every(rows, timestamp="9999-99-99"), id="times that are none"),
    pytest.param(lambda rows: every(rows, timestamp="0001-01-01T00:00:00Z"), id="times before all others"),
    pytest.param(lambda rows: every(rows, parentUuid=[7]), id="lines that hang below a list"),
    pytest.param(lambda rows: every(rows, isSidechain="yes", agentId=["x"]), id="agents that are a list"),
    pytest.param(
        lambda rows: every(rows, timestamp=10**17),
        id="times of a far year",
    ),
    pytest.param(
        lambda rows: every(rows, timestamp=10**400),
        id="times of 401 digits",
    ),
    pytest.param(
        lambda rows: first_answer(rows, model=7),
        id="a model that is a number",
    ),
    pytest.param(
        lambda rows: first_answer(rows, model=["x"]),
        id="a model that is a list",
    ),
    pytest.param(
        lambda rows: first_answer(rows, usage={"input_tokens": 10**400}),
        id="usage of 401 digits",
    ),
    pytest.param(
        lambda rows: every(rows[1:2], uuid=["x"]),
        id="a line whose name is a list",
    ),
]


@pytest.mark.parametrize("spoil", SOUND)
def test_odd_values_in_a_log_are_no_fault_of_ours(spoil: Any) -> None:
    rows = [json.loads(line) for line in log(*TWICE).splitlines()]
    spoil(rows)
    found = measure_log("odd.jsonl", lines(*rows), ReportSettings(ALL))
    assert found.sessions or found.unread
    json.dumps(report_to_dict(add_up(ALL, [found], lambda _: None)), allow_nan=False)


TAKES_ALL = [
    pytest.param(
        lambda rows: every(rows, cwd=7),
        id="a project that is a number",
    ),
    pytest.param(
        lambda rows: every(rows, cwd=["x"]),
        id="a project that is a list",
    ),
    pytest.param(
        lambda rows: rows.extend(sub_agent(7)),
        id="an agent whose name is a number",
    ),
    pytest.param(
        lambda rows: first_answer(rows, usage={"input_tokens": 1e308, "cache_read_input_tokens": 1e308}),
        id="usage beyond all numbers",
    ),
]


@pytest.mark.parametrize("spoil", TAKES_ALL)
def test_an_odd_log_does_not_take_the_others_with_it(spoil: Any) -> None:
    rows = [json.loads(line) for line in log(*TWICE, id="b").splitlines()]
    spoil(rows)
    found = report(log(*TWICE), lines(*rows))
    assert exported(found)["sessions"][0] == exported(report(log(*TWICE)))["sessions"][0]
    assert table(found)[1] == table(report(log(*TWICE)))[1]
    assert "claude-code" in shown(found, 80) or "Read" in shown(found, 80)


# ── totals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def figures(number: int, saved: float = 0.1, **fields: Any) -> SessionResult:
    """A session that costs a dollar, and under a profile so much less."""
    known: dict[str, Any] = {
        "path": f"/logs/{number:03}.jsonl",
        "agent": "claude-code",
        "name": "",
        "project": "/home/me/shop",
        "model": OPUS,
        "models": [OPUS],
        "priced_as": {},
        "started": None,
        "requests": 10,
        "restarts": {},
        "skipped": [],
        "invalid": 0,
        "violations": {},
        "baseline": SendCost(1.0, 1e6, 9e5, 2e5),
        "recorded": BilledCheck(1.25, 10, 1.0, 1.0),
        "profiles": {"lossless": ProfileOutcome(SendCost(1.0 - saved, 9e5, 8e5, 1e5), worst=max(0.0, -saved))},
        "tools": {"Read": ToolResultTotals(5, 1000.0)},
        "files": {"a.py": ToolResultTotals(2, 400.0)},
    }
    return SessionResult(**(known | fields))


def added_up(
    *sessions: SessionResult, profiles: Sequence[str] = ("lossless",), unread: Sequence[UnreadFile] = ()
) -> Report:
    files = [FileResult([each], size=1000) for each in sessions] + [FileResult(unread=[each]) for each in unread]
    return add_up(profiles, files, lambda _: None)


@pytest.mark.parametrize("number", [0, 1, 2, 5, 6, 7, 10, 12, 30])
def test_no_session_is_among_the_best_and_the_worst(number: int) -> None:
    shares = [(n * 7 % number) / (number + 1) for n in range(number)]
    found = added_up(*(figures(n, share) for n, share in enumerate(shares)))
    best, worst = found.extremes("lossless")
    paths = [each.path for each in (*best, *worst)]
    assert len(paths) == len(set(paths)) == min(number, 2 * NAMED_SESSIONS)
    saved = [1 - each.profiles["lossless"].spent.cost for each in (*best, *worst[::-1])]
    assert saved == sorted(saved, reverse=True)
    if number:
        assert best[0].profiles["lossless"].spent.cost == min(1 - share for share in shares)


def test_groups_are_told_apart_by_agent_and_project() -> None:
    found = added_up(
        figures(1, 0.5),
        figures(2, -0.5, project="/home/me/till"),
        figures(3, 0.0, agent="codex", project=""),
        figures(4, 0.2, agent="codex"),
    )
    agents, by_project = found.groups("agent"), found.groups("project")
    assert {name: len(row.replayed) for name, row in agents.items()} == {"claude-code": 2, "codex": 2}
    projects = {"/home/me/shop": 2, "/home/me/till": 1, "(unknown)": 1}
    assert {name: len(row.replayed) for name, row in by_project.items()} == projects
    for groups in (agents, by_project):
        for field in ("cost", "tokens", "read", "breaks"):
            total = sum(getattr(group.baseline, field) for group in groups.values())
            assert total == pytest.approx(getattr(found.total.baseline, field))
        costs = [group.profiles["lossless"].spent.cost for group in groups.values()]
        assert sum(costs) == pytest.approx(found.total.profiles["lossless"].spent.cost)
    assert found.total.baseline.peak == 2e5
    assert found.total.profile_share("lossless") == pytest.approx(0.05)
    assert (found.total.more_expensive("lossless"), found.total.profiles["lossless"].worst) == (1, 0.5)


def test_totals_do_not_depend_on_the_order_of_the_files() -> None:
    some = [figures(n, n / 10, agent="codex" if n % 2 else "pi") for n in range(6)]
    one, other = added_up(*some), added_up(*reversed(some))
    assert report_to_dict(one) == report_to_dict(other)
    assert [each.path for each in one.sessions] == sorted(each.path for each in some)


def test_tools_and_files_are_added_up_over_sessions() -> None:
    found = report(log(*TWICE), log("a.py", "a.py", id="b"))
    assert (found.tools["Read"].results.count, found.files["a.py"].results.count) == (5, 4)
    saved = found.tools["Read"].profiles["lossless"]
    by_session = [each.profiles["lossless"].strategies["dedup"] for each in found.sessions]
    assert saved.hits == sum(each.hits for each in by_session) == 2
    assert saved.cost == pytest.approx(sum(each.cost for each in by_session))


ERRORS = {
    "one session": ([0.1], 0.1, 0.1),
    "two, of either sign": ([-0.2, 0.1], 0.15, 0.2),
    "ten": ([n / 100 for n in range(10)], 0.045, 0.09),
    "eleven, the worst left out": ([n / 100 for n in range(11)], 0.05, 0.09),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_by_session(case: str) -> None:
    errors, half, most = ERRORS[case]
    found = added_up(*(figures(n, recorded=BilledCheck(1.0, 10, 1 + each, 1.0)) for n, each in enumerate(errors)))
    assert found.total.error_at(0.5) == pytest.approx(half)
    assert found.total.error_at(0.9) == pytest.approx(most)


def test_a_report_about_nothing_is_a_report() -> None:
    found = added_up(unread=[UnreadFile("a.json", "empty")])
    assert (found.files_read, len(found.total.replayed), found.extremes("lossless")) == (1, 0, ([], []))
    assert exported(found)["totals"]["baseline"]["cost"] == 0
    assert "Not read: a.json: empty" in shown(found, 80)
    assert len(table(found)) == 1


# ── what changing it again costs ────────────────────────────────────────────────────────────────────────────────────

MANY = tuple(file for letter in "bcdefghijklmnopqrstuvwxyz" for file in ("a.py", f"{letter}.py"))
OWN = own_prices(json.dumps({OPUS: {"input": 5, "read": 0.5, "write": 5}}), "p.json")
"""Writing costs nothing extra, so that there are moments when a change pays."""


def changed(*profiles: str, optimum: bool = False) -> Report:
    """Two sessions: in the long one something goes; the short one ends before."""
    settings = ReportSettings(profiles, prices=OWN, optimum=optimum)
    logs = (log(*MANY, prompts=60), log(*TWICE, id="b"))
    return add_up(profiles, [measure_log(f"/{n}.jsonl", each, settings) for n, each in enumerate(logs)], lambda _: None)


def test_what_was_written_again_is_stated_and_so_is_what_a_miss_would_cost() -> None:
    total = changed("aggressive").total
    found, scenarios = total.profiles["aggressive"], total.scenarios["aggressive"]
    hit, miss = scenarios["hit"], scenarios["miss"]
    assert found.points["it pays"] == found.spent.breaks > 0
    assert hit.cost == found.spent.cost <= miss.cost
    assert 0 < hit.rewrites <= miss.rewrites
    assert miss.cost - hit.cost == pytest.approx(miss.rewrites - hit.rewrites)
    assert (hit.best, hit.reached(1.0)) == (None, None)


def gone_back(data: bytes, times: int) -> bytes:
    """A log at whose end the user goes back to the first of the last prompts, again and again."""
    rows = [json.loads(line) for line in data.split(b"\n") if line]
    back = next(row["uuid"] for row in rows if row["message"]["content"] == [text("Done")])
    asked, answered = rows[-2:]
    for number in range(times):
        rows.append({**asked, "uuid": f"asked {number}", "parentUuid": back})
        message = {**answered["message"], "id": f"msg_back{number}"}
        rows.append({**answered, "uuid": f"answer {number}", "parentUuid": f"asked {number}", "message": message})
    return lines(*rows)


@pytest.mark.parametrize("profile", ["lossless", "recoverable", "aggressive"])
def test_a_text_is_taken_out_once_however_often_the_user_goes_back(profile: str) -> None:
    found = session(gone_back(log(*MANY, prompts=60), 5), profile, prices=OWN)
    assert found.restarts == {"rewind": 5}
    outcome = found.profiles[profile]
    assert 0 < outcome.tools["Read"].tokens <= found.tools["Read"].tokens
    assert all(saved.tokens <= found.files[name].tokens for name, saved in outcome.files.items())


def test_the_dearest_session_is_named_with_its_share() -> None:
    found = changed("aggressive", "codetether")
    assert [*found.total.scenarios] == ["aggressive", "codetether"]
    for profile, scenarios in found.total.scenarios.items():
        for name, scenario in scenarios.items():
            shares = {
                each.path: each.profiles[profile].worlds[name].cost / each.baseline.cost for each in found.sessions
            }
            assert scenario.highest is not None
            assert (scenario.highest.path, scenario.ratio) == max(shares.items(), key=lambda item: item[1])
    assert found.total.scenarios["aggressive"]["miss"].worst_in is None


def test_the_terminal_says_which_session_is_dearest_on_a_miss() -> None:
    def costing(number: int, hit: float, miss: float) -> SessionResult:
        worlds = {"hit": Scenario(hit, 0.1, 0.0), "miss": Scenario(miss, 0.1, 0.0)}
        outcome = ProfileOutcome(SendCost(hit, 9e5, 8e5, 1e5, 1), points={"it pays": 1}, worlds=worlds)
        return figures(number, profiles={"recoverable": outcome})

    page = shown(added_up(costing(1, 0.9, 0.9), costing(2, 0.8, 0.95), profiles=("recoverable",)), 80)
    assert "recoverable: worst is /logs/001.jsonl.\nrecoverable: worst on a miss is /logs/002.jsonl.\n" in page


def test_a_profile_that_was_dearer_names_the_session_of_its_worst_moment() -> None:
    files = [measure_log("/a.jsonl", log("a.py", "b.py", prompts=4, thinking=True), ReportSettings(("codetether",)))]
    world = add_up(("codetether",), files, lambda _: None).total.scenarios["codetether"]["hit"]
    assert world.worst_in is not None
    assert (world.worst_in.path, world.more_expensive) == ("/a.jsonl", 1)
    assert world.worst >= world.ratio - 1 > 0


def test_in_hindsight_no_less_is_saved() -> None:
    found = changed("recoverable", "aggressive", optimum=True)
    base = found.total.baseline.cost
    for scenarios in found.total.scenarios.values():
        for world in scenarios.values():
            assert world.best is not None
            assert world.best <= world.cost
            assert 0 < (world.reached(base) or 0.0) <= 1
    best = found.total.scenarios["aggressive"]["hit"].best
    assert (best or 0.0) < found.total.profiles["aggressive"].spent.cost


def test_profiles_that_change_nothing_again_have_nothing_of_this() -> None:
    settings = ReportSettings(("lossless", "devboy"), optimum=True)
    found = add_up(settings.profiles, [measure_log("/a.jsonl", log(*TWICE), settings)], lambda _: None)
    assert found.total.scenarios == {}
    assert all(each["worlds"] == {} for each in exported(found)["totals"]["profiles"].values())
    assert not [column for column in table(found)[0] if "miss" in column or "rewrites" in column]
    page = shown(found, 80)
    assert not [word for word in ("rewrites", "optimum", "dearest", "on a miss") if word in page]


def test_a_profile_that_found_nothing_to_change_says_nothing_of_it() -> None:
    page = shown(report(log(*TWICE), profiles=("lossless", "recoverable", "codetether")), 80)
    assert not [word for word in ("rewrites", "dearest", "on a miss") if word in page]


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_says_what_changing_it_again_costs(width: int) -> None:
    found = changed("recoverable", "aggressive", optimum=True)
    page = shown(found, width)
    assert all(cell_len(line) <= width for line in page.splitlines())
    rows = [line.split() for line in page.splitlines() if line.startswith(("recoverable  ", "aggressive  ", "  on a"))]
    assert len(rows) == 2 + 4  # two in the table of all bills
    world = found.total.scenarios["aggressive"]["miss"]
    base = found.total.baseline.cost
    saved, best = (percent(1 - cost / base) for cost in (world.cost, world.best or 0.0))
    cells = (dollars(world.cost), saved, dollars(world.rewrites), best, percent(world.reached(base)))
    assert rows[-1] == ["on", "a", "miss", *cells, percent(world.ratio), "0.0%"]
    assert "aggressive: worst is s1 “Begin”." in page
    assert "optimum" not in shown(changed("lossless", "recoverable"), width)


def test_the_optimum_is_exported() -> None:
    found = changed("lossless", "aggressive", optimum=True)
    world = found.total.scenarios["aggressive"]["miss"]
    told = exported(found)["totals"]["profiles"]["aggressive"]["worlds"]["miss"]["optimum"]
    assert told.keys() == {"cost", "saved", "saved_share", "reached"}
    assert (told["cost"], told["reached"]) == (world.best, world.reached(found.total.baseline.cost))
    head, *rows = table(found)
    costs = [dict(zip(head, row, strict=True)) for row in rows]
    assert sum(float(row["aggressive_miss_optimum_cost"]) for row in costs) == pytest.approx(world.best)
    assert sum(float(row["aggressive_miss_cost"]) for row in costs) == pytest.approx(world.cost)
    assert sum(float(row["aggressive_miss_rewrites"]) for row in costs) == pytest.approx(world.rewrites)
    assert "aggressive_optimum_cost" not in table(changed("aggressive"))[0]


# ── JSON and CSV ────────────────────────────────────────────────────────────────────────────────────────────────────


def refuse(word: str) -> None:
    pytest.fail(f"{word} is no JSON")


def exported(found: Report) -> dict[str, Any]:
    stream = io.StringIO()
    write_json(found, stream)
    value: dict[str, Any] = json.loads(stream.getvalue(), parse_constant=refuse)
    return value


def table(found: Report) -> list[list[str]]:
    stream = io.StringIO(newline="")
    write_csv(found, stream)
    return list(csv.reader(io.StringIO(stream.getvalue(), newline="")))


SPENT = {"cost", "tokens", "read", "peak", "breaks"}
RECORDED = {"cost", "requests", "baseline", "by_rule", "error"}
COMPARED = SPENT | {
    "saved",
    "saved_share",
    "saved_share_of_total",
    "worst",
    "law_failures",
    "restored_requests",
    "need",
    "net_saved",
    "net_saved_share",
    "net_saved_share_of_total",
    "points",
    "strategies",
    "worlds",
}
WORLD = {"cost", "saved", "rewrites"}
GROUP = {"sessions", "requests", "baseline", "thinking", "recorded", "profiles", "cached", "caching"}
SESSION = {
    *("path", "agent", "name", "project", "model", "models", "priced_as", "started", "requests", "restarts"),
    *("law_failures", "baseline", "thinking", "recorded", "profiles", "skipped_lines", "violations"),
    *("invalid_requests", "invalid_requests_counted", "cached", "caching", "id", "title", "paid"),
}
PAID = {"input", "output", "total", "requests", "tokens"}
SHARES = {"read", "written", "written_1h", "fresh"}
KEYS = {
    "": {
        "ibidem",
        "schema",
        "sample",
        "partial",
        "since",
        "until",
        "profiles",
        "paid",
        "logged",
        "by",
        "totals",
        "agents",
        "projects",
        "tools",
        "files",
        "sessions",
        "unread",
    },
    "paid": PAID,
    "paid.tokens": SHARES | {"output"},
    "logged": {"paid", "would_have_paid"},
    "totals": GROUP
    | {"files", "bytes", "skipped_lines", "invalid_requests", "invalid_requests_counted", "violations", "priced_as"},
    "totals.baseline": SPENT,
    "totals.thinking": {"cost", "share"},
    "totals.recorded": RECORDED | {"sessions", "error_median", "error_90"},
    "totals.profiles": {"lossless", "codetether"},
    "totals.profiles.codetether": COMPARED | {"dearer_sessions"},
    "totals.profiles.codetether.strategies.dedup": {"hits", "tokens", "cost"},
    "totals.profiles.codetether.worlds": {"hit", "miss"},
    "totals.profiles.codetether.worlds.hit": WORLD | {"dearer_sessions", "dearest", "worst"},
    "totals.profiles.codetether.worlds.miss.dearest": {"path", "name", "ratio"},
    "totals.profiles.codetether.worlds.miss.worst": {"path", "name", "share"},
    "totals.profiles.lossless.worlds": set(),
    "totals.cached": {"sessions", "tokens", "shares", "misses", "unmarked"},
    "totals.cached.tokens": SHARES,
    "totals.cached.shares": SHARES,
    "totals.cached.unmarked": {"sessions", "cost", "with_marks"},
    "agents": {"claude-code", "codex"},
    "agents.codex": GROUP,
    "projects./home/me/shop": GROUP,
    "projects./home/me/shop.profiles.lossless": COMPARED | {"dearer_sessions"},
    "tools.Read": {"count", "tokens", "profiles"},
    "tools.Read.profiles.lossless": {"hits", "tokens", "cost"},
    "files.a0py": {"count", "tokens", "profiles"},
    "sessions.0": SESSION,
    "sessions.0.paid": PAID,
    "sessions.0.baseline": SPENT,
    "sessions.0.recorded": RECORDED,
    "sessions.0.profiles.lossless": COMPARED | {"failures"},
    "sessions.0.profiles.codetether.worlds.miss": WORLD | {"worst"},
    "sessions.0.skipped_lines.0": {"line", "why"},
    "sessions.0.cached": {"tokens", "shares", "misses", "unmarked"},
    "sessions.2.recorded": RECORDED,
    "unread.0": {"path", "why"},
}
"""What docs/report.md promises: nothing may be missing, and what is new belongs into both."""


@pytest.fixture(scope="module")
def mixed() -> Report:
    """Two agents, a log without usage, a broken line, an unknown model and something that is no log."""
    codex = next(each for each in EXAMPLES if each.agent == "codex")
    logs = [log(*TWICE, thinking=True, prompts=3) + b"rubbish\n", codex.data, log("a0py", "a0py", usage="no"), b"{}"]
    return report(*logs, log(*TWICE, model="house-model-7"), profiles=("lossless", "codetether"))


def test_json_has_the_documented_keys(mixed: Report) -> None:
    value = exported(mixed)
    for path, keys in KEYS.items():
        found: Any = value
        for key in path.split(".") if path else []:
            found = found[int(key)] if isinstance(found, list) else found[key]
        assert found.keys() == keys, path


def test_json_has_the_figures(mixed: Report) -> None:
    value = exported(mixed)
    totals = value["totals"]
    assert (value["schema"], value["sample"], value["profiles"]) == (1, False, ["lossless", "codetether"])
    assert (totals["sessions"], totals["files"], totals["skipped_lines"]) == (4, 5, 1)
    assert totals["priced_as"] == {"house-model-7": "claude-sonnet-4-5"}
    assert [each["path"] for each in value["sessions"]] == [f"/logs/{n}.jsonl" for n in (0, 1, 2, 4)]
    assert [each["path"] for each in value["unread"]] == ["/logs/3.jsonl"]
    sums = {
        "requests": sum(each["requests"] for each in value["sessions"]),
        "baseline": sum(each["baseline"]["cost"] for each in value["sessions"]),
        "recorded": sum(each["recorded"]["cost"] or 0 for each in value["sessions"]),
    }
    assert totals["requests"] == sums["requests"]
    assert totals["baseline"]["cost"] == pytest.approx(sums["baseline"])
    assert totals["recorded"]["cost"] == pytest.approx(sums["recorded"])
    assert value["sessions"][2]["recorded"] == {**dict.fromkeys(RECORDED), "requests": 0}
    for profile in value["profiles"]:
        ours = [each["profiles"][profile] for each in value["sessions"]]
        cost = sum(each["cost"] for each in ours)
        assert totals["profiles"][profile]["cost"] == pytest.approx(cost)
        assert totals["profiles"][profile]["saved"] == pytest.approx(sums["baseline"] - cost)
        assert totals["profiles"][profile]["saved_share"] == pytest.approx(1 - cost / sums["baseline"])
        assert totals["profiles"][profile]["law_failures"] == sum(each["law_failures"] for each in ours) == 0


def test_csv_parses_back_to_the_same_figures(mixed: Report) -> None:
    head, *rows = table(mixed)
    assert len(head) == len(set(head))
    found = [dict(zip(head, row, strict=True)) for row in rows]
    for row, each in zip(found, exported(mixed)["sessions"], strict=True):
        for key in ("path", "name", "agent", "model", "project"):
            assert row[key] == each[key]
        assert int(row["requests"]) == each["requests"]
        assert float(row["baseline_cost"]) == each["baseline"]["cost"]
        assert (float(row["recorded_cost"]) if row["recorded_cost"] else None) == each["recorded"]["cost"]
        assert int(row["baseline_tokens"]) == round(each["baseline"]["tokens"])
        assert int(row["skipped_lines"]) == len(each["skipped_lines"])
        for profile, outcome in each["profiles"].items():
            assert float(row[f"{profile}_cost"]) == outcome["cost"]
            assert float(row[f"{profile}_saved_share"]) == outcome["saved_share"]
            assert float(row[f"{profile}_worst"]) == outcome["worst"]
            assert int(row[f"{profile}_law_failures"]) == outcome["law_failures"]


ODD_NAMES = {
    "commas and quotes": '/a,b/"c".jsonl',
    "a line break": "/a\nb.jsonl",
    "a carriage return": "/a\rb.jsonl",
    "both": "/a\r\nb.jsonl",
    "an escape sequence": "/\x1b[31mred\x1b]0;title\x07.jsonl",
    "a null character": "/a\0b.jsonl",
    "markup of rich": "/[bold]a[/bold] :smile:.jsonl",
    "a lone surrogate": "/a\udcff.jsonl",
    "wide characters": "/家/日本語のプロジェクトの名前はとても長いのでここで切らなければならないかもしれません.jsonl",
    "right to left": "/\u202eabc\u202c.jsonl",
    "line breaks of other worlds": "/a\u2028b\x85c\x0bd.jsonl",
    "very long": "/" + "long/" * 100 + "a.jsonl",
}


@pytest.mark.parametrize("case", ODD_NAMES)
def test_odd_names_survive_json_and_csv(case: str) -> None:
    name = ODD_NAMES[case]
    found = added_up(figures(1, path=name, project=name), figures(2, name=name))
    assert exported(found)["sessions"][0 if name < "/logs" else 1]["path"] == name
    head, *rows = table(found)
    assert len(rows) == 2
    cells = {row[head.index(key)] for row in rows for key in ("path", "project", "name")}
    assert name in cells


# ── the terminal ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def shown(found: Report, width: int, **options: Any) -> str:
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        draw_report(found, stream, **options)
    return stream.getvalue()


WIDTHS = [60, 80, 120, 200]


def large() -> Report:
    """Figures as long as they get."""
    some = []
    for n in range(12):
        spent = SendCost(123_456.78 + n, 9.87e11, 8e11, 1.23e6, 12_345)
        saved = {"dedup": Removal(1_234_567, 9.8e9, 54_321.98), "spans": Removal(7, 300.0, 0.0123)}
        outcome = ProfileOutcome(
            SendCost(98_765.43 + n, 8.76e11, 7e11, 1.11e6, 23_456), 0.1234, 0, [], saved, saved, saved
        )
        project = f"/home/somebody/work/projects/a-project-with-a-long-name-{n}"
        some.append(
            figures(
                n,
                agent="claude-code" if n % 2 else "mini-swe-agent",
                project=project,
                path=f"{project}/sessions/{n:032}.jsonl",
                requests=1_234_567,
                baseline=spent,
                recorded=BilledCheck(133_333.33, 1_234_567, 123_456.78, 120_000.0),
                profiles={"lossless": outcome, "codetether-all": outcome},
                tools={f"mcp__a_server__a_tool_{n}": ToolResultTotals(1_234_567, 9.87e9)},
            )
        )
    return added_up(*some, profiles=("lossless", "codetether-all"))


def numbers(found: Report) -> set[str]:
    """Every figure of the totals, as it is to be read."""
    total = found.total
    wanted = {dollars(total.baseline.cost), tokens(total.baseline.tokens), tokens(total.baseline.peak)}
    wanted |= {f"{len(total.replayed):,} session", f"{total.session_requests:,} request"}
    wanted |= {f"{total.baseline.breaks:,}"}
    if total.recorded:
        wanted |= {dollars(total.recorded.cost), percent(total.error, signed=True), percent(total.error_at(0.5))}
    for name, profile in total.profiles.items():
        wanted |= {dollars(profile.spent.cost), percent(total.profile_share(name)), tokens(profile.spent.tokens)}
        wanted |= {tokens(profile.spent.peak), f"{profile.spent.breaks:,}"}
        for saved in profile.strategies.values():
            wanted |= {f"{saved.hits:,}", tokens(saved.tokens), dollars(saved.cost)}
    for group in found.groups("agent").values():
        wanted |= {f"{len(group.replayed):,}", f"{group.session_requests:,}", dollars(group.baseline.cost)}
    return wanted


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("make", ["mixed", "large"])
def test_no_number_is_cut(make: str, width: int, request: pytest.FixtureRequest) -> None:
    found = large() if make == "large" else request.getfixturevalue("mixed")
    page = " ".join(shown(found, width).split())  # a sentence may be wrapped between a number and its noun
    for number in numbers(found):
        assert re.search(rf"(?<![\d.,$]){re.escape(number)}(?![\d])", page), number


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_longer_than_the_terminal_is_wide(width: int) -> None:
    some = [log(*TWICE, id=f"{n}", project=f"/home/me/a/project/with/a/long/name/{n}") for n in range(7)]
    for line in shown(report(*some), width).splitlines():
        assert cell_len(line) <= width, line


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_where_it_is_narrow_names_and_bars_give_way_first(width: int) -> None:
    """A line may be longer only for its numbers: names then have their 12 columns, and there are no bars."""
    for line in shown(large(), width).splitlines():
        if cell_len(line) > width:
            assert "█" not in line
            assert len(re.split(r" {2,}", line)[0]) <= 12, line


@pytest.mark.sampled(8)
@pytest.mark.parametrize("width", WIDTHS[1:])
@pytest.mark.parametrize("case", ODD_NAMES)
def test_odd_names_are_harmless(case: str, width: int) -> None:
    name = ODD_NAMES[case]
    some = [
        figures(n, path=f"{n}{name}", project=f"{name}{n}", files={name: ToolResultTotals(2, 400.0)}) for n in range(7)
    ]
    page = shown(added_up(*some, unread=[UnreadFile(name, "empty")]), width)
    assert not [char for char in page if char != "\n" and not char.isprintable()]
    if case not in ("very long", "wide characters"):  # which may take the note to another line
        usual = [figures(n, path=f"{n}/a", project=f"/a{n}") for n in range(7)]
        assert page.count("\n") == shown(added_up(*usual, unread=[UnreadFile("/a", "empty")]), width).count("\n")
    if case != "wide characters":
        assert all(cell_len(line) <= width for line in page.splitlines())


@pytest.mark.parametrize("width", [80, 120])
def test_wide_characters_do_not_make_lines_longer(width: int) -> None:
    name = ODD_NAMES["wide characters"]
    some = [figures(n, path=f"{n}{name}", project=f"{name}{n}") for n in range(7)]
    assert all(cell_len(line) <= width for line in shown(added_up(*some), width).splitlines())


def test_the_longest_bar_is_that_of_the_highest_bill() -> None:
    page = shown(added_up(figures(1)), 120)  # recorded is a quarter more than what is computed
    bars = {line.split("  ")[0].strip(): line.count("█") for line in page.splitlines() if "█" in line}
    assert bars["recorded"] > bars["nothing done"] > bars["lossless"]


@pytest.mark.parametrize("width", [40, 80])
def test_a_models_name_is_harmless(width: int) -> None:
    found = added_up(figures(1, priced_as={"\x1b[31mevil\x07\nibidem: all is well\u202e": "gpt-5"}))
    page = shown(found, width)
    assert not [char for char in page if char != "\n" and not char.isprintable()]
    assert not any(line.startswith("ibidem: all") for line in page.splitlines())


def test_the_reason_why_a_file_was_not_read_is_harmless() -> None:
    page = shown(added_up(figures(1), unread=[UnreadFile("a.json", "KeyError: \x1b[31m\x07")]), 80)
    assert not [char for char in page if char != "\n" and not char.isprintable()]


@pytest.mark.parametrize("width", WIDTHS)
def test_lines_end_where_their_words_do(mixed: Report, width: int) -> None:
    assert all(line == line.rstrip() for line in shown(mixed, width).splitlines())


@pytest.mark.parametrize("width", WIDTHS)
def test_there_are_no_colours_where_nobody_sees_them(mixed: Report, width: int) -> None:
    assert "\x1b" not in shown(mixed, width)


def test_colours_are_for_those_who_want_them(mixed: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    green, sgr = "\x1b[32m", re.compile(r"\x1b\[(?:\d+;)*(?:3\d|9\d)m")
    assert green in shown(mixed, 80)
    assert not sgr.search(shown(mixed, 80, plain=True))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not sgr.search(shown(mixed, 80))


def test_the_terminal_says_what_is_odd(mixed: Report) -> None:
    page = " ".join(shown(mixed, 80).split())
    assert "house-model-7 is not in the price list: priced as claude-sonnet-4-5." in page
    assert "1 line of logs could not be parsed and were skipped: see --json." in page
    assert "Not read: /logs/3.jsonl: not a log of an agent that is known here" in page
    assert "in part" in page
    assert "codetether: 1 session would have cost more than without ibidem" in page


def test_the_terminal_says_which_rules_and_laws_are_broken_and_what_the_provider_took_all_the_same() -> None:
    odd = figures(1, invalid=3, accepted=2, violations={"calls-answered": 3, "not-empty": 1})
    odd.profiles["lossless"].law_failures = 2
    page = " ".join(shown(added_up(odd), 80).split())
    told = "3 requests in the logs break a rule of the provider (calls-answered 3, not-empty 1)"
    assert f"{told}; the provider accepted 2." in page
    odd.accepted = 0
    assert f"{told}." in " ".join(shown(added_up(odd), 80).split())
    assert "lossless: 2 invariant failures: see --json." in page


def test_thinking_that_is_sent_back_is_told_where_there_is_any() -> None:
    some, none = report(log(*TWICE, thinking=True)), report(log(*TWICE))
    value = exported(some)
    [each] = value["sessions"]
    assert 0 < each["thinking"]["cost"] < each["baseline"]["cost"]
    assert value["totals"]["thinking"] == each["thinking"]
    assert each["thinking"]["share"] == pytest.approx(each["thinking"]["cost"] / each["baseline"]["cost"])
    told = (
        f"{dollars(each['thinking']['cost'])} ({percent(each['thinking']['share'])}) for thinking that later requests"
    )
    assert told in shown(some, 120)
    assert exported(none)["totals"]["thinking"] == {"cost": 0, "share": 0}
    assert "for thinking" not in shown(none, 120)


def test_the_terminal_says_that_no_usage_was_recorded() -> None:
    assert "The logs record no usage" in shown(added_up(figures(1, recorded=None)), 80)


def test_many_files_that_were_not_read_are_counted() -> None:
    page = shown(added_up(figures(1), unread=[UnreadFile(f"{n}.json", "empty") for n in range(20)]), 80)
    assert page.count("Not read: ") == 9
    assert "Not read: 12 more: --json names them." in page
