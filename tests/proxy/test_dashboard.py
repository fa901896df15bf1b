"""The proxy's page in a real Chromium, against a server that plays its API; its metrics, read by Prometheus' parser."""

from __future__ import annotations

import base64
import hashlib
import json
import queue
import random
import re
import string
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

import pytest
from markupsafe import escape
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect
from prometheus_client.parser import text_string_to_metric_families

from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.page import dashboard
from ibidem.proxy.settings import Settings
from ibidem.testing.answers import Says
from ibidem.testing.upstream import Upstream
from tests.support.browser import launched, scrolls_sideways

pytestmark = pytest.mark.slow  # nearly all need a browser

HOSTILE = "<script>window.broken = 1</script></script><img src=x onerror='window.broken = 1'>\u202egnp.\x1b[31m"
SPELT = "<script>window.broken = 1</script></script><img src=x onerror='window.broken = 1'>\\u202egnp.\\x1b[31m"
START = 1_763_280_000.0

# --- a scripted proxy ---------------------------------------------------------------------------------------------

State = dict[str, Any]


def code(first: int, last: int) -> str:
    return "\n".join(
        f"    value_{number} = compute(values, {number})  # step {number}" for number in range(first, last)
    )


def edit(number: int, **more: Any) -> State:
    before = f"def step_{number}(values):\n{code(1, 60)}\n    return values\n\n# the end of file {number}"
    after = f"def step_{number}(values):\n[ibidem 7f3a] lines 2-60: unchanged, same as lines 2-60 of result 4, above"
    after += f"\n    return values\n\n# the end of file {number}"
    saved = len(before) - len(after)
    known = {"message": 2 * number, "strategy": "spans", "label": f"Read(src/step_{number}.py)", "bytes_saved": saved}
    return {**known, "before": before, "after": after, "new": number % 3 == 0, **more}


def exchange(number: int, **more: Any) -> State:
    size = 9_000 + 2_600 * number
    removed = 900 * number if number > 3 else 0
    broken = number == 25
    paid = (0.3 * size + (3.75 * size if broken else 9_000)) / 1e6
    known = {"at": START + 40 * number, "path": "/v1/messages", "status": 200, "reason": "", "messages": 2 * number + 1}
    return {
        **known,
        "id": f"e{number}",
        "outcome": "rewritten" if removed else "unchanged",
        "edits": number // 3,
        "bytes_in": 4 * (size + removed),
        "bytes_out": 4 * size,
        "took_ms": 2.1 + number / 10,
        "first_byte_ms": 700.0 + 9 * number,
        "total_ms": 4312.0,
        "input": size,
        "read": 0 if broken or number == 1 else size - 2_600,
        "written": size if broken or number == 1 else 2_300,
        "fresh": 300,
        "output": 412,
        "removed": removed,
        "paid": paid,
        "would_have_paid": paid + 0.3 * removed / 1e6,
        "revision": "it pays" if broken else None,
        **more,
    }


def conversation(number: int, title: str, **more: Any) -> State:
    known = {"title": title, "client": "claude-cli/2.1", "model": "claude-sonnet-4-5", "format": "anthropic"}
    return {
        **known,
        "id": f"c{number}",
        "requests": 10 * number + 1,
        "first": START + 100 * number,
        "last": START + 3000 + 100 * number,
        "active": number > 3,
        "paid": 0.21 * number,
        "would_have_paid": 0.27 * number,
        "input": 512_000 * number,
        "read": 480_000 * number,
        "written": 20_000 * number,
        "removed": 64_000 * number,
        "hits": 10 * number,
        "misses": 1,
        "breaks": 0,
        "stopped": False,
        **more,
    }


def empty() -> State:
    names = ("requests", "rewritten", "passed", "failed_open", "refused", "resent", "unpriced", "hits", "misses")
    nothing = dict.fromkeys(names, 0)
    money = {"paid": 0.0, "would_have_paid": 0.0, "by_marks": 0.0, "marks_would_save": 0.0, "unmarked": 0}
    tokens = {"input": 0, "read": 0, "written": 0, "written_1h": 0, "removed": 0, "breaks": {}, "missed": {}}
    known = {"version": "0.1.0", "profile": "recoverable", "cache": "off", "observe": False, "started": START}
    return {
        **known,
        "now": START + 5.0,
        "totals": {**nothing, **money, **tokens},
        "failures": [],
        "strategies": [],
        "events": [],
        "conversations": [],
        "ledger": {"kept": True, "trouble": ""},
        "all_off": False,
        "off": [],
    }


def kept_day(number: int, **more: Any) -> State:
    paid, less = 1.5 + number, 0.25 * number
    known = {"requests": 1200 * number, "conversations": 3, "observed": 0, "could_save": 0.0, "unpriced": 0}
    return {**known, "paid": paid, "would_have_paid": paid + less, "saved": less, **more}


def kept_days() -> State:
    days = [{"day": f"2025-11-{16 - number:02}", **kept_day(number)} for number in range(14)]
    return {"days": days, "all": kept_day(4321), "trouble": ""}


def typical() -> State:
    collapse = "cache reads fell after a revision: revisions stop here"
    return {
        **empty(),
        "now": START + 7_980.0,
        "totals": {
            **empty()["totals"],
            **{"requests": 120, "rewritten": 96, "passed": 24, "failed_open": 1, "paid": 2.25, "would_have_paid": 3.0},
            **{"refused": 3, "resent": 2},
            **{"unpriced": 0, "input": 8_123_450, "read": 7_000_000, "written": 900_000, "removed": 1_300_000},
            **{"breaks": {"it pays": 1, "cold cache": 2}, "hits": 100, "misses": 3, "written_1h": 400_000},
            **{"missed": {"tools": 0.12, "pause": 0.3}, "by_marks": 0.5},
        },
        "failures": [{"reason": "time-out", "count": 1}],
        "strategies": [
            {"name": "spans", "edits": 310, "tokens": 810_000},
            {"name": "dedup", "edits": 41, "tokens": 330_400},
            {"name": "look-back", "edits": 12, "tokens": 159_600},
        ],
        "events": [{"at": START + 5000.0, "kind": "collapse", "conversation": "c3", "text": collapse}],
        "conversations": [
            conversation(4, "Fix the failing test in tests/test_store.py and say why it failed only on the second run"),
            conversation(3, "Add retry with back-off to the upload client", stopped=True, breaks=2),
            conversation(
                2, "Why is the import slow?", client="codex_cli_rs/0.42", model="gpt-5-codex", format="openai"
            ),
            conversation(1, "write release notes", paid=0.30, model="claude-haiku-4-5"),
        ],
    }


class Proxy:
    """Serves the page and plays its API. Whoever changes `state` calls `publish`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.exchanges = {each["id"]: [exchange(number) for number in range(1, 42)] for each in state["conversations"]}
        self.edits: dict[str, State] = {}
        self.days = kept_days()
        self.token: str | None = None
        self.down = self.silent = False
        self.asked: list[str] = []
        self.turned: list[tuple[str, Any]] = []
        """What was switched off or on, and how it was asked for."""
        self.live: set[queue.Queue[bytes | None]] = set()
        self.opened = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                proxy.answer(self)

            def do_POST(self) -> None:
                proxy.turn(self)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        self.asked.append(handler.path)
        if self.down:
            handler.close_connection = True
        elif self.token and parse_qs(url.query).get("token") != [self.token]:
            self._send(handler, 401, "text/plain", b"")
        elif url.path == "/ibidem":
            self._send(handler, 200, dashboard.PAGE_HEADERS["Content-Type"], dashboard.render_page(self.token).encode())
        elif url.path == "/ibidem/api/live" and not self.silent:
            self._stream(handler)
        else:
            found = self._found(unquote(url.path).removeprefix("/ibidem/api/"))
            self._send(handler, 200 if found else 404, "application/json", json.dumps(found).encode())

    def turn(self, handler: BaseHTTPRequestHandler) -> None:
        way = urlsplit(handler.path).path.removeprefix("/ibidem/api/")
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        self.turned.append((way, body))
        known = {each["id"] for each in self.state["conversations"][:3]}
        name = body.get("conversation")
        if handler.headers["content-type"] != "application/json" or (name and name not in known):
            return self._send(handler, 404, "application/json", json.dumps({"error": f"{HOSTILE}: not here"}).encode())
        off = set(known if name is None else {name})
        self.state["off"] = sorted(set(self.state["off"]) | off if way == "off" else set(self.state["off"]) - off)
        if name is None:
            self.state["all_off"] = way == "off"
        self.state["now"] += 1
        return self._send(handler, 200, "application/json", b"{}")

    def _found(self, path: str) -> State | None:
        kind, _, name = path.partition("/")
        if kind == "conversation":
            known = next((each for each in self.state["conversations"] if each["id"] == name), None)
            return known and {"conversation": known, "exchanges": self.exchanges[name]}
        if kind == "exchange":
            each = next((each for found in self.exchanges.values() for each in found if each["id"] == name), None)
            edits = [edit(number) for number in range(2, each["edits"] + 2)] if each else []
            return each and self.edits.get(name, {"exchange": each, "kept": True, "edits": edits})
        return {"state": self.state, "days": self.days}.get(path)

    def _send(self, handler: BaseHTTPRequestHandler, status: int, kind: str, body: bytes) -> None:
        handler.send_response(status)
        headers = {**dashboard.PAGE_HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def _stream(self, handler: BaseHTTPRequestHandler) -> None:
        news: queue.Queue[bytes | None] = queue.Queue()
        self.live.add(news)
        self.opened += 1
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        handler.close_connection = True
        try:
            while (data := news.get()) is not None:
                handler.wfile.write(data)
        except OSError:
            pass  # the page went away
        finally:
            self.live.discard(news)

    def publish(self, **totals: Any) -> None:
        self.state["now"] += 1
        self.state["totals"].update(totals)
        data = f"event: state\ndata: {json.dumps(self.state)}\n\n".encode()
        for news in list(self.live):
            news.put(data)

    def drop(self) -> None:
        """Breaks the streams and answers nothing more."""
        self.down = True
        for news in list(self.live):
            news.put(None)

    def close(self) -> None:
        self.drop()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


# --- a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy(typical())
    yield made
    made.close()


expect.set_options(timeout=15_000)


class Window:
    """A page that must not complain, and must not ask anybody but its own proxy."""

    def __init__(self, context: BrowserContext, proxy: Proxy) -> None:
        self.proxy = proxy
        self.page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.lost = False
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._said)

    def _said(self, message: ConsoleMessage) -> None:
        """Chromium itself notes every request that failed; where a test makes one fail, that is no complaint."""
        if not (self.lost and message.text.startswith("Failed to load resource")):
            self.complaints.append(message.text)

    def open(self, place: str = "") -> Page:
        token = f"?token={self.proxy.token}" if self.proxy.token else ""
        self.page.goto(f"{self.proxy.url}/ibidem{token}{place}")
        expect(self.page.locator("#link")).to_have_text("live")
        expect(self.page.locator("main[aria-busy=true]")).to_have_count(0)  # what the place needs was asked for before
        return self.page


Opener = Callable[..., Window]


@pytest.fixture
def window(chromium: Browser, proxy: Proxy) -> Iterator[Opener]:
    opened: list[tuple[Window, BrowserContext]] = []

    def make(width: int = 1280, **options: Any) -> Window:
        context = chromium.new_context(viewport={"width": width, "height": 800}, timezone_id="UTC", **options)
        opened.append((Window(context, proxy), context))
        return opened[-1][0]

    yield make
    for found, context in opened:
        context.close()
        assert found.complaints == []
        assert [url for url in found.asked if not url.startswith((f"{proxy.url}/ibidem", "data:"))] == []


def row(page: Page, place: int, table: str = "#conversations") -> Locator:
    return page.locator(f"{table} tbody tr").nth(place)


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent")).strip()


def titles(page: Page, table: str = "#conversations") -> list[str]:
    return page.locator(f"{table} tbody .name a").all_inner_texts()


# --- what it says -------------------------------------------------------------------------------------------------


PLAN = ("requests", "paid", "would_have_paid", "input", "removed")


def test_totals_on_a_subscription_are_values_at_list_prices(window: Opener, proxy: Proxy) -> None:
    totals = proxy.state["totals"]
    totals["plan"] = {name: totals[name] for name in PLAN}
    for each in proxy.state["conversations"]:
        each["plan"] = True
    page = window().open()
    assert page.locator("#costs").inner_text().split("\n") == [
        *("Would have been worth", "$3.00", "without ibidem"),
        *("Worth at list prices", "$2.25", "with recoverable"),
        *("Saved", "$0.75", "25.0% less"),
    ]
    assert "paid" not in page.locator("#filled").inner_text().lower()


def test_key_and_subscription_are_shown_apart(window: Opener, proxy: Proxy) -> None:
    input_tokens = proxy.state["totals"]["input"]
    part = {
        "requests": 20,
        "paid": 0.25,
        "would_have_paid": 0.5,
        "input": input_tokens // 4,
        "removed": input_tokens // 4,
    }
    proxy.state["totals"]["plan"] = part
    page = window().open()
    assert page.locator("#costs").inner_text().split("\n")[:6] == [
        *("Would have paid", "$2.50", "without ibidem"),
        *("Paid", "$2.00", "with recoverable"),
    ]
    expect(page.locator("#priced")).to_contain_text(
        "On a subscription: input worth $0.25 at list prices, would have been worth $0.50, 50.0% of input tokens saved."
    )


def test_totals_are_money_first_then_tokens_and_the_cache(window: Opener) -> None:
    page = window().open()
    assert page.locator("#costs").inner_text().split("\n") == [
        *("Would have paid", "$3.00", "without ibidem"),
        *("Paid", "$2.25", "with recoverable"),
        *("Saved", "$0.75", "25.0% less"),
    ]
    tiles = page.locator("#tiles div").all_inner_texts()
    assert [tile.split("\n") for tile in tiles] == [
        ["Requests", "120", "96 rewritten · 24 unchanged"],
        ["Input tokens", "8.12M", "1.30M removed (13.8%)"],
        ["Read from cache", "86.2%", "6.2% written for 5 min · 4.9% for 1 h · 2.8% not cached"],
        ["Cache hits", "100", "3 misses · pause $0.30 · tools $0.12"],
        ["Cache rewritten", "3", "it pays 1 · cold cache 2"],
        ["Failed open", "1", "time-out 1"],
        ["Rejected", "3", "2 accepted when sent again"],
    ]
    expect(page.locator("#priced")).to_have_text("Cache breakpoints and TTLs saved $0.50, texts saved $0.25.")
    expect(page.locator("#facts")).to_contain_text("profile recoverable · rewriting · since 16 Nov")
    expect(page.locator("#facts")).to_contain_text("(2 h 13 min)")
    assert [each.split() for each in page.locator("#strategies tbody tr").all_inner_texts()] == [
        ["spans", "810.0k", "310"],
        ["dedup", "330.4k", "41"],
        ["look-back", "159.6k", "12"],
    ]
    expect(page.locator("#events li")).to_contain_text("collapse")
    expect(page.locator("#events li")).to_contain_text("revisions stop here")
    assert page.title() == "$0.75 saved – ibidem proxy"


def test_what_cost_more_is_said_to_have_cost_more(window: Opener, proxy: Proxy) -> None:
    proxy.state["totals"]["paid"] = 3.3
    page = window().open()
    saved = page.locator(".cost.saved")
    assert saved.inner_text().split("\n") == ["Cost more by", "$0.30", "10.0% more"]
    assert "neg" in (saved.get_attribute("class") or "")
    dear = row(page, 3)
    expect(dear).to_contain_text("−$0.03")
    expect(dear).to_contain_text("−11.1%")
    assert page.title() == "$0.30 more – ibidem proxy"


def test_clients_that_ask_for_no_cache_are_told_first(window: Opener, proxy: Proxy) -> None:
    state = proxy.state
    state["cache"] = "lifetime"
    state["totals"].update({"unmarked": 2, "marks_would_save": 3.2})
    state["conversations"][0].update({"unmarked": True, "marks_would_save": 1.9})
    page = window().open()
    expect(page.locator("#filled > :first-child")).to_have_text(
        "2 conversations use no prompt caching: --cache auto would save about $3.20."
    )
    expect(page.locator("#facts")).to_contain_text("cache lifetime")
    expect(page.locator("#conversations tbody tr", has_text="no prompt caching")).to_have_count(1)
    page.locator("#conversations tbody tr", has_text="no prompt caching").locator("a").click()
    expect(page.locator("#conversation .unmarked")).to_have_text(
        "This client uses no prompt caching: --cache auto would save about $1.90."
    )


def test_what_marks_cost_is_told_as_such_and_nothing_where_there_are_none(window: Opener, proxy: Proxy) -> None:
    state = proxy.state
    state["totals"].update({"by_marks": -0.25})
    page = window().open()
    expect(page.locator("#priced")).to_have_text("Cache breakpoints and TTLs cost $0.25, texts saved $1.00.")
    expect(page.locator("#unmarked")).to_be_hidden()
    state["totals"].update({"by_marks": 0.0})
    proxy.publish()
    expect(page.locator("#priced")).to_have_text("")


def test_observing_says_what_would_be(window: Opener, proxy: Proxy) -> None:
    """What was paid is the whole price then, and the other sum is the smaller one."""
    proxy.state["observe"] = True
    proxy.state["totals"].update(paid=3.0, would_have_paid=2.25)
    page = window().open()
    assert page.locator("#costs").inner_text().split("\n") == [
        *("Paid", "$3.00", "unchanged"),
        *("Would pay", "$2.25", "with recoverable"),
        *("Would save", "$0.75", "25.0% less"),
    ]
    expect(page.locator("#observing")).to_be_visible()
    expect(page.locator("#tiles")).to_contain_text("1.30M would be removed (16.0%)")
    assert "would save" in page.locator("#conversations thead").inner_text()
    expect(page.locator("#overview")).not_to_contain_text("Saved")
    row(page, 0).locator("a").click()
    expect(page.locator(".legend")).to_have_text("would be sentwould be removedcache rewritten")


@pytest.mark.parametrize(
    ("change", "amount", "note"),
    [
        ({"unpriced": 120}, "unknown", "Cost unknown: no usage"),
        ({"paid": None, "would_have_paid": None}, "unknown", "Cost unknown: no usage"),
        ({"unpriced": 7}, "$2.25", "The cost of 7 of 120 requests is unknown"),
        ({"paid": 0.0, "would_have_paid": 0.0, "input": 0}, "–", "No cost yet"),
    ],
    ids=["no request has a price", "no sum is known", "some requests have none", "no answer has come"],
)
def test_money_that_is_not_known_is_said_to_be_unknown(
    window: Opener, proxy: Proxy, change: State, amount: str, note: str
) -> None:
    proxy.state["totals"].update(change)
    proxy.state["conversations"][0].update(paid=None, would_have_paid=None)
    page = window().open()
    expect(page.locator(".cost.paid b").first).to_have_text(amount)
    expect(page.locator("#priced")).to_contain_text(note)
    assert row(page, 0).locator("td").all_inner_texts()[2:6] == ["–"] * 4


def test_before_anything_came_it_says_how_to_send_something(window: Opener, proxy: Proxy) -> None:
    proxy.state = empty()
    page = window().open()
    told = page.locator("#empty")
    for words in (
        "ibidem wrap -- claude",
        f"ANTHROPIC_BASE_URL={proxy.url}",
        f"OPENAI_BASE_URL={proxy.url}/v1",
        f"GOOGLE_GEMINI_BASE_URL={proxy.url}",
    ):
        expect(told).to_contain_text(words)
    proxy.state = {**typical(), "now": START + 10}
    proxy.publish()
    expect(told).to_be_hidden()
    expect(page.locator("#costs")).to_be_visible()


def test_what_was_kept_of_earlier_days_is_shown(window: Opener, proxy: Proxy) -> None:
    """Also right after a restart, and once for many states."""
    proxy.state = empty()
    page = window().open()
    expect(page.locator("#empty")).to_be_visible()
    days = page.locator("#days tbody tr")
    expect(days).to_have_count(15)
    assert days.first.inner_text().split() == ["2025-11-16", "$1.50", "$0.00", "0"]
    assert days.nth(1).inner_text().split() == ["2025-11-15", "$2.50", "$0.25", "1,200"]
    assert days.last.inner_text().split() == ["all", "time", "$4,322.50", "$1,080.25", "5,185,200"]
    proxy.state = typical()
    for _ in range(3):
        proxy.publish()
    expect(page.locator("#conversations tbody tr")).to_have_count(4)
    assert [each for each in proxy.asked if each.startswith("/ibidem/api/days")] == ["/ibidem/api/days"]


@pytest.mark.parametrize("why", ["", "a file that is damaged"])
def test_where_nothing_is_kept_there_are_no_days(window: Opener, proxy: Proxy, why: str) -> None:
    proxy.days = {"days": [], "all": None, "trouble": why and f"{HOSTILE}: {why}"}
    page = window().open()
    expect(page.locator("#conversations tbody tr")).to_have_count(4)
    expect(page.locator("#days")).to_be_hidden()
    if why:
        expect(page.locator("#not-kept")).to_have_text(f"Usage is not stored: {SPELT}: {why}")
    else:
        expect(page.locator("#kept")).to_be_hidden()


def test_what_was_only_observed_is_told_apart(window: Opener, proxy: Proxy) -> None:
    proxy.days = {**kept_days(), "all": kept_day(2, observed=7, could_save=0.5)}
    page = window().open()
    note = "7 requests only observed: $0.50 could have been saved."
    expect(page.locator("#kept-note")).to_have_text(note)


def test_a_token_goes_along_with_everything_that_is_asked(window: Opener, proxy: Proxy) -> None:
    proxy.token = "s&c<r>t"
    proxy.state = empty()
    found = window()
    found.page.goto(f"{proxy.url}/ibidem?token=s%26c%3Cr%3Et")
    expect(found.page.locator("#link")).to_have_text("live")
    expect(found.page.locator("#empty")).to_contain_text("x-ibidem-token")
    assert all(path.endswith("?token=s%26c%3Cr%3Et") for path in proxy.asked)


# --- live ---------------------------------------------------------------------------------------------------------


def test_totals_change_without_a_reload(window: Opener, proxy: Proxy) -> None:
    page = window().open()
    page.evaluate("window.same = true")
    proxy.state["conversations"].insert(0, conversation(5, "the newest"))
    proxy.exchanges["c5"] = [exchange(1)]
    proxy.publish(requests=121, paid=2.4)
    expect(page.locator(".cost.saved b").first).to_have_text("$0.60")
    expect(page.locator("#tiles")).to_contain_text("121")
    expect(row(page, 0)).to_contain_text("the newest")
    assert page.evaluate("window.same")


def test_an_update_leaves_focus_selection_and_scroll_alone(window: Opener, proxy: Proxy) -> None:
    page = window().open()
    link = row(page, 1).locator("a")
    link.focus()
    page.set_viewport_size({"width": 1280, "height": 400})
    page.mouse.wheel(0, 300)
    page.wait_for_function("scrollY > 100")
    page.evaluate("""() => {
        const text = document.querySelector("#conversations tbody a bdi").firstChild;
        getSelection().setBaseAndExtent(text, 4, text, 11);
    }""")
    before = page.evaluate("[scrollY, getSelection().toString(), document.activeElement.textContent]")
    assert before[1:] == ["the fai", "Add retry with back-off to the upload client"]
    proxy.state["conversations"][1].update(last=START + 9000, paid=0.7)  # would be the first now
    proxy.publish(paid=2.0)
    expect(page.locator(".cost.saved b").first).to_have_text("$1.00")
    expect(row(page, 1)).to_contain_text("$0.70")  # who is in the table finds the rows where they were
    assert page.evaluate("[scrollY, getSelection().toString(), document.activeElement.textContent]") == before


def test_a_conversation_grows_while_it_is_looked_at(window: Opener, proxy: Proxy) -> None:
    page = window().open("#/c/c4")
    expect(row(page, 0, ".requests")).to_contain_text("Request 41")
    page.keyboard.press("n")
    proxy.exchanges["c4"].append(exchange(42))
    proxy.state["conversations"][0].update(requests=42)
    proxy.publish(requests=121)
    expect(page.locator(".requests tbody tr")).to_have_count(42)
    assert focused(page) == "Request 41"


def test_a_state_that_was_overtaken_on_its_way_is_not_shown(window: Opener, proxy: Proxy) -> None:
    page = window().open()
    page.evaluate("""() => {
        const node = document.querySelector(".cost.saved b");
        window.shown = [];
        new MutationObserver(() => window.shown.push(node.textContent)).observe(node, { childList: true });
    }""")
    now = proxy.state["now"]
    proxy.state["now"] = now - 100
    proxy.publish(paid=1.0)
    proxy.state["now"] = now
    proxy.publish(paid=2.4)
    expect(page.locator(".cost.saved b").first).to_have_text("$0.60")
    assert page.evaluate("window.shown") == ["$0.60"]


def test_after_a_restart_nothing_of_before_is_shown(window: Opener, proxy: Proxy) -> None:
    """Requests have new numbers then."""
    found = window()
    page = found.open("#/e/e30")
    expect(page.locator(".edit summary b").first).to_have_text("Read(src/step_3.py)")
    show(proxy, edit(7), path="/v1/other")
    proxy.state["started"] += 9_000
    proxy.publish()
    expect(page.locator("#exchange .facts")).to_contain_text("/v1/other")
    expect(page.locator(".edit summary b")).to_have_text("Read(src/step_7.py)")
    found.lost = True  # asked for once more, it is gone
    proxy.exchanges.clear()
    proxy.state = {**empty(), "started": START + 10_000, "now": START + 10_001}
    proxy.publish()
    expect(page.get_by_text("This request is no longer in memory.")).to_be_visible()
    expect(page.locator(".edits")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#empty")).to_be_visible()


def test_a_lost_connection_is_shown_and_comes_back(window: Opener, proxy: Proxy) -> None:
    found = window()
    page = found.open()
    found.lost = True
    proxy.drop()
    expect(page.locator("#link")).to_have_class("lost")
    expect(page.locator("#link")).to_contain_text("connection lost, reconnecting: numbers of")
    page.mouse.wheel(0, 2000)
    expect(page.locator("#link")).to_be_in_viewport()
    expect(page.locator(".cost.saved b").first).to_have_text("$0.75")
    proxy.state["now"] += 1
    proxy.state["totals"]["paid"] = 2.0
    proxy.down = False
    expect(page.locator("#link")).to_have_text("live", timeout=20_000)
    expect(page.locator(".cost.saved b").first).to_have_text("$1.00")
    expect(page.locator("#link")).to_have_attribute("role", "status")


def test_without_a_stream_it_asks_again_and_again(window: Opener, proxy: Proxy) -> None:
    proxy.silent = True
    found = window()
    found.lost = True
    page = found.page
    page.clock.install()
    page.goto(f"{proxy.url}/ibidem")
    expect(page.locator("#link")).to_contain_text("updated every 5 s")
    proxy.publish(paid=2.0)
    page.clock.fast_forward(5_000)
    expect(page.locator(".cost.saved b").first).to_have_text("$1.00")


# --- clicking through ---------------------------------------------------------------------------------------------


def test_by_mouse_from_a_conversation_to_a_request_and_back(window: Opener) -> None:
    page = window().open()
    row(page, 1).locator("td").nth(1).click()  # anywhere in the row
    expect(page.locator("#conversation .title")).to_have_text("Add retry with back-off to the upload client")
    expect(page.locator("#conversation .events li")).to_contain_text("collapse")
    assert page.url.endswith("#/c/c3")
    row(page, 11, ".requests").locator("a").click()
    expect(page.locator("#exchange .title")).to_have_text("Request 30")
    expect(page.locator("#exchange .crumbs")).to_contain_text("Add retry")
    page.get_by_role("link", name="later →").click()
    expect(page.locator("#exchange .title")).to_have_text("Request 31")
    page.go_back()
    expect(page.locator("#exchange .title")).to_have_text("Request 30")
    page.go_back()
    expect(page.locator("#conversation")).to_be_visible()
    page.go_back()
    expect(page.locator("#overview")).to_be_visible()
    page.go_forward()
    expect(page.locator("#conversation")).to_be_visible()


def test_text_in_a_row_can_be_selected_without_opening_it(window: Opener) -> None:
    page = window().open()
    page.set_viewport_size({"width": 1280, "height": 1200})  # nothing scrolls while the pointer moves
    box = row(page, 0).locator("td").nth(6).bounding_box()
    assert box
    page.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)
    page.mouse.up()
    assert page.evaluate("getSelection().toString()").strip() == "256.0k"
    expect(page.locator("#overview")).to_be_visible()


def test_going_up_goes_back_the_way_one_came(window: Opener) -> None:
    page = window().open()
    row(page, 0).locator("a").click()
    row(page, 0, ".requests").locator("a").click()
    expect(page.locator("#exchange .title")).to_have_text("Request 41")
    for place in ("conversation", "overview"):
        page.keyboard.press("Escape")
        expect(page.locator(f"#{place}")).to_be_visible()
    page.go_forward()
    expect(page.locator("#conversation")).to_be_visible()


def test_by_keyboard_alone(window: Opener) -> None:
    page = window().open()
    for key in ("n", "j", "p"):
        page.keyboard.press(key)
    assert focused(page).startswith("Fix the failing test")
    page.keyboard.press("Enter")
    expect(page.locator("#conversation .title")).to_be_focused()
    expect(row(page, 0, ".requests")).to_contain_text("Request 41")
    for key in ("n", "n", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#exchange .title")).to_have_text("Request 40")
    page.keyboard.press("[")
    expect(page.locator("#exchange .title")).to_have_text("Request 39")
    page.keyboard.press("]")
    expect(page.locator("#exchange .title")).to_have_text("Request 40")
    page.keyboard.press("n")
    assert focused(page).startswith("Read(src/step_3.py)")
    page.keyboard.press("n")
    assert focused(page).startswith("Read(src/step_6.py)")
    first = page.locator(".edit").nth(1)
    page.keyboard.press("Enter")
    expect(first.locator(".beside")).to_be_hidden()
    page.keyboard.press("Space")
    expect(first.locator(".beside")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#conversation")).to_be_visible()
    assert focused(page) == "Request 40"
    page.keyboard.press("Escape")
    expect(page.locator("#overview")).to_be_visible()
    assert focused(page).startswith("Fix the failing test")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    expect(page.locator("#overview")).to_be_visible()


def test_tab_goes_through_the_page_in_order_and_can_be_seen(window: Opener) -> None:
    page = window().open()
    visited = []
    for _ in range(30):
        page.keyboard.press("Tab")
        visited.append(page.evaluate("[document.activeElement.id, document.activeElement.textContent.slice(0, 20)]"))
        width = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert width >= 2 or visited[-1][0] == "", visited[-1]
        if visited[-1][1].startswith("write release"):
            break
    retry = "Add retry with back-"
    known = {"ibidem proxy", "Keys ?", retry, "conversation", "last", "Fix the failing test", "write release notes"}
    order = ["ibidem proxy", "Keys ?", retry, "conversation", "last", "Fix the failing test", retry]
    assert [text for _, text in visited if text in known] == [*order, "write release notes"]
    page.keyboard.press("Enter")
    expect(page.locator("#conversation")).to_be_visible()


def test_columns_sort_both_ways(window: Opener) -> None:
    page = window().open()
    newest = titles(page)
    assert [title[:3] for title in newest] == ["Fix", "Add", "Why", "wri"]
    head = page.locator("#conversations thead")
    head.get_by_role("button", name="share").click()
    assert titles(page)[-1] == "write release notes"
    expect(page.locator("#conversations th[aria-sort]")).to_have_attribute("aria-sort", "descending")
    head.get_by_role("button", name="share").press("Enter")
    assert titles(page)[0] == "write release notes"
    head.get_by_role("button", name="conversation").click()
    assert titles(page) == sorted(newest, key=str.lower)


def test_scroll_is_where_it_was_on_the_way_back(window: Opener) -> None:
    page = window().open("#/c/c4")
    link = row(page, 35, ".requests").locator("a")
    link.scroll_into_view_if_needed()
    where = page.evaluate("scrollY")
    assert where > 500
    link.click()
    expect(page.locator("#exchange .title")).to_have_text("Request 6")
    assert page.evaluate("scrollY") == 0
    page.go_back()
    expect(link).to_be_focused()
    assert page.evaluate("scrollY") == where


def test_a_link_into_the_page_opens_there(window: Opener) -> None:
    page = window().open("#/e/e30")
    expect(page.locator("#exchange .title")).to_contain_text("30")
    expect(page.locator("#exchange .tiles")).to_contain_text("456.0 kB received")
    page.keyboard.press("Escape")
    expect(page.locator("#overview")).to_be_visible()


@pytest.mark.parametrize(
    ("place", "says"),
    [("#/c/gone", "This conversation is no longer in memory."), ("#/e/gone", "This request is no longer in memory.")],
)
def test_what_is_no_longer_there_is_said_to_be_gone(window: Opener, place: str, says: str) -> None:
    found = window()
    found.lost = True
    page = found.open(place)
    expect(page.get_by_text(says)).to_be_visible()


def test_the_chart_shows_each_request_its_saving_and_the_break(window: Opener) -> None:
    page = window().open("#/c/c4")
    chart = page.locator("svg.chart-of-requests")
    expect(chart.locator("rect.v")).to_have_count(41)
    expect(chart.locator("circle.break")).to_have_count(1)
    expect(chart).to_have_attribute("aria-label", re.compile(r"41 requests, .* cache rewritten by 1 request"))
    high = [rect.bounding_box() for rect in chart.locator("rect.gone").all()]
    assert [box["height"] for box in high if box][-1] > 20
    box = chart.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 24.5 / 41, box["y"] + 20)
    expect(page.locator(".readout")).to_contain_text("Request 25")
    expect(page.locator(".readout")).to_contain_text("cache rewritten: it pays")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator("#exchange .title")).to_have_text("Request 25")


# --- original and rewritten ---------------------------------------------------------------------------------------


Columns = list[tuple[list[str], list[str]]]


def columns(page: Page, kind: str, place: int = 0) -> Columns:
    """Of the blocks of one edit: lines of the original, and of what was sent."""
    blocks = page.locator(".edit").nth(place).locator(f".block{kind}")
    script = """(blocks) => blocks.map((block) => [...block.children].map((side) =>
        [...side.querySelectorAll(".line")].map((line) => line.textContent)))"""
    return [(left, right) for left, right in blocks.evaluate_all(script)]


def show(proxy: Proxy, *edits: State, **more: Any) -> None:
    each = exchange(30, **more)
    proxy.exchanges["c4"][29] = each
    proxy.edits["e30"] = {"exchange": each, "kept": True, "edits": list(edits)}


def test_what_changed_stands_beside_the_original(window: Opener, proxy: Proxy) -> None:
    show(proxy, edit(1, before="a\nb\n\nc\nd\n\ne", after="a\n\nX\nd\n\ne"))
    page = window().open("#/e/e30")
    expect(page.locator(".edit")).to_have_count(1)
    assert columns(page, ".same") == [(["a"], ["a"]), ([""], [""]), (["d", "", "e"], ["d", "", "e"])]
    assert columns(page, ".changed") == [(["b"], []), (["c"], ["X"])]
    expect(page.locator(".changed > del")).to_have_count(2)
    expect(page.locator(".changed > ins")).to_have_count(2)


def test_both_columns_hold_the_whole_texts_and_call_the_same_only_what_is_the_same(
    window: Opener, proxy: Proxy
) -> None:
    """Whatever the texts: lines that stand often, that moved, that are new."""
    choose = random.Random(6)
    texts = []
    for letters in ["abcd", "abcdefgh", string.ascii_letters] * 4:
        before = choose.choices(letters, k=14)
        cut, end = sorted(choose.choices(range(15), k=2))
        after = [*before[:cut], *choose.choices(letters, k=choose.randrange(3)), *before[end:], *before[cut:end][:2]]
        texts.append(("\n".join(before), "\n".join(after)))
    show(proxy, *(edit(place, before=before, after=after) for place, (before, after) in enumerate(texts)))
    page = window().open("#/e/e30")
    page.get_by_label("all (12)").check()
    expect(page.locator(".edit[open]")).to_have_count(12)
    for place, text in enumerate(texts):
        every = columns(page, ":is(.same, .changed)", place)
        lefts, rights = zip(*every, strict=True)
        assert ("\n".join(chain(*lefts)), "\n".join(chain(*rights))) == text
        assert all(left == right for left, right in columns(page, ".same", place))
        assert all(left != right for left, right in columns(page, ".changed", place))


def test_long_texts_are_folded_until_they_are_asked_for(window: Opener, proxy: Proxy) -> None:
    same = "\n".join(f"kept {number}" for number in range(100))
    show(proxy, edit(1, before=f"{same}\n{code(0, 80)}", after=f"{same}\n[ibidem] marker"))
    page = window().open("#/e/e30")
    lines = page.locator(".edit .was .line")
    assert 15 < lines.count() < 30
    page.get_by_role("button", name="show 94 unchanged lines").click()
    page.get_by_role("button", name="show all 80 lines").press("Enter")
    expect(lines).to_have_count(180)
    expect(page.locator(".edit button")).to_have_count(0)
    assert page.evaluate("document.activeElement.className") == "block changed"


def test_only_what_is_new_shows_first(window: Opener) -> None:
    page = window().open("#/e/e30")
    expect(page.locator(".edit")).to_have_count(3)
    page.get_by_label("all (10)").check()
    expect(page.locator(".edit")).to_have_count(10)
    page.get_by_role("button", name="next edit").click()
    assert focused(page).startswith("Read(src/step_2.py)")
    page.get_by_role("button", name="previous edit").click()
    assert focused(page).startswith("Read(src/step_2.py)")


def test_hundreds_of_edits_are_shown_a_part_at_a_time(window: Opener, proxy: Proxy) -> None:
    show(proxy, *(edit(number, new=False) for number in range(1, 301)))
    page = window().open("#/e/e30")
    expect(page.locator(".edit")).to_have_count(50)
    expect(page.locator(".edit[open]")).to_have_count(12)
    page.get_by_role("button", name="Show all 300 edits").click()
    expect(page.locator(".edit")).to_have_count(300)
    assert focused(page).startswith("Read(src/step_51.py)")
    expect(page.locator(".edit").nth(50).locator(".beside")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator(".edit").nth(50).locator(".beside")).to_be_visible()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"kept": False, "edits": []}, "no longer in memory"),
        ({"kept": True, "edits": [], "outcome": "unchanged"}, "No text in this request was sent before"),
        ({"kept": True, "edits": [], "outcome": "failed open", "reason": "time-out"}, "because rewriting failed"),
        ({"kept": True, "edits": [], "outcome": "failed open", "resent": "x"}, "The provider rejected"),
    ],
    ids=["texts are forgotten", "nothing to do", "failed open", "refused"],
)
def test_a_request_without_edits_says_why(window: Opener, proxy: Proxy, answer: State, says: str) -> None:
    show(proxy, **{name: answer[name] for name in ("outcome", "reason", "resent") if name in answer})
    proxy.edits["e30"]["kept"] = answer["kept"]
    page = window().open("#/e/e30")
    expect(page.locator(".none")).to_contain_text(says)
    if "reason" in answer:
        expect(page.locator("#exchange .facts")).to_contain_text("failed open · time-out")


def test_an_answer_that_is_still_coming_is_filled_in_later(window: Opener, proxy: Proxy) -> None:
    """Who reads what was rewritten is not disturbed by it."""
    unknown: State = dict.fromkeys(("total_ms", "first_byte_ms", "paid", "would_have_paid"))
    show(proxy, edit(1), **unknown, **dict.fromkeys(("status", "input", "read", "written", "fresh", "output"), 0))
    page = window().open("#/e/e30")
    expect(page.locator("#exchange .facts")).to_contain_text("no response yet")
    expect(page.locator("#exchange .cost.paid b")).to_have_text("–")
    page.keyboard.press("n")
    page.get_by_role("button", name="show all 59 lines").click()
    show(proxy, edit(1))
    proxy.publish(requests=121)
    expect(page.locator("#exchange .facts")).to_contain_text("status 200")
    expect(page.locator("#exchange .cost.paid b")).to_have_text("$0.0351")
    expect(page.locator(".edit .was .line")).to_have_count(63)
    assert page.evaluate("document.activeElement.className") == "block changed"


# --- whatever comes is text ---------------------------------------------------------------------------------------


def test_hostile_texts_are_shown_as_texts(window: Opener, proxy: Proxy) -> None:
    long = "x" * 100_000
    first = proxy.state["conversations"][0]
    first.update(id="c/#?<b>", title=HOSTILE, client=HOSTILE, model=HOSTILE, format=HOSTILE)
    proxy.exchanges["c/#?<b>"] = proxy.exchanges.pop("c4")
    proxy.state["conversations"][1]["title"] = long
    proxy.state["profile"] = proxy.state["version"] = HOSTILE
    proxy.state["strategies"][0]["name"] = proxy.state["failures"][0]["reason"] = HOSTILE
    proxy.state["totals"]["breaks"] = {HOSTILE: 1}
    proxy.state["events"][0].update(kind=HOSTILE, text=HOSTILE, conversation=first["id"])
    show_in = exchange(30, path=HOSTILE, reason=HOSTILE, revision=HOSTILE, outcome=HOSTILE)
    proxy.exchanges[first["id"]][29] = show_in
    texts = edit(1, label=HOSTILE, strategy=HOSTILE, before=f"{HOSTILE}\n{long}\ud800", after=f"{HOSTILE}\nshort")
    proxy.edits["e30"] = {"exchange": show_in, "kept": True, "edits": [texts]}
    page = window().open()
    expect(row(page, 0).locator("a")).to_have_text(SPELT)
    expect(row(page, 1).locator("a")).to_have_text("x" * 300 + "…")
    expect(page.locator("#events")).to_contain_text(SPELT)
    expect(page.locator("#strategies")).to_contain_text(SPELT)
    assert not scrolls_sideways(page)
    row(page, 0).locator("a").click()
    expect(page.locator("#conversation .title")).to_have_text(SPELT)
    row(page, 11, ".requests").locator("a").click()
    expect(page.locator(".edit summary b")).to_have_text(SPELT)
    expect(page.locator(".edit .same .was .line").first).to_have_text(SPELT)
    changed = page.locator(".edit .changed .was .line")
    assert len(changed.inner_text()) < 1000
    page.get_by_role("button", name="show all 100,001 characters").click()
    assert changed.inner_text() == long + "\\ud800"
    assert not scrolls_sideways(page)
    assert page.evaluate("window.broken") is None
    assert page.locator("main script, main img, header script, header img").count() == 0


def test_the_page_lets_no_other_script_run(window: Opener) -> None:
    found = window()
    page = found.open()
    tried = page.evaluate("""() => {
        const made = document.createElement("script");
        try { made.textContent = "window.broken = 1"; document.body.append(made); } catch { return "refused"; }
        return "taken";
    }""")
    refused = page.evaluate("""() => {
        try { document.body.innerHTML = "<b>x</b>"; return "taken"; } catch { return "refused"; }
    }""")
    assert refused == tried == "refused"
    assert page.evaluate("window.broken") is None
    assert all("TrustedScript" in text or "TrustedHTML" in text for text in found.complaints)
    found.complaints.clear()


# --- for whoever looks --------------------------------------------------------------------------------------------


def places(page: Page) -> Iterator[str]:
    """Shows all three levels, one after the other."""
    for name, place in (("overview", "#/"), ("conversation", "#/c/c4"), ("exchange", "#/e/e30")):
        page.evaluate("(place) => { location.hash = place; }", place)
        expect(page.locator(f"#{name} .tiles div").first).to_be_visible()
        yield name


OUTSIDE = """[...document.querySelectorAll("body *")].filter((each) => {
    const box = each.getBoundingClientRect();
    return box.width > 1 && box.right > document.querySelector("main").getBoundingClientRect().right + 1
        && !each.closest("svg, .scroll") && !each.contains(document.querySelector("main"));
}).map((each) => each.outerHTML.slice(0, 80))"""


def test_on_a_phone_nothing_stands_outside(window: Opener) -> None:
    page = window(375).open()
    for _ in places(page):
        assert not scrolls_sideways(page)
        assert page.evaluate(OUTSIDE) == []
        sizes = "[...document.querySelectorAll('td, .line')].map((each) => parseFloat(getComputedStyle(each).fontSize))"
        assert min(page.evaluate(sizes)) >= 12


def test_days_fit_on_a_phone(window: Opener) -> None:
    page = window(375).open()
    expect(page.locator("#days tbody tr")).to_have_count(15)
    room = "({ parentElement: { scrollWidth, clientWidth } }) => clientWidth - scrollWidth"
    assert page.locator("#days").evaluate(room) >= 0


CONTRAST = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgb = (color) => {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
    const ground = (node) => {
        for (let each = node; each; each = each.parentElement) {
            const found = rgb(getComputedStyle(each).backgroundColor);
            if (found[3] === 255) return found;
        }
        return [255, 255, 255];
    };
    const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), low = [];
    while (words.nextNode()) {
        const node = words.currentNode.parentElement;
        if (!words.currentNode.data.trim() || !node.checkVisibility() || node.closest("script, svg, .away")) continue;
        const [one, other] = [light(rgb(getComputedStyle(node).color)), light(ground(node))];
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (ratio < 4.5) low.push(`${ratio.toFixed(2)} ${node.outerHTML.slice(0, 80)}`);
    }
    return low;
}"""


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_light_and_dark_can_be_read(window: Opener, scheme: str, dark: bool) -> None:
    page = window(color_scheme=scheme).open()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(ground) < 64) is dark
    for _ in places(page):
        assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize(("wish", "moves"), [("reduce", False), ("no-preference", True)])
def test_nothing_moves_for_who_does_not_want_it(window: Opener, wish: str, moves: bool) -> None:
    page = window(reduced_motion=wish).open()
    took = page.locator(".cost .bar rect").first.evaluate("(each) => getComputedStyle(each).transitionDuration")
    assert (took != "0s") is moves


NAMELESS = """[...document.querySelectorAll("a, button, input, summary, [role=img], [role=region], nav, dialog")]
    .filter((each) => each.checkVisibility() && !(each.textContent.trim() || each.getAttribute("aria-label")
        || each.getAttribute("aria-labelledby") || each.labels?.[0]?.textContent.trim()))
    .map((each) => each.outerHTML.slice(0, 80))"""
DOUBLE = """[...document.querySelectorAll("[id]")].map((each) => each.id)
    .filter((id, place, all) => all.indexOf(id) !== place)"""


def test_every_control_has_a_name_and_what_speaks_is_polite(window: Opener) -> None:
    page = window().open()
    expect(page.locator("#said")).to_have_text("120 requests. Paid $2.25. Saved $0.75.")
    expect(page.locator("#said")).to_have_attribute("aria-live", "polite")
    for name in places(page):
        assert page.evaluate(NAMELESS) == page.evaluate(DOUBLE) == []
        assert page.locator("[aria-live=assertive], [role=alert]").count() == 0
        assert page.get_by_role("heading", level=2).first.is_visible()
        tables = page.locator(f"#{name} table:visible")
        assert tables.locator("thead th:not([scope=col]), tbody th:not([scope=row])").count() == 0


def test_conversations_are_switched_off_and_on_by_mouse_and_by_keyboard(window: Opener, proxy: Proxy) -> None:
    page = window().open()
    rows = page.locator("#conversations tbody tr")
    second = rows.filter(has_text="Add retry")
    button = second.get_by_role("button")
    expect(button).to_have_accessible_name("Switch off: Add retry with back-off to the upload client")
    button.click()
    expect(button).to_have_text("Switch on")
    expect(second.locator("small")).to_contain_text("off · ")
    assert page.url.endswith("/ibidem"), "a button in a row does not open it"
    button.press("Enter")
    expect(button).to_have_text("Switch off")
    expect(button).to_be_focused()
    assert proxy.turned == [("off", {"conversation": "c3"}), ("on", {"conversation": "c3"})]
    every = page.get_by_role("button", name="Switch all off")
    every.focus()
    page.keyboard.press("Space")
    expect(page.locator("#all-off")).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("· off ·")
    expect(page.get_by_role("button", name="Switch on: ")).to_have_count(3)
    page.get_by_role("button", name="Switch all on").click()
    expect(page.locator("#all-off")).to_be_hidden()
    assert proxy.turned[2:] == [("off", {"all": True}), ("on", {"all": True})]


def test_one_conversation_is_switched_where_it_is_looked_at(window: Opener, proxy: Proxy) -> None:
    page = window(375).open("#/c/c4")
    page.get_by_role("button", name="Switch off: Fix the failing test").click()
    expect(page.locator("#conversation .facts")).to_contain_text("off: new texts are not rewritten")
    expect(page.get_by_role("button", name="Switch on: Fix the failing test")).to_be_visible()
    assert not scrolls_sideways(page)
    assert page.evaluate(OUTSIDE) == []


def test_why_it_was_not_switched_is_told_as_text(window: Opener, proxy: Proxy) -> None:
    made = window()
    made.lost = True  # Chromium notes the refusal
    page = made.open()
    page.get_by_role("button", name="Switch off: write release notes").click()
    expect(page.locator("#unswitched")).to_have_text(f"Not switched: {SPELT}: not here.")
    assert page.evaluate("window.broken") is None
    page.get_by_role("button", name="Switch off: Why is the import slow?").click()
    expect(page.locator("#unswitched")).to_be_hidden()


def test_a_proxy_that_observes_has_nothing_to_switch(window: Opener, proxy: Proxy) -> None:
    proxy.state["observe"] = True
    page = window().open()
    expect(page.locator("#conversations tbody tr").first).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Switch"))).to_have_count(0)
    expect(page.get_by_role("columnheader", name="rewriting")).to_have_count(0)


def test_a_page_that_nobody_sees_asks_for_nothing(window: Opener, proxy: Proxy) -> None:
    page = window().open()
    page.evaluate("""() => {
        Object.defineProperty(document, "hidden", { value: true, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    ask = "fetch('/ibidem/api/state').then((answer) => answer.text())"
    for _ in range(20):  # until whatever was on its way has come
        proxy.asked.clear()
        page.evaluate(ask)
        if proxy.asked == ["/ibidem/api/state"]:
            break
    proxy.asked.clear()
    proxy.publish(paid=2.0)
    page.evaluate(ask)
    assert proxy.asked == ["/ibidem/api/state"]
    expect(page.locator(".cost.saved b").first).to_have_text("$0.75")
    page.evaluate("""() => {
        Object.defineProperty(document, "hidden", { value: false, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    expect(page.locator(".cost.saved b").first).to_have_text("$1.00")


def ask(url: str, turns: int, more: dict[str, str] | None = None) -> None:
    """A conversation of so many turns, all of which read the same file."""
    messages: list[Any] = [{"role": "user", "content": "Fix the failing test"}]
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"t{turn}", "name": "Read", "input": {"file_path": "src/app.py"}}
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": f"{code(1, 200)}\n# read {turn}"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "cache_control": {"type": "ephemeral"}, "messages": messages}
    headers = {"content-type": "application/json", "x-api-key": "any", "user-agent": "claude-cli/2.1", **(more or {})}
    with urlopen(Request(f"{url}/v1/messages", json.dumps(body).encode(), headers)) as answer:
        answer.read()


def test_what_the_proxy_itself_did_is_shown(chromium: Browser) -> None:
    """No script here: the proxy, a provider, and the page between them."""
    with Upstream(lambda seen: Says("done")) as provider:
        settings = Settings(
            port=0, store="memory:", upstreams=dict.fromkeys(("anthropic", "openai", "gemini"), provider.url)
        )
        with BackgroundServer(settings) as running, closing(chromium.new_context()) as context:
            page = context.new_page()
            complaints: list[str] = []
            page.on("console", lambda message: complaints.append(message.text))
            page.goto(f"{running.url}/ibidem")
            expect(page.locator("#empty")).to_contain_text(f"ANTHROPIC_BASE_URL={running.url}")
            for turns in range(1, 6):
                ask(running.url, turns)
            expect(page.locator("#tiles div").first).to_contain_text("5")
            expect(page.locator(".cost.saved").first).to_contain_text("less")
            page.get_by_role("link", name="Fix the failing test").click()
            page.get_by_role("link", name="Request 5").click()
            expect(page.locator("#exchange .facts")).to_contain_text("status 200 · rewritten")
            expect(page.locator(".edit .is .line").first).to_contain_text("[ibidem ")
            expect(page.locator(".edit .was .line").first).to_contain_text("value_1 = compute(values, 1)")
            with urlopen(f"{running.url}/ibidem/metrics") as answer:
                families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
            assert sum(sample.value for sample in families["ibidem_requests"].samples) == 5
            assert complaints == []


@pytest.mark.parametrize("how", ["with both tokens", "with the first token", "where texts are off"])
def test_texts_are_shown_with_the_page_token_and_figures_without(chromium: Browser, how: str) -> None:
    with Upstream(lambda seen: Says("done")) as provider:
        upstreams = dict.fromkeys(("anthropic", "openai", "gemini"), provider.url)
        page_token = None if how == "where texts are off" else "t&o"
        settings = Settings(
            port=0, store="memory:", host="0.0.0.0", token="o n<e", page_token=page_token, upstreams=upstreams
        )
        with BackgroundServer(settings) as running, closing(chromium.new_context()) as context:
            url = running.url.replace("0.0.0.0", "127.0.0.1")
            for turns in range(1, 4):
                ask(url, turns, {"x-ibidem-token": "o n<e"})
            page = context.new_page()
            complaints: list[str] = []
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"{url}/ibidem?token=o+n%3Ce{'&page_token=t%26o' if how == 'with both tokens' else ''}")
            expect(page.locator("#link")).to_have_text("live")
            expect(page.locator("#tiles div").first).to_contain_text("3")
            if how == "with both tokens":
                expect(page.locator("#hidden-texts")).to_be_hidden()
                page.get_by_role("link", name="Fix the failing test").click()
                page.get_by_role("link", name="Request 3").click()
                expect(page.locator(".edit .is .line").first).to_contain_text("[ibidem ")
            else:
                why = "not shown" if how == "where texts are off" else "shown only with the page token"
                expect(page.locator("#hidden-texts")).to_contain_text(f"Texts of clients are {why}")
                page.get_by_role("link", name="Conversation ").click()
                expect(page.locator("#conversation .tiles")).to_contain_text("Requests")
                page.get_by_role("link", name="Request 3").click()
                expect(page.locator("#exchange .missing")).to_contain_text(f"Texts of clients are {why}")
                assert "Fix the failing test" not in page.content()
            assert complaints == []


# --- without a browser --------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_else_and_says_so() -> None:
    text = dashboard.render_page()
    assert set(re.findall(r"https?://[^'\"\s)]+", text)) == {"http://www.w3.org/2000/svg"}
    for tag, kind in (("style", "style-src"), ("script", "script-src")):
        bodies = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(bodies) == 1
        digest = base64.b64encode(hashlib.sha256(bodies[0].encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in dashboard.CSP
    assert "unsafe" not in dashboard.CSP
    assert "frame-ancestors 'none'" in dashboard.CSP
    assert dashboard.CSP.removesuffix("; frame-ancestors 'none'") in text


def test_a_token_cannot_get_out_of_its_place() -> None:
    token = '"><script>alert(1)</script>@SCRIPT@'
    text = dashboard.render_page(token)
    assert text.count("<script>") == 1
    assert f'content="{escape(token)}"' in text
    assert 'name="ibidem-token" content=""' in dashboard.render_page()


def samples(state: State) -> dict[tuple[str, str], float]:
    """By name and the value of its label, as Prometheus reads them."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(dashboard.format_metrics(state)):
        assert family.documentation
        assert family.type in ("counter", "gauge")
        for sample in family.samples:
            key = (sample.name, "/".join(sample.labels.values()))
            assert key not in found
            found[key] = sample.value
            assert (family.type == "counter") == sample.name.endswith("_total")
    return found


def test_prometheus_reads_the_figures() -> None:
    assert samples(typical()) == {
        ("ibidem_info", "0.1.0/recoverable/off/false"): 1,
        ("ibidem_start_time_seconds", ""): START,
        ("ibidem_conversations", ""): 4,
        ("ibidem_saved_by_marks_dollars", ""): 0.5,
        ("ibidem_unmarked_conversations", ""): 0,
        ("ibidem_requests_total", "rewritten"): 96,
        ("ibidem_requests_total", "passed"): 24,
        ("ibidem_failed_open_total", "time-out"): 1,
        ("ibidem_refused_total", ""): 3,
        ("ibidem_resent_total", ""): 2,
        ("ibidem_without_thinking_total", ""): 0,
        ("ibidem_paid_dollars_total", ""): 2.25,
        ("ibidem_would_have_paid_dollars_total", ""): 3.0,
        ("ibidem_unpriced_requests_total", ""): 0,
        ("ibidem_tokens_total", "read"): 7_000_000,
        ("ibidem_tokens_total", "written"): 500_000,
        ("ibidem_tokens_total", "written_1h"): 400_000,
        ("ibidem_tokens_total", "uncached"): 223_450,
        ("ibidem_removed_tokens_total", ""): 1_300_000,
        ("ibidem_edits_total", "spans"): 310,
        ("ibidem_edits_total", "dedup"): 41,
        ("ibidem_edits_total", "look-back"): 12,
        ("ibidem_strategy_removed_tokens_total", "spans"): 810_000,
        ("ibidem_strategy_removed_tokens_total", "dedup"): 330_400,
        ("ibidem_strategy_removed_tokens_total", "look-back"): 159_600,
        ("ibidem_cache_hits_total", ""): 100,
        ("ibidem_cache_misses_total", ""): 3,
        ("ibidem_cache_missed_dollars_total", "pause"): 0.3,
        ("ibidem_cache_missed_dollars_total", "tools"): 0.12,
        ("ibidem_cache_breaks_total", "it pays"): 1,
        ("ibidem_cache_breaks_total", "cold cache"): 2,
    }


@pytest.mark.parametrize(
    "change",
    [{"unpriced": 120}, {"paid": None, "would_have_paid": None}],
    ids=["no request has a price", "no sum is known"],
)
def test_money_that_is_not_known_is_no_sample(change: State) -> None:
    state = typical()
    state["totals"].update(change)
    found = samples(state)
    assert not any("dollars" in name for name, _ in found)
    assert ("ibidem_requests_total", "passed") in found


def test_any_label_can_be_read_back() -> None:
    reason = 'a "quoted" \\ line\nand another {x="y"} \u202e ünï'
    state = typical()
    state["failures"] = [
        {"reason": reason, "count": 2},
        {"reason": reason, "count": 3},
        {"reason": "\ud800", "count": 1},
    ]
    found = samples(state)
    assert found["ibidem_failed_open_total", reason] == 5
    assert found["ibidem_failed_open_total", "\\ud800"] == 1
    assert dashboard.format_metrics(state).encode().endswith(b"\n")
