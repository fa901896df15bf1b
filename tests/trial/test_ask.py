"""A trial over HTTP, against a scripted provider with a prompt cache: what is asked, what it costs, what goes wrong."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ibidem import formats
from ibidem.billing.prices import Prices
from ibidem.billing.usage import Usage
from ibidem.errors import IbidemError
from ibidem.testing import Answer, Calls, Fails, Raw, Resets, Seen, Upstream
from ibidem.testing.answers import AnswerPart, CallPart
from ibidem.testing.prompt_cache import PromptCache
from ibidem.trial.client import ProviderClient, find_api_key, find_base_url
from ibidem.trial.outcomes import DroppedSamples, PointResult
from ibidem.trial.planning import (
    TrialPlan,
    TrialSaving,
    choose_target,
    load_session,
    make_setup,
    plan_trial,
    survey_log,
)
from ibidem.trial.providers import TRIAL_PROVIDERS
from ibidem.trial.request_builder import ThinkingLevel, Variant
from ibidem.trial.run_log import RunLog
from ibidem.trial.schedule import call_cost
from ibidem.trial.trial_runner import TrialHooks, TrialRun
from ibidem.trial.trial_statistics import compute_statistics
from ibidem.trial.verdict import TrialConditions, verdict_lines

from .sessions import ENDINGS, MODELS, TOOLS, Agent, as_recorded, model_turns, write_logs

SYSTEM = "You are an agent that tidies up. " * 150
KEY = "sk-planted-key"


class Bill(PromptCache):
    """Counts what it is asked, independently of who asks."""

    def __init__(self) -> None:
        super().__init__()
        self.usages: list[Usage] = []

    def add_output(self, usage: Usage, parts: Sequence[AnswerPart]) -> Usage:
        self.usages.append(super().add_output(usage, parts))
        return self.usages[-1]

    def dollars(self, format: str) -> float:
        price = Prices().of(MODELS[format], format)
        return sum(call_cost(price, usage) for usage in self.usages)


class Done(NamedTuple):
    ledger: RunLog
    plan: TrialPlan
    why: str
    said: list[str]
    seen: list[Seen]
    bill: Bill


def ask(
    folder: Path,
    agents: list[Agent],
    script: Callable[[Seen], Answer] | None = None,
    *,
    format: str = "anthropic",
    budget: float = 20.0,
    samples: int = 2,
    points: int = 100,
    hooks: TrialHooks | None = None,
    clock: Callable[[], float] | None = None,
    fields: Mapping[str, Any] | None = None,
    logs: Sequence[bytes] = (),
    url: str = "",
    probes: bool = False,
) -> Done:
    """All of it but the command line."""
    usual = {"tools": TOOLS, "system": SYSTEM} if format == "anthropic" else {}
    write_logs(folder, agents, format, **(usual if fields is None else fields))
    for number, data in enumerate(logs):
        (folder / f"log{number}.jsonl").write_bytes(data)
    surveys = [each for path in sorted(folder.glob("*.jsonl")) for each in survey_log(str(path), "lossless")]
    aim = choose_target(surveys, Prices(), None, elsewhere=True)
    asked = {"profile": "lossless", "samples": samples, "seed": 0, "probes": probes}
    plan = plan_trial(surveys, aim, most=points, budget=budget, **asked)  # type: ignore[arg-type]
    setup = make_setup(plan, surveys, aim, budget=budget, start_time=0.0, trial_saving=TrialSaving(0, 0), **asked)  # type: ignore[arg-type]
    ledger = RunLog(setup, thinking_level=plan.thinking_level, budget=budget)
    by_digest = {each.digest: each for each in surveys}
    said: list[str] = []
    bill = Bill()

    async def run(url: str) -> str:
        provider = TRIAL_PROVIDERS[format]
        async with ProviderClient(provider, url + ENDINGS[format], KEY, aim.model) as client:
            loading = lambda plan: load_session(by_digest[plan.session], plan.points, "lossless", aim)  # noqa: E731
            return await TrialRun(ledger, plan.sessions, loading, client, aim.price, hooks, said.append).run()

    with Upstream(script or as_recorded(agents), cache=bill, strict=True, clock=clock or time.time) as upstream:
        try:
            why = asyncio.run(run(url or upstream.url))
        except IbidemError as error:
            why = str(error)
        return Done(ledger, plan, why, said, upstream.seen, bill)


def agents(number: int = 2, rounds: int = 6) -> list[Agent]:
    return [Agent(f"p{n}", rounds) for n in range(number)]


@pytest.mark.parametrize("format", formats.FORMATS)
def test_answers_are_heard_in_every_format(tmp_path: Path, format: str) -> None:
    done = ask(tmp_path, agents(1), format=format)
    points = {point.id: point for point in done.ledger.setup.points}
    assert done.why == ""
    assert len(done.seen) == 2 * 2 * len(points) == 20
    for result in done.ledger.point_results():
        assert [sample.action for sample in (*result.original, *result.rewritten)] == [
            points[result.point].recorded
        ] * 4
    assert not any(sample.broken_edit for each in done.ledger.point_results() for sample in each.rewritten)
    alike = {
        (sample.same_file, sample.edit_likeness) for each in done.ledger.point_results() for sample in each.rewritten
    }
    assert (True, 1.0) in alike <= {(None, None), (True, None), (True, 1.0)}
    assert done.ledger.spent == pytest.approx(done.bill.dollars(format))
    texts = {seen.text for seen in done.seen}
    assert len(texts) == 2 * len(points)
    assert sum(b"[ibidem" in text for text in texts) == len(points)


def test_credentials_in_netrc_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    done = ask(tmp_path, agents(1))
    assert len(done.seen) == 20
    assert {seen.header("authorization") for seen in done.seen} == {None}


def test_most_is_read_from_the_cache_and_the_forecast_holds(tmp_path: Path) -> None:
    done = ask(tmp_path, agents(4))
    assert {len(session.points) for session in done.plan.sessions} == {5}
    usage = done.ledger.total_usage
    assert usage.read / usage.input >= 0.7
    assert done.ledger.spent == pytest.approx(done.plan.forecast.dollars, rel=0.1)
    assert usage.input == pytest.approx(done.plan.forecast.input_tokens, rel=0.1)
    assert usage.read == pytest.approx(done.plan.forecast.read, rel=0.1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("budget", [0.7, 1.1])
@pytest.mark.parametrize("misses", [False, True], ids=["cached", "nothing is found in the cache"])
def test_no_cent_more_than_the_budget(tmp_path: Path, budget: float, misses: bool) -> None:
    ticks = count(0, 400.0)
    done = ask(tmp_path, agents(6), budget=budget, clock=(lambda: next(ticks)) if misses else None)
    assert 0.3 * budget < done.bill.dollars("anthropic") <= budget
    assert done.ledger.spent == pytest.approx(done.bill.dollars("anthropic"))
    assert done.why == ("budget" if misses else "")
    assert (done.ledger.total_usage.read == 0) is misses
    assert done.ledger.point_results()


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────────────────────────


def refusing(agents: list[Agent], unless: Callable[[Any], bool], message: str) -> Callable[[Seen], Answer]:
    known = as_recorded(agents)
    return lambda seen: known(seen) if unless(seen.json) else Fails(400, message=message)


def test_thinking_that_is_refused_is_left_out_of_the_whole_trial(tmp_path: Path) -> None:
    team = agents(2)
    fields = {"tools": TOOLS, "system": SYSTEM, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    rows = []
    for agent in team:
        bodies = agent.bodies("anthropic", **fields)
        for message in bodies[-1]["messages"]:
            if message["role"] == "assistant":
                message["content"].insert(0, {"type": "thinking", "thinking": "hm", "signature": "sig=="})
        rows.append(b"".join(json.dumps(body).encode() + b"\n" for body in bodies))
    script = refusing(team, lambda body: "thinking" not in body, "messages.1.content.0: thinking is not as it was")
    done = ask(tmp_path, [], script, logs=rows)
    assert done.plan.thinking_level is ThinkingLevel.KEPT
    assert done.ledger.thinking_level is ThinkingLevel.OFF
    assert len(done.said) == 2  # a step each
    assert sum("thinking" in seen.json for seen in done.seen) == 2  # found out with the first request
    assert len(done.ledger.point_results()) == 10
    assert not any(b'"hm"' in seen.text for seen in done.seen[2:])


@pytest.mark.parametrize(("status", "told"), [(401, "does not accept the key"), (403, "permissions"), (404, "model")])
def test_a_key_that_is_not_accepted_ends_it_at_once(tmp_path: Path, status: int, told: str) -> None:
    done = ask(tmp_path, agents(3), lambda seen: Fails(status))
    assert told in done.why
    assert "\n" not in done.why
    assert len(done.seen) == 1
    assert done.ledger.spent == 0


@pytest.mark.parametrize(
    ("failure", "paid"),
    [
        (Fails(429, retry_after=0), False),
        (Fails(529, retry_after=0), False),
        (Fails(500, retry_after=0), True),
    ],
    ids=["too many requests", "overloaded", "broken"],
)
def test_a_busy_provider_is_asked_again(tmp_path: Path, failure: Answer, paid: bool) -> None:
    team = agents(1)
    known, numbers = as_recorded(team), count()
    done = ask(tmp_path, team, lambda seen: failure if next(numbers) % 3 == 0 else known(seen))
    assert [len(each.original + each.rewritten) for each in done.ledger.point_results()] == [4] * 5
    assert (done.ledger.spent > done.bill.dollars("anthropic") + 0.01) is paid  # nobody knows, so it counts
    assert done.ledger.spent <= done.ledger.budget


def test_an_answer_that_breaks_off_counts_as_paid_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.trial.trial_runner.FIRST_WAIT", 0.0)
    team = agents(1)
    known, numbers = as_recorded(team), count()
    done = ask(tmp_path, team, lambda seen: Resets(known(seen)) if next(numbers) == 2 else known(seen))
    assert len(done.ledger.point_results()) == 5
    assert done.ledger.spent > done.bill.dollars("anthropic") + 0.01


def test_a_provider_that_cannot_be_reached_or_stays_busy_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ibidem.trial.trial_runner.FIRST_WAIT", 0.0)
    away = ask(tmp_path, agents(1), url="http://127.0.0.1:1")
    assert away.why.startswith("the provider cannot be reached (")
    assert away.why.endswith("continue later with --resume")
    busy = ask(tmp_path, agents(1), lambda seen: Fails(529))
    assert busy.why == "the provider stays busy (529): continue later with --resume"
    assert away.ledger.spent == busy.ledger.spent == 0


def cut_off(stop: str) -> Answer:
    """An answer that ended otherwise than a model means to."""
    begin = {"type": "message_start", "message": {"usage": {"input_tokens": 100, "output_tokens": 1}}}
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}}
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in (begin, end)).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    return Raw(head.encode() + body)


def test_answers_that_were_cut_off_or_refused_are_dropped_and_counted(tmp_path: Path) -> None:
    team = agents(1)
    known, numbers = as_recorded(team), count()
    faults = {1: cut_off("max_tokens"), 14: cut_off("refusal")}
    done = ask(tmp_path, team, lambda seen: faults.get(next(numbers)) or known(seen))
    assert done.ledger.dropped_samples() == {
        "truncated": DroppedSamples(1, 0, 1, 0),
        "refused": DroppedSamples(0, 1, 0, 1),
    }
    assert sum(len(each.original) for each in done.ledger.point_results()) == 9
    assert sum(len(each.rewritten) for each in done.ledger.point_results()) == 9


def test_a_request_that_is_not_taken_is_left_out_in_both_arms(tmp_path: Path) -> None:
    team = agents(1)
    known = as_recorded(team)
    plan = ask(tmp_path, team).plan
    place = plan.points[2].number
    script = lambda seen: Fails(400, message="too long") if model_turns(seen.json) == place else known(seen)  # noqa: E731
    done = ask(tmp_path, team, script)
    assert [each.point for each in done.ledger.point_results()] == [
        point.id for point in plan.points if point.number != place
    ]
    assert sum(model_turns(seen.json) == place for seen in done.seen) == 1


def told(done: Done) -> str:
    """The first line of the verdict."""
    setting = TrialConditions(
        model="m", date="d", profile="lossless", samples=2, margin=90.0, spent=0.0, drops=done.ledger.dropped_samples()
    )
    return verdict_lines(compute_statistics(done.ledger.point_results(), seed=0), setting)[0]


@pytest.mark.slow
def test_rewritten_requests_that_alone_are_refused_or_cut_off_are_harm(tmp_path: Path) -> None:
    team = agents(4)
    known = as_recorded(team)
    for fault, words in ((Fails(400, message="too odd"), "refused"), (cut_off("max_tokens"), "truncated")):
        turns = count()
        script = lambda seen: fault if b"[ibidem" in seen.text and next(turns) % 3 else known(seen)  # noqa: B023, E731
        done = ask(tmp_path, team, script, samples=2)
        assert told(done).startswith("Harm found: with rewritten requests"), words
        assert f"more samples are {words}" in told(done)
    both = ask(tmp_path, team, lambda seen: fault if model_turns(seen.json) % 2 else known(seen), samples=2)
    assert both.ledger.dropped_samples()
    assert "more of them" not in told(both), "as often as originals"


def reads_again(team: list[Agent], fails: float, seed: int) -> Callable[[Seen], Answer]:
    """A model that, where it should edit what a reference stands for, at times reads the file again instead."""
    known, chance = as_recorded(team), random.Random(seed)

    def answer(seen: Seen) -> Answer:
        found = known(seen)
        edits = [each for each in found.parts if isinstance(each, CallPart) and each.tool == "Edit"]
        if b"[ibidem" in seen.text and edits and chance.random() < fails:
            return Calls(("Read", {"file_path": edits[0].arguments["file_path"]}))
        return found

    return answer


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("fails", "harm"), [(0.0, False), (0.5, True)])
def test_a_reader_with_faults_is_found_over_http(tmp_path: Path, fails: float, harm: bool) -> None:
    team = agents(8)
    done = ask(tmp_path, team, reads_again(team, fails, 1), samples=4)
    found = compute_statistics(done.ledger.point_results(), seed=0)
    assert found.has_alarm is harm
    assert told(done).startswith("Harm found" if harm else "No harm was found")


def test_files_by_address_are_not_asked_about(tmp_path: Path) -> None:
    """Nobody here can say what they cost."""
    team = agents(2)
    logs = []
    for agent in team:
        bodies = agent.bodies("anthropic", tools=TOOLS, system=SYSTEM)
        if agent is team[0]:
            file = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
            for body in bodies:
                body["messages"] = [
                    {"role": "user", "content": [{"type": "text", "text": body["messages"][0]["content"]}, file]},
                    *body["messages"][1:],
                ]
        logs.append(b"".join(json.dumps(body).encode() + b"\n" for body in bodies))
    done = ask(tmp_path, [], as_recorded(team), logs=logs)
    assert done.plan.unsound_count > 0
    assert len(done.plan.sessions) == 1
    assert not any(b"file_1" in seen.text for seen in done.seen)


def test_nothing_that_is_taken_ends_it_with_the_reason(tmp_path: Path) -> None:
    done = ask(tmp_path, agents(6), lambda seen: Fails(400, message="no\x1b[31m such\nfield"))
    assert done.why.startswith("the provider rejects these requests (400: no\\x1b[31m such\\nfield")
    assert len(done.seen) < 12


# ── while it runs ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_number_of_points_is_settled_by_originals_alone(tmp_path: Path) -> None:
    given: list[Sequence[PointResult]] = []

    def needed(points: Sequence[PointResult]) -> int:
        given.append(points)
        return 25

    done = ask(tmp_path, agents(7), hooks=TrialHooks(required_points=needed), samples=2)
    (points,) = given
    assert len(points) == 20
    assert all(len(each.original) == 2 and not each.rewritten for each in points)
    asked_so_far = [seen for seen in done.seen[:40] if b"[ibidem" in seen.text]
    assert not asked_so_far
    assert len(done.ledger.point_results()) == 25
    assert done.ledger.planned_points == 25


@pytest.mark.parametrize("counted", [0, 10**400], ids=["nothing", "what nobody can send"])
def test_a_provider_that_counts_what_cannot_be_is_paid_in_full(tmp_path: Path, counted: int) -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": counted, "output_tokens": 0}}}
    rows = [start, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 0}}]
    events = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in rows)
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(events)}\r\nconnection: close\r\n\r\n"
    done = ask(tmp_path, agents(), lambda seen: Answer(raw=head.encode() + events), budget=1.0)
    assert done.why == "budget"
    assert 0.5 < done.ledger.spent <= 1.0


def test_a_provider_that_only_fails_is_told_before_the_budget_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ibidem.trial.trial_runner.FIRST_WAIT", 0.0)
    done = ask(tmp_path, agents(), lambda seen: Fails(500))
    assert done.why == "the provider does not complete its responses (500): continue later with --resume"
    assert len(done.seen) == 3


def test_harm_ends_it(tmp_path: Path) -> None:
    team = agents(6)
    known = as_recorded(team)

    def again(seen: Seen) -> Answer:
        if b"[ibidem" not in seen.text:
            return known(seen)
        name = next(each.name for each in team if f"project {each.name}." in seen.text.decode())
        return Calls(("Read", {"file_path": f"/home/me/{name}/one.py"}))

    def harm(points: Sequence[PointResult]) -> float:
        return 2.0 ** sum(sample.action.startswith("Read") for each in points for sample in each.rewritten)

    done = ask(tmp_path, team, again, hooks=TrialHooks(harm_evalue=harm))
    assert done.why == done.ledger.stop_reason == "harm"
    assert 0 < len(done.ledger.point_results()) < 12


def test_nothing_is_asked_more_often_than_planned(tmp_path: Path) -> None:
    done = ask(tmp_path, agents(3), samples=3)
    assert set(Counter(seen.text for seen in done.seen).values()) == {3}
    assert {key.variant for key in done.ledger.responses} == set(Variant)


# ── keys and addresses ──────────────────────────────────────────────────────────────────────────────────────────────

ANTHROPIC, RESPONSES = TRIAL_PROVIDERS["anthropic"], TRIAL_PROVIDERS["openai-responses"]


def test_a_key_comes_from_the_environment() -> None:
    assert find_api_key(ANTHROPIC, {"ANTHROPIC_API_KEY": " sk-ant-api03-x\n"}) == "sk-ant-api03-x"
    assert find_api_key(TRIAL_PROVIDERS["gemini"], {"GOOGLE_API_KEY": "AIza"}) == "AIza"
    with pytest.raises(IbidemError, match="no API key: set OPENAI_API_KEY"):
        find_api_key(RESPONSES, {})


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        (ANTHROPIC, {"ANTHROPIC_API_KEY": "sk-ant-oat01-x"}),
        (ANTHROPIC, {"ANTHROPIC_API_KEY": "Bearer sk-ant-oat01-x"}),
        (ANTHROPIC, {"ANTHROPIC_AUTH_TOKEN": "sk-ant-oat01-x"}),
        (ANTHROPIC, {"CLAUDE_CODE_OAUTH_TOKEN": "x"}),
        (RESPONSES, {"OPENAI_API_KEY": "eyJhbGciOi.eyJzdWIi.c2ln"}),
    ],
    ids=["as a key", "as a header", "as a token", "of Claude Code", "of ChatGPT"],
)
def test_a_subscription_is_not_for_this(provider: Any, variables: dict[str, str]) -> None:
    with pytest.raises(IbidemError, match="a subscription token only in its own client"):
        find_api_key(provider, variables)


def test_where_requests_go() -> None:
    assert find_base_url(ANTHROPIC, {}, None) == "https://api.anthropic.com"
    assert find_base_url(ANTHROPIC, {"ANTHROPIC_BASE_URL": "https://gate.example/"}, None) == "https://gate.example"
    assert (
        find_base_url(ANTHROPIC, {"ANTHROPIC_BASE_URL": "https://gate.example"}, "http://127.0.0.1:9")
        == "http://127.0.0.1:9"
    )
    with pytest.raises(IbidemError, match="may rewrite both variants"):
        find_base_url(ANTHROPIC, {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8642"}, None)
    with pytest.raises(IbidemError, match="not the address of a provider"):
        find_base_url(ANTHROPIC, {}, "ftp://x")
