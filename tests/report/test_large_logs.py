"""Logs that are not held whole: the same figures as of any other, in little memory."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import made_up
from benchmarks.agents import ClaudeLog, CodexLog
from benchmarks.throughput import ONE_REQUEST, peak
from benchmarks.work import Project
from ibidem import recordings
from ibidem.recordings import LogFileStream, Recording
from ibidem.recordings.compressed_history import DecompressedHistory, compress_segments
from ibidem.recordings.log_streams import STREAMED_BYTES
from ibidem.recordings.recording import RecordedSegment
from ibidem.replay.histories import Histories
from ibidem.report.log_summary import read_facts
from ibidem.report.measure import ReportSettings, measure_log

MOST_TIMES = 1.5
"""What a report may take beyond what one request does, in sizes of the log."""
AT = 1.8e9


@pytest.mark.sampled(2)
@pytest.mark.parametrize("agent", [ClaudeLog, CodexLog])
@pytest.mark.parametrize(
    "settings",
    [
        ReportSettings(("lossless", "recoverable")),
        ReportSettings(("recoverable",), caching=("5m", "auto")),
        ReportSettings(("aggressive",), optimum=True),
    ],
    ids=["profiles", "caching", "optimum"],
)
def test_what_is_streamed_has_the_figures_of_the_whole(
    agent: type[ClaudeLog | CodexLog], settings: ReportSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made_up, "CONTEXT_BYTES", 60_000)
    data = agent(random.Random(5), Project("shop", 3, files=6), "0199", 300_000).written(AT)
    file = tmp_path / "log.jsonl"
    file.write_bytes(data)
    streamed = LogFileStream(file, len(data))
    [session] = recordings.read("log.jsonl", streamed)
    assert len(session.segments) > 1
    assert all(segment.is_compressed for segment in session.segments)
    assert measure_log("log.jsonl", streamed, settings) == measure_log("log.jsonl", data, settings)
    assert read_facts("log.jsonl", streamed) == read_facts("log.jsonl", data)


def recorded(*histories: list[Any]) -> Recording:
    return Recording("test", "openai-chat", [RecordedSegment(list(history)) for history in histories])


def test_a_history_is_unpacked_when_somebody_looks_and_gone_with_the_next() -> None:
    session = recorded([{"a": "→" * 9}], [{"b": float("inf"), "c": "\ud800", "d": 1 << 99}])
    before = [segment.history for segment in session.segments]
    compress_segments([session], DecompressedHistory())
    first, second = session.segments
    assert first.history is first.history
    looked_at = first.history
    assert [looked_at, second.history] == before
    assert first.history == looked_at
    assert first.history is not looked_at


def test_what_segments_share_stays_the_same_object() -> None:
    shared = {"role": "user"}
    nested: list[Any] = []
    for _ in range(3000):
        nested = [nested]
    session = recorded([shared, {"a": 1}], [shared], [{"alone": 1}], [{"deep": nested}])
    compress_segments([session], DecompressedHistory())
    assert [segment.is_compressed for segment in session.segments] == [False, False, True, False]
    assert session.segments[0].history[0] is session.segments[1].history[0]


def test_entries_that_are_read_again_go_by_the_same_name() -> None:
    session = recorded([{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}])
    compress_segments([session], DecompressedHistory())
    left: list[int] = []
    found = Histories(session, lambda: left.append(1))
    first = found[0][0]
    names = [found.entry_key(first), found.entry_key(found[1][0])]
    assert found[0][0] == first
    assert found[0][0] is not first
    assert (
        [found.entry_key(found[number][0]) for number in (0, 1)]
        == names
        == [*found.entry_keys(0), *found.entry_keys(1)]
    )
    assert len(left) > 2


def test_whoever_comes_back_to_all_of_them_finds_what_was_read() -> None:
    session = recorded([{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}])
    compress_segments([session], DecompressedHistory())
    found = Histories(session, keep_all=True)
    every = [found[0][0], found[1][0]]
    assert [history[0] for history in found] == every
    assert all(mine is theirs for (mine,), theirs in zip(found, every, strict=True))
    assert [*map(found.entry_key, every)] == [*found.entry_keys(0), *found.entry_keys(1)]


def rows(texts: int, characters: int) -> Iterator[dict[str, Any]]:
    """A session of Codex that reads much and is compacted after every few outputs. Python takes two bytes for each of
    these characters."""
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}]
    yield {"type": "response_item", "payload": kept[0]}
    for number in range(texts):
        named = {"call_id": f"c{number}"}
        call = {"type": "function_call", "name": "exec_command", "arguments": f'{{"cmd":"cat f{number}"}}', **named}
        lines = (f"{line}→ {number * 7919 + line:x} is what stands in line {line}" for line in range(characters // 40))
        yield {"type": "response_item", "payload": call}
        yield {
            "type": "response_item",
            "payload": {"type": "function_call_output", "output": "\n".join(lines), **named},
        }
        if number % 4 == 3:
            yield {"type": "compacted", "payload": {"message": "", "replacement_history": kept}}


def extra_memory(folder: Path, texts: int, least: int, program: Sequence[str]) -> float:
    """Return the memory that a report on a large log takes beyond a report on one request, in sizes of the log."""
    log, one = folder / "large.jsonl", folder / "one.json"
    stamp = "2026-01-01T10:00:00.000Z"
    with log.open("w", encoding="utf-8") as file:
        for row in rows(texts, 200_000):
            file.write(json.dumps({"timestamp": stamp, **row}, ensure_ascii=False) + "\n")
    one.write_bytes(ONE_REQUEST)
    size = log.stat().st_size
    assert size > least
    return 1e6 * (peak(log, program=program) - peak(one, program=program)) / size


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="memory is told in another way")
def test_a_report_takes_little_more_memory_than_the_log_has(tmp_path: Path) -> None:
    """The limit is lower here, and so the log is smaller and constant costs weigh more: without streaming it is more
    than four sizes of the log. `tests_slow` has a log above the real limit."""
    least = STREAMED_BYTES // 4
    change = f"from ibidem.report import log_sources; log_sources.STREAMED_BYTES = {least}"
    code = f"{change}; from ibidem.cli import main; main()"
    assert extra_memory(tmp_path, 60, least, ["-c", code]) < 2 * MOST_TIMES
