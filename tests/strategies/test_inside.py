"""References inside one result: what stands above in the same text, where that is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import ibidem
from benchmarks.references import references
from ibidem import BackReferences, testing
from ibidem.cli.request_input import InputRequest
from ibidem.cli.view.edits import view_request
from ibidem.formats import FORMATS
from ibidem.markers.backref import EXPLANATION, Source, digest_of, tag_of
from ibidem.markers.layout import VisibleText
from ibidem.markers.restore import ExpansionBudget, restore_text
from ibidem.store import MemoryStore
from ibidem.testing import conv
from tests.support.evict import NO_CLOCKS
from tests.support.lanes import daily
from tests.support.timed import best

TAG = tag_of("go")
INSIDE = (BackReferences(inside=60),)
FREE = ibidem.CachePricing(read=1.0, write=1.0)

SUITE = [f"case {n} of the suite passed in {n * 37 % 91} ms" for n in range(30)]
OTHER = [f"worker {n} took task {n * 7919 % 1009} off the queue" for n in range(30)]

PASSED, FAILED = "case 1 of the suite passed in 37 ms", ["case 2 of the suite failed in 41 ms"] * 3
TOLD_APART = [
    "\n".join([PASSED, PASSED, "", "", PASSED, "", "", PASSED, PASSED, PASSED, "", ""]),
    "\n".join([PASSED, PASSED, "", "", *FAILED, PASSED, PASSED, PASSED, "", ""]),
    "\n".join(FAILED),
]
"""The second is told by what differs from the first, and the third refers to those lines."""


def request(*results: str, format: str = "anthropic") -> Any:
    lines = [line for n, text in enumerate(results, 1) for line in (f"a>{n}", f"r{n}:{text}")]
    return conv("u:go", *lines, format=format)


def texts(given: Any) -> list[str]:
    return [block["content"] for message in given["messages"][2::2] for block in message["content"]]


def sent(*results: str, **fields: Any) -> list[str]:
    """What is sent for them, once it was seen to be sound."""
    run = testing.runner((BackReferences(**{"inside": 60, **fields}),), "anthropic")
    given = request(*results)
    testing.lossless(run, given, "anthropic")
    testing.idempotent(run, given, "anthropic")
    testing.references_are_visible(run(given), "anthropic")
    return texts(run(given).request)


def marker(words: str, text: str = "", flags: str = "", explains: bool = False) -> str:
    """The first of a part where its text is given."""
    first = f".{digest_of(text)}{flags}: " + ("" if words[0].isdecimal() else "unchanged, ") if text else ": "
    return f"[ibidem {TAG}{first}{words}{f'. {EXPLANATION}' if explains else ''}]"


def index_texts(lines: Sequence[str], form: str = "{:6}→{}") -> str:
    return "\n".join(form.format(at, line) for at, line in enumerate(lines, 1))


# ── what is sent ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_stands_above_in_the_same_text_is_said_once() -> None:
    text = "\n".join([*SUITE, "and once more", *SUITE, "in part", *SUITE[10:25], "the end"])
    first = marker("lines 1-30 above", text, explains=True)
    expected = [*SUITE, "and once more", first, "in part", marker("lines 11-25 above"), "the end"]
    assert sent(text) == ["\n".join(expected)]


def test_lines_are_counted_as_they_are_sent() -> None:
    """A marker above is one line, however many it stands for."""
    text = "\n".join([*SUITE, "and once more", *SUITE, *OTHER, "and the queue", *OTHER])
    found = sent(text)[0].split("\n")
    assert found[-1] == marker("lines 33-62 above")
    assert found[32:62] == OTHER


def test_numbered_lines_are_named_by_the_numbers_they_show() -> None:
    text = index_texts([*SUITE, "and once more", *SUITE, *SUITE[10:25]])
    found = sent(text)[0].split("\n")
    assert found[31] == marker("32-61 unchanged, lines 1-30 above", text, "n", explains=True)
    assert found[32] == marker("62-76 as lines 11-25 above")


def test_numbers_that_stand_there_twice_are_told_by_rows() -> None:
    text = index_texts([*SUITE, *OTHER]) + "\n" + index_texts([*OTHER, *SUITE])
    assert marker("31-60 as rows 1-30 above") in sent(text)[0].split("\n")


def test_what_was_shown_before_goes_first() -> None:
    text = "\n".join([*SUITE, "and once more", *SUITE])
    assert sent("\n".join(SUITE) + "\n", text)[1].count("of result 1") == 1
    assert "above]" not in sent("\n".join(SUITE) + "\n", text)[1].replace(EXPLANATION, "")


def test_a_marker_behind_one_for_the_text_itself_names_its_source() -> None:
    early, late = SUITE[:15], SUITE[15:]
    text = "\n".join([*early, *OTHER, "x", *OTHER, "y", *late])
    found = sent("\n".join([*early, "between the two halves", *late]), text)[1].split("\n")
    assert [line for line in found if line.startswith("[ibidem")] == [
        marker("lines 1-15 of result 1, Read(file1)", text, explains=True),
        marker("lines 2-31 above"),
        marker("lines 17-31 of result 1"),
    ]


def test_a_run_of_equal_lines_is_said_by_the_first_of_them() -> None:
    text = "\n".join(["the very same line of a log, over and over"] * 400)
    assert len(sent(text)[0]) < len(text) / 5


def test_what_is_folded_is_compared_as_it_is_folded() -> None:
    hits = [f"src/app/handlers.py:{n}:    return compute_{n % 20}(value, {n % 20})" for n in range(100, 140)]
    found = sent("\n".join(hits))[0].split("\n")
    assert found[:2] == ["src/app/handlers.py", "100\t   return compute_0(value, 0)"]
    assert "120-139 unchanged, lines 100-119 above" in found[21]


def test_from_sixty_tokens_on_and_not_from_fewer() -> None:
    count = ibidem.tokens.counter_for()
    for length in range(1, 12):
        run = "\n".join(SUITE[:length])
        text = "\n".join([*SUITE, "and once more", run, "the end"])
        assert (sent(text) != [text]) is (count(run) >= 60)


def test_it_is_off_unless_asked_for() -> None:
    text = "\n".join([*SUITE, "and once more", *SUITE])
    assert texts(ibidem.compact(request(text)).request) == [text]
    assert sent(text, spans=False) == [text]


def test_a_text_that_refers_to_itself_is_referred_to_where_it_shows_its_lines() -> None:
    text = "\n".join([*SUITE, "and once more", *SUITE, *OTHER])
    again = sent(text, "\n".join(["something new", *SUITE]), "\n".join(["another thing", *OTHER]))
    assert marker("lines 1-30 of result 1, Read(file1)", "\n".join(["something new", *SUITE])) in again[1]
    assert marker("lines 33-62 of result 1, Read(file1)", "\n".join(["another thing", *OTHER])) in again[2]


def test_the_same_answer_again_is_sent_in_full() -> None:
    """The reference was of no use, so the text itself comes."""
    call = {"type": "tool_use", "name": "Bash", "input": {"command": "make"}}
    text = "\n".join([*SUITE, "and once more", *SUITE])
    messages: list[Any] = [{"role": "user", "content": "go"}]
    for number in "12":
        messages.append({"role": "assistant", "content": [{**call, "id": number}]})
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": number, "content": text}]})
    found = texts(ibidem.compact({"messages": messages, "max_tokens": 1}, strategies=INSIDE).request)
    assert "above" in found[0]
    assert found[1] == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(index_texts([*SUITE, *SUITE], "{}: {}"), id="numbers that are not folded"),
        pytest.param(", ".join([*SUITE, *SUITE]), id="items of one line"),
        pytest.param("\n".join(["}", "", "]"] * 300), id="lines that say nothing"),
        pytest.param("diff\n@@ -1 +1,30 @@\n" + "\n".join(f"+{line}" for line in SUITE * 2), id="a patch"),
        pytest.param(index_texts(SUITE, "{}\t{}") + "\n" + "\n".join(OTHER * 2), id="numbers on some lines alone"),
    ],
)
def test_where_it_would_not_come_back_it_is_sent_as_without(text: str) -> None:
    found = sent(text, text)
    assert ibidem.expand(request(*found)) == request(text, text)


# ── the laws ────────────────────────────────────────────────────────────────────────────────────────────────────────

LINES = [
    *SUITE[:6],
    *OTHER[:6],
    "",
    "}",
    "    return",
    "12: x",
    "7\ty",
    "a.py:3:some text of a search",
    "\x00",
    "z" * 200,
]
WRITTEN: list[Callable[[Sequence[str]], str]] = [
    "\n".join,
    index_texts,
    lambda lines: index_texts(lines, "{}\t{}"),
    lambda lines: index_texts(lines, "{}: {}"),
    lambda lines: "\n".join(f"src/a.py:{at % 5}:{line}" for at, line in enumerate(lines)),
    lambda lines: index_texts(lines) + "\n\n" + "\n".join(lines),
]


@st.composite
def repetitive(draw: Any) -> str:
    """Runs that come again, whole or in part, in any layout."""
    runs = draw(st.lists(st.lists(st.sampled_from(LINES), min_size=1, max_size=12), min_size=1, max_size=3))
    pieces = draw(st.lists(st.tuples(st.sampled_from(runs), st.integers(0, 4), st.integers(1, 12)), max_size=9))
    return str(draw(st.sampled_from(WRITTEN))([line for run, first, last in pieces for line in run[first:last]]))


SETTINGS = st.builds(
    BackReferences,
    inside=st.sampled_from([1, 8, 60]),
    min_gain=st.sampled_from([0, 4]),
    repeat_guard=st.sampled_from([0, 8]),
    numbers=st.sampled_from(["all", "sparse"]),
    shapes=st.booleans(),
)
SLOW = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
one_format_daily = pytest.mark.parametrize("format", daily(FORMATS, "anthropic"))


@one_format_daily
@given(shown=st.lists(repetitive(), min_size=1, max_size=4), chosen=SETTINGS)
@SLOW
def test_the_laws_hold(format: str, shown: list[str], chosen: BackReferences) -> None:
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
    found = run(given)
    assert not found.stats.failures
    if chosen.numbers == "all":
        testing.references_are_visible(found, format)
    list(references(found.request, format))


@one_format_daily
@given(shown=st.lists(repetitive(), min_size=1, max_size=5), ends=st.sampled_from([16, 300]))
@example(shown=TOLD_APART, ends=16)
@SLOW
def test_the_laws_hold_where_texts_are_let_go(format: str, shown: list[str], ends: int) -> None:
    """Lines that something refers to stay, of a text that refers to itself as of any other."""
    arrival = BackReferences(inside=8, min_gain=0, repeat_guard=0)
    looking = ibidem.Evict(**NO_CLOCKS, arrival=arrival, economy=FREE, mask=2)
    given, store = request(*shown, format=format), MemoryStore()
    found = ibidem.compact(given, strategies=[looking], format=format, store=store)
    assert not found.stats.failures
    assert ibidem.expand(found.request, format=format, store=store) == given
    again = ibidem.compact(found.request, strategies=[looking], format=format, store=store)
    assert again.request == found.request
    session = ibidem.Session(strategies=[looking], format=format, store=MemoryStore())
    assert session.compact(given).request == found.request


def test_lines_that_something_refers_to_outlive_what_refers_to_them_from_within() -> None:
    text = "\n".join([*SUITE, "and once more", *SUITE, *OTHER])
    looking = ibidem.Evict(**NO_CLOCKS, arrival=BackReferences(inside=60), economy=FREE, mask=1)
    given, store = request(text, "\n".join(["something new", *SUITE[5:25]])), MemoryStore()
    found = ibidem.compact(given, strategies=[looking], store=store)
    first, last = texts(found.request)
    assert "lines 6-25 of result 1" in last
    assert "above" not in first
    assert first.split("\n")[1:21] == SUITE[5:25]
    assert ibidem.expand(found.request, store=store) == given


# ── what only looks like one ────────────────────────────────────────────────────────────────────────────────────────

ABOVE = ["a line that stands above", "and another one of them"]
WOULD_BE: dict[str, tuple[list[str], list[str]]] = {
    # lines of a part with {} for the digest, and what it would be if its marker were followed
    "lines below it": (["{}line 2 above]", "below"], ["below", "below"]),
    "the marker itself": (["x", "{}lines 1-2 above]"], ["x", "x", "x"]),
    "lines that reach into it": ([*ABOVE, "{}lines 2-3 above]"], [*ABOVE, ABOVE[1], ABOVE[1]]),
    "no line": ([*ABOVE, "{}lines 0-1 above]"], [*ABOVE, *ABOVE]),
    "another marker": (
        [*ABOVE, "{}lines 1-2 above]", f"[ibidem {TAG}: line 3 above]"],
        [*ABOVE, *ABOVE, *ABOVE],
    ),
    "lines that a marker stands between": (
        [*ABOVE, "{}lines 1-2 above]", "x", f"[ibidem {TAG}: lines 2-4 above]"],
        [*ABOVE, *ABOVE, "x", ABOVE[1], *ABOVE, "x"],
    ),
    "more than there is": ([*ABOVE, "{}lines 1-999999999 above]"], [*ABOVE, *ABOVE]),
    "items": ([*ABOVE, "{}items 1-2 above]"], [*ABOVE, *ABOVE]),
    "in few words": (
        [*ABOVE, "{}lines 1-2 above]", f"[ibidem {TAG}: lines 1-2]"],
        [*ABOVE, *ABOVE, *ABOVE],
    ),
}


def nowhere(source: Source) -> VisibleText | None:
    """No other text is there."""
    return None


@pytest.mark.parametrize("case", WOULD_BE)
def test_what_does_not_stand_above_is_not_followed(case: str) -> None:
    """All digests are right."""
    lines, whole = WOULD_BE[case]
    digest = digest_of("\n".join(whole))
    flags = "x" if case == "items" else ""
    text = "\n".join(lines).replace("{}", f"[ibidem {TAG}.{digest}{flags}: unchanged, ", 1)
    assert restore_text(text, TAG, nowhere, ExpansionBudget(1000)) is None
    for format in FORMATS:
        given = request(text, "\n".join([*SUITE, *SUITE]), format=format)
        run = testing.runner(INSIDE, format)
        assert ibidem.expand(given, format=format) == given
        testing.lossless(run, given, format)
        testing.idempotent(run, given, format)


def test_what_stands_above_is() -> None:
    whole = "\n".join([*ABOVE, "x", *ABOVE])
    text = "\n".join([*ABOVE, "x", marker("lines 1-2 above", whole)])
    found = restore_text(text, TAG, nowhere, ExpansionBudget(1000))
    assert found is not None
    assert found.original == whole
    assert VisibleText.from_text(text, TAG).full_text() is None, "it is not there in full for others"


def test_a_text_stands_for_no_more_than_its_budget() -> None:
    """Each of many markers means all that stands above; the digest is right."""
    lines = ["x" * 99] * 2000
    markers = [marker("lines 1-2000 above")] * 2000
    text = "\n".join([*lines, marker("lines 1-2000 above", "\n".join(lines)), *markers])
    budget = ExpansionBudget(len(text))
    assert restore_text(text, TAG, nowhere, budget) is None
    assert budget.remaining == ExpansionBudget(len(text)).remaining, "it is refused before anything is fetched"


# ── what is made to be costly ───────────────────────────────────────────────────────────────────────────────────────


def fibonacci(n: int) -> str:
    """It repeats itself everywhere, and never with a period."""
    one, two = [SUITE[0]], [OTHER[0]]
    while len(two) < n:
        one, two = two, two + one
    return "\n".join(two[:n])


def staircase(n: int) -> str:
    """Ever longer beginnings of the same lines, each too short or broken off."""
    steps = [[*SUITE[: step % 30], f"step {step}"] for step in range(n)]
    return "\n".join([line for step in steps for line in step][:n])


HARD: dict[str, Callable[[int], str]] = {
    "one line": lambda n: "\n".join([SUITE[0]] * n),
    "one line with numbers": lambda n: index_texts([SUITE[0]] * n),
    "empty lines below one": lambda n: "\n".join([SUITE[0], *[""] * n] * 2),
    "two lines in turn": lambda n: "\n".join([SUITE[0], "}"] * (n // 2)),
    "all but one alike": lambda n: "\n".join([*[SUITE[0]] * (n - 1), "the end", *[SUITE[0]] * n]),
    "ever longer": staircase,
    "no period": fibonacci,
    "twice a text without repeats": lambda n: "\n".join([f"line {at} of {n}" for at in range(n // 2)] * 2),
    "short lines before each": lambda n: "\n".join([*["}"] * 50, SUITE[0], SUITE[1]] * (n // 52)),
    "lines that begin alike": lambda n: "\n".join(["x" * 400 + str(at % 7) for at in range(n // 8)]),
}


@pytest.mark.parametrize("kind", HARD)
def test_what_is_hard_comes_back(kind: str) -> None:
    sent(HARD[kind](900), HARD[kind](700))


@pytest.mark.slow
@pytest.mark.parametrize("kind", HARD)
def test_a_text_four_times_as_long_takes_four_times_as_long(kind: str) -> None:
    small, large = (json.dumps(request(HARD[kind](size))) for size in (5_000, 20_000))
    works: list[Callable[[], Any]] = [partial(ibidem.compact, each, strategies=INSIDE) for each in (small, large)]
    for rounds in (1, 3, 6):  # quadratic work fails all of them
        first, second = best(works, rounds)
        if second < 7 * first:
            return
    pytest.fail(f"{first:.4f} s, then {second:.4f} s for four times as much")


# ── for people ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_view_shows_the_lines_above_that_are_meant() -> None:
    text = "\n".join([*SUITE, "and once more", *SUITE])
    given = json.dumps(request(text)).encode()
    found = view_request(InputRequest(given, "a.json"), ibidem.compact(given, strategies=INSIDE), "lossless")
    targets = [
        target
        for part in found.parts
        for block in part.blocks
        for line in block.sent
        if (target := found.target(line)) is not None
    ]
    assert [(str(target.source), target.lines, target.first) for target in targets] == [("result 1", SUITE, 0)]
