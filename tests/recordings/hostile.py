"""Logs in which something is not what its reader expects: every value of a made-up log, replaced by every odd one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from ibidem import recordings

from .examples import lines

DEEP, NESTED = "@deep@", "@nested@"
"""Stand for values that are too deep to be written by recursion."""
WRITTEN = {
    DEEP: b"[" * 900 + b"]" * 900,
    NESTED: b'{"type":"text","text":"x","content":[' * 440 + b"]}" * 440,
}
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 0.5, 10**30, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "1", "\x00"),
    *([], [1], [None], ["x"], [[]], [{}], {}, {"x": 1}, {"text": [1]}, {"type": []}, {"id": {}}, DEEP, NESTED),
)
Path = tuple[Any, ...]


def refusal(data: bytes) -> str:
    """What is said of a log that cannot be read; empty for one that is read."""
    try:
        assert recordings.read("some.log", data)
    except recordings.LogError as error:
        return str(error)
    return ""


def rows(data: bytes) -> list[Any] | None:
    """The JSON values of a log, one per line; None if it is one value, or has lines that are none."""
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError:
        return None


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where something stands in it, the whole of it included."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from paths(each, (*path, key))


def replaced(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def without(value: Any, path: Path) -> Any:
    copy = value.copy()
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(value[path[0]], path[1:])
    return copy


class Hostile:
    """A log and the places in it where something else may stand."""

    def __init__(self, data: bytes) -> None:
        found = rows(data)
        self._by_line = found is not None and len(found) > 1
        try:
            self._value = found if self._by_line else json.loads(data)
        except ValueError:
            self._by_line, self._value = True, [row for row in map(_read, data.splitlines()) if row is not None]
        self.places = [path for path in paths(self._value) if path]

    def with_odd(self, path: Path, new: Any) -> bytes:
        return self._dumped(replaced(self._value, path, new))

    def with_gap(self, path: Path) -> bytes:
        return self._dumped(without(self._value, path))

    def with_several(self, chance: random.Random, count: int) -> bytes:
        value = self._value
        for _ in range(count):
            value = replaced(value, chance.choice([path for path in paths(value) if path]), chance.choice(ODD))
        return self._dumped(value)

    def _dumped(self, value: Any) -> bytes:
        data = lines(*value) if self._by_line else json.dumps(value).encode()
        for name, text in WRITTEN.items():
            data = data.replace(json.dumps(name).encode(), text)
        return data


def _read(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
