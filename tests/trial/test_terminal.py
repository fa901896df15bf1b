"""The verdict in a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from ibidem.trial.outcomes import DroppedSamples
from ibidem.trial.terminal import draw_verdict
from ibidem.trial.trial_statistics import compute_statistics
from tests.support.reader import FaultyReader

from .test_verdict import SETTING, judgement


def test_three_lines_then_the_table_then_how_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    stream = io.StringIO()
    draw_verdict(compute_statistics(FaultyReader(mixed=True).draw(3), seed=3), SETTING, stream)
    said = stream.getvalue().splitlines()
    assert [line.split(":")[0].split(".")[0] for line in said[:3]] == ["No harm was found", "Re-reads", "Same action"]
    assert said[4].split() == ["A", "B", "difference", "95", "%", "interval", "p", "points"]
    assert said[5].split()[:3] == ["Re-reads", "text", "that"]
    assert sum(line.startswith("  any other request") for line in said) == 5
    assert "Seed: 3" in said


def test_names_from_recordings_do_not_steer_the_terminal() -> None:
    hostile = "x\x1b[31m\r\n[red]\u202ey"
    stream = io.StringIO()
    setting = replace(SETTING, model=hostile, filled=(hostile,), drops={hostile: DroppedSamples(1, 1)}, simulated=True)
    draw_verdict(judgement(), setting, stream)
    said = stream.getvalue()
    assert said.startswith("Simulated: no model was called.")
    assert not {"\x1b", "\r", "\u202e"} & set(said)
    assert said.count("[red]") == 3
