"""Nothing is said twice: what is sent for a result, that it comes back, and that every reference is true."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import ibidem
from benchmarks.references import references
from ibidem import BackReferences, HintStyle, testing
from ibidem.formats import FORMATS
from ibidem.markers.backref import ABOVE, EXPLANATION, Marker, digest_of, parse_marker, tag_of
from ibidem.markers.patches import SIGN_BY_VIEW, VIEW
from ibidem.model import Text
from ibidem.testing import Turn, build, conv, read
from ibidem.tokens import counter_for
from tests.support.lanes import daily
from tests.support.timed import best

every_format = pytest.mark.parametrize("format", FORMATS)
one_format_daily = pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))
TAG = tag_of("go")
"""Of every conversation here: all begin with these words of the user's."""


def reads(*outputs: Any, format: str = "anthropic", calls: Any = None) -> Any:
    """A conversation that gets these outputs one after the other, from calls 1, 2, …"""
    turns = [Turn("user", "go")]
    for number, output in enumerate(outputs, 1):
        turns += [Turn("assistant", calls=[str(number)]), Turn("tool", results=[(str(number), output)])]
    return build(turns, format, calls)


def texts_of(request: Any, format: str = "anthropic") -> list[str]:
    """Texts of the results, in order."""
    return [
        segment.text
        for message in read(request, format).messages
        for result in message.results
        for segment in result.segments
        if isinstance(segment, Text)
    ]


def explained(line: str) -> str:
    """The line as the first marker of a conversation."""
    return f"{line[:-1]}. {EXPLANATION}]"


def ours(text: str) -> bool:
    return f"[ibidem {TAG}" in text


def sound(request: Any, format: str, **options: Any) -> list[str]:
    """The texts sent for the results, once everything that must always hold has been seen to hold."""
    given = deepcopy(request)
    result = ibidem.compact(request, format=format, **options)
    assert request == given
    assert result.reason == ""
    assert ibidem.expand(result.request, format=format) == request
    for spelling in ({}, {"separators": (",", ":")}, {"indent": 1}):
        data = json.dumps(request, ensure_ascii=False, **spelling).encode("utf-8", "surrogatepass")
        if b"\xed" not in data:  # a lone surrogate is no UTF-8
            assert ibidem.expand(ibidem.compact(data, format=format, **options).request, format=format) == data
    count = counter_for()
    sent = texts_of(result.request, format)
    for before, after in zip(texts_of(request, format), sent, strict=True):
        assert count(after) <= count(before)
        assert len(after.encode("utf-8", "replace")) <= len(before.encode("utf-8", "replace"))
    references_are_true(request, result.request, format)
    return sent


# ── law 5, written without the code that it judges ──────────────────────────────────────────────────────────────────

SHOWN_NUMBER = re.compile(r" *([0-9]+)[\t→:]")


def references_are_true(before: Any, after: Any, format: str) -> Counter[str]:
    """Every marker points at lines that stand above it, in full, and says what they replace. Counts the markers."""
    seen: Counter[str] = Counter()
    above: dict[str, str] = {}
    for (name, original), (_, sent) in zip(_sources(before, format), _sources(after, format), strict=True):
        if sent != original:
            markers = _markers(sent)
            assert markers, f"{name} was rewritten, and does not say so"
            assert [bool(found.digest) for _, found in markers] == [True] + [False] * (len(markers) - 1)
            for at, found in markers:
                seen["folded" if found.source is None else found.unit or ("but" if found.but else "same")] += 1
                seen[found.view or "as it is"] += 1
                seen["rests on the one above" if found.omits_source else "names its source"] += 1
                if found.source == ABOVE:
                    _is_true(found, markers[0][1].flags, [], original, "\n".join(sent.split("\n")[:at]))
                elif found.source is not None:
                    _is_true(found, markers[0][1].flags, sent.split("\n")[at + 1 :], original, above[str(found.source)])
        above[name] = sent
    return seen


def _markers(sent: str) -> list[tuple[int, Marker]]:
    """The markers of a part, and where they stand; one that names no source means that of the one above it."""
    markers: list[tuple[int, Marker]] = []
    for at, line in enumerate(sent.split("\n")):
        found = parse_marker(line, TAG, markers[-1][1] if markers else None)
        markers += [(at, found)] if found else []
    return markers


def _sources(request: Any, format: str) -> Iterator[tuple[str, str]]:
    """What can be pointed at, by the name a marker has for it."""
    calls = results = 0
    for message in read(request, format).messages:
        for call in message.calls:
            calls += 1
            arguments = json.loads(call.input) if isinstance(call.input, str) else call.input
            for key, value in arguments.items():
                if isinstance(value, str):
                    yield f"call {calls}.{key}", value
        for result in message.results:
            results += 1
            texts = [segment.text for segment in result.segments if isinstance(segment, Text)]
            for place, text in enumerate(texts, 1):
                yield f"result {results}" + (f".{place}" if len(texts) > 1 else ""), text


def _is_true(marker: Marker, flags: str, below: list[str], original: str, target: str) -> None:
    lines = target.split("\n")
    if (last := parse_marker(lines[-1], TAG)) is not None and last.source is None:
        lines.pop()
    if marker.unit:
        meant = _meant(marker, lines, "," if "y" in flags else ", ")
        assert len(meant) == marker.last - marker.first + 1
        assert not any(ours(line) for line in meant)
        if marker.view in SIGN_BY_VIEW:
            meant = [SIGN_BY_VIEW[marker.view] + line for line in meant]
        elif marker.view:
            assert all(line[:1] in ("+", " ", "") for line in meant), "a line that is not on the new side"
            meant = [line[1:] for line in meant]
        if set(flags) <= set("nt0123456789"):
            bodies = [SHOWN_NUMBER.sub("", line, count=1) for line in meant]
            own = [SHOWN_NUMBER.sub("", line, count=1) for line in original.split("\n")]
            starts = [at for at in range(len(own)) if own[at : at + len(bodies)] == bodies]
            assert starts, "what is pointed at is not what was left out"
            if marker.own is not None:
                numbers = [int(found[1]) for line in original.split("\n") if (found := SHOWN_NUMBER.match(line))]
                assert marker.own in numbers
    else:
        assert not any(parse_marker(line, TAG) for line in lines), "what is pointed at was replaced itself"
        assert marker.but == bool(below), "'but for' and nothing below it"
        if not marker.but and not flags:
            assert "\n".join(lines) == original


def _meant(marker: Marker, lines: list[str], comma: str) -> list[str]:
    """The lines, or items, that a reader would take it to mean."""
    if marker.unit == "item":
        other = {",": ", ", ", ": ","}[comma]
        joint = comma if lines[0].count(comma) >= marker.last - 1 else other
        lines = [item for line in lines for item in ([line] if ours(line) else line.split(joint))]
    elif marker.unit == "line" and sum(map(bool, map(SHOWN_NUMBER.match, lines))) * 2 >= len(lines):
        numbers = [int(found[1]) if (found := SHOWN_NUMBER.match(line)) else None for line in lines]
        assert numbers.count(marker.first) == 1, "a line number that stands there twice, or not at all"
        first = numbers.index(marker.first)
        return lines[first : first + marker.last - marker.first + 1]
    return lines[marker.first - 1 : marker.last]


# ── what is sent ────────────────────────────────────────────────────────────────────────────────────────────────────

CODE = [f"def function_{n}(value): return value * {n}" for n in range(60)]
FILE = "\n".join(CODE) + "\n"
EDITED = [*CODE[:30], "    changed = True", *CODE[31:]]
LOG = [f"case {n} of the suite passed in time" for n in range(60)]
REMINDER = "\n".join(
    [
        "<system-reminder>",
        *(f"Rule {n}: always be careful with this, and say why." for n in range(6)),
        "</system-reminder>",
    ]
)
STATUS = {"id": 1, "state": "running", "meta": {f"key{n}": f"value {n}" for n in range(20)}, "list": [1, [2, 3]]}
NESTED = json.dumps(STATUS).replace('"value 7"', "[8]").replace("[2, 3]", "[2, 4]")
TABLE = {"items": [{"id": n, "name": f"name {n}", "size": 10 * n} for n in range(30)]}
LONG = ", ".join(f"element {n} of the list" for n in range(60))
AGAIN = "the same line again\n"
PROSE = " ".join(f"word{n}" for n in range(400))


def arrows(lines: list[str], first: int = 1) -> str:
    return "\n".join(f"{number:6}→{line}" for number, line in enumerate(lines, first))


def tabs(lines: list[str], first: int = 1) -> str:
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))


def head(text: str, what: str, flags: str = "") -> str:
    """The first marker of a part."""
    return f"[ibidem {TAG}.{digest_of(text)}{flags}: {what}]"


SHIFTED = arrows(["import os", "import re", *CODE[20:60]], 119)
GROWN = "\n".join([*LOG[:12], "case 12 of the suite FAILED", *LOG[13:], "1 failed"])
CASES: dict[str, tuple[list[str], str]] = {
    "a whole repeat": ([FILE, FILE], explained(head(FILE, "unchanged, same as result 1, Read(file1)"))),
    "a repeat after something else": (
        [FILE, GROWN, FILE],
        explained(head(FILE, "unchanged, same as result 1, Read(file1)")),
    ),
    "a file after a line of it was changed": (
        [FILE, "\n".join(EDITED)],
        explained(head("\n".join(EDITED), "unchanged, lines 1-30 of result 1, Read(file1)"))
        + f"\n    changed = True\n[ibidem {TAG}: lines 32-60]",
    ),
    "a numbered file after a line of it was changed": (
        [tabs(CODE), tabs(EDITED)],
        explained(head(tabs(EDITED), "1-30 unchanged since result 1, Read(file1)"))
        + f"\n31\t    changed = True\n[ibidem {TAG}: 32-60 unchanged]",
    ),
    "another part of a numbered file, whose numbers have shifted": (
        [arrows(CODE[:40]), SHIFTED],
        "119\timport os\n120\timport re\n"
        + head(SHIFTED, "121-140 unchanged, lines 21-40 of result 1, Read(file1)", "n")
        + "\n"
        + tabs(CODE[40:60], 141),
    ),
    "a plain copy of numbered lines": (
        [tabs(CODE), "\n".join(CODE[3:50])],
        explained(head("\n".join(CODE[3:50]), "unchanged, lines 4-50 of result 1, Read(file1)")),
    ),
    "a numbered copy of plain lines": (
        ["\n".join(CODE), tabs(CODE[3:50], 4)],
        explained(head(tabs(CODE[3:50], 4), "4-50 unchanged since result 1, Read(file1)")),
    ),
    "lines that a search without names prints": (
        [FILE, "\n".join(CODE[10:30])],
        explained(head("\n".join(CODE[10:30]), "unchanged, lines 11-30 of result 1, Read(file1)")),
    ),
    "a reminder under different outputs": (
        ["one output\n\n" + REMINDER, "another\nof two lines\n\n" + REMINDER],
        "another\nof two lines\n"
        + explained(head("another\nof two lines\n\n" + REMINDER, "unchanged, lines 2-10 of result 1, Read(file1)")),
    ),
    "a log with one line changed": (
        ["\n".join(LOG), "\n".join([*LOG[:12], "case 12 of the suite FAILED", *LOG[13:]])],
        explained(
            head(
                "\n".join([*LOG[:12], "case 12 of the suite FAILED", *LOG[13:]]),
                "unchanged, same as result 1, Read(file1), but for:",
            )
        )
        + "\n13: case 12 of the suite FAILED",
    ),
    "a log with one line changed and one more": (
        ["\n".join(LOG), GROWN],
        explained(head(GROWN, "unchanged, lines 1-12 of result 1, Read(file1)"))
        + f"\ncase 12 of the suite FAILED\n[ibidem {TAG}: lines 14-60]\n1 failed",
    ),
    "lines with carriage returns": (
        ["\r\n".join(CODE) + "\r\n", "\r\n".join(CODE[:50]) + "\r\n"],
        explained(head("\r\n".join(CODE[:50]) + "\r\n", "unchanged, lines 1-50 of result 1, Read(file1)")) + "\n",
    ),
    "the same without its final line break": (
        [FILE, FILE[:-1]],
        explained(head(FILE[:-1], "unchanged, lines 1-60 of result 1, Read(file1)")),
    ),
    "separators that do not break lines": (
        ["\u2028".join(CODE[:20]) + "\x0b\n" + FILE, "\x85" + "\u2028".join(CODE[:20]) + "\x0b\n" + FILE + "end"],
        "",
    ),
    "one line many times": (
        [AGAIN * 300, "first\n" + AGAIN * 200],
        "first\n"
        + explained(
            head("first\n" + AGAIN * 200, "unchanged, lines 1-200 of result 1, Read(file1)")
        )
        + "\n",
    ),
    "JSON on one line that differs in a field": (
        [json.dumps(STATUS), json.dumps({**STATUS, "state": "stopped"})],
        explained(
            head(json.dumps({**STATUS, "state": "stopped"}), "unchanged, same as result 1, Read(file1), but for:", "x")
        )
        + '\n2: "state": "stopped"',
    ),
    "JSON on one line that differs in a nested field and in a list": (
        [json.dumps(STATUS), NESTED],
        explained(
            head(
                NESTED,
                "unchanged, same as result 1, Read(file1), but for:",
                "x",
            )
        )
        + '\n10: "key7": [8]\n25: 4]]}',
    ),
    "a part of one long line": (
        [LONG, LONG.replace("element 0 ", "a new element, ") + ", and more, and more"],
        "",
    ),
}  # fmt: skip


@every_format
@pytest.mark.parametrize(("outputs", "wanted"), CASES.values(), ids=CASES)
def test_what_was_said_before_is_referred_to(outputs: list[str], wanted: str, format: str) -> None:
    sent = sound(reads(*outputs, format=format), format)[-1]
    if wanted:
        assert sent == wanted
    else:
        assert ours(sent)


@every_format
@pytest.mark.parametrize(
    ("shown", "again"),
    [
        pytest.param(arrows(CODE), "\n".join(f"src/a.py:{n + 1}:{CODE[n]}" for n in range(10, 40)), id="a search"),
        pytest.param(FILE, "\n".join(f"{n + 1}:{CODE[n]}" for n in range(10, 40)), id="a search in one file"),
        pytest.param(
            json.dumps(STATUS, indent=2),
            json.dumps({**STATUS, "state": "stopped"}, indent=2),
            id="indented JSON that differs in a field",
        ),
        pytest.param(
            json.dumps(TABLE),
            json.dumps(TABLE).replace("name 7", "another"),
            id="a list of objects that differs in a field",
        ),
    ],
)
def test_a_folded_text_is_compared_as_well(shown: str, again: str, format: str) -> None:
    """Section 4 of the design names each of these."""
    sent = sound(reads(shown, again, format=format), format)[1]
    assert ours(sent)
    assert len(sent) < len(again) / 2


@every_format
@pytest.mark.parametrize(
    ("again", "wanted"),
    [
        pytest.param(
            FILE[:-1],
            explained(head(FILE[:-1], "unchanged, lines 1-60 of call 1.content, Write(a.py)")),
            id="as it was written",
        ),
        pytest.param(
            arrows(CODE),
            explained(head(arrows(CODE), "1-60 unchanged since call 1.content, Write(a.py)", "n")),
            id="with numbers",
        ),
        pytest.param(
            arrows(CODE[20:40], 21),
            explained(
                head(arrows(CODE[20:40], 21), "21-40 unchanged since call 1.content, Write(a.py)", "n")
            ),
            id="a part of it with numbers",
        ),
    ],
)  # fmt: skip
def test_a_file_read_back_points_at_the_call_that_wrote_it(again: str, wanted: str, format: str) -> None:
    calls = {"1": ("Write", {"file_path": "a.py", "content": FILE}), "2": ("Read", {"file_path": "a.py"})}
    assert sound(reads("ok", again, format=format, calls=calls), format) == ["ok", wanted]


PATCHED = [f"    added_{n} = compute(value_{n}, other={n})" for n in range(12)]
HUNK = ["*** Update File: a.py", "@@", " def f():", "-    old = 1", *(f"+{line}" for line in PATCHED), " ", " # end"]
PATCH = "\n".join(["*** Begin Patch", *HUNK, "*** End Patch"])
AFTER = ["import os", "def f():", *PATCHED, "", "# end", "rest = 1"]


@every_format
@pytest.mark.parametrize(
    ("again", "wanted"),
    [
        pytest.param(
            "\n".join(AFTER),
            "import os\ndef f():\n{}\nrest = 1".format(
                explained(head("\n".join(AFTER), "unchanged, lines 6-19 of call 1.input without +, apply_patch(a.py)"))
            ),
            id="plainly",
        ),
        pytest.param(
            tabs(AFTER),
            "1\timport os\n2\tdef f():\n{}\n17\trest = 1".format(
                explained(head(tabs(AFTER), "3-16 unchanged, lines 6-19 of call 1.input without +, apply_patch(a.py)"))
            ),
            id="with numbers",
        ),
    ],
)
def test_a_file_that_was_patched_points_at_the_new_side_of_the_patch(again: str, wanted: str, format: str) -> None:
    calls = {"1": ("apply_patch", {"input": PATCH}), "2": ("Read", {"file_path": "a.py"})}
    assert sound(reads("ok", again, format=format, calls=calls), format) == ["ok", wanted]


@every_format
@pytest.mark.parametrize(
    "sign", ["-", "*", "\\"], ids=["taken out of the file", "of the patch itself", "a note on the file's end"]
)
def test_lines_that_are_not_on_the_new_side_are_no_target(sign: str, format: str) -> None:
    patch = "\n".join(["*** Begin Patch", "@@", "+x", *(f"{sign}{line}" for line in PATCHED), "*** End Patch"])
    calls = {"1": ("apply_patch", {"input": patch}), "2": ("Read", {"file_path": "a.py"})}
    assert sound(reads("ok", "\n".join(PATCHED), format=format, calls=calls), format)[1] == "\n".join(PATCHED)


SAME: dict[str, list[Any]] = {
    "short texts": ["ok, nothing to see here"] * 3,
    "texts that have nothing in common": [FILE, "\n".join(LOG)],
    "blank lines": ["\n" * 60, "\n" * 60],
    "empty texts": ["", "", " "],
    "one short line that repeats": ["a short line of text\n" + "\n".join(LOG), "a short line of text"],
}  # fmt: skip


@every_format
@pytest.mark.parametrize("outputs", SAME.values(), ids=SAME)
def test_where_nothing_is_gained_nothing_is_done(outputs: list[Any], format: str) -> None:
    request = reads(*outputs, format=format)
    assert ibidem.compact(request, format=format).request is request
    assert ibidem.expand(request, format=format) is request


COMES_BACK: dict[str, list[Any]] = {
    "a very long line": [PROSE * 20, PROSE * 20, PROSE * 20 + " end"],
    "a very long line among others": [FILE + PROSE * 5 + "\n" + FILE, "x\n" + PROSE * 5 + "\n" + FILE],
    "empty lines between": ["\n\n".join(CODE), "\n\n\n" + "\n\n".join(CODE[:30]) + "\n\n\n"],
    "tabs": ["\n".join("\t" * (n % 5) + line + "\t" for n, line in enumerate(CODE[k:], k)) for k in (0, 9)],
    "a null among the lines, and a hole": [FILE, "x\n" + "\n".join(CODE[:20]) + "\n\0\ny\n" * 9, "z\n\0\n" + FILE],
    "two nulls among the lines, and a hole": [
        FILE,
        "\n".join([*CODE[:20], *LOG[:9], "\0\0", *LOG[9:]]),
        "\n".join(["z", *LOG[:9], "\0\0", *LOG[9:]]),
    ],
    "colours": ["\n".join(f"\x1b[32m{line}\x1b[0m" for line in LOG[least:]) for least in (0, 0, 7)],
    "other scripts": ["\n".join(f"строка {n} 行 🦀" for n in range(least, 60)) for least in (0, 0, 9)],
    "lone surrogates": ["\ud800 lone\n" * 60] * 2,
    "numbers that jump and repeat": [
        "\n".join([arrows(CODE[:20], 1), arrows(CODE[20:40], 5), "...", arrows(CODE[40:], 900)]),
        "\n".join([arrows(CODE[20:40], 7), arrows(CODE[:20], 1), arrows(CODE[40:], 99999)]),
    ],
    "numbers of ten digits and more": [tabs(CODE, 9_999_999_960), tabs(CODE[5:], 9_999_999_965), tabs(CODE, 1)],
    "numbers with zeros before them": ["\n".join(f"{n:04}\t{line}" for n, line in enumerate(CODE)), tabs(CODE, 0)],
    "a tail that looks numbered": [arrows(CODE) + "\n\n" + REMINDER, arrows(EDITED, 3) + "\n\n3\tx\n" + REMINDER],
    "Codex headers that are never the same": [
        f"Chunk ID: {n:06x}\nWall time: 0.{n} seconds\nProcess exited with code 0\nOriginal token count: 9\nOutput:\n"
        + FILE
        for n in range(3)
    ],
    "search results twice, and fewer of them": [
        "\n".join(f"src/{n // 20}.py:{n}:{line}" for n, line in enumerate(CODE) if n >= least) for least in (0, 0, 5)
    ],
    "one line of JSON that grows": [json.dumps({"a": list(range(n, 300))}) for n in (0, 0, 1)],
    "lines that look like changed fields": ["\n".join(f"{n}: {line}" for n, line in enumerate(LOG))] * 2
    + ["\n".join(f"{n}: {line}" for n, line in enumerate([*LOG[:9], "9: 9: x", *LOG[10:]]))],
}  # fmt: skip


@every_format
@pytest.mark.parametrize("outputs", COMES_BACK.values(), ids=COMES_BACK)
def test_whatever_is_left_out_comes_back(outputs: list[Any], format: str) -> None:
    assert any(map(ours, sound(reads(*outputs, format=format), format)))


@every_format
def test_of_parallel_results_the_later_refers_to_the_earlier(format: str) -> None:
    request = conv("u:go", "a>1,2,3", f"r1:{FILE}", f"r2:{FILE}", f"r3:{FILE}x", format=format)
    first, second, third = sound(request, format)
    assert first == FILE
    assert second == explained(head(FILE, "unchanged, same as result 1, Read(file1)"))
    assert third == head(FILE + "x", "unchanged, lines 1-60 of result 1, Read(file1)") + "\nx"


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses"])
def test_every_text_of_a_result_stands_for_itself(format: str) -> None:
    """Gemini's results hold one text."""
    request = reads(["intro", FILE, None], [None, FILE, "\n".join(LOG), FILE], "\n".join(LOG), format=format)
    sent = sound(request, format)
    assert sent == [
        "intro",
        FILE,
        explained(head(FILE, "unchanged, same as result 1.2, Read(file1)")),
        "\n".join(LOG),
        head(FILE, "unchanged, same as result 1.2, Read(file1)"),
        head("\n".join(LOG), "unchanged, same as result 2.2, Read(file2)"),
    ]


# ── what resembles a marker ─────────────────────────────────────────────────────────────────────────────────────────

BUT = f"[ibidem {TAG}.123456: unchanged, same as result 1, Read(file1), but for:]"
QUOTED: dict[str, str] = {
    "a marker of this conversation": f"[ibidem {TAG}.123456: unchanged, same as result 1, Read(file1)]",
    "its beginning, within a line": f"see [ibidem {TAG} and so on",
    "a marker that only folds": f"[ibidem {TAG}.000000n]",
    "a marker without anything": f"[ibidem {TAG}]",
    "lines that are not there": f"[ibidem {TAG}.123456: unchanged, lines 900-999 of result 1]",
    "lines in reverse": f"[ibidem {TAG}.123456: unchanged, lines 9-2 of result 1]",
    "lines that were left out, by the billion": f"[ibidem {TAG}: 999999999 lines left out]",
    "the same with a reference": f"[ibidem {TAG} 0123456789ab: 999999999 lines left out, old]",
    "the same, and a digest that fits": f"x\n[ibidem {TAG}: 99999999 lines left out]\n[ibidem {TAG}.{digest_of('x')}]",
    "every shape, over and over": f"x\n[ibidem {TAG}.123456{'gprjnt' * 500}]",
    "two digests": "\n".join([f"[ibidem {TAG}.123456: unchanged, same as result 1]"] * 2),
    "a result that is not there": f"[ibidem {TAG}.123456: unchanged, same as result 77]",
    "itself": f"[ibidem {TAG}.123456: unchanged, same as result 2]",
    "a line with a number beyond reading": f"[ibidem {TAG}: line {'9' * 5000} of result 1]",
    "lines of what the marker above means, with none above": f"[ibidem {TAG}: lines 1-9]",
    "lines of what the marker above means": "\n".join(
        [f"[ibidem {TAG}.123456: unchanged, line 1 of result 1]", f"[ibidem {TAG}: lines 2-9]"]
    ),
    "lines in place, with no marker above": f"[ibidem {TAG}: 2-9 unchanged]",
    "a width beyond memory": f"x\n[ibidem {TAG}.123456n{'9' * 20}]\n1\tx",
    "a digest that fits nothing, and a width beyond memory": f"1\tx\n[ibidem {TAG}.123456n{'9' * 20}]",
    "a field with a number beyond reading": f"{BUT}\n{'9' * 5000}: x",
    "a field that is not there": f"{BUT}\n99: x",
    "a shape that does not fit": f"nonsense\n[ibidem {TAG}.123456jr9]",
}  # fmt: skip


@every_format
@pytest.mark.parametrize("quoted", QUOTED.values(), ids=QUOTED)
@pytest.mark.parametrize("around", ["", "many more words\n" * 40], ids=["alone", "among other lines"])
def test_a_text_that_quotes_this_conversation_is_left_alone_and_disturbs_nothing(
    quoted: str, around: str, format: str
) -> None:
    """Law 9: such an output is passed on, and cannot keep the others from being what they would be without it."""
    hostile = around + quoted
    request = reads(FILE, hostile, FILE, arrows(CODE, 7), format=format)
    plain = reads(FILE, "nothing", FILE, arrows(CODE, 7), format=format)
    result = ibidem.compact(request, format=format)
    assert result.stats.failures == ()
    sent = texts_of(result.request, format)
    assert sent[1] == hostile
    assert [sent[0], *sent[2:]] == [
        text
        for number, text in enumerate(texts_of(ibidem.compact(plain, format=format).request, format))
        if number != 1
    ]
    assert ibidem.expand(result.request, format=format) == request
    assert ibidem.expand(request, format=format) == request
    assert ibidem.compact(result.request, format=format).request == result.request


@every_format
def test_a_text_that_quotes_another_conversation_is_like_any_other(format: str) -> None:
    other = f"{(int(TAG) + 1) % 1000:03d}"
    quoting = f"[ibidem {other}.123456: unchanged, same as result 1, Read(file1)]\n" + "\n".join(LOG)
    sent = sound(reads(quoting, quoting, quoting + "\nx", format=format), format)
    assert sent == [
        quoting,
        explained(head(quoting, "unchanged, same as result 1, Read(file1)")),
        head(quoting + "\nx", "unchanged, lines 1-61 of result 1, Read(file1)") + "\nx",
    ]


POISON = json.dumps({"rows": [{"id": n, "name": "x", "size": n} for n in range(9)], "odd": [{"a": 1}, [1, 2]]})


@every_format
def test_an_output_that_no_shape_can_unfold_disturbs_nothing(format: str) -> None:
    sent = sound(reads(FILE, POISON, FILE, format=format), format)
    assert sent[2] == explained(head(FILE, "unchanged, same as result 1, Read(file1)"))


# ── never larger, and always what the engine takes ──────────────────────────────────────────────────────────────────


def hexes(*words: str) -> str:
    """Lines of forty hexadecimal digits: some thirty tokens in forty bytes."""
    return "\n".join(hashlib.sha256(word.encode()).hexdigest()[:40] for word in words)


UNIQUE = "\n".join(f"unique line number {n} of two" for n in range(8))
DENSE: dict[str, list[str]] = {
    "a word and very many spaces": ["x" + " " * 4000] * 2,
    "a rule of dashes": ["-" * 2500] * 2,
    "dense lines, shorter than the marker in bytes": [hexes("a", "b"), f"x\n{hexes('a', 'b')}\n{UNIQUE}", UNIQUE],
    "a dense text, shorter than the marker in bytes": [hexes("a", "b"), hexes("a", "b"), FILE, FILE],
}


@every_format
@pytest.mark.parametrize("outputs", DENSE.values(), ids=DENSE)
def test_a_reference_is_shorter_in_tokens_and_in_bytes(outputs: list[str], format: str) -> None:
    sent = sound(reads(*outputs, format=format), format)
    found = [text for text in sent if ours(text)]
    assert [EXPLANATION in text for text in found] == [True] + [False] * (len(found) - 1) if found else True


@every_format
@pytest.mark.parametrize("spelling", [{}, {"separators": (",", ":")}], ids=["spaced", "compact"])
def test_bytes_come_back_when_the_client_escapes_what_is_not_ascii(spelling: Any, format: str) -> None:
    text = "\n".join(f"{n:6}→строка {n}, é, 🦀" for n in range(60))
    data = json.dumps(reads(text, text, format=format), **spelling).encode()
    sent = ibidem.compact(data, format=format).request
    assert len(sent) < len(data)
    assert ibidem.expand(sent, format=format) == data


# ── guards ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def same_call(times: int) -> dict[str, tuple[str, dict[str, Any]]]:
    return {str(n): ("Read", {"file_path": "a.py"}) for n in range(1, times + 1)}


@every_format
def test_the_same_call_soon_after_a_reference_gets_the_text_itself(format: str) -> None:
    sent = sound(reads(*[FILE] * 5, format=format, calls=same_call(5)), format)
    assert [ours(text) for text in sent] == [False, True, False, True, False]


@every_format
def test_the_text_that_was_given_again_is_the_one_to_point_at(format: str) -> None:
    """Section 4 of the design: this copy becomes the new anchor."""
    sent = sound(reads(*[FILE] * 4, format=format, calls=same_call(4)), format)
    assert sent[3] == head(FILE, "unchanged, same as result 3, Read(a.py)")


@every_format
def test_another_answer_to_the_same_call_may_be_a_reference(format: str) -> None:
    request = reads(FILE, FILE, "\n".join(EDITED), format=format, calls=same_call(3))
    assert [ours(text) for text in sound(request, format)] == [False, True, True]


@every_format
@pytest.mark.parametrize(
    ("between", "guard", "refers"),
    [
        pytest.param(7, 8, False, id="within so many results"),
        pytest.param(8, 8, True, id="long after"),
        pytest.param(0, 0, True, id="switched off"),
        pytest.param(2, 2, True, id="a short guard, long after"),
        pytest.param(1, 2, False, id="a short guard, soon after"),
    ],
)
def test_how_long_the_guard_remembers(between: int, guard: int, refers: bool, format: str) -> None:
    outputs = [FILE, FILE, *(f"nothing {n}" for n in range(between)), FILE]
    calls = {str(n): ("Read", {"file_path": "a.py"}) for n in (1, 2, len(outputs))}
    request = reads(*outputs, format=format, calls=calls)
    sent = sound(request, format, strategies=[BackReferences(repeat_guard=guard)])
    assert ours(sent[-1]) is refers


@every_format
def test_the_guard_does_not_undo_itself_when_the_request_is_compacted_again(format: str) -> None:
    once = ibidem.compact(reads(*[FILE] * 4, format=format, calls=same_call(4)), format=format).request
    assert texts_of(ibidem.compact(once, format=format).request, format) == texts_of(once, format)


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses"])
def test_the_guard_sees_every_text_of_a_result(format: str) -> None:
    request = reads(*[[FILE, "\n".join(LOG)]] * 3, format=format, calls=same_call(3))
    assert [ours(text) for text in sound(request, format)] == [False, False, True, True, False, False]


@every_format
@pytest.mark.parametrize(
    ("tokens", "refers"), [(100_000, True), (10, False)], ids=["near enough", "too far"]
)  # fmt: skip
@pytest.mark.parametrize(
    "again", [FILE, "\n".join(EDITED), "\n".join([*CODE[:5], "x", *CODE[6:], ""])], ids=["whole", "spans", "fields"]
)
def test_a_reference_reaches_back_only_so_far(tokens: int, refers: bool, again: str, format: str) -> None:
    request = reads(FILE, "\n".join(LOG), again, format=format)
    sent = sound(request, format, strategies=[BackReferences(max_distance=tokens)])
    assert ours(sent[2]) is refers


@every_format
@pytest.mark.parametrize("again", [FILE, "\n".join(EDITED)], ids=["whole", "in part"])
def test_what_is_too_far_is_said_anew_and_then_referred_to(again: str, format: str) -> None:
    """`Grep` looks at the last copy from another tool, so that only the index can know of it."""
    calls = {"4": ("Grep", {"pattern": "x"})}
    request = reads(FILE, "\n".join(LOG), FILE, again, format=format, calls=calls)
    sent = sound(request, format, strategies=[BackReferences(max_distance=len(FILE) // 4 + 10)])
    assert [ours(text) for text in sent] == [False, False, False, True]


def test_a_failure_is_never_shortened() -> None:
    request = reads(FILE, FILE, arrows(CODE), FILE)
    for message in (request["messages"][4], request["messages"][6]):
        message["content"][0]["is_error"] = True
    sent = sound(request, "anthropic")
    assert sent[:3] == [FILE, FILE, arrows(CODE)]
    assert ours(sent[3])


def test_a_failure_in_gemini_is_never_shortened() -> None:
    request = reads(FILE, FILE, format="gemini")
    request["contents"][4]["parts"][0]["functionResponse"]["response"] = {"error": FILE}
    assert sound(request, "gemini") == [FILE, FILE]


@pytest.mark.parametrize(
    ("format", "head_", "refers"),
    [
        pytest.param(
            "anthropic",
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            True,
            id="Anthropic clears results",
        ),
        pytest.param(
            "anthropic",
            {"context_management": {"edits": [{"type": "compact_20260112"}]}},
            True,
            id="Anthropic compacts the history",
        ),
        pytest.param(
            "anthropic",
            {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}},
            True,
            id="Anthropic clears thinking",
        ),
        pytest.param(
            "anthropic",
            {
                "context_management": {
                    "edits": [{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}]
                }
            },
            True,
            id="Anthropic clears both",
        ),
        pytest.param("anthropic", {"context_management": {"edits": []}}, True, id="Anthropic is asked for nothing"),
        pytest.param("anthropic", {"context_management": None}, True, id="Anthropic is not asked"),
        pytest.param("anthropic", {"thread": {"type": "create"}}, True, id="Anthropic is to keep a thread"),
        pytest.param(
            "anthropic",
            {"thread": {"type": "continue", "previous_message_id": "msg_1"}},
            False,
            id="Anthropic goes on a thread",
        ),
        pytest.param("openai-responses", {"truncation": "auto"}, False, id="Responses truncates"),
        pytest.param("openai-responses", {"truncation": "disabled"}, True, id="Responses does not truncate"),
        pytest.param("openai-responses", {"previous_response_id": "r"}, False, id="Responses goes on from an answer"),
        pytest.param("openai-responses", {"conversation": "c"}, False, id="Responses goes on a conversation"),
        pytest.param(
            "openai-responses",
            {"context_management": [{"type": "compaction", "compact_threshold": 1000}]},
            True,
            id="Responses compacts",
        ),
    ],
)
def test_nothing_refers_to_what_the_provider_may_clear_without_a_word(format: str, head_: Any, refers: bool) -> None:
    request = {**reads(FILE, FILE, arrows(CODE), "\n".join(EDITED), format=format), **head_}
    sent = sound(request, format)
    assert ours(sent[1]) is refers
    assert ours(sent[3]) is refers
    assert ours(sent[2]), "folding needs nothing that could go"
    if not refers:
        assert parse_marker(sent[2].split("\n")[-1], TAG) == Marker(TAG, digest_of(arrows(CODE)), "n", explains=True)


COMPACTIONS: dict[str, Any] = {
    "anthropic": {"role": "assistant", "content": [{"type": "compaction", "content": "They read a file."}]},
    "openai-responses": {"type": "compaction", "id": "cmp_1", "encrypted_content": "ZW5j"},
}


def compacted_after(request: Any, format: str, number: int) -> Any:
    """The request with a compaction after so many turns of call and result."""
    key = FORMATS[format].history_key
    at = 1 + 2 * number
    said = [{"role": "user", "content": "go on"}] if format == "anthropic" else []
    return {**request, key: [*request[key][:at], COMPACTIONS[format], *said, *request[key][at:]]}


@pytest.mark.parametrize("format", COMPACTIONS)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(FILE, FILE, id="whole"),
        pytest.param(FILE, "\n".join(EDITED), id="spans"),
        pytest.param(json.dumps(STATUS), json.dumps({**STATUS, "state": "stopped"}), id="fields"),
        pytest.param("\n".join(LOG), "\n".join([*LOG[:12], "case 12 FAILED", *LOG[13:]]), id="a changed line"),
    ],
)
def test_nothing_refers_to_what_stands_before_a_compaction(first: str, second: str, format: str) -> None:
    request = compacted_after(reads(first, second, second, format=format), format, 1)
    sent = sound(request, format)
    assert sent[:2] == [first, second]
    assert sent[2] == explained(head(second, "unchanged, same as result 2, Read(file2)"))


@pytest.mark.parametrize("format", COMPACTIONS)
def test_calls_are_counted_from_the_last_compaction_on(format: str) -> None:
    """What stands before it is out of the model's sight, and so are the calls that were made there."""
    calls = {str(number): ("Read", {"file_path": "a.py"}) for number in range(1, 5)}
    request = reads(FILE, FILE, FILE, "\n".join(LOG * 2), "new\n" + FILE, format=format, calls=calls)
    sent = sound(compacted_after(request, format, 2), format)
    assert "of result 3, 1st Read(a.py)" in sent[4]


@pytest.mark.parametrize("format", COMPACTIONS)
def test_a_history_that_begins_with_a_compaction_comes_back(format: str) -> None:
    request = reads(FILE, FILE, arrows(CODE), format=format)
    key = FORMATS[format].history_key
    request[key].insert(0, COMPACTIONS[format])
    sent = ibidem.compact(request, format=format)
    assert len(sent.plan) == 2
    assert ibidem.expand(sent.request, format=format) == request


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses"])
def test_a_history_whose_first_call_comes_before_the_user_comes_back(format: str) -> None:
    calls = {"1": ("Write", {"file_path": "a.py", "content": FILE})}
    request = conv("s:be brief", "a>1", "u:go", "a>2", f"r2:{FILE}", "a>3", f"r3:{FILE}", format=format, calls=calls)
    sent = ibidem.compact(request, format=format)
    assert len(sent.plan) == 2
    assert ibidem.expand(sent.request, format=format) == request


# ── settings ────────────────────────────────────────────────────────────────────────────────────────────────────────

OFF = BackReferences(dedup=False, spans=False, shapes=False, fields=False)
SWITCHES: dict[str, tuple[str, list[str]]] = {
    "dedup": ("dedup", [FILE, FILE]),
    "spans": ("spans", [FILE, "\n".join(EDITED)]),
    "shapes": ("shapes", [arrows(CODE)]),
    "fields": ("fields", [json.dumps(STATUS), json.dumps({**STATUS, "id": 2})]),
}


@every_format
@pytest.mark.parametrize("switch", SWITCHES)
def test_each_part_of_the_strategy_has_its_switch(switch: str, format: str) -> None:
    name, outputs = SWITCHES[switch]
    request = reads(*outputs, format=format)

    def strategies(**on: bool) -> set[str]:
        switches: dict[str, Any] = {**dict.fromkeys(SWITCHES, False), **on}
        chosen = BackReferences(**switches)
        sound(request, format, strategies=[chosen])
        return {edit.strategy for edit in ibidem.compact(request, strategies=[chosen], format=format).plan}

    assert strategies(**{switch: True}) == {name}
    assert strategies() == set()
    assert name not in strategies(**{**dict.fromkeys(SWITCHES, True), switch: False})


@every_format
@pytest.mark.parametrize(
    ("style", "wanted"),
    [
        pytest.param(
            HintStyle.IBIDEM, explained(head(FILE, "unchanged, same as result 1, Read(file1)")), id="in our words"
        ),
        pytest.param(
            HintStyle.CODETETHER, f"[DEDUP] identical to tool_call_id=1 ({len(FILE)} bytes)", id="in codetether's words"
        ),
        pytest.param(HintStyle.DEVBOY, "> [ref: 1, byte-identical]", id="in devboy's words"),
    ],
)
def test_whole_results_can_be_referred_to_in_other_words(style: HintStyle, wanted: str, format: str) -> None:
    request = reads(FILE, FILE, FILE + "x", format=format)
    result = ibidem.compact(request, strategies=[BackReferences(hints=style)], format=format)
    sent = texts_of(result.request, format)
    assert sent[1] == wanted
    assert ours(sent[2]), "what is said in part is always said in our words"
    assert (
        ibidem.compact(result.request, strategies=[BackReferences(hints=style)], format=format).request
        == result.request
    )
    restored = texts_of(ibidem.expand(result.request, format=format), format)
    assert restored == [FILE, FILE if style is HintStyle.IBIDEM else wanted, FILE + "x"]


def test_min_gain_is_what_a_reference_must_save() -> None:
    request = reads(FILE, FILE)
    saved = counter_for()(FILE) - counter_for()(texts_of(ibidem.compact(request).request)[1])
    short = reads(UNIQUE, UNIQUE)
    gain = counter_for()(UNIQUE) - counter_for()(texts_of(ibidem.compact(short).request)[1])
    assert saved > gain > 4
    assert ibidem.compact(short, strategies=[BackReferences(min_gain=gain)]).plan
    assert not ibidem.compact(short, strategies=[BackReferences(min_gain=gain + 1)]).plan


# ── generated histories ─────────────────────────────────────────────────────────────────────────────────────────────

LINES = st.sampled_from(
    [*(f"    self.value_{n} = compute(value_{n}, other={n})" for n in range(12)), "", "}", "    return None", "\ta\tb",
     "# → arrows, and: colons", "x" * 90, "é🦀 ünï\r", "import os*", " - item", *hexes("1", "2", "3").split("\n")]
)  # fmt: skip
FILES = st.lists(LINES, min_size=4, max_size=30)
STEPS = st.tuples(
    st.sampled_from(
        ["read", "range", "cat", "grep", "edit", "write", "patch", "diff", "status", "table", "log", "codex"]
        + ["same call"] * 2
    ),
    st.integers(0, 2),
    st.integers(0, 40),
    st.integers(0, 3),
)


class Workshop:
    """Files that are read, searched, edited and written; each step gives a call and its output."""

    def __init__(self, files: list[list[str]]) -> None:
        self.files = [list(lines) for lines in files]
        self.last: tuple[str, dict[str, Any], str] = ("Bash", {"command": "true"}, "")

    def step(self, kind: str, which: int, number: int, style: int) -> tuple[str, dict[str, Any], str]:
        if kind != "same call":
            self.last = getattr(self, kind)(f"src/file{which}.py", self.files[which], number, style)
        return self.last

    def read(self, path: str, lines: list[str], number: int, style: int) -> Any:
        tail = ["", "\n", "\n\n" + REMINDER, ""][style]
        return "Read", {"file_path": path}, (tabs if style == 3 else arrows)(lines) + tail

    def range(self, path: str, lines: list[str], number: int, style: int) -> Any:
        first = number % len(lines)
        return "Read", {"file_path": path, "offset": first}, arrows(lines[first : first + 12], first + 1)

    def cat(self, path: str, lines: list[str], number: int, style: int) -> Any:
        return "Bash", {"command": f"cat {path}"}, "\n".join(lines) + "\n" * (style % 2)

    def grep(self, path: str, lines: list[str], number: int, style: int) -> Any:
        hits = [f"{path}:{at}:{line}" for at, line in enumerate(lines, 1) if "e" in line]
        return "Grep", {"pattern": "e"}, "\n".join(hits) or "No matches found"

    def edit(self, path: str, lines: list[str], number: int, style: int) -> Any:
        at = number % len(lines)
        lines[at : at + style] = [f"    edited_{number} = {style}"]
        return "Edit", {"file_path": path, "new_string": lines[at]}, "\n".join(arrows(lines[at : at + 8], at + 1))

    def patch(self, path: str, lines: list[str], number: int, style: int) -> Any:
        at = number % len(lines)
        new = [f"    patched_{number}_{n} = compute(value_{n}, other={number})" for n in range(2 + 3 * style)]
        hunk = [*(f" {line}" for line in lines[max(0, at - 2) : at]), f"-{lines[at]}", *(f"+{line}" for line in new)]
        hunk += [f" {line}" for line in lines[at + 1 : at + 4]]
        lines[at : at + 1] = new
        patch = ["*** Begin Patch", f"*** Update File: {path}", "@@", *hunk, "*** End Patch"]
        return "apply_patch", {"input": "\n".join(patch)}, f"Success. Updated the following files:\nM {path}"

    def diff(self, path: str, lines: list[str], number: int, style: int) -> Any:
        hunk = [f"{'+' if at % (style + 2) == 0 else ' '}{line}" for at, line in enumerate(lines)]
        hunk[number % len(hunk)] = "-taken out"
        header = [
            f"diff --git a/{path} b/{path}",
            f"--- a/{path}",
            f"+++ b/{path}",
            f"@@ -1,9 +1,{len(lines)} @@ def f",
        ]
        return "Bash", {"command": "git diff"}, "\n".join([*header, *hunk])

    def write(self, path: str, lines: list[str], number: int, style: int) -> Any:
        lines.append(f"written = {number}")
        return "Write", {"file_path": path, "content": "\n".join(lines)}, "ok"

    def status(self, path: str, lines: list[str], number: int, style: int) -> Any:
        value = {**STATUS, "id": number, "state": ["running", "stopped", None, [1]][style]}
        return "status", {}, json.dumps(value, indent=2 if number % 5 == 0 else None)

    def table(self, path: str, lines: list[str], number: int, style: int) -> Any:
        rows = [{"id": n, "name": line, "size": len(line)} for n, line in enumerate(lines)]
        return (
            "query",
            {"query": path},
            json.dumps({"rows": rows, "took": number}, separators=(",", ":") if style else None),
        )

    def log(self, path: str, lines: list[str], number: int, style: int) -> Any:
        outcome = [f"case {n} of the suite {'FAILED' if n == number else 'passed'} in time" for n in range(30 + style)]
        return "Bash", {"command": "pytest"}, "\n".join(outcome)

    def codex(self, path: str, lines: list[str], number: int, style: int) -> Any:
        header = f"Chunk ID: {number:06x}\nWall time: 0.{number} seconds\nProcess exited with code {style}\n"
        return "shell", {"command": ["cat", path]}, header + "Original token count: 7\nOutput:\n" + "\n".join(lines)


def worked(format: str, max_size: int = 12) -> st.SearchStrategy[Any]:
    """Requests of an agent at work: what it sees repeats in every way there is."""

    def assemble(files: list[list[str]], steps: list[Any], parallel: list[bool]) -> Any:
        shop, calls, turns = Workshop(files), {}, [Turn("user", "go")]
        for number, step in enumerate(steps):
            tool, arguments, output = shop.step(*step)
            ident = f"c{number}"
            calls[ident] = (tool, arguments)
            if parallel[number % len(parallel)] and turns[-1].role == "tool":
                turns[-2].calls.append(ident)
                turns[-1].results.append((ident, output))
            else:
                turns += [Turn("assistant", calls=[ident]), Turn("tool", results=[(ident, output)])]
        return build(turns, format, calls)

    files = st.lists(FILES, min_size=3, max_size=3)
    return st.builds(
        assemble, files, st.lists(STEPS, min_size=5, max_size=max_size), st.lists(st.booleans(), min_size=3, max_size=3)
    )


def _comes_back(run: testing.Run, request: Any, format: str) -> None:
    assert ibidem.expand(run(request).request, format=format) == request


def _comes_back_as_bytes(run: testing.Run, request: Any, format: str) -> None:
    data = json.dumps(request, ensure_ascii=False).encode()
    assert ibidem.expand(run(data).request, format=format) == data


def _points_at_what_is_there(run: testing.Run, request: Any, format: str) -> None:
    references_are_true(request, run(request).request, format)


def _is_found(run: testing.Run, request: Any, format: str) -> None:
    assert all(reference.how != "neither" for reference in references(run(request).request, format))


def _grows_by_what_is_new(run: testing.Run, request: Any, format: str) -> None:
    """Every beginning comes back by itself, and begins like the whole (law 2, law 6)."""
    testing.arrival_is_final(run, request, format)
    key = FORMATS[format].history_key
    for length in range(1, len(request[key]), 2):
        start = {**request, key: request[key][:length]}
        assert ibidem.expand(run(start).request, format=format) == start


LAWS: dict[str, Callable[[testing.Run, Any, str], None]] = {
    "valid stays valid": testing.valid_stays_valid,
    "arrival is final": _grows_by_what_is_new,
    "never larger": testing.never_larger,
    "references are true": _points_at_what_is_there,
    "references are found": _is_found,
    "lossless": _comes_back,
    "lossless as bytes": _comes_back_as_bytes,
    "untouched is untouched": testing.untouched_is_untouched,
    "idempotent": testing.idempotent,
    "text and value agree": testing.text_and_value_agree,
}


@one_format_daily
def test_the_laws_hold_for_an_agent_at_work(format: str) -> None:
    seen: Counter[str] = Counter()

    @given(request=worked(format))
    @settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
    def holds(request: Any) -> None:
        def run(given: Any) -> ibidem.Compacted:
            result = ibidem.compact(given, format=format)
            assert result.stats.failures == ()
            seen.update(edit.strategy for edit in result.plan)
            return result

        for law, check in LAWS.items():
            note(law)
            check(run, request, format)

    holds()
    assert seen.keys() >= {"spans", "shapes"}, "too little occurred for this to say anything"


@one_format_daily
def test_generated_histories_reach_every_kind_of_marker(format: str) -> None:
    seen: Counter[str] = Counter()

    @given(request=worked(format, 16))
    @settings(deadline=None, max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
    def reach(request: Any) -> None:
        seen.update(references_are_true(request, ibidem.compact(request, format=format).request, format))

    reach()
    assert seen.keys() >= {"same", "line", "but", "folded", VIEW, "rests on the one above"}, seen


@one_format_daily
@given(data=st.data())
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
def test_odd_texts_come_back_too(format: str, data: st.DataObject) -> None:
    request = data.draw(testing.histories(format))
    sent = ibidem.compact(request, format=format)
    assert sent.stats.failures == ()
    assert ibidem.expand(sent.request, format=format) == request


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("start", ["", "\n\n", '"', "\\", "é", "\t\n"], ids=repr)
def test_json_text_comes_back_to_the_byte_however_a_text_begins(start: str, ascii_only: bool) -> None:
    """What is sent begins with the line that is new, and has nothing in it that is not ASCII."""
    text = "".join(f"Zeile {n} ist größer als die davor\n" for n in range(40))
    body = json.dumps(reads(text, f"{start}a line of its own\n{text}"), ensure_ascii=ascii_only)
    sent = ibidem.compact(body)
    assert sent.plan
    assert ibidem.expand(sent.request) == body


# ── linear ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _blocks(n: int) -> list[str]:
    """Blocks of five lines, of which no two are alike."""
    lines = [f"{n * 7919 % 999983:x} is what stands in line {n}" for n in range(n)]
    return ["\n".join(lines[at : at + 5]) for at in range(0, n, 5)]


def _numbered_blocks(n: int) -> list[str]:
    """The same with numbers that jump from block to block."""
    return [tabs(block.split("\n"), 20 * at) for at, block in enumerate(_blocks(n))]


def _noise(n: int, seed: int) -> str:
    chance = random.Random(seed)
    return "\n".join(f"{chance.getrandbits(120):030x}" for _ in range(n))


GROWING: dict[str, tuple[Callable[[int], list[str]], int]] = {
    "one line repeated": (lambda n: [AGAIN * n, "x\n" + AGAIN * n], 3000),
    "all lines equal but one": (
        lambda n: [AGAIN * n, AGAIN * (n // 2) + "x\n" + AGAIN * n],
        3000,
    ),
    "fewer equal lines first": (lambda n: [AGAIN * 9, AGAIN * n], 4000),
    "two alternating blocks": (
        lambda n: [
            ("first block, a line\nand another of it\n" * 2 + "second block, one line\n") * n,
            ("second block, one line\n" + "first block, a line\nand another of it\n" * 2) * n + "x",
        ],
        2000,
    ),
    "random text": (lambda n: [_noise(n, 1), _noise(n, 2)], 3000),
    "one very long line": (lambda n: ["word " * n, "word " * n + "x"], 200_000),
    "one very long line of items": (lambda n: ["some item, " * n, "x, " + "some item, " * n], 3000),
    "blocks in reverse": (lambda n: ["\n".join(_blocks(n)), "\n".join(reversed(_blocks(n)))], 2000),
    "numbered blocks in reverse": (
        lambda n: ["\n".join(_numbered_blocks(n)), "\n".join(reversed(_numbered_blocks(n)))],
        500,
    ),
    "long lines of slashes": (lambda n: ["\n".join(["/" * n] * 6), "\n".join(["/" * n] * 6) + "x"], 40_000),
}  # fmt: skip


def _scattered(files: int) -> str:
    """Hits of a search, one in one file, two in the next: to write a path once takes a line break for every file."""
    hits = (
        (f"src/a{at}.py:{at}:once", f"src/b{at}.py:{at}:twice", f"src/b{at}.py:{at + 1}:too") for at in range(files)
    )
    return "\n".join(hit for each in hits for hit in each)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_what_is_sent_is_no_longer_as_json_either(format: str, ascii_only: bool) -> None:
    """A line break is one byte in a text, and two in JSON."""
    for files in range(4, 25):
        given = json.dumps(reads(_scattered(files), format=format), ensure_ascii=ascii_only)
        sent = ibidem.compact(given, format=format).request
        assert len(sent.encode()) <= len(given.encode()), files


@pytest.mark.slow
@pytest.mark.parametrize("way", ["compact", "expand"])
@pytest.mark.parametrize("kind", GROWING)
def test_work_grows_with_the_text_and_not_with_its_square(kind: str, way: str) -> None:
    """Four times the text: linear work takes four times as long, quadratic work sixteen times."""
    make, size = GROWING[kind]
    small, large = reads(*make(size // 2)), reads(*make(2 * size))
    ibidem.compact(reads(FILE, FILE))  # what is loaded once is not counted
    if way == "expand":
        small, large = ibidem.compact(small).request, ibidem.compact(large).request
    work: Callable[[Any], Any] = getattr(ibidem, way)
    for rounds in (1, 4, 8):  # a busy machine gets more chances; quadratic work fails all of them
        first, second = best([lambda: work(small), lambda: work(large)], rounds)
        if second < 8 * first + 0.005:
            return
    pytest.fail(f"{first:.4f} s, then {second:.4f} s for four times as much")


def test_many_searches_in_one_long_text_all_refer_to_it() -> None:
    """What a reference leaves out is what it costs, however long the text is that it points into."""
    lines = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(6000)]
    found = ["\n".join([*lines[20 * at : 20 * at + 12], f"hit {at}"]) for at in range(200)]
    request = reads("\n".join(lines), *found)
    sent = ibidem.compact(request)
    assert len(sent.plan) == len(found)
    assert ibidem.expand(sent.request) == request
    assert ibidem.compact(sent.request).request == sent.request


def test_a_run_that_is_too_short_does_not_keep_the_next_from_its_beginning() -> None:
    """Two of its lines stand above already, behind other lines: they are found first, and are worth nothing alone."""
    rule, start = "-" * 70, "Traceback (most recent call last):"
    block = [
        f"FAIL: test_{{0}} ({'tests.'}{{0}})",
        rule,
        start,
        "  File {0}, in {0}",
        "    check_{0}(1, 2, 3)",
        "Error: {0}",
    ]
    one, two = ([line.format(name) for line in block] for name in ("first_thing", "second_thing_of_all"))
    request = conv(
        "u:go", "a>1", "r1:" + "\n".join([*one, "=" * 70, *two]), "a>2", "r2:" + "\n".join(["..F", *two, "Ran 2"])
    )
    run = ibidem.compact(request, strategies=[ibidem.BackReferences()])
    [edit] = run.plan
    assert edit.added.split("\n")[0] == "..F"
    assert edit.added.count("\n") == 2, edit.added
    assert ibidem.expand(run.request) == request
