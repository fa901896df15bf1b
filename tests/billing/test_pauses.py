"""The user's own pauses: kept as counts, whole or not at all, and read by whoever can."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from ibidem.billing.cache_ttl import IdleTimes
from ibidem.billing.idle_times import PAUSES_FILE, PAUSES_VERSION, load_idle_times, save_idle_times

SOME = IdleTimes((5, 4, 3), (20, 1, 0), 7)


def test_what_was_kept_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    assert load_idle_times(folder) == IdleTimes()
    save_idle_times(SOME, folder)
    assert load_idle_times(folder) == SOME
    save_idle_times(IdleTimes(), folder)
    assert load_idle_times(folder) == IdleTimes()
    assert [path.name for path in folder.iterdir()] == [PAUSES_FILE]
    assert os.name == "nt" or stat.S_IMODE((folder / PAUSES_FILE).stat().st_mode) == 0o600


def test_they_are_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "USERPROFILE", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    save_idle_times(SOME)
    assert load_idle_times() == SOME
    assert [path.name for path in tmp_path.rglob("*.json")] == [PAUSES_FILE]


GOOD: dict[str, Any] = {"version": PAUSES_VERSION, "spoken": [1, 2, 3], "looped": [4, 5, 6], "conversations": 2}


SPOKEN: list[Any] = [None, [], [1, 2], [1, 2, -3], [1, 2, 3, 4], ["1", 2, 3]]
LOOPED: list[Any] = [[1, 2, 3.5], [True, 2, 3], [1, 2, 10**15], "123", {}]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "[" * 4000, "\0", '"' * 5000),
        *(json.dumps(GOOD | {"version": version}) for version in (0, PAUSES_VERSION + 1, None, "1")),
        *(json.dumps(GOOD | {"spoken": value}) for value in SPOKEN),
        *(json.dumps(GOOD | {"conversations": value}) for value in (None, -1, True, "2", [1])),
        *(json.dumps(GOOD | {"looped": value}) for value in LOOPED),
    ],
)
def test_a_file_with_anything_in_it_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / PAUSES_FILE).write_text(json.dumps(GOOD))
    assert load_idle_times(tmp_path) == IdleTimes((1, 2, 3), (4, 5, 6), 2)
    (tmp_path / PAUSES_FILE).write_text(text)
    assert load_idle_times(tmp_path) == IdleTimes()


def test_where_nothing_can_be_written_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    save_idle_times(SOME, tmp_path / "file")
    (tmp_path / PAUSES_FILE).mkdir()
    save_idle_times(SOME, tmp_path)
    assert load_idle_times(tmp_path) == IdleTimes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", PAUSES_FILE]
