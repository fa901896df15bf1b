"""The picture in docs/report.md, of the bundled sample: `python -m benchmarks.picture docs/report.svg`."""

from __future__ import annotations

import io
import re
import sys
from importlib import resources
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ibidem.report.measure import ReportSettings, measure_log
from ibidem.report.terminal import draw
from ibidem.report.totals import add_up

PROFILES = ("lossless", "codetether")
SAMPLE = "conversation.json"


class Screen(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


def main() -> None:
    data = (resources.files("ibidem") / "samples" / SAMPLE).read_bytes()
    report = add_up(PROFILES, [measure_log(SAMPLE, data, ReportSettings(PROFILES))], lambda found: None)
    report.sample = True
    screen = Screen()
    draw(report, screen)
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(screen.getvalue()))
    title = " ".join(["ibidem report", *(f"--profile {name}" for name in PROFILES)])
    drawn = console.export_svg(title=title)
    # No fonts from elsewhere: a picture of a program that sends nothing anywhere should load nothing.
    Path(sys.argv[1]).write_text(re.sub(r"@font-face\s*\{[^}]*\}", "", drawn))


if __name__ == "__main__":
    main()
