from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibidem import recordings
from ibidem.recordings import LogFileStream, log_streams
from ibidem.recordings.log_file import read_log
from ibidem.recordings.log_streams import LongLine

from .examples import Example
from .test_contract import each


@each
def test_a_log_that_is_streamed_tells_what_it_tells_as_a_whole(example: Example, tmp_path: Path) -> None:
    data = example.data + b"no json\n" if example.data.endswith(b"\n") else example.data
    file = tmp_path / "some.log"
    file.write_bytes(data)
    streamed = recordings.read("some.log", LogFileStream(file, len(data)))
    assert streamed == recordings.read("some.log", data)


def test_a_file_without_an_object_says_so_when_it_is_streamed(tmp_path: Path) -> None:
    file = tmp_path / "some.log"
    file.write_bytes(b"rubbish\n" * 80)
    with pytest.raises(recordings.LogError, match="no JSON objects in it"):
        recordings.read("some.log", LogFileStream(file, 640))


def test_what_an_agent_adds_meanwhile_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": 2}\n')
    log = LogFileStream(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(b'{"c": 3}\n')
    assert [*log.iter_lines()] == [b'{"a": 1}', b'{"b": 2}']
    assert b"".join(log.iter_chunks()) == log.read_all() == log.read_start(1000) == b'{"a": 1}\n{"b": 2}\n'


def test_a_line_that_is_too_long_is_skipped_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_streams, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(log_streams, "CHUNK_BYTES", 30)
    rows = [b'{"n": 1}', b'{"n": 2, "text": "' + b"x" * 500 + b'"}', b'{"n": 3}', b"", b'{"n": 4}']
    for place in range(len(rows)):
        order = rows[place:] + rows[:place]
        path = tmp_path / f"{place}.jsonl"
        path.write_bytes(b"\n".join(order))
        log = read_log(str(path), LogFileStream(path, path.stat().st_size))
        kept = [json.loads(row)["n"] for row in order if row and len(row) < 100]
        for _ in range(2):
            assert [row["n"] for _, row in log.rows] == kept
        ((line, why),) = log.skipped
        assert (order[line - 1][:8], why) == (b'{"n": 2,', "longer than 64 MiB")


def test_a_line_of_just_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = b'{"n": 1}'
    for limit in (len(row), len(row) + 1):
        monkeypatch.setattr(log_streams, "MAX_LINE_BYTES", limit)
        path = tmp_path / "log.jsonl"
        path.write_bytes(row + b"\n" + row + b"\n" + row)
        stream = LogFileStream(path, path.stat().st_size)
        found = list(stream.iter_lines())
        assert len(found) == 3
        assert all(isinstance(line, LongLine) == (limit == len(row)) for line in found[:2])
