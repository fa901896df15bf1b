"""The report as a page: what it says, that nothing in a log gets out of its place, and that it needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import pytest

from ibidem.billing.usage import Usage
from ibidem.render.charts import MAX_BARS, MAX_ROWS, ChartPoint, rank_points
from ibidem.report.aggregate import Report, ReportRequest, add_up
from ibidem.report.headline import logged_line, next_step
from ibidem.report.log_summary import PaidRequest, SessionFacts
from ibidem.report.page import write_page
from ibidem.report.session_names import Links
from ibidem.report.session_result import (
    NOTHING_DONE,
    BilledCheck,
    FileResult,
    ProfileOutcome,
    Removal,
    Scenario,
    SendCost,
    SessionResult,
    ToolResultTotals,
    UnreadFile,
)

HOSTILE = "<script>alert(1)</script>\"'\n</script><!--&\x1b[31m\u202e\ud800"
SPELT = "<script>alert(1)</script>\"'\\n</script><!--&\\x1b[31m\\u202e\\ud800"


class Page(HTMLParser):
    """Tags with their attributes, the text outside of styles and scripts, and the data for the script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = self.script = self.style = self.json = ""
        self.fresh = False
        """In text, what stands in another element is set apart by a space."""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        self.fresh |= tag not in ("b", "code")
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("rect", "line")
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        kind = self.tags[-1][1].get("type") if self.tags else None
        if self.open[-1:] == ["script"]:
            self.json, self.script = (data, self.script) if kind else (self.json, data)
        elif self.open[-1:] == ["style"]:
            self.style = data
        else:
            self.text += f" {data}" if self.fresh else data
        self.fresh = False

    @property
    def said(self) -> str:
        return " ".join(self.text.split())

    def values(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags if name in attrs]


def session(
    path: str = "/logs/a.jsonl",
    cost: float = 2.0,
    after: Sequence[float] = (1.5,),
    recorded: float | None = None,
    **more: object,
) -> SessionResult:
    """A session that costs so much with nothing done, and so much under each profile."""
    values: dict[str, Any] = {
        "path": path,
        "agent": "claude-code",
        "name": "",
        "project": "/home/me/shop",
        "model": "claude-sonnet-4-5",
        "models": ["claude-sonnet-4-5"],
        "priced_as": {},
        "started": 1_760_000_000.0,
        "requests": 10,
        "restarts": {},
        "skipped": [],
        "invalid": 0,
        "violations": {},
        "baseline": SendCost(cost, 900_000, 800_000, 123_456),
        "recorded": None if recorded is None else BilledCheck(recorded, 10, cost, cost * 0.9),
        "profiles": {
            name: ProfileOutcome(
                SendCost(spent, 700_000, 600_000, 98_765, 3),
                worst=max(0.0, spent / cost - 1) if cost else 0.0,
                strategies={"spans": Removal(7, 50_000, cost - spent)},
                tools={"Read": Removal(5, 40_000, cost - spent)},
                files={"src/app.py": Removal(5, 40_000, cost - spent)},
            )
            for name, spent in zip(PROFILES, after, strict=False)
        },
        "tools": {"Read": ToolResultTotals(20, 160_000)},
        "files": {"src/app.py": ToolResultTotals(10, 80_000)},
    }
    found = SessionResult(**{**values, **more})
    ways = {NOTHING_DONE: cost, **{name: each.spent.cost for name, each in found.profiles.items()}}
    found.times, found.asked = [found.started] * 10, [0] * 10
    found.costs = {name: [spent / 10] * 10 for name, spent in ways.items()}
    return found


PROFILES = ("lossless", "other", "third", "fourth", "fifth")


def requests(found: SessionResult) -> list[PaidRequest]:
    """Of a session, as its log has them: output costs a quarter of what input does."""
    names = ("path", "agent", "name", "id", "title", "project", "models", "asked", "times")
    facts = SessionFacts(format="anthropic", **{name: getattr(found, name) for name in names})
    each = found.recorded.cost / 10 if found.recorded else None
    output = None if each is None else each / 4
    used = None if each is None else Usage(1_000, 50_000, 2_000, 0, 500)
    model = found.models[0]
    return [PaidRequest(facts, n, at, model, used, each, output) for n, at in enumerate(found.times)]


def report(
    *sessions: SessionResult, unread: Sequence[UnreadFile] = (), unmeasured: Sequence[SessionResult] = ()
) -> Report:
    """Of sessions, some of which (`unmeasured`) were not replayed."""
    profiles = PROFILES[: len(sessions[0].profiles)] if sessions else PROFILES[:1]
    paid = [each for found in (*sessions, *unmeasured) for each in requests(found)]
    return add_up(profiles, [FileResult(list(sessions), list(unread), 1_500_000)], lambda found: None, paid)


def page(found: Report, links: Links | None = None) -> Page:
    stream = io.StringIO()
    write_page(found, stream, links or {})
    return Page(stream.getvalue())


def part(found: Page, start: str, end: str) -> str:
    """What it says between two headings."""
    said = found.said
    begun = said.index(start)
    return said[begun : said.index(end, begun)]


TYPICAL = (
    session("/logs/a.jsonl", 20.0, (15.0, 21.0), recorded=19.0),
    session("/logs/b.jsonl", 1.0, (1.02, 1.5), recorded=1.0, name="task 7"),
    session("/logs/deep/c.jsonl", 0.05, (0.05, 0.05), agent="codex", project=""),
)


# --- what it says -------------------------------------------------------------------------------


def test_the_first_screen_answers_what_was_paid_and_what_would_have_been_saved() -> None:
    first = part(page(report(*TYPICAL)), "Cost of sessions", "Sessions Cost of input")
    assert "2025-10-09" in first
    assert "Paid $25.00 $20.00 input, $5.00 output 3 sessions, 30 requests 10 without recorded usage" in first
    saved, more = (f"{share} of everything paid" for share in ("23.7% of the input, 18.9%", "7.1% of the input, 5.7%"))
    assert f"lossless would have saved $4.98 {saved} $16.07 instead of $21.05, replayed" in first
    assert f"other would have cost more $1.50 {more} $22.55 instead of $21.05, replayed" in first
    assert "To save it from now on: ibidem wrap -- claude" in first
    assert "By model model paid lossless other saved saved claude-sonnet-4-5 $25.00 23.7% −7.1%" in first
    assert "Tools that repeat most tool lossless other saved saved Read $4.98 −$1.50" in first
    assert "Files that repeat most file lossless other saved saved src/app.py $4.98 −$1.50" in first


def test_its_sentences_are_those_of_the_terminal() -> None:
    found = report(*TYPICAL)
    found.asked = ReportRequest("The last 30 days, from 2026-05-04 on. All there is: --all")
    found.waiting = 2
    said = page(found).said
    for words in (found.asked.period, found.partial, next_step(found)):
        assert words
        assert " ".join(words.split()) in said


def test_through_our_own_proxy_what_was_saved_is_told() -> None:
    found = report(session(recorded=2.0))
    found.total.logged, found.total.otherwise = 2.0, 2.5
    assert logged_line(found.total) in page(found).said


def test_what_was_only_paid_is_a_page_without_what_ifs() -> None:
    found = page(report(unmeasured=[session(recorded=2.0), session("/logs/b.jsonl", recorded=1.0, started=1.79e9)]))
    assert "Paid $3.75 $3.00 input, $0.75 output 2 sessions, 20 requests" in found.said
    assert "Paid by month" in found.said
    assert not [
        words for words in ("would have saved", "No session", "nothing done", "lossless") if words in found.said
    ]
    assert len(json.loads(found.json)["rows"]) == 2


def test_the_bill_is_recorded_replayed_and_under_each_profile() -> None:
    cost = part(page(report(*TYPICAL)), "Cost of input, replayed", "Error of the replay")
    amounts = re.findall(r"\$[\d.,]+", cost)
    assert amounts == ["$20.00", "$21.00", "$21.05", "$16.07", "$4.98", "$22.55", "$1.50"]
    assert "20 of 30 requests have usage" in cost
    assert "23.7% less" in cost
    assert "7.1% more" in cost


def test_thinking_that_is_sent_back_is_a_part_of_the_bill_where_there_is_any() -> None:
    said = page(report(session("/logs/a.jsonl", 20.0, (15.0,), thinking=3.0))).said
    assert "The cost without ibidem includes $3.00 (15.0%) for thinking" in said
    assert "for thinking" not in page(report(*TYPICAL)).said


def test_the_error_of_the_replay_is_stated() -> None:
    said = page(report(*TYPICAL)).said
    error = said[said.index("Error of the replay") : said.index("Would any session")]
    for words in (
        "+5.0%",
        "2.6%",
        "5.3%",
        "−5.5%",
        "without recorded cache reads",
        "2 of 3 sessions",
        "other 1 session",
    ):
        assert words in error, words


def test_sessions_that_would_have_cost_more_are_counted_and_the_worst_is_named() -> None:
    more = part(page(report(*TYPICAL)), "Would any session have cost more?", "Where the saving comes from")
    assert "Of 3 sessions: 1 would have cost less, 1 the same, 1 would have cost more" in more
    assert "The worst: b.jsonl (task 7), 2.0% more ($0.0200)" in more
    assert "Of 3 sessions: 0 would have cost less, 1 the same, 2 would have cost more" in more
    assert "The worst: b.jsonl (task 7), 50.0% more ($0.50)" in more
    assert "a.jsonl: 25.0% saved" in more  # in the chart


def test_words_are_those_of_everybody() -> None:
    found = page(changing(best=0.5))
    strange = re.compile(r"dearer|dearest|\bbreaks?\b(?! a rule)|less dear")
    assert not strange.findall(found.said)
    assert not strange.findall(found.json)


def test_what_no_strategy_accounts_for_is_shown() -> None:
    found = session(after=(1.5,))
    found.profiles["lossless"].strategies["spans"].cost = 0.8
    said = page(report(found)).said
    assert "not due to one strategy −$0.30" in said
    assert "in all $0.50" in said


def changing(best: float | None = None) -> Report:
    """The second profile changes what had been sent."""
    some = [session("/logs/a.jsonl", 20.0, (15.0, 14.0)), session("/logs/b.jsonl", 1.0, (1.0, 1.1))]
    for each, hit, miss in zip(some, (14.0, 1.1), (16.0, 1.3), strict=True):
        each.profiles["other"].points = {"cold cache": 2, "it pays": 1}
        each.profiles["other"].worlds = {
            "hit": Scenario(hit, 0.25, max(0.0, hit / each.baseline.cost - 1), best and best * hit),
            "miss": Scenario(miss, 0.75, max(0.0, miss / each.baseline.cost - 1), best and best * miss),
        }
    return report(*some)


def test_what_changing_it_again_costs_is_told_in_both_worlds() -> None:
    found = page(changing(best=0.5))
    assert "#changes" in found.values("href")
    said = part(found, "Cost of revisions", "Where the saving comes")
    assert "the prefix before it $15.10 28.1% $0.50 64.0% 43.9% 110.0% +10.0%" in said
    assert "no part of the conversation $17.30 17.6% $1.50 58.8% 30.0% 130.0% +30.0%" in said
    assert "other revised sent text 6 times: cold cache 4, it pays 2." in said
    assert "other was worst for b.jsonl." in said
    assert "other was worst at any time in b.jsonl." in said
    assert "lossless" not in said
    assert "Optimum" in said


def test_what_was_not_asked_for_in_hindsight_is_not_told() -> None:
    found = page(changing())
    said = part(found, "Cost of revisions", "Where the saving comes")
    assert "no part of the conversation $17.30 17.6% $1.50 130.0% +30.0%" in said
    assert "optimum" not in said.lower()


def test_every_section_that_is_linked_is_there() -> None:
    found = page(report(*TYPICAL))
    anchors = found.values("id")
    assert len(anchors) == len(set(anchors))
    links = [link.removeprefix("#") for link in found.values("href")]
    assert links == [
        *("sessions", "cost", "error", "more", "strategies", "agents", "projects", "tools", "files"),
        *("extremes", "context", "notes"),
    ]
    assert set(links) <= set(anchors)


def test_notes_say_what_the_figures_rest_on() -> None:
    found = session(
        priced_as={"llama-9": "gpt-5", "": "gpt-5"},
        skipped=[(3, "not valid JSON"), (9, "not valid JSON")],
        invalid=4,
        violations={"calls-answered": 4},
    )
    found.profiles["lossless"].law_failures = 2
    found.profiles["lossless"].failures = ["law 5: points at nothing"]
    said = page(report(found, unread=[UnreadFile("/logs/x.json", "not a log")])).said
    for words in (
        "Only input is priced",
        "docs/how-we-measure.md",
        "2 models priced as another",
        "llama-9: as gpt-5",
        "(none named): as gpt-5",
        "2 lines of logs skipped",
        "not valid JSON: 2",
        "4 requests in the logs that break a rule of the provider (the provider accepted 0",
        "calls-answered: 4",
        "1 file not read",
        "/logs/x.json: not a log",
        "2 violated invariants with lossless",
        "law 5: points at nothing",
    ):
        assert words in said, words


# --- special cases ------------------------------------------------------------------------------


def test_without_recorded_usage_it_says_that_it_cannot_be_checked() -> None:
    said = page(report(session(), session("/logs/b.jsonl"))).said
    assert "no log recorded usage" in said
    assert "Unknown. No log recorded usage, so the computed costs cannot be checked" in said
    assert "Paid, as recorded" not in said


def test_where_all_is_recorded_the_replay_is_not_shown_twice() -> None:
    said = page(report(session(recorded=2.1))).said
    assert "Requests with usage, replayed" not in said
    assert "cannot be checked" not in said


def test_one_session_needs_no_ranking() -> None:
    found = page(report(session("/logs/a.jsonl", 1.0, (1.25,))))
    assert "figure" not in {tag for tag, _ in found.tags}
    assert "Best and worst" not in found.text
    assert "The worst: a.jsonl, 25.0% more" in found.said


def test_best_and_worst_are_named_by_their_titles() -> None:
    some = (session("/logs/a.jsonl", title="Fix the\ttests", id="0123456789"), session("/logs/b.jsonl", after=(1.9,)))
    said = part(page(report(*some)), "lossless: best", "Context and cache")
    assert "Fix the tests 2025-10-09 08:53 · shop · 01234567 $2.00 $0.50 25.0%" in said
    assert "b.jsonl 2025-10-09 08:53 · shop $2.00 $0.10 5.0%" in said


def test_no_session_at_all() -> None:
    found = page(report(unread=[UnreadFile("/logs/x.json", "not a log of an agent that is known here")]))
    assert "No session was found" in found.text
    assert "/logs/x.json: not a log of an agent that is known here" in found.text
    assert found.values("href") == ["#notes"]
    assert found.json == ""


def test_a_session_that_costs_nothing() -> None:
    found = session(cost=0.0, after=(0.0,), recorded=0.0, tools={"Read": ToolResultTotals()}, files={})
    found.baseline = found.profiles["lossless"].spent = SendCost()
    said = page(report(found, session("/logs/b.jsonl", 0.0, (0.0,)))).said
    assert "nothing to save" in said
    assert "Of 2 sessions: 0 would have cost less, 2 the same, 0 would have cost more" in said
    assert "nan" not in said


def test_the_sample_is_called_one() -> None:
    found = report(session())
    assert "bundled sample" not in page(found).text
    found.sample = True
    assert "This is the bundled sample: no logs were found." in page(found).said


def test_any_number_of_profiles() -> None:
    found = page(report(session(after=(1.5, 1.6, 1.7, 1.8, 2.5)), session("/logs/b.jsonl", after=(1, 1, 1, 1, 1))))
    for name in PROFILES:
        assert f"With {name}" in found.text
        assert f"{name}: best" in found.text


def test_a_time_that_is_none_is_left_out() -> None:
    found = page(report(session(started=1e300), session("/logs/b", started=float("nan"))))
    assert [row[1] for row in json.loads(found.json)["rows"]] == ["", ""]


def test_long_lists_end_and_say_so() -> None:
    files = {f"src/{number}.py": ToolResultTotals(1, 10) for number in range(MAX_ROWS + 5)}
    found = page(report(session(files=files)))
    assert "… and 6 more" in found.text  # with the file that was edited


@pytest.mark.parametrize(
    ("count", "bars", "each"),
    [(2, 2, 1), (MAX_BARS, MAX_BARS, 1), (MAX_BARS * 2 + 2, MAX_BARS - 199, 3)],
)
def test_a_bar_of_many_sessions_shows_the_one_that_saved_least(count: int, bars: int, each: int) -> None:
    points = [ChartPoint(0.5 - 0.7 * number / count, f"s{number}") for number in range(count)]
    chart = rank_points(points, -0.2, 0.5)
    assert (len(chart.bars), chart.each) == (bars, each)
    assert chart.bars[-1].label == f"s{count - 1}"


def test_the_page_says_how_many_sessions_a_bar_stands_for() -> None:
    many = page(report(*(session(f"/logs/{n}.jsonl") for n in range(MAX_BARS + 1))))
    assert "best first. Each bar represents 2 sessions, and shows the one that saved least." in many.said
    assert "Each bar represents" not in page(report(*TYPICAL)).said


def test_a_huge_loss_is_cut_off_in_the_chart_and_nowhere_else() -> None:
    found = page(report(session(cost=1.0, after=(9.0,)), session("/logs/b.jsonl")))
    assert "Cut off at −100.0%." in found.text
    assert "a.jsonl: −800.0% saved" in found.text
    assert all(0 <= float(value.rstrip("%")) <= 100.01 for value in found.values("height") if value)


# --- nothing gets out of its place --------------------------------------------------------------


def hostile() -> Report:
    """Every text that comes from a log."""
    found = session(
        f"/logs/{HOSTILE}/a.jsonl",
        after=(2.5,),
        recorded=2.0,
        agent=HOSTILE,
        name=HOSTILE,
        project=HOSTILE,
        model=HOSTILE,
        models=[HOSTILE],
        title=HOSTILE,
        id=HOSTILE,
        priced_as={HOSTILE: HOSTILE},
        skipped=[(1, HOSTILE)],
        invalid=1,
        violations={HOSTILE: 1},
        tools={HOSTILE: ToolResultTotals(1, 10)},
        files={HOSTILE: ToolResultTotals(1, 10)},
    )
    outcome = found.profiles["lossless"]
    outcome.law_failures, outcome.failures = 1, [HOSTILE]
    outcome.strategies = outcome.tools = outcome.files = {HOSTILE: Removal(1, 5, 0.1)}
    return report(found, session("/logs/b.jsonl"), unread=[UnreadFile(HOSTILE, HOSTILE)])


def test_text_from_logs_is_never_markup() -> None:
    found, plain = page(hostile()), page(report(session(after=(2.5,), recorded=2.0), session("/logs/b.jsonl")))
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in plain.tags} | {"details", "summary", "ul", "li"}
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert {name for _, attrs in found.tags for name in attrs if name.startswith("on")} == set()
    assert found.text.count(SPELT) > 10
    assert re.sub(r"\n", "", found.source).isprintable()
    found.source.encode()


def test_data_cannot_end_its_element_and_says_the_same() -> None:
    odd = hostile()
    found = page(odd, {odd.sessions[0].key: "details/1.html"})
    assert not set(found.json) & set("<>&")
    (row, _) = json.loads(found.json)["rows"]
    assert row[0][2:] == [SPELT, SPELT, f"{SPELT}/a.jsonl", SPELT, "details/1.html"]
    assert row[2] == SPELT


def test_a_title_is_a_link_where_there_is_more_to_see() -> None:
    some = (session(title="A"), session("/logs/b.jsonl", after=(2.5,), title="B"))
    found = page(report(*some), {some[1].key: "page-details/b%20%231.html"})
    assert [row[0][-1] for row in json.loads(found.json)["rows"]] == ["", "page-details/b%20%231.html"]
    assert found.values("href").count("page-details/b%20%231.html") > 1


@pytest.mark.parametrize("href", ["javascript:alert(1)", "//elsewhere/a.html", "/a.html", "a b.html", "", "https://x"])
def test_a_link_that_leads_elsewhere_is_none(href: str) -> None:
    found = report(session())
    with pytest.raises(ValueError, match="not a file next to the page"):
        page(found, {found.sessions[0].key: href})


# --- it needs nothing else ----------------------------------------------------------------------


def test_nothing_is_loaded_and_only_its_own_script_and_style_are_allowed() -> None:
    found = page(report(*TYPICAL))
    names = {tag for tag, _ in found.tags}
    assert names & {"link", "img", "iframe", "object", "embed", "base", "form", "image", "use"} == set()
    assert not set(found.values("src")) | set(found.values("style"))
    assert not re.search(r"https?:|url\(|@import|fetch\(|innerHTML|eval\(|javascript:", found.source)
    policy = found.values("content")[0]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for source in (found.style, found.script):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"-src 'sha256-{digest}'" in policy
