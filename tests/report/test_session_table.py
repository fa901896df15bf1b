"""The table of sessions: its data, and in a real Chromium what the page's script makes of it, wide and narrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from ibidem.report.aggregate import Report
from ibidem.report.session_result import SessionResult
from tests.report.test_page import HOSTILE, TYPICAL, page, report, session
from tests.support.browser import hard_to_read, launched, scrolls_sideways

MARKUP = f"<img src=x onerror='window.broken = 1'><b>{HOSTILE}"
LONG = "Rename Order to Purchase everywhere, also in the migrations, and keep the old routes working " * 3


def named(path: str, title: str, **more: Any) -> SessionResult:
    return session(path, title=title, id=f"{path[-7:-6]}1234567-89ab", **more)


def made() -> Report:
    """Titles of every kind, two profiles, several days, and a session that was not replayed."""
    some = [
        named("/logs/a.jsonl", "Fix the tests", cost=20.0, after=(15.0, 12.0), recorded=19.0),
        named("/logs/b.jsonl", MARKUP, cost=1234.0, after=(1300.0, 1000.0), recorded=1234.56, started=1.7602e9),
        named(
            "/logs/c.jsonl", LONG, cost=3.0, after=(2.0, 2.9), recorded=3.0, agent="codex", models=["gpt-5-codex-spark"]
        ),
        named("/logs/d.jsonl", "x" * 180, cost=0.05, after=(0.05, 0.05), project=""),
        *(named(f"/logs/{n:03}.jsonl", f"Number {n}", cost=2.0, after=(1.9, 1.8), recorded=2.0) for n in range(40)),
    ]
    paid = named("/logs/e.jsonl", "Never replayed", recorded=7.0)
    return report(*some, unmeasured=[paid])


# --- the data -----------------------------------------------------------------------------------


def cells(found: Report, place: int) -> dict[str, Any]:
    """Of one row, by what a column is called where nothing stands over it."""
    data = json.loads(page(found).json)
    return {column[3]: value for column, value in zip(data["columns"], data["rows"][place], strict=True)}


def test_sessions_are_data_with_columns_for_each_profile() -> None:
    found = page(report(*TYPICAL))
    row = cells(report(*TYPICAL), 1)
    assert row["session"] == ["b.jsonl (task 7)", "shop · claude-code", "", "/home/me/shop", "b.jsonl", "task 7", ""]
    assert (row["when"], row["model"], row["requests"]) == ("2025-10-09 08:53", "claude-sonnet-4-5", 10)
    assert (row["paid"], row["lossless saved"], row["other saved"]) == (1.25, [-0.02, -0.02], [-0.5, -0.5])
    assert (row["nothing done: recorded"], row["nothing done: error"], row["nothing done: cost"]) == (1.0, 0.0, 1.0)
    assert (row["nothing done: peak"], row["lossless: cache rewritten"], row["other: laws"]) == (123456, 3, 0)
    heads = [attrs for tag, attrs in found.tags if tag == "th" and attrs.get("scope") == "col"]
    data = json.loads(found.json)
    assert len(heads) == len(data["columns"])
    assert all(kind in found.script for _, kind, *_ in data["columns"])
    shown = [label for label, _, extra, _ in data["columns"] if not extra]
    assert shown == ["session", "when", "model", "requests", "paid", "lossless", "other"]


def test_what_was_not_replayed_is_a_row_with_what_is_known() -> None:
    row = cells(report(*TYPICAL, unmeasured=[session("/logs/z.jsonl", recorded=4.0, title="Paid only")]), 3)
    assert row["session"][0] == "Paid only"
    assert row["paid"] == 5.0
    assert {row[name] for name in ("lossless saved", "nothing done: cost", "lossless: peak")} == {None}


def test_where_nothing_is_known_of_what_was_paid_the_replay_stands_in() -> None:
    data = json.loads(page(report(session(), session("/logs/b.jsonl"))).json)
    assert data["columns"][data["sorted"]][0] == "nothing done"
    assert [row[data["sorted"]] for row in data["rows"]] == [2.0, 2.0]


# --- in a browser -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page, and beside it what a title leads to."""
    folder = tmp_path_factory.mktemp("page")
    found, made_of = folder / "page.html", made()
    links = {each.key: "page-details/b%20%231.html" for each in made_of.sessions if each.title == MARKUP}
    found.write_bytes(page(made_of, links).source.encode())
    (folder / "page-details").mkdir()
    (folder / "page-details" / "b #1.html").write_text("<!doctype html><title>Details</title><p>All of it</p>")
    return found


def opened(chromium: Browser, file: Path, width: int, scheme: Literal["light", "dark"] = "light") -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    found = context.new_page()
    complaints: list[str] = []
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.on("console", lambda message: complaints.append(message.text))
    found.goto(file.as_uri())
    yield found
    assert found.evaluate("window.broken") is None
    assert complaints == []
    context.close()


@pytest.fixture
def wide(chromium: Browser, file: Path) -> Iterator[Page]:
    yield from opened(chromium, file, 1280)


@pytest.fixture
def phone(chromium: Browser, file: Path) -> Iterator[Page]:
    yield from opened(chromium, file, 375)


def rows(found: Page) -> list[list[str]]:
    return [line.split("\n") for line in found.locator("#all tbody tr").all_inner_texts()]


def inside(found: Page, selector: str) -> bool:
    """Whether all of these are on the screen as far as its width goes, and none is cut off."""
    boxes = found.locator(selector).evaluate_all(
        "all => all.map(each => [each.getBoundingClientRect().left, each.getBoundingClientRect().right,"
        " each.scrollWidth - each.clientWidth])"
    )
    width = (found.viewport_size or {"width": 0})["width"]
    return bool(boxes) and all(left >= 0 and right <= width and cut <= 1 for left, right, cut in boxes)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 375])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_can_be_read_and_nothing_is_off_the_screen(
    chromium: Browser, file: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    for found in opened(chromium, file, width, scheme):
        assert not scrolls_sideways(found)
        assert inside(found, "#all td.money, #all td.saving, .answers > div")
        assert not found.evaluate("(all => all.scrollWidth > all.clientWidth)(document.querySelector('.sessions'))")
        assert hard_to_read(found) == []
        found.locator("#all input[type=checkbox]").check()
        found.locator("details").first.evaluate("each => { each.open = true; }")
        assert not scrolls_sideways(found)
        assert hard_to_read(found) == []


@pytest.mark.slow
def test_titles_are_text_and_lead_to_their_details(wide: Page) -> None:
    link = wide.locator("#all tbody a")
    expect(link).to_have_text(re.compile(r"^<img src=x onerror='window.broken = 1'><b><script>alert\(1\)"))
    assert wide.locator("#all tbody :is(img, b, script)").count() == 0
    row = wide.locator("#all tbody tr", has_text="Fix the tests")
    expect(row.locator("small").first).to_have_text("shop · a1234567 · claude-code")
    assert "a1234567-89ab\n/home/me/shop\n/logs/a.jsonl" in (row.locator("th").get_attribute("title") or "")
    link.click()
    expect(wide.locator("p")).to_have_text("All of it")


@pytest.mark.slow
def test_it_is_sorted_searched_and_filtered(wide: Page) -> None:
    body = wide.locator("#all tbody")
    assert [row[0][:14] for row in rows(wide)][1:4] == ["Fix the tests", "Never replayed", "Rename Order t"]
    expect(body.locator("tr")).to_have_count(25)
    wide.get_by_role("button", name="Show 45 of 45").click()
    expect(body.locator("tr")).to_have_count(45)
    wide.locator("#all thead button", has_text="lossless").first.click()
    expect(body.locator("tr").first).to_contain_text("Fix the tests")
    wide.keyboard.press("Enter")  # the other way round; what is not known stays last
    expect(body.locator("tr").first).to_contain_text("−$66.00")
    search = wide.get_by_role("searchbox")
    for words, title in (
        ("SHOP fix", "Fix the"),
        ("a1234567-89", "Fix the"),
        ("codex-spark", "Rename"),
        ("logs/e", "Never"),
    ):
        search.fill(words)
        expect(body.locator("tr")).to_have_count(1)
        expect(body.locator("tr")).to_contain_text(title)
    search.fill("")
    wide.locator("#all select").select_option("more")
    expect(body.locator("tr")).to_have_count(1)
    expect(wide.locator("#all output")).to_have_text("1 of 45")


@pytest.mark.slow
def test_there_are_more_columns_behind_a_switch(wide: Page) -> None:
    assert wide.locator("#all thead th:visible").count() == 8  # with the one over what was saved
    switch = wide.get_by_role("switch", name="More columns")
    switch.focus()
    wide.keyboard.press("Space")
    expect(wide.locator("#all thead")).to_contain_text("cache rewritten")
    assert wide.locator("#all tbody tr").first.locator("td").count() > 20
    switch.uncheck()
    assert wide.locator("#all thead th:visible").count() == 8


@pytest.mark.slow
def test_on_a_phone_a_session_is_a_card_with_its_money(phone: Page) -> None:
    card = phone.locator("#all tbody tr", has_text="Fix the tests")
    expect(card.get_by_role("cell").nth(3)).to_have_text("$23.75")
    for label in ("paid", "lossless saved", "other saved"):
        expect(card.locator(f'td[data-label="{label}"]')).to_be_visible()
    unknown = phone.locator("#all tbody tr", has_text="Never replayed").locator("td.saving")
    assert unknown.all_inner_texts() == ["–", "–"]


@pytest.mark.slow
def test_thousands_of_sessions_open_soon(chromium: Browser, tmp_path: Path) -> None:
    many = report(*(named(f"/logs/{n:05}.jsonl", f"Number {n}", recorded=2.0) for n in range(10_000)))
    (tmp_path / "many.html").write_bytes(page(many).source.encode())
    for found in opened(chromium, tmp_path / "many.html", 1280):
        expect(found.locator("#all output")).to_have_text("10,000 of 10,000")
        assert found.evaluate("performance.timing.domComplete - performance.timing.responseEnd") < 5_000
        assert found.evaluate("document.querySelectorAll('*').length") < 5_000
