"""What every reader of logs has to do, on logs that are made up here."""

from __future__ import annotations

import gzip
import importlib
import json
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ibidem
from benchmarks import readers
from ibidem import formats, recordings
from ibidem.recordings.titles import TITLE_LENGTH
from ibidem.wire import zstd

from .examples import Example
from .hostile import ODD, Hostile, refusal

TESTS = Path(__file__).parent.parent
EXAMPLES: list[Example] = [
    example
    for package in ("recordings", "benchmarks")
    for found in pkgutil.iter_modules([str(TESTS / package)])
    if not found.name.startswith("test_") and found.name not in ("conftest", "examples", "hostile")
    for example in importlib.import_module(f"tests.{package}.{found.name}").EXAMPLES
]
each = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.agent}: {example.name}")


def read(example: Example, data: bytes | None = None) -> list[recordings.Recording]:
    return recordings.read("some.log", example.data if data is None else data)


def test_every_reader_has_examples() -> None:
    assert {reader.agent for reader in recordings.READERS} == {example.agent for example in EXAMPLES}


def test_a_benchmark_log_is_not_known_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    benchmarks = {reader.agent for reader in readers.BENCHMARK_READERS}
    logs = [example.data for example in EXAMPLES if example.agent in benchmarks]
    assert {refusal(data) for data in logs} == {f"some.log: {recordings.UNKNOWN}"}


@each
def test_the_sessions_are_found(example: Example) -> None:
    found = read(example)
    assert [each.agent for each in found] == [example.agent] * len(found)
    assert [each.format for each in found] == [example.format] * len(found)
    assert [
        [[sent.length for sent in segment.requests] for segment in each.segments] for each in found
    ] == example.lengths
    causes = [[segment.cause for segment in each.segments] for each in found]
    assert causes == (example.causes or [["start"] * len(each) for each in causes])
    assert example.models is None or [each.models for each in found] == example.models
    assert example.projects is None or [each.project for each in found] == example.projects


WITHOUT_ID = "requests"
"""Bodies of requests name no session, but for those of two agents: see test_titles.py."""


@each
def test_sessions_can_be_recognised(example: Example) -> None:
    found = read(example)
    assert example.ids is None or [each.id for each in found] == example.ids
    assert example.titles is None or [each.title for each in found] == example.titles
    for session in found:
        assert session.title == " ".join(session.title.split())
        assert session.title
        assert len(session.title) <= TITLE_LENGTH


def test_every_reader_tells_ids_and_titles() -> None:
    agents = {reader.agent for reader in recordings.READERS}
    assert {example.agent for example in EXAMPLES if example.titles} == agents
    assert {example.agent for example in EXAMPLES if any(example.ids or ())} == agents - {WITHOUT_ID}


@each
def test_times_and_usage_are_found(example: Example) -> None:
    found = read(example)
    sent = [[sent for segment in each.segments for sent in segment.requests] for each in found]
    if example.inputs is not None:
        assert [[one.usage.input if one.usage else None for one in each] for each in sent] == example.inputs
    if example.times is not None:
        assert [[one.at for one in each] for each in sent] == example.times


@each
def test_lines_that_cannot_be_used_are_named(example: Example) -> None:
    found = read(example)
    assert [skipped.line for skipped in found[0].skipped] == example.skipped
    assert all(skipped.why for skipped in found[0].skipped)
    assert not any(each.skipped for each in found[1:])


@each
def test_requests_are_of_their_format_and_valid(example: Example) -> None:
    for session in read(example):
        dialect = formats.format_named(session.format)
        for request in session.requests():
            assert request.body[dialect.history_key]
            violations = ibidem.validate(request.body, format=session.format)
            assert example.invalid or violations == []


@each
def test_segments_share_their_messages(example: Example) -> None:
    """What a segment inherits unchanged are the same objects, so memory does not grow with the requests."""
    for session in read(example):
        for before, after in zip(session.segments, session.segments[1:], strict=False):
            if after.cause == "rewind":
                assert all(a is b for a, b in zip(before.history, after.history[: after.inherited], strict=False))


@each
def test_requests_are_rewritten_and_come_back(example: Example) -> None:
    for session in read(example):
        for request in session.requests():
            sent = ibidem.compact(request.body, format=session.format)
            assert ibidem.expand(sent.request, format=session.format) == request.body


@each
def test_a_compressed_log_says_the_same(example: Example) -> None:
    for packed in (zstd.compress(example.data), gzip.compress(example.data)):
        assert read(example, packed) == read(example)
    half = len(example.data) // 2
    for pack in (zstd.compress, gzip.compress):
        assert read(example, pack(example.data[:half]) + pack(example.data[half:])) == read(example), "in two parts"


@each
def test_noise_between_the_lines_changes_nothing(example: Example) -> None:
    """Broken lines, empty lines and lines of unknown types are passed over, and the broken ones counted."""
    if example.data.count(b"\n") < 2 or not example.data.startswith(b"{"):
        pytest.skip("one JSON value has no lines")
    lines = example.data.splitlines(keepends=True)
    try:
        json.loads(lines[0])
    except ValueError:
        pytest.skip("one JSON value has no lines")
    noisy = lines[0] + b'{"type": "assist\n\n' + b'{"type": "something-new"}\n' + b"".join(lines[1:]) + b"[1]\n"
    found = read(example, noisy)
    assert [[segment.history for segment in each.segments] for each in found] == [
        [segment.history for segment in each.segments] for each in read(example)
    ]
    assert len(found[0].skipped) == len(example.skipped) + 2


WRONG = {
    b"": "empty",
    b"   \n\n": "empty",
    b"hello\nworld\n": "no JSON objects",
    b"[1, 2]": "no JSON objects",
    b"[]": "no JSON objects",
    b'{"sessionId": "a", "messages": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n": "nested too deeply",
    b'{"sessionId": "a", "tokens": ' + b"9" * 10_000 + b"}\n": "digits",
    b'{"some": "object"}': "not a log",
    b"\x28\xb5\x2f\xfdrubbish": "zstd",
    b"\x1f\x8brubbish": "gzip",
    gzip.compress(b'{"some": "object"}', mtime=0) + b"rubbish": "gzip",
}


@pytest.mark.parametrize("data", WRONG, ids=lambda data: repr(data[:40]))
def test_a_wrong_file_gets_a_clear_message(data: bytes) -> None:
    with pytest.raises(recordings.LogError, match=WRONG[data]) as error:
        recordings.read("some.log", data)
    assert str(error.value).startswith("some.log: ")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("pack", [zstd.compress, gzip.compress], ids=["zstd", "gzip"])
def test_what_a_packed_log_unpacks_to_is_bounded(
    pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ibidem.recordings.log_file.MAX_UNPACKED", 4 << 20)
    small = EXAMPLES[0].data + b"\n" * ((4 << 20) - len(EXAMPLES[0].data))
    assert read(EXAMPLES[0], pack(small)) == read(EXAMPLES[0]), "exactly as much as may be"
    for large in (pack(small + b"\n"), pack(small) + pack(b"\n"), pack(b" " * (64 << 20))):
        with pytest.raises(recordings.LogError) as error:
            recordings.read("some.log", large)
        assert str(error.value) == (
            "some.log: decompresses to more than 4 MiB: if that is correct, decompress it and pass the resulting file"
        )


@pytest.mark.sampled(16)
@each
def test_whatever_stands_in_a_log_it_is_read_or_refused_with_a_message(example: Example) -> None:
    """Every 29th of all places and odd values; `tests_slow` has them all."""
    hostile = Hostile(example.data)
    cases = [(path, odd) for path in hostile.places for odd in ODD]
    logs = [hostile.with_odd(path, odd) for path, odd in cases[len(example.name) % 29 :: 29]]
    for data in (*logs, *map(hostile.with_gap, hostile.places[::5])):
        said = refusal(data)
        assert not said or said.startswith("some.log: "), data


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_count_that_is_none_costs_a_request_its_usage_at_most(odd: Any) -> None:
    counts = {"promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": odd}
    record = {
        "request": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        "response": {"usageMetadata": counts},
    }
    (session,) = recordings.read("some.log", json.dumps(record).encode())
    (request,) = session.requests()
    assert (request.request.usage is None) is (odd == 10**30), "what no request has counts for nothing said"
    assert request.request.usage is None or request.request.usage.input == 7
    assert session.skipped == []
