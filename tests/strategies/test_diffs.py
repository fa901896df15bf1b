"""Diffs of what was shown before: runs of lines with one sign refer to it, where that is asked for."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem
from ibidem import BackReferences, testing
from ibidem.formats import FORMATS
from ibidem.markers.backref import EXPLANATION, digest_of, tag_of
from ibidem.store import MemoryStore
from ibidem.testing import conv
from tests.support.evict import NO_CLOCKS
from tests.support.lanes import daily
from tests.support.timed import best

TAG = tag_of("go")
FREE = ibidem.CachePricing(read=1.0, write=1.0)
FILE = [f"    value_{n} = compute({n * 31}, 'name {n * 17 % 97}')" for n in range(60)]
NEW = [f"    total_{n} = summed({n * 13}, 'item {n * 7 % 89}')" for n in range(20)]


def diff(before: Sequence[str], after: Sequence[str], context: int = 3) -> str:
    return "\n".join(
        ["diff --git a/a.py b/a.py", *difflib.unified_diff(before, after, "a/a.py", "b/a.py", "", "", context, "")]
    )


def numbered(lines: Sequence[str]) -> str:
    return "\n".join(f"{at:6}→{line}" for at, line in enumerate(lines, 1))


def request(*results: str, format: str = "anthropic") -> Any:
    lines = [line for n, text in enumerate(results, 1) for line in (f"a>{n}", f"r{n}:{text}")]
    return conv("u:go", *lines, format=format)


def sent(*results: str, **fields: Any) -> list[str]:
    """What is sent for them, once it was seen to be sound."""
    given, run = request(*results), testing.runner((BackReferences(**{"diffs": True, **fields}),), "anthropic")
    testing.lossless(run, given, "anthropic")
    testing.idempotent(run, given, "anthropic")
    found = run(given)
    testing.references_are_visible(found, "anthropic")
    return [block["content"] for message in found.request["messages"][2::2] for block in message["content"]]


def markers(text: str) -> list[str]:
    return [line.replace(f". {EXPLANATION}", "") for line in text.split("\n") if line.startswith("[ibidem")]


def test_lines_that_went_refer_to_where_they_stood() -> None:
    text = diff(FILE, [*FILE[:10], *FILE[40:]])
    found = sent(numbered(FILE), text)[1]
    assert markers(found) == [
        f"[ibidem {TAG}.{digest_of(text)}: unchanged, lines 11-40 of result 1 with -, Read(file1)]"
    ]
    assert found.startswith("diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -8,36 +8,6 @@\n    ")


def test_lines_that_came_refer_to_where_they_were_written() -> None:
    text = diff([], NEW)
    found = sent("\n".join(NEW), text)[1]
    assert markers(found) == [
        f"[ibidem {TAG}.{digest_of(text)}: unchanged, lines 1-20 of result 1 with +, Read(file1)]"
    ]


def test_lines_around_a_change_stay() -> None:
    text = diff(FILE, [*FILE[:20], "    changed", *FILE[21:]], 20)
    assert sent(numbered(FILE), text)[1] == text


def test_a_diff_that_was_shown_is_said_as_it_is() -> None:
    text = diff(FILE, [*FILE[:10], *NEW, *FILE[40:]])
    found = sent(numbered(FILE), text, text + "\n and one line more")
    assert len(markers(found[1])) == 1
    assert "with" not in "".join(markers(found[2])[:1])


def test_what_a_diff_shows_of_a_patch_is_found_in_the_patch_alone() -> None:
    """The new side of a patch has a sign in front already: a view of a view has no name."""
    text = diff([], NEW)
    found = sent(text, text.replace("diff --git", "other") + "\n+" + "\n+".join(FILE))
    assert all(" with" not in marker for each in found for marker in markers(each))


def test_it_is_off_unless_asked_for() -> None:
    text = diff(FILE, [*FILE[:10], *FILE[40:]])
    assert sent(numbered(FILE), text, diffs=False)[1] == text
    assert sent(numbered(FILE), text, spans=False)[1] == text


def test_what_is_no_diff_is_left_alone() -> None:
    text = "\n".join(f"- {line}" for line in FILE)
    assert sent("\n".join(f" {line}" for line in FILE), text)[1] == text


def test_a_line_that_stands_for_none_cannot_spoil_it() -> None:
    """A tool that prints what only stands for lines that are not compared."""
    blank = "\x00\x00\x00"
    plain = [line for each in FILE for line in (each, blank)]
    text = diff([], ["x"]) + "\n" + "\n".join(line for each in FILE for line in (f"-{each}", "+y"))
    assert sent("\n".join(plain), text)[1] == text
    text += "\n" + "\n".join(f"-{line}" for line in NEW)
    assert len(markers(sent("\n".join(plain), "\n".join(NEW), text)[2])) == 1


LINES = [
    *FILE[:8],
    *NEW[:8],
    "",
    "}",
    "+x",
    "-y",
    " z",
    "\x00",
    "\x00\x00\x00",
    "@@ -1 +1 @@",
    "\\ No newline at end of file",
]
TEXTS = st.lists(st.sampled_from(LINES), max_size=20)
SHOWN = st.one_of(
    TEXTS.map("\n".join),
    TEXTS.map(numbered),
    st.builds(diff, TEXTS, TEXTS, st.sampled_from([0, 1, 3, 9])),
    st.builds(lambda old, new: diff(old, new) + "\n" + "\n".join(new), TEXTS, TEXTS),
)
SLOW = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
one_format_daily = pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))


@one_format_daily
@given(shown=st.lists(SHOWN, min_size=2, max_size=5), inside=st.sampled_from([None, 8]), shapes=st.booleans())
@SLOW
def test_the_laws_hold(format: str, shown: list[str], inside: int | None, shapes: bool) -> None:
    chosen = BackReferences(diffs=True, inside=inside, shapes=shapes, min_gain=0, repeat_guard=0)
    given, run = request(*shown, format=format), testing.runner((chosen,), format)
    for law in (
        testing.valid_stays_valid,
        testing.arrival_is_final,
        testing.never_larger,
        testing.lossless,
        testing.untouched_is_untouched,
        testing.idempotent,
        testing.text_and_value_agree,
    ):
        law(run, given, format)
    testing.references_are_visible(run(given), format)
    looking = ibidem.Evict(**NO_CLOCKS, arrival=chosen, economy=FREE, mask=2)
    store = MemoryStore()
    found = ibidem.compact(given, strategies=[looking], format=format, store=store)
    assert not found.stats.failures
    assert ibidem.expand(found.request, format=format, store=store) == given


@pytest.mark.slow
def test_a_history_four_times_as_long_takes_four_times_as_long() -> None:
    """Many sources, and a diff that goes from one to the next with every other sign."""

    def asked(n: int) -> str:
        files = [[f"    line_{at} of file {file} says {at * file}" for at in range(6)] for file in range(n)]
        signs = [sign + line for at, file in enumerate(files) for line in file for sign in "+- "[at % 3]]
        return json.dumps(request(*map("\n".join, files), diff(["x"], ["y"]) + "\n" + "\n".join(signs)))

    work = partial(ibidem.compact, strategies=[BackReferences(diffs=True)])
    works: list[Callable[[], Any]] = [partial(work, asked(size)) for size in (400, 1600)]
    for rounds in (1, 3, 6):  # quadratic work fails all of them
        first, second = best(works, rounds)
        if second < 7 * first:
            return
    pytest.fail(f"{first:.4f} s, then {second:.4f} s for four times as much")
