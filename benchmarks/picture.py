"""The pictures in docs/report.md: `python -m benchmarks.picture docs`.

`report.svg` is the report in a terminal, of the bundled sample; `report-page.png`, `report-page-dark.png` and
`report-page-phone.png` are its page, of made-up sessions.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import tempfile
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ibidem.report.aggregate import add_up
from ibidem.report.measure import ReportSettings, measure_log
from ibidem.report.page import write_page
from ibidem.report.terminal import draw_report

from .shown_sessions import PROFILES, made_up_report

SAMPLE = "conversation.json"
COLUMNS = 80
WIDE, HIGH = 1280, 1300
PHONE = 375, 812


class Screen(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


def terminal(path: Path) -> None:
    data = (resources.files("ibidem") / "samples" / SAMPLE).read_bytes()
    report = add_up(PROFILES, [measure_log(SAMPLE, data, ReportSettings(PROFILES))], lambda found: None)
    report.sample = True
    os.environ["COLUMNS"] = str(COLUMNS)  # or it is as wide as the terminal that this runs in
    screen = Screen()
    draw_report(report, screen)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(screen.getvalue()))
    drawn = console.export_svg(title="ibidem report")
    # No fonts from elsewhere: a picture of a program that sends nothing anywhere should load nothing.
    path.write_text(re.sub(r"@font-face\s*\{[^}]*\}", "", drawn))


def pages(folder: Path) -> None:
    """Needs Chromium, and `pip install playwright`."""
    from playwright.sync_api import sync_playwright

    made = io.StringIO()
    write_page(made_up_report(), made)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        source = Path(place, "page.html")
        source.write_text(made.getvalue(), "utf-8")
        quiet = ("--no-sandbox", "--disable-component-update", "--no-first-run", "--disable-background-networking")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=quiet)
        for name, size, scheme, sharp in (
            ("report-page.png", (WIDE, HIGH), "light", 1.0),
            ("report-page-dark.png", (WIDE, HIGH), "dark", 1.0),
            ("report-page-phone.png", PHONE, "light", 2.0),
        ):
            page = browser.new_page(
                viewport={"width": size[0], "height": size[1]},
                color_scheme="dark" if scheme == "dark" else "light",
                device_scale_factor=sharp,
            )
            page.goto(source.as_uri())
            page.screenshot(path=folder / name)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    terminal(folder / "report.svg")
    pages(folder)


if __name__ == "__main__":
    main()
