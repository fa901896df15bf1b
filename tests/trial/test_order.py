"""What is sent in which order, what it costs at worst, and what the file of a trial keeps of it."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ibidem import validate
from ibidem.billing.prices import Prices
from ibidem.billing.usage import Usage
from ibidem.errors import IbidemError
from ibidem.formats.anthropic_cache import BlockCacheControl
from ibidem.recordings import read
from ibidem.trial.decision_points import DecisionPoint
from ibidem.trial.outcomes import DroppedSamples, Sample, Stratum
from ibidem.trial.request_builder import (
    BLOCK_TOKENS,
    EntrySizes,
    RequestBuilder,
    ThinkingLevel,
    Variant,
    collect_parameters,
    find_used_tools,
)
from ibidem.trial.run_log import ResponseRow, RunLog, TrialSetup, remaining_keys, resume_run
from ibidem.trial.schedule import CallKey, Forecaster, PointSize, SessionPlan, TokenCeiling, call_cost, max_call_cost

from .sessions import MODELS, TOOLS, Agent

SONNET = Prices().of(MODELS["anthropic"], "anthropic")


def asker(**fields: Any) -> tuple[RequestBuilder, list[Any]]:
    (recording,) = read("log", Agent("p", 3).log("anthropic", **fields))
    head = collect_parameters(recording, MODELS["anthropic"])
    return RequestBuilder("anthropic", head, MODELS["anthropic"]), recording.segments[0].history


def test_marks_stand_at_the_head_the_end_before_and_the_end() -> None:
    making, history = asker(tools=TOOLS, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "x"}}])
    body = making.build_body(history[:9], ThinkingLevel.KEPT, prefix_length=3)
    messages = body["messages"]
    marks = BlockCacheControl().all_breakpoints({key: body[key] for key in body if key != "messages"}, messages)
    assert [mark.message for mark in marks] == [-1, 2, 8]
    assert all(mark.is_known for mark in marks)
    later = making.build_body(history[:15], ThinkingLevel.KEPT, prefix_length=9)
    assert later["tools"] == body["tools"]
    assert later["system"] == body["system"]


def test_what_a_recorded_request_asks_for_is_asked_for_again_and_no_more() -> None:
    served = {"type": "web_search_20250305", "name": "web_search"}
    making, history = asker(
        tools=[*TOOLS, served], metadata={"user_id": "me"}, context_management={"edits": []}, temperature=0.7
    )
    body = making.build_body(history[:3], ThinkingLevel.KEPT)
    assert body["temperature"] == 0.7
    assert [tool["name"] for tool in body["tools"]] == [tool["name"] for tool in TOOLS]
    assert not body.keys() & {"metadata", "context_management"}
    assert making.parameters.has_tools
    assert any("context_management" in words for words in making.parameters.notes)


def test_tools_that_a_log_only_shows_in_use_are_declared() -> None:
    (recording,) = read("log", Agent("p", 3).log("anthropic"))
    edit = next(tool for tool in find_used_tools(recording) if tool.name == "Edit")
    assert edit.schema is not None
    assert edit.schema["required"] == ["file_path", "new_string", "old_string"]
    assert edit.schema["properties"]["old_string"] == {"type": "string"}
    head = collect_parameters(recording, MODELS["anthropic"])
    assert not head.has_tools
    assert [tool["name"] for tool in head.fields["tools"]] == ["Read", "Edit", "Bash"]


def thinking(signature: str) -> list[dict[str, Any]]:
    """Requests of a model that thinks."""
    thought = {"type": "thinking", "thinking": "Well, well.", "signature": signature}
    bodies = Agent("p", 2).bodies(
        "anthropic", tools=TOOLS, thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=32000
    )
    for message in bodies[-1]["messages"]:
        if message["role"] == "assistant" and not any(block["type"] == "thinking" for block in message["content"]):
            message["content"].insert(0, thought)
    return bodies


@pytest.mark.parametrize(
    ("model", "signature", "rung"),
    [
        ("claude-sonnet-4-5", "sig==", ThinkingLevel.KEPT),
        ("claude-sonnet-4-5", "", ThinkingLevel.STRIPPED),
        ("claude-opus-5-5", "sig==", ThinkingLevel.STRIPPED),
    ],
    ids=["signed thinking is sent", "unsigned is not", "nor is what is signed against what is rewritten"],
)
def test_thinking(model: str, signature: str, rung: ThinkingLevel) -> None:
    rows = [json.dumps({**body, "model": model}) for body in thinking(signature)]
    (recording,) = read("log", "\n".join(rows).encode())
    head = collect_parameters(recording, model)
    assert head.first_level is rung
    making, history = RequestBuilder("anthropic", head, model), recording.segments[0].history[:5]
    for each in ThinkingLevel:
        body = making.build_body(history, each)
        assert ("Well, well." in json.dumps(body)) is (each is ThinkingLevel.KEPT)
        assert ("thinking" in body) is (each is not ThinkingLevel.OFF)
        assert making.output_limit(each) == body["max_tokens"]
        assert not validate(body)


# ── money ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_that_was_not_counted_yet_may_be_larger_than_it_looks() -> None:
    ceiling = TokenCeiling()
    assert ceiling.max_tokens("p", Variant.ORIGINAL, 10_000) == 21_000
    ceiling.add_count("p", Variant.ORIGINAL, 10_000, 12_000)
    assert ceiling.max_tokens("p", Variant.ORIGINAL, 10_000) == 12_000
    assert ceiling.max_tokens("q", Variant.ORIGINAL, 11_000, prefix_key="p") == 14_000
    assert ceiling.max_tokens("q", Variant.REWRITTEN, 11_000, prefix_key="p") == 23_000
    ceiling.add_count("r", Variant.ORIGINAL, 10_000, 30_000)
    assert ceiling.max_tokens("s", Variant.ORIGINAL, 10_000) == pytest.approx(34_000)


def test_no_call_costs_more_than_its_worst_case() -> None:
    worst = max_call_cost(SONNET, 50_000, 1000)
    for usage in (Usage(fresh=50_000, output=1000), Usage(written=50_000, output=1000), Usage(read=50_000)):
        assert call_cost(SONNET, usage) <= worst
    assert max_call_cost(SONNET, 250_000, 1000) > 5 * worst  # long requests have a price of their own


def test_other_answers_to_a_point_only_read() -> None:
    sizes = tuple(PointSize(n * 10_000, n * 8_000, 5_000, (n - 1) * 10_000, (n - 1) * 8_000, n > 1) for n in (1, 2, 3))
    plan = SessionPlan("s", points(3), sizes, 2_000, "head", 1000)
    forecast = Forecaster(SONNET, 2, 400)
    forecast.add_session(plan)
    total = forecast.total
    assert total.calls == 12
    assert total.written == 30_000 + 24_000 - 2_000  # the head is known in the second arm
    assert total.input_tokens == 2 * (60_000 + 48_000)
    assert total.dollars < 0.4 * total.max_dollars


# ── the file ────────────────────────────────────────────────────────────────────────────────────────────────────────


def points(number: int) -> tuple[DecisionPoint, ...]:
    kinds = [*Stratum, Stratum.ANY]
    return tuple(
        DecisionPoint(
            id=f"p{n}", session="s", segment=0, number=n, length=n, stratum=kinds[n % 4], recorded="says", output=9
        )
        for n in range(number)
    )


def ledger(path: Path) -> RunLog:
    setup = TrialSetup(
        model="m",
        format="anthropic",
        profile="lossless",
        seed=0,
        samples=2,
        budget=1.0,
        started=0.0,
        requests=100,
        population={"follows": 10, "touches": 20, "any": 60},
        factor=1.0,
        paid=2.0,
        saved=0.5,
        lets_thinking_go=False,
        asks_to_think=False,
        notes=("a note",),
        points=points(4),
    )
    found = RunLog(setup, path, budget=1.0)
    found.create_file()
    return found


SAMPLE = Sample("Read(x)", True, None, 7)


def row(point: int, arm: Variant, sample: int, **more: Any) -> ResponseRow:
    found = ResponseRow(
        key=CallKey(f"p{point}", arm, sample), rung=ThinkingLevel.KEPT, stop="ok", paid=0.01, sample=SAMPLE
    )
    return replace(found, **more)


def test_a_trial_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "trial.jsonl"
    begun = ledger(path)
    assert os.name == "nt" or path.stat().st_mode & 0o777 == 0o600
    for point in range(3):
        for arm in Variant:
            key = CallKey(f"p{point}", arm, 0)
            begun.log_call(key, 0, 0.2)
            begun.log_response(row(point, arm, 0, usage=Usage(1, 2, 3, 4, 5, 6)), "a text of somebody's")
    begun.log_call(CallKey("p3", Variant.ORIGINAL, 0), 0, 0.2)
    begun.log_retry(CallKey("p3", Variant.ORIGINAL, 0), 0.0)
    begun.log_call(CallKey("p3", Variant.ORIGINAL, 0), 1, 0.3)  # it was under way when we were killed
    begun.log_change(planned=3)
    begun.close()
    with path.open("ab") as file:
        file.write(b'{"got":"p3/A/0","ru')
    known = resume_run(path)
    with pytest.raises(IbidemError, match="another process is running") if os.name != "nt" else nullcontext():
        resume_run(path)
    assert known.setup == begun.setup
    assert known.spent == pytest.approx(0.06 + 0.3)
    assert (known.planned_points, known.point_results()) == (3, begun.point_results())
    assert remaining_keys(known, [CallKey("p3", Variant.ORIGINAL, n) for n in (0, 1)]) == [
        CallKey("p3", Variant.ORIGINAL, 1)
    ]
    known.close()
    again = resume_run(path)
    assert (again.spent, again.dropped_samples()) == (known.spent, {"failed": DroppedSamples(1, 0, 1, 0)})
    again.close()
    assert "somebody" not in path.read_text()


def test_points_stand_for_all_of_their_stratum(tmp_path: Path) -> None:
    known = ledger(tmp_path / "trial.jsonl")
    for point in range(4):
        for arm in Variant:
            known.log_response(row(point, arm, 0))
    known.close()
    assert [(each.stratum, each.weight) for each in known.point_results()] == [
        (Stratum.FOLLOWS, 10),
        (Stratum.TOUCHES, 20),
        (Stratum.ANY, 30),
        (Stratum.ANY, 30),
    ]


def test_harm_is_looked_for_where_all_answers_are_there(tmp_path: Path) -> None:
    known = ledger(tmp_path / "trial.jsonl")
    for arm in Variant:
        known.log_response(row(0, arm, 0))
        known.log_response(replace(row(0, arm, 1, stop="failed"), sample=None))
        known.log_response(row(1, arm, 0))
    known.close()
    assert [each.point for each in known.point_results()] == ["p0", "p1"]
    assert [each.point for each in known.complete_results()] == ["p0"]


@pytest.mark.skipif(os.name == "nt", reason="has no limit to the size of files")
def test_what_cannot_be_written_down_is_not_sent(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "trial.jsonl"
    known, key = ledger(path), CallKey("p0", Variant.ORIGINAL, 0)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, usual[1]))
        with pytest.raises(IbidemError, match=r"trial.jsonl: File too large: free disk space"):
            known.log_call(key, 0, 0.2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    with pytest.raises(IbidemError, match="free disk space"):  # nothing stands behind half a row
        known.log_call(key, 0, 0.2)
    known.close()
    resume_run(path).close()


CHANGED = {
    "a budget that is none": b'{"budget":null}',
    "money from nowhere": b'{"again":"p0/A/0","paid":-5.0}',
    "no number": b'{"again":"p0/A/0","paid":"nan"}',
    "a call that is none": b'{"ask":"p0","try":0,"rung":0,"worst":1.0}',
    "a sample that is none": b'{"got":"p0/A/0","rung":0,"stop":"ok","paid":0.0,"usage":null,"sample":{"action":5}}',
    "a word of somebody's": b'{"hello":1}',
}


@pytest.mark.parametrize("line", CHANGED.values(), ids=CHANGED)
def test_a_file_that_was_changed_is_told_by_its_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "trial.jsonl"
    ledger(path).close()
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(IbidemError, match="line 2: not valid"):
        resume_run(path)


def test_sizes_are_of_the_entry_that_is_asked_about() -> None:
    """Not of one that is gone and had its id."""
    counts = EntrySizes(lambda text: len(text))
    found = [counts.count_entries([{"text": "x" * number}]) for number in range(50)]
    assert found == [BLOCK_TOKENS + number for number in range(50)]
    sizes = [
        counts.count_value({"type": "base64", "media_type": kind, "data": "x" * 40_000})
        for kind in ("image/png", "a/pdf")
    ]
    assert sizes[0] < 2000 < 10_000 <= sizes[1]


def test_answers_of_another_rung_do_not_count(tmp_path: Path) -> None:
    known = ledger(tmp_path / "trial.jsonl")
    known.log_response(row(0, Variant.ORIGINAL, 0))
    known.log_response(row(0, Variant.REWRITTEN, 0))
    assert len(known.point_results()) == 1
    known.log_change(rung=1)
    known.close()
    assert known.point_results() == []
    assert known.dropped_samples() == {"asked otherwise": DroppedSamples(1, 1)}
    assert remaining_keys(known, [CallKey("p0", Variant.ORIGINAL, 0)])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "not the file of a trial"),
        (b'{"ibidem_trial":1}\n', "line 1: not valid"),
        (b"hello\n", "line 1: not the file of a trial"),
    ],
    ids=["empty", "without a plan", "something else"],
)
def test_a_file_that_is_none(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "trial.jsonl"
    path.write_bytes(data)
    with pytest.raises(IbidemError, match=told):
        resume_run(path)
