"""Probes against readers with known faults: what they are asked, whether faults show, and that nothing else does."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from ibidem import formats
from ibidem.engine.pipeline import compact, validate
from ibidem.testing import Answer, Says, Seen, Turn, build
from ibidem.trial.outcomes import ProbeAnswer, ProbeKind, ProbeResult
from ibidem.trial.probe_results import ProbeTally, mcnemar_p, probe_lines, tally_probes
from ibidem.trial.probes import Probe, _ProbeFinder, append_question, find_probes, grade_answer
from ibidem.trial.request_builder import Variant
from ibidem.trial.rewritten_histories import VariantHistories
from ibidem.trial.schedule import ALTERED, AS_SENT
from ibidem.trial.terminal import draw_probes

from .sessions import Agent, as_recorded
from .test_ask import agents, ask

ASKED = re.compile(
    r"call no tool: what (?:does line|do lines) (\d+)(?: to (\d+))? say in the last result of (\w+) on ([^\s?]+)"
)
MARKER = re.compile(r"\[ibidem \d{3}(?:\.\d+\w*)?: (\d+)(?:-(\d+))? unchanged(?: since result (\d+).*)?\]")
LINE = re.compile(r"\s*(\d+)(?:→|\t)(.*)")


@dataclass
class Reader:
    """Reads a request as a model would have to: looks a line up, and goes where a reference says."""

    misses: float = 0.0
    """Chance that a reference is not resolved."""
    by_file: bool = False
    """It does not follow numbers: it looks for the line in any earlier view of the file."""
    chance: Random = field(default_factory=lambda: Random(0))
    lost: bool = False
    """It does not resolve references in this answer."""

    def answer(self, body: Any, format: str = "anthropic") -> str | None:
        """None if nothing is asked."""
        dialect = formats.format_named(format)
        messages = [dialect.read_message(at, entry) for at, entry in enumerate(body[dialect.history_key])]
        found = ASKED.search(next(reversed(list(messages[-1].texts())), ""))
        if found is None:
            return None
        self.lost = self.chance.random() < self.misses
        first, tool, path = int(found[1]), found[3], found[4]
        files = {call.id: path in call.arguments and call.name == tool for each in messages for call in each.calls}
        results = [(files[each.call_id], next(_texts(each))) for message in messages for each in message.results]
        place = max(at for at, (same, _) in enumerate(results) if same)
        lines = [self._line(results, place, number) for number in range(first, int(found[2] or first) + 1)]
        return "not shown" if None in lines else "\n".join(map(str, lines))

    def _line(self, results: list[tuple[bool, str]], place: int, number: int) -> str | None:
        source = 0
        for line in results[place][1].split("\n"):
            if (marker := MARKER.fullmatch(line)) and int(marker[1]) <= number <= int(marker[2] or marker[1]):
                source = int(marker[3] or source)
                if self.lost:
                    return None
                if self.by_file:
                    return next(_shown(text, number) for same, text in results if same)
                return self._line(results, source - 1, number)
            source = int(marker[3] or source) if marker else source
        return _shown(results[place][1], number)


def _texts(result: Any) -> Iterator[str]:
    yield from (segment.text for segment in result.segments)


def _shown(text: str, number: int) -> str | None:
    lines = [found for line in text.split("\n") if (found := LINE.fullmatch(line))]
    return next((found[2] for found in lines if int(found[1]) == number), None)


def probes(number: int, format: str = "anthropic") -> Iterator[tuple[VariantHistories, list[Probe]]]:
    """Of requests of made-up sessions, until there are so many questions."""
    key = formats.format_named(format).history_key
    for name in range(number):
        body = Agent(f"p{name}", 5 + name % 4).bodies(format)[-2]
        found = VariantHistories(body[key], compact(body, profile="lossless", format=format).request[key])
        drawn = list(find_probes(found, format, f"seed {name}"))[:number]
        yield found, drawn
        number -= len(drawn)
        if not number:
            return


@cache
def hundred() -> list[tuple[VariantHistories, list[Probe]]]:
    return list(probes(100))


def asked(reader: Reader) -> ProbeTally:
    results = []
    for found, drawn in hundred():
        for probe in drawn:

            def told(history: list[Any], probe: Probe = probe, *, altered: bool = False) -> ProbeAnswer:
                text = reader.answer(append_question({"messages": history}, "anthropic", probe.question))
                return grade_answer(probe, text or "", has_called_tool=False, is_altered=altered)

            altered = told(probe.altered.replace_in(found.rewritten), altered=True) if probe.altered else None
            results.append(ProbeResult("p", told(found.original), told(found.rewritten), altered))
    found_all = tally_probes(results)
    assert found_all is not None
    return found_all


def test_who_follows_references_is_right_and_is_misled_where_they_are_altered() -> None:
    found = asked(Reader())
    assert found.inside.questions == found.outside.questions == 50
    assert [row.original for row in found.rows] == [row.rewritten for row in found.rows] == [1.0] * len(found.rows)
    assert {row.words for row in found.rows} >= {"a line never shown", "label fits two"}
    assert not found.has_harm
    assert found.altered.questions >= 20
    assert (found.altered.still_right, found.altered.followed) == (0, found.altered.questions)
    assert "a model that follows references gets these wrong" in probe_lines(found)[2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_references_that_are_not_resolved_are_found_at_a_hundred_questions(seed: int) -> None:
    found = asked(Reader(misses=0.3, chance=Random(seed)))
    assert found.has_harm
    assert found.inside.original == 1.0 > found.inside.rewritten
    assert (found.outside.original, found.outside.rewritten, found.outside.p) == (1.0, 1.0, 1.0)
    assert "behind a reference are right less often" in probe_lines(found)[0]


def test_what_is_printed_is_in_the_docs() -> None:
    shown = io.StringIO()
    draw_probes(Console(file=shown, width=100), asked(Reader(misses=0.3)))
    lines = [line.rstrip() for line in shown.getvalue().strip().split("\n")]
    assert "\n".join(lines) in (Path(__file__).parents[2] / "docs" / "trial.md").read_text("utf-8")


def test_who_finds_text_without_following_a_reference_is_found_out() -> None:
    found = asked(Reader(by_file=True))
    assert found.altered.still_right > found.altered.questions / 2
    assert "do not measure following" in probe_lines(found)[2]


@pytest.mark.parametrize("format", formats.FORMATS)
def test_questions_are_the_ones_that_were_drawn_and_requests_stay_valid(format: str) -> None:
    key = formats.format_named(format).history_key
    drawn = list(probes(12, format))
    assert drawn == list(probes(12, format))
    for found, questions in drawn:
        for probe in questions:
            for history in (found.original, found.rewritten):
                assert not validate(append_question({key: history}, format, probe.question), format=format)
            if probe.altered:
                altered = probe.altered.replace_in(found.rewritten)
                assert not validate({key: altered}, format=format)
                assert sum(one != other for one, other in zip(altered, found.rewritten, strict=True)) == 1


def test_of_a_file_with_versions_the_last_is_asked_for_and_another_is_named_where_it_is_altered() -> None:
    old = [f"value_{n} = compute({n * 7 % 13}, offset={n * n % 97})" for n in range(40)]
    new = [f"{line}  # new" for line in old]
    calls = {f"c{n}": ("Read", {"file_path": "/app.py"}) for n in range(3)}
    turns = [Turn("user", "Look.")]
    for ident, lines in zip(calls, (old, new, new), strict=True):
        text = "\n".join(f"{number:6}→{line}" for number, line in enumerate(lines, 1))
        turns += [Turn("assistant", calls=[ident]), Turn("tool", results=[(ident, text)])]
    body = build(turns, "anthropic", calls)
    found = VariantHistories(body["messages"], compact(body, profile="lossless").request["messages"])
    looking = _ProbeFinder(found, "anthropic", Random(0))
    probe = looking._find_probe(ProbeKind.WHICH, True)
    assert probe is not None
    assert (probe.fits, probe.truth[-5:]) == (2, "# new")
    assert probe.altered is not None
    assert f"{probe.altered.truth}  # new" == probe.truth
    assert "result 1, " in probe.altered.text


# ── what an answer is worth ─────────────────────────────────────────────────────────────────────────────────────────

LINE_PROBE = Probe(ProbeKind.LINE, True, 2, "?", "    return value + 1")
BLOCK_PROBE = replace(LINE_PROBE, kind=ProbeKind.BLOCK, truth="    if x:\n        go()\n")
ABSENT_PROBE = replace(LINE_PROBE, kind=ProbeKind.ABSENT, truth="not shown")


@pytest.mark.parametrize(
    ("probe", "text", "right"),
    [
        (LINE_PROBE, "return value + 1", True),
        (LINE_PROBE, "```python\n    return value + 1\n```", True),
        (LINE_PROBE, "`return value + 1`", True),
        (LINE_PROBE, "214→    return value + 1", True),
        (LINE_PROBE, "return value + 2", False),
        (LINE_PROBE, "Line 214 says: return value + 1", False),
        (LINE_PROBE, "", False),
        (BLOCK_PROBE, "if x:\n    go()", True),
        (BLOCK_PROBE, "if x:\ngo()", False),
        (ABSENT_PROBE, "Not shown.", True),
        (ABSENT_PROBE, "return value + 1", False),
    ],
)
def test_answers(probe: Probe, text: str, right: bool) -> None:
    found = grade_answer(probe, text, has_called_tool=False)
    assert found.right is right
    assert (found.ratio == 1.0) is right
    assert not right or found.ratio == 1.0


def test_mcnemar() -> None:
    assert mcnemar_p(0, 0) == 1.0
    assert mcnemar_p(5, 0) == 1 / 32
    assert mcnemar_p(1, 2) == 7 / 8


# ── over HTTP ───────────────────────────────────────────────────────────────────────────────────────────────────────


def reading(team: list[Agent], reader: Reader, format: str) -> Callable[[Seen], Answer]:
    known = as_recorded(team)

    def answer(seen: Seen) -> Answer:
        text = reader.answer(seen.json, format)
        return known(seen) if text is None else Says(text)

    return answer


@pytest.mark.sampled(1)
@pytest.mark.parametrize("format", formats.FORMATS)
def test_probes_are_asked_behind_what_is_cached_and_within_the_budget(tmp_path: Path, format: str) -> None:
    team = agents(1)
    done = ask(tmp_path, team, reading(team, Reader(), format), format=format, probes=True)
    assert done.why == ""
    results = done.ledger.probe_results()
    counts = Counter((key.variant, key.probe) for key in done.ledger.responses)
    assert len(results) == done.plan.forecast.probes / 2 == counts[Variant.ORIGINAL, AS_SENT]
    assert 0 < counts[Variant.REWRITTEN, ALTERED] <= len(results) / 4
    assert len(done.seen) == done.plan.forecast.calls == counts.total()
    assert all(each.original.right and each.rewritten.right for each in results)
    assert {each.altered.followed for each in results if each.altered} == {True}
    assert len(done.ledger.point_results()) == 5  # the verdict rests on the same answers as without
    assert done.ledger.spent == pytest.approx(done.bill.dollars(format))
    if format == "anthropic":
        assert done.ledger.spent == pytest.approx(done.plan.forecast.dollars, rel=0.1)
        asked = [json.dumps(seen.json["messages"][-1]) for seen in done.seen if "call no tool" in seen.text.decode()]
        assert all("cache_control" in text for text in asked)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("misses", [False, True], ids=["cached", "nothing is found in the cache"])
def test_probes_keep_to_the_budget(tmp_path: Path, misses: bool) -> None:
    team, ticks = agents(6), count(0, 400.0)
    clock = (lambda: next(ticks)) if misses else None
    done = ask(tmp_path, team, reading(team, Reader(), "anthropic"), budget=1.4, probes=True, clock=clock)
    assert 0.4 < done.bill.dollars("anthropic") <= 1.4
    assert done.ledger.probe_results()
