"""Logs at an address: what is known of them without opening them, and what is said when they cannot be had."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ibidem.report import log_sources as places
from ibidem.report.log_sources import FetchedStream, LogFile, fetch, fetch_url, list_logs

WRITTEN = datetime(2026, 5, 6, tzinfo=UTC)
URL = "s3://bucket/a.jsonl"

TOLD: dict[str, tuple[dict[str, Any], LogFile]] = {
    "an object with a digest": (
        {"size": 5, "ETag": "x", "LastModified": WRITTEN},
        LogFile(URL, 5, WRITTEN.timestamp(), f"{URL} 5 x {WRITTEN}"),
    ),
    "a file with a time": ({"size": 5, "mtime": 7.0}, LogFile(URL, 5, 7.0, f"{URL} 5 None 7.0")),
    "a size alone": ({"size": 5}, LogFile(URL, 5)),
    "nothing": ({}, LogFile(URL)),
}


@pytest.mark.parametrize("case", TOLD)
def test_what_a_store_says_of_an_object_is_known(case: str) -> None:
    about, log = TOLD[case]
    assert places._log_from_metadata(URL, about) == log


def test_a_log_that_changes_has_another_state(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    path = tmp_path / "a.jsonl"
    path.write_text("1")
    [before] = list_logs(tmp_path.as_uri())
    assert (before.size, before.state != "") == (1, True)
    path.write_text("12")
    assert list_logs(tmp_path.as_uri()) != [before]


def test_a_large_log_is_not_held_whole_and_its_copy_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setattr(places, "STREAMED_BYTES", 10)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n')
    found = fetch(path.as_uri())
    assert isinstance(found, FetchedStream)
    assert found.read_all() == path.read_bytes()
    copy = found._path
    assert copy.exists()
    del found
    assert not copy.exists()


def test_errors_of_an_address_are_no_fault_of_ours() -> None:
    fsspec = pytest.importorskip("fsspec")

    class Strange(fsspec.AbstractFileSystem):  # type: ignore[misc, name-defined]
        protocol = "strange"

        def _open(self, path: str, *args: Any, **options: Any) -> Any:
            raise RuntimeError("no credentials")

        def info(self, path: str, **options: Any) -> Any:
            raise RuntimeError("no credentials")

        def isdir(self, path: str) -> bool:
            raise RuntimeError("no credentials")

    fsspec.register_implementation("strange", Strange, clobber=True)
    for asked in (fetch_url, fetch, list_logs):
        with pytest.raises(OSError, match="no credentials"):
            asked("strange://a/b.jsonl")
