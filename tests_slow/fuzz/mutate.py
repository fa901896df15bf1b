"""Mutation of JSON inside of an input: a value is replaced by an odd one, or by another value of the same input."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import atheris

from tests.recordings.hostile import ODD, paths, replaced, without

ODD_VALUES = [value for value in ODD if value not in ("@deep@", "@nested@")]


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Return a changed input of at most `max_size` bytes."""
    chance = Random(seed)
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    text, mark, rest = lines[at].partition(b"\xff")
    new = _changed(text, chance) if chance.random() < 0.5 else None
    if new is None:
        return bytes(atheris.Mutate(data, max_size))
    lines[at] = new + mark + rest
    return b"\n".join(lines)[:max_size]


def _changed(text: bytes, chance: Random) -> bytes | None:
    """Return the JSON text with one value changed; None if it is no JSON container."""
    try:
        value: Any = json.loads(text)
        every = [path for path in paths(value) if path]
        if not every:
            return None
        path = chance.choice(every)
        if chance.random() < 0.2:
            value = without(value, path)
        else:
            value = replaced(value, path, chance.choice(ODD_VALUES) if chance.random() < 0.6 else _other(value, chance))
        spaced = chance.random() < 0.3
        return json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=1 if spaced else None).encode(
            "utf-8", "backslashreplace"
        )
    except (ValueError, RecursionError):
        return None


def _other(value: Any, chance: Random) -> Any:
    for step in chance.choice(list(paths(value))):
        value = value[step]
    return value
