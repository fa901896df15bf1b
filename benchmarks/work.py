"""What an agent does in a made-up project: numbered reads, greps, edits and test runs, many of the same files again.

Of no agent in particular: `year` writes it down as each of them does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from .history import WORDS, line

Kind = Literal["read", "search", "edit", "run"]
KINDS: tuple[Kind, ...] = ("read", "search", "edit", "run")
KIND_WEIGHTS = (45, 15, 22, 18)
"""In a hundred."""
AGAIN = 0.55
"""Of what is looked at, so much is a file that was looked at before."""
PAGE_LINES = 250
"""A longer file is read in pages."""


class Step(NamedTuple):
    """One call of a tool, and what came back."""

    kind: Kind
    file: str
    output: str
    first: int = 1
    """The first line that is shown, from 1."""
    lines: int = 0
    """How many are."""
    old: str = ""
    """What an edit replaces, or what is searched for."""
    new: str = ""


class Project:
    """A folder of source files. Sessions change a copy of their own."""

    def __init__(self, name: str, seed: int, files: int = 40) -> None:
        rng = random.Random(seed)
        self.folder = f"/home/me/{name}"
        self.files: dict[str, tuple[str, ...]] = {
            f"{self.folder}/src/{rng.choice(WORDS)}_{number}.py": tuple(line(rng) for _ in range(rng.randint(40, 700)))
            for number in range(files)
        }


def steps(project: Project, rng: random.Random) -> Iterator[Step]:
    """Without end."""
    files, names, seen = dict(project.files), list(project.files), list[str]()
    makers = {"read": _read, "search": _search, "edit": _edit, "run": _run}
    while True:
        name = rng.choice(seen[-6:]) if seen and rng.random() < AGAIN else rng.choice(names)
        seen.append(name)
        (kind,) = rng.choices(KINDS, KIND_WEIGHTS)
        yield makers[kind](name, files, rng)


Files = dict[str, tuple[str, ...]]


def numbered(lines: Sequence[str], first: int) -> str:
    return "\n".join(f"{number:6}→{text}" for number, text in enumerate(lines, first))


def _read(name: str, files: Files, rng: random.Random) -> Step:
    lines = files[name]
    pages = len(lines) // PAGE_LINES
    first = rng.randint(0, pages) * PAGE_LINES + 1 if pages else 1
    shown = lines[first - 1 : first - 1 + PAGE_LINES]
    return Step("read", name, numbered(shown, first), first, len(shown))


def _search(name: str, files: Files, rng: random.Random) -> Step:
    word = f"{rng.choice(WORDS)}("
    found = [f"{name}:{number}:{text}" for number, text in enumerate(files[name], 1) if word in text]
    return Step("search", name, "\n".join(found) or "No matches found", old=word)


def _edit(name: str, files: Files, rng: random.Random) -> Step:
    lines = files[name]
    place, count = rng.randrange(len(lines)), rng.randint(1, 6)
    new = tuple(line(rng) for _ in range(rng.randint(1, 8)))
    changed = files[name] = (*lines[:place], *new, *lines[place + count :])
    first = max(place - 4, 0)
    shown = changed[first : place + len(new) + 4]
    output = f"The file {name} has been updated. Here's a snippet of it:\n{numbered(shown, first + 1)}"
    return Step("edit", name, output, first + 1, len(shown), "\n".join(lines[place : place + count]), "\n".join(new))


def _run(name: str, files: Files, rng: random.Random) -> Step:
    """The same tests every time; now and then one fails."""
    count, failed = 20 + len(files[name]) % 60, rng.randrange(400)
    stem = name.rpartition("/")[2].removesuffix(".py")
    rows = [
        f"tests/test_{stem}.py::test_{number} {'FAILED' if number == failed else 'PASSED'}" for number in range(count)
    ]
    return Step("run", name, "\n".join([*rows, f"{count} tests in {rng.randint(100, 9000) / 100:.2f}s"]))
