"""A file that was read in one client's layout, and is shown again in another's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ibidem
from ibidem.formats import FORMATS
from ibidem.markers.backref import marker_prefix, tag_of
from ibidem.markers.layout import split_line_numbers
from ibidem.markers.layout_codecs import decode_layout, encode_layout
from ibidem.markers.line_numbers import STYLES
from ibidem.testing import arrival_is_final, conv, idempotent, lossless, never_larger, references_are_visible, runner

TAG = tag_of("go")
RUN = (ibidem.BackReferences(repeat_guard=0),)

WORDS = ["value", "result", "total", "index", "cache", "reader", "buffer", "window", "handle", "token"]
FILE = [
    f"{'    ' * (n % 4)}{WORDS[n % 10]}_{n} = {WORDS[n * 7 % 10]}({n * 31}, {WORDS[n * 3 % 10]!r})" if n % 9 else ""
    for n in range(1, 121)
]
EDITED = [*FILE[:40], "    a line that is new", *FILE[40:77], "changed = True", *FILE[78:]]

Written = Callable[[Sequence[str], int], str]


def numbers(form: str) -> Written:
    return lambda lines, first: "\n".join(form.format(at, line) for at, line in enumerate(lines, first))


def roo(lines: Sequence[str], first: int) -> str:
    width = len(str(first + len(lines) - 1))
    numbered = [f"{at:{width}} | {line}" for at, line in enumerate(lines, first)]
    return "\n".join(["<file><path>a.py</path>", f'<content lines="{first}">', *numbered, "</content>", "</file>"])


def opencode(lines: Sequence[str], first: int) -> str:
    numbered = numbers("{}: {}")(lines, first)
    end = f"(Showing lines {first}-{first + len(lines) - 1} of 900. Use offset=7 to continue.)"
    return f"<path>/src/a.py</path>\n<type>file</type>\n<content>\n{numbered}\n\n{end}\n</content>"


def codex(lines: Sequence[str], first: int) -> str:
    head = "Command: /bin/zsh -lc 'cat a.py'\nChunk ID: 8c7cc0\nWall time: 0.0000 seconds\nProcess exited with code 0\n"
    return head + "Original token count: 10\nOutput:\n" + "\n".join(lines)


LAYOUTS: dict[str, Written] = {
    "plain": lambda lines, first: "\n".join(lines),
    "Claude Code": numbers("{:6}→{}"),
    "Claude Code, newer": numbers("{}\t{}"),
    "cat -n": numbers("{:6}\t{}"),
    "OpenCode": opencode,
    "OpenCode, older": lambda lines, first: f"<file>\n{numbers('{:05}| {}')(lines, first)}\n</file>",
    "Crush": lambda lines, first: f"<file>\n{numbers('{:6}|{}')(lines, first)}\n</file>\n",
    "bars without padding": numbers("{}|{}"),
    "Roo Code": roo,
    "Copilot CLI": numbers("{}. {}"),
    "Codex read_file": numbers("L{}: {}"),
    "Codex command": codex,
    "SWE-agent": lambda lines, first: f"[File: a.py (900 lines total)]\n{numbers('{}:{}')(lines, first)}",
}

both = pytest.mark.parametrize("second", LAYOUTS)
either = pytest.mark.parametrize("first", LAYOUTS)


def request(*results: str, format: str = "anthropic") -> Any:
    lines = [line for n, text in enumerate(results, 1) for line in (f"a>{n}", f"r{n}:{text}")]
    return conv("u:go", *lines, format=format)


def sent_last(run: Any) -> str:
    """What the last result became."""
    edits = [edit for edit in run.plan if edit.message == len(run.request["messages"]) - 1]
    assert edits, "it was sent as it is"
    return str(edits[-1].added)


@either
@both
def test_a_file_is_found_in_every_other_layout(first: str, second: str) -> None:
    """A range that overlaps, of the file after an edit: what stands above is said by references alone."""
    given = request(LAYOUTS[first](FILE[:100], 1), LAYOUTS[second](EDITED[10:], 11))
    run = ibidem.compact(given, strategies=RUN)
    sent = sent_last(run)
    ours = [line for line in sent.split("\n") if line.startswith(marker_prefix(TAG))]
    assert 1 <= len(ours) <= 6, sent
    unsaid = [line for line in sent.split("\n") if line not in ours]
    assert len(unsaid) <= len(EDITED) - 100 + 14, sent
    assert ibidem.expand(run.request) == given
    references_are_visible(run, "anthropic")


@either
def test_a_file_that_is_read_twice_is_the_same_result(first: str) -> None:
    given = request(*[LAYOUTS[first](FILE, 1)] * 2)
    run = ibidem.compact(given, strategies=RUN)
    assert len(sent_last(run).split("\n")) <= 2, "no single reference"
    assert ibidem.expand(run.request) == given


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_the_laws_hold_for_files_in_any_layout(format: str, data: st.DataObject) -> None:
    shown = []
    for _ in range(data.draw(st.integers(2, 4))):
        start = data.draw(st.integers(0, 100))
        lines = data.draw(st.sampled_from([FILE, EDITED]))[start : start + data.draw(st.integers(1, 60))]
        shown.append(data.draw(st.sampled_from(list(LAYOUTS.values())))(lines, start + data.draw(st.integers(0, 2))))
    given, run = request(*shown, format=format), runner(RUN, format)
    for law in (lossless, idempotent, arrival_is_final, never_larger):
        law(run, given, format)


# ── what only looks like one ────────────────────────────────────────────────────────────────────────────────────────

WRITTEN = [f"{style.before}{{}}{style.after}{{}}" for style in STYLES]
NEARLY: dict[str, Callable[[str], str]] = {
    "some have no number": lambda form: "\n".join(
        form.format(n, line) if n % 7 else line for n, line in enumerate(FILE, 1)
    ),
    "they go down": lambda form: "\n".join(form.format(200 - n, line) for n, line in enumerate(FILE)),
    "each stands twice": lambda form: "\n".join(form.format(n // 2, line) for n, line in enumerate(FILE)),
    "all are the same": lambda form: "\n".join(form.format(7, line) for line in FILE),
    "they are huge": lambda form: "\n".join(form.format("9" * 5000 + str(n), line) for n, line in enumerate(FILE[:40])),
    "they have ten digits": lambda form: "\n".join(form.format(9_999_999_990 + n, line) for n, line in enumerate(FILE)),
    "they are of another script": lambda form: "\n".join(
        form.format(str(n).translate({48 + d: 0x660 + d for d in range(10)}), line) for n, line in enumerate(FILE)
    ),
    "the marks are mixed": lambda form: "\n".join(
        (form if n % 2 else WRITTEN[n % len(WRITTEN)]).format(n, line) for n, line in enumerate(FILE)
    ),
    "the lines themselves have numbers": lambda form: "\n".join(
        form.format(n, form.format(n + 5, line)) for n, line in enumerate(FILE)
    ),
    "the lines have numbers and tabs": lambda form: "\n".join(
        form.format(n, f"{n}\t{line}") for n, line in enumerate(FILE)
    ),
    "some are padded, some are not": lambda form: "\n".join(
        form.format(f"{n:{'06' if n % 3 else ''}}", line) for n, line in enumerate(FILE)
    ),
    "a tail has tabs": lambda form: "\n".join([form.format(n, line) for n, line in enumerate(FILE)] + ["7\tx", "8\ty"]),
    "the numbers stand alone": lambda form: "\n".join(form.format(n, "").rstrip() for n in range(200)),
}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("near", NEARLY)
@pytest.mark.parametrize("form", WRITTEN)
def test_what_is_nearly_a_layout_comes_back(near: str, form: str) -> None:
    text = NEARLY[near](form)
    assert decode_layout(*encode_layout(text)[:2], len(text)) == text
    layout = split_line_numbers(text.split("\n"))
    assert "\n".join(layout.units) == text
    shown = [numbers("{:6}→{}")(FILE, 1), text, text, numbers(form)(FILE, 1)]
    given, run = request(*shown), runner(RUN, "anthropic")
    for law in (lossless, idempotent, arrival_is_final, never_larger):
        law(run, given, "anthropic")


LINEAR = {
    "blanks": " " * 400_000,
    "digits": "1" * 400_000,
    "blanks and digits": " " * 200_000 + "1" * 200_000,
    "zeros": "0" * 400_000 + "| x",
    "blanks in many lines": "\n".join([" " * 2000] * 200),
    "digits in many lines": "\n".join(["1" * 2000 + "x"] * 200),
    "a command without an end": "Command: " + "x" * 400_000,
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_text_made_to_be_slow_is_not(name: str) -> None:
    start = time.process_time()
    text = LINEAR[name]
    assert decode_layout(*encode_layout(text)[:2], len(text)) == text
    split_line_numbers(text.split("\n"))
    assert time.process_time() - start < 1


def test_every_layout_names_where_it_was_seen() -> None:
    assert len({style.letter for style in STYLES}) == len(STYLES)
    assert all(style.clients and any(char.isdigit() for char in style.clients) for style in STYLES)
