"""A number is written in one way, by Python and by the script of the page."""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from playwright.sync_api import Page

from ibidem.render import number_format as numbers
from ibidem.render.number_format import dollars, file_size, percent, plural, tokens
from tests.support.browser import launched

WRITTEN = [
    (dollars(0), "$0.00"),
    (dollars(1234.5), "$1,234.50"),
    (dollars(0.1), "$0.10"),
    (dollars(0.0123), "$0.0123"),
    (dollars(-0.5), "−$0.50"),
    (dollars(-0.05), "−$0.0500"),
    (dollars(0.00001), "under $0.0001"),
    (dollars(-0.00001), "−under $0.0001"),
    (tokens(0), "0"),
    (tokens(9_999), "9,999"),
    (tokens(-1_500), "−1,500"),
    (tokens(12_345), "12.3k"),
    (tokens(1_234_567), "1.23M"),
    (tokens(9.87e11), "987,000.00M"),
    (percent(0.1234), "12.3%"),
    (percent(-0.1234), "−12.3%"),
    (percent(0.1234, signed=True), "+12.3%"),
    (percent(0.0001), "<0.1%"),
    (percent(0.0001, signed=True), "+0.0%"),
    (percent(-0.0001), "−0.0%"),
    (percent(0.0), "0.0%"),
    (percent(1e-12), "0.0%"),
    (percent(12.5), "1,250.0%"),
    (percent(None), "–"),
    (plural(1, "session"), "1 session"),
    (plural(1_234, "session"), "1,234 sessions"),
    (percent(float("inf")), "inf%"),
    (tokens(1e300)[:6], "1,000,"),
    (file_size(312_400), "312.4 kB"),
    (file_size(2_000_000), "2.0 MB"),
]


@pytest.mark.parametrize(("written", "expected"), WRITTEN)
def test_a_number_is_written_so(written: str, expected: str) -> None:
    assert written == expected


@pytest.fixture(scope="module")
def script() -> Iterator[Page]:
    with launched() as browser:
        page = browser.new_page()
        page.set_content("<p></p>")
        page.add_script_tag(content=(resources.files("ibidem.report") / "page.js").read_text("utf-8"))
        yield page


def amounts() -> list[float]:
    """Of every size, and those at which something changes: also halves, which can be rounded either way."""
    edges = [0.0, 1e-10, 1e-9, 0.00005, 0.0005, 0.05, 0.1, 0.125, 0.0625, 0.5, 1.0, 2.5, 999.5, 1e3, 9_999.5, 1e4]
    edges += [12_250.0, 12_350.0, 999_949.0, 999_999.0, 1e6, 1_125_000.0, 1_235_000.0, 9.87e11]
    drawn = random.Random(4)
    some = [drawn.random() * 10 ** drawn.randint(-6, 9) for _ in range(500)]
    return [number * side for number in (*edges, *some) for side in (1, -1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"), [("dollars", ()), ("tokens", ()), ("percent", (False,)), ("percent", (True,))]
)
def test_the_script_of_the_page_writes_it_the_same_way(script: Page, name: str, more: tuple[Any, ...]) -> None:
    given = amounts()
    written = script.evaluate(f"([given, more]) => given.map((each) => {name}(each, ...more))", [given, more])
    ours = [getattr(numbers, name)(each, *more) for each in given]
    assert written == ours
