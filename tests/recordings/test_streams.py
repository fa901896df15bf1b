from __future__ import annotations

from pathlib import Path

import pytest

from ibidem import recordings
from ibidem.recordings import LogFileStream

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
    assert [*log.lines()] == [b'{"a": 1}', b'{"b": 2}']
    assert b"".join(log.chunks()) == log.whole() == log.beginning(1000) == b'{"a": 1}\n{"b": 2}\n'
