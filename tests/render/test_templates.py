"""HTML templates: values are text, and a missing Jinja2 is named with the command that installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ibidem.render import templates
from tests.report.test_page import HOSTILE

BLOCKED = """
import sys
sys.modules["jinja2"] = None
from ibidem.cli import launch
sys.argv = ["ibidem", *sys.argv[1:]]
launch()
"""


def test_a_value_is_text_with_control_characters_spelled_out() -> None:
    shown = templates._get_environment().from_string("<p>{{ value }}</p>").render(value=HOSTILE + "\t")
    assert "<script" not in shown
    assert not {"\x1b", "\u202e", "\n", "\ud800"} & set(shown)
    assert shown.endswith("\\ud800\t</p>")


def test_a_missing_value_is_an_error() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        templates._get_environment().from_string("{{ value }}").render()


@pytest.mark.parametrize(
    "arguments", [["report", "--html", "page.html"], ["show", "--html", "page.html"]], ids="-".join
)
def test_without_jinja_one_sentence_names_the_command(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "HTML pages need Jinja2. Install it: pip install '" in done.stderr
    assert "[html]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", ["report", "show", "compact"])
def test_without_a_page_no_command_needs_jinja(command: str) -> None:
    arguments = ["report", "--json", "--no-cache"] if command == "report" else [command]
    done = subprocess.run([sys.executable, "-c", BLOCKED, *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout[:1].strip() != "") == (0, True)
