"""The verdict as a page: nothing gets out of its place, it needs nothing else, and it can be read on a phone."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import ConsoleMessage

from ibidem.trial.outcomes import DroppedSamples
from ibidem.trial.page import write_trial_page
from ibidem.trial.trial_statistics import TrialStatistics, compute_statistics
from ibidem.trial.verdict import TrialConditions
from tests.report.test_page import HOSTILE
from tests.support.browser import hard_to_read, launched, scrolls_sideways
from tests.support.reader import FaultyReader

from .test_verdict import CASES, SETTING, judgement


def page(judged: TrialStatistics, setting: TrialConditions = SETTING) -> str:
    stream = io.StringIO()
    write_trial_page(judged, setting, stream)
    return stream.getvalue()


@pytest.mark.parametrize(("judged", "setting", "called", "said"), CASES)
def test_the_page_says_what_the_terminal_does(
    judged: TrialStatistics, setting: TrialConditions, called: str, said: str
) -> None:
    text = " ".join(re.sub(r"<[^>]+>", "", page(judged, setting)).split())
    assert said.replace("'", "&#39;").replace("<", "&lt;") in text
    assert "Simulated" not in text


def test_names_are_text() -> None:
    setting = replace(
        SETTING, model=HOSTILE, profile=HOSTILE, date=HOSTILE, filled=(HOSTILE,), drops={HOSTILE: DroppedSamples(1, 0)}
    )
    source = page(judgement(), replace(setting, simulated=True))
    assert "<script" not in source
    assert not {"\x1b", "\u202e"} & set(source)
    assert source.count("&lt;script&gt;alert(1)") == 3 + 5  # above the verdict, and below
    assert source.encode()


def test_it_needs_nothing_else() -> None:
    source = page(compute_statistics(FaultyReader(mixed=True, fails=0.3).draw(1), seed=1))
    assert "default-src 'none'; style-src 'sha256-" in source
    assert not re.findall(r"(?:src|href)=|url\(|@import|style=", source.replace("style-src", ""))


@pytest.mark.slow
def test_it_can_be_read_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    shown = compute_statistics(FaultyReader(samples=4, mixed=True, fails=0.3).draw(1), seed=1)
    file.write_text(page(shown, replace(SETTING, model="m" * 300)), "utf-8")
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    with launched() as browser:
        for scheme in schemes:
            for width in (1280, 375):
                opened = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
                complaints: list[str] = []

                def complain(message: ConsoleMessage, to: list[str] = complaints) -> None:
                    to.append(message.text)

                opened.on("console", complain)
                opened.goto(file.as_uri())
                assert not scrolls_sideways(opened)
                assert hard_to_read(opened) == []
                assert complaints == []  # the policy lets all through that the page has
                widths = opened.locator(".forest").evaluate_all("all => all.map(each => each.clientWidth)")
                assert min(widths) > 80
                opened.close()
