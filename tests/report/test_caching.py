"""How sessions were cached: shares, misses by cause, sessions without marks, and caching asked for in another way."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from ibidem.billing.cache_misses import MISS_CAUSES
from ibidem.billing.cache_ttl import IdleTimes
from ibidem.billing.prices import Prices
from ibidem.replay.caching_replay import CACHING_NAMES
from ibidem.report.aggregate import PAUSE_DAYS, Report, add_up, collect_idle_times
from ibidem.report.caching_section import ADVICE, CAUSES, MODE_NAMES, headline
from ibidem.report.log_summary import SessionFacts
from ibidem.report.measure import ReportSettings, measure_log
from ibidem.report.session_result import NOTHING_DONE, decode_result, encode_result
from tests.recordings.claude_code import OPUS
from tests.recordings.examples import lines
from tests.report.test_page import page as page_of
from tests.report.test_report import EXAMPLES, TWICE, exported, log, session, shown, table

Row = dict[str, Any]
FILES = ("a.py", "b.py", "c.py", "d.py", "e.py")
SIZES = [9000, 14000, 19000, 24000, 29000, 34000]
"""Input tokens of the requests of a log of these files."""


def spoilt(change: Callable[[int, Row], None], *files: str, **options: Any) -> bytes:
    """A log of which each answer, with its number, was changed."""
    rows = [json.loads(line) for line in log(*(files or FILES), **options).splitlines()]
    answers = [row for row in rows if row["type"] == "assistant"]
    for number, row in enumerate(answers):
        change(number, row)
    return lines(*rows)


def use(row: Row, fresh: int = 0, read: int = 0, written: int = 0, hour: int = 0) -> None:
    row["message"]["usage"] = {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written + hour,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": hour},
        "output_tokens": 9,
    }


def unmarked(**options: Any) -> bytes:
    return spoilt(lambda number, row: use(row, fresh=SIZES[number]), **options)


def missing(at: int, read: int = 0, **fields: Any) -> bytes:
    """Everything is read but at one request, where so much is."""

    def change(number: int, row: Row) -> None:
        known = SIZES[number - 1] if number else 0
        found = read if number == at else known
        use(row, read=found, written=SIZES[number] - found)
        if number >= at:
            row["message"] |= fields

    return spoilt(change)


def rates(model: str = OPUS) -> Any:
    return Prices().of(model, "anthropic", 1_760_000_000.0).rates(10_000)


def report_of(*logs: bytes, profiles: tuple[str, ...] = ("lossless",), **settings: Any) -> Report:
    asked = ReportSettings(profiles, **settings)
    files = [measure_log(f"/logs/{number}.jsonl", data, asked) for number, data in enumerate(logs)]
    return add_up(profiles, files, lambda _: None)


# ── what was recorded ───────────────────────────────────────────────────────────────────────────────────────────────


def test_shares_are_those_of_the_usage() -> None:
    def change(number: int, row: Row) -> None:
        use(row, fresh=10, read=70, written=15, hour=5)

    cached = session(spoilt(change)).cached
    assert cached is not None
    assert cached.shares == pytest.approx((0.7, 0.15, 0.05, 0.1))


def test_a_session_that_found_everything_missed_nothing() -> None:
    cached = session(log(*FILES)).cached
    assert cached is not None
    assert cached.misses == {}
    assert not cached.unmarked


def test_without_usage_nothing_is_known() -> None:
    found = report_of(log(*TWICE, usage="no"))
    assert found.sessions[0].cached is None
    assert found.total.cached is None
    assert exported(found)["totals"]["cached"] is None
    assert "cached input" not in shown(found, 80)
    assert "Prompt caching" not in page_of(found).said


def test_a_miss_is_told_with_its_place_and_its_price() -> None:
    cached = session(missing(3, read=5000)).cached
    assert cached is not None
    [(cause, missed)] = cached.misses.items()
    price = rates()
    assert (cause, missed.count, missed.request) == ("unexplained", 1, 4)
    assert missed.tokens == SIZES[2] - 5000
    assert missed.cost == pytest.approx(missed.tokens * (price.write - price.read))
    assert missed.where.startswith("from message 1 of ")


def test_another_model_is_a_cause() -> None:
    cached = session(missing(3, model="claude-sonnet-4-5")).cached
    assert cached is not None
    assert [(cause, each.where) for cause, each in cached.misses.items()] == [("model", f"{OPUS} → claude-sonnet-4-5")]


@pytest.mark.parametrize(("minutes", "cause"), [(4, "unexplained"), (7, "pause")])
@pytest.mark.parametrize("longer", [False, True])
def test_a_pause_is_longer_than_the_lifetime_that_was_written(minutes: int, cause: str, longer: bool) -> None:
    """`longer`: the same with an hour for five minutes, and twelve times the pause."""

    def change(number: int, row: Row) -> None:
        known = SIZES[number - 1] if number and number != 3 else 0
        rest = SIZES[number] - known
        use(row, read=known, written=0 if longer else rest, hour=rest if longer else 0)

    rows = [json.loads(line) for line in spoilt(change).splitlines()]
    third = [place for place, row in enumerate(rows) if row["type"] == "assistant"][2]
    for row in rows[third + 1 :]:
        row["timestamp"] = _later(row["timestamp"], minutes * 60 * (12 if longer else 1))
    cached = session(lines(*rows)).cached
    assert cached is not None
    assert [*cached.misses] == [cause]


def _later(stamp: str, seconds: float) -> str:
    return (datetime.fromisoformat(stamp) + timedelta(seconds=seconds)).isoformat()


def test_a_compaction_is_no_miss() -> None:
    """What it left out could not be read, and what it wrote is new."""
    compacted = [each for each in EXAMPLES if each.agent == "claude-code" and b"compact_boundary" in each.data]
    assert compacted
    for example in compacted:
        for found in measure_log("x", example.data, ReportSettings()).sessions:
            assert found.cached is None or "history" not in found.cached.misses


def test_of_a_model_that_is_not_known_only_the_shares_are() -> None:
    cached = session(unmarked(model="house-model-7")).cached
    assert cached is not None
    assert cached.shares.fresh == 1.0
    assert not cached.unmarked
    assert cached.misses == {}


def test_a_model_that_all_is_priced_as_says_nothing_of_what_was_cached() -> None:
    as_it_was = session(missing(3, read=5000)).cached
    as_another = session(missing(3, read=5000), model="gpt-5").cached
    assert as_it_was is not None
    assert as_another is not None
    assert [*as_it_was.misses] == [*as_another.misses]
    assert as_it_was.misses["unexplained"].tokens == as_another.misses["unexplained"].tokens


def test_figures_are_stored_and_read_back() -> None:
    found = measure_log("some.jsonl", missing(3), ReportSettings(caching=("none", "auto")))
    assert decode_result(encode_result(found)) == found
    assert found.sessions[0].cached is not None


def test_totals_are_sums_and_name_the_dearest() -> None:
    found = report_of(missing(3, read=5000), missing(5), missing(2))
    cached = found.total.cached
    each = [one.cached for one in found.sessions]
    assert cached is not None
    assert len(found.total.cached_sessions) == 3
    missed = cached.misses["unexplained"]
    ours = [one.misses["unexplained"] for one in each if one]
    assert missed.count == 3
    assert missed.tokens == sum(one.tokens for one in ours)
    assert missed.cost == pytest.approx(sum(one.cost for one in ours))
    worst = found.total.most_expensive_miss("unexplained")
    assert worst is not None
    assert worst[0] is found.sessions[1]
    assert worst[1].request == missed.request == 6
    assert sum(cached.shares) == pytest.approx(1.0)
    assert found.total.recorded is not None
    assert 0 < missed.cost < found.total.recorded.cost == pytest.approx(found.total.cached_cost)


# ── sessions without marks ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_without_marks_is_told_against_five_minute_ones() -> None:
    found = session(unmarked(), caching=("5m",))
    price = rates()
    assert found.cached is not None
    assert found.recorded is not None
    assert found.cached.unmarked
    assert [*found.cached.misses] == ["unmarked"]
    marked = price.write * SIZES[-1] + price.read * sum(SIZES[:-1])
    assert found.recorded.cost == pytest.approx(price.fresh * sum(SIZES))
    assert found.recorded.cost - found.cached.misses["unmarked"].cost == pytest.approx(marked, rel=0.02)
    assert found.caching["5m"][NOTHING_DONE].cost == pytest.approx(marked, rel=0.02)


def test_the_headline_comes_first_and_the_advice_last() -> None:
    found = report_of(unmarked(), unmarked(id="b"), log(*TWICE, id="c"))
    assert (found.total.missing_breakpoints.sessions, len(found.total.cached_sessions)) == (2, 3)
    said = shown(found, 200)
    assert said.startswith("2 sessions did not use their provider's prompt cache: they cost $")
    assert said.splitlines()[0].endswith("with cache breakpoints (ibidem wrap --cache auto -- …).")
    assert said.strip().splitlines()[-1] == ADVICE
    page = page_of(found)
    assert page.said.index(headline(found.total)) < page.said.index("Cost of input")
    assert " ".join(ADVICE.split()) in page.said
    value = exported(found)["totals"]["cached"]["unmarked"]
    assert value["sessions"] == 2
    assert 0 < value["with_marks"] < value["cost"]


def test_one_session_is_one() -> None:
    assert shown(report_of(unmarked()), 200).startswith("1 session did not use its provider's prompt cache: it cost $")


@pytest.mark.parametrize("data", [log(*TWICE), unmarked(model="gpt-5")])
def test_who_marks_or_need_not_hears_nothing_of_it(data: bytes) -> None:
    found = report_of(data)
    assert found.total.cached is not None
    assert headline(found.total) == ""
    assert "asked" not in shown(found, 200).splitlines()[0]
    assert ADVICE not in shown(found, 200)


def bodies(minutes: int) -> bytes:
    """Requests of a bare SDK beside their answers, one every so often: nothing tells when an answer was complete."""
    history: list[Row] = [{"role": "user", "content": "Go on. " * 2000}]
    rows = []
    for number in range(6):
        body = {"model": OPUS, "max_tokens": 9, "system": "You go on.", "messages": list(history)}
        usage = {"input_tokens": 5000 + 1000 * number, "output_tokens": 9}
        at = datetime(2026, 1, 1) + timedelta(minutes=minutes * number)
        rows.append({"request": body, "response": {"model": OPUS, "usage": usage}, "timestamp": f"{at.isoformat()}Z"})
        history += [{"role": "assistant", "content": f"Did {number}."}, {"role": "user", "content": "Go on. " * 500}]
    return lines(*rows)


@pytest.mark.parametrize("minutes", [1, 10])
def test_the_headline_is_what_the_row_of_five_minutes_says(minutes: int) -> None:
    """Pauses count in both, also where only the times of requests are known."""
    found = report_of(bodies(minutes), caching=("5m", "1h"))
    unmarked, ways = found.total.missing_breakpoints, found.total.caching_totals
    with_marks = unmarked.cost - unmarked.saved
    assert with_marks == pytest.approx(ways["5m"][NOTHING_DONE].cost, rel=0.05)
    assert (ways["5m"][NOTHING_DONE].cost > ways["1h"][NOTHING_DONE].cost) == (minutes == 10)


def test_what_nothing_marks_is_no_miss_that_only_the_log_knows() -> None:
    assert report_of(bodies(1)).total.error_by_rule == pytest.approx(0, abs=0.01)


# ── asked for in another way ────────────────────────────────────────────────────────────────────────────────────────


def test_every_way_is_told_with_every_profile() -> None:
    profiles = ("lossless", "recoverable")
    found = report_of(log(*TWICE, prompts=2), profiles=profiles, caching=CACHING_NAMES)
    assert [*found.total.caching_totals] == [*CACHING_NAMES] == [*MODE_NAMES]
    for ways in found.total.caching_totals.values():
        assert [*ways] == [NOTHING_DONE, *profiles]
    caching = found.total.caching_totals
    assert caching["recorded"][NOTHING_DONE].cost == found.total.baseline.cost
    for profile in profiles:
        assert caching["recorded"][profile].cost == pytest.approx(found.total.profiles[profile].spent.cost)
    assert caching["none"][NOTHING_DONE].cost > 2 * caching["5m"][NOTHING_DONE].cost
    assert caching["1h"][NOTHING_DONE].cost > caching["5m"][NOTHING_DONE].cost  # there are no pauses
    assert caching["none"]["lossless"].cost < caching["none"][NOTHING_DONE].cost


def test_by_default_nothing_of_it_is_told() -> None:
    found = report_of(log(*TWICE))
    assert found.total.caching_totals == {}
    assert "caching mode" not in shown(found, 120)
    assert "caching mode" not in page_of(found).said


def test_the_dearest_session_is_named() -> None:
    found = report_of(log(*TWICE), log(*FILES, prompts=9, id="b").replace(b"Begin", b"Go on"), caching=("none",))
    none = found.total.caching_totals["none"][NOTHING_DONE]
    assert none.highest is found.sessions[1]
    assert none.more_expensive == 2
    assert none.ratio == pytest.approx(none.highest.caching["none"][NOTHING_DONE].cost / none.highest.baseline.cost)
    assert "no cache: worst is s1 “Go on”." in shown(found, 120)
    assert "Go on" not in shown(report_of(log(*TWICE), caching=("none",)), 120)


def test_of_a_provider_that_keeps_by_itself_it_is_said_that_asking_changes_nothing() -> None:
    """Else one reads that no cache costs nothing."""
    data = unmarked(model="gpt-5")
    for logs, said in (([data], "1 session has a provider that caches automatically"), ([log(*TWICE)], "")):
        found = report_of(*logs, caching=("none", "1h"))
        note = "caches automatically"
        assert (note in shown(found, 200)) == (note in page_of(found).said) == bool(said)
        assert said in shown(found, 200)
    assert "caches automatically" not in shown(report_of(data), 200)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits(width: int) -> None:
    logs = [unmarked(), missing(3), missing(2, model="claude-sonnet-4-5"), log(*TWICE, usage="no", id="x")]
    found = report_of(*logs, caching=CACHING_NAMES)
    said = shown(found, width)
    assert "cached input" in said or width == 60
    assert "recorded no usage" in " ".join(said.split())
    for line in said.splitlines():
        assert cell_len(line) <= width, line


# ── shown to other programs, and on the page ────────────────────────────────────────────────────────────────────────


WORLD = {"cost", "saved", "rewrites", "worst"}
KEYS = {
    "totals.cached.misses.unexplained": {"count", "tokens", "cost", "dearest"},
    "totals.cached.misses.unexplained.dearest": {"path", "name", "request", "where", "cost"},
    "totals.caching": {"none", "auto"},
    "totals.caching.auto": {"nothing done", "lossless"},
    "totals.caching.none.lossless": WORLD | {"dearer_sessions", "dearest"},
    "sessions.0.cached.misses.unexplained": {"count", "tokens", "cost", "dearest"},
    "sessions.0.cached.misses.unexplained.dearest": {"request", "where", "cost"},
    "sessions.0.caching.auto.lossless": WORLD,
}
"""As in test_report.py: what docs/report.md promises."""


def test_json_has_the_documented_keys() -> None:
    value = exported(report_of(missing(3, read=5000), caching=("none", "auto")))
    for path, keys in KEYS.items():
        found: Any = value
        for key in path.split("."):
            found = found[int(key)] if isinstance(found, list) else found[key]
        assert found.keys() == keys, path


def test_json_and_csv_have_the_figures() -> None:
    found = report_of(missing(3, read=5000), log(*TWICE, usage="no"), caching=("none", "auto"))
    value = exported(found)
    first, second = value["sessions"]
    assert second["cached"] is None
    assert first["cached"]["shares"].keys() == first["cached"]["tokens"].keys()
    assert sum(first["cached"]["shares"].values()) == pytest.approx(1.0)
    assert first["cached"]["misses"]["unexplained"]["dearest"]["request"] == 4
    named = value["totals"]["cached"]["misses"]["unexplained"]["dearest"]
    assert (named["path"], named["request"]) == ("/logs/0.jsonl", 4)
    assert value["totals"]["caching"]["none"]["lossless"]["cost"] == pytest.approx(
        sum(each["caching"]["none"]["lossless"]["cost"] for each in value["sessions"])
    )
    head, *rows = table(found)
    ours, none = (dict(zip(head, row, strict=True)) for row in rows)
    assert float(ours["lost_unexplained"]) == first["cached"]["misses"]["unexplained"]["cost"]
    assert float(ours["cached_read"]) == first["cached"]["shares"]["read"]
    assert float(ours["baseline_caching_none_cost"]) == first["caching"]["none"][NOTHING_DONE]["cost"]
    assert float(ours["lossless_caching_auto_cost"]) == first["caching"]["auto"]["lossless"]["cost"]
    assert {none[f"lost_{cause}"] for cause in MISS_CAUSES} == {none["cached_read"]} == {none["unmarked"]} == {""}


def test_every_cause_has_words() -> None:
    assert CAUSES.keys() == set(MISS_CAUSES)


def test_the_page_has_it_and_nothing_in_it_is_markup() -> None:
    odd = "<script>alert(1)</script>"
    data = missing(3, model=odd)
    own = {odd: Prices().of("claude-sonnet-4-5", "anthropic")}
    found = report_of(data, prices=own, caching=("none",))
    page = page_of(found)
    assert "another model" in page.said
    assert f"→ {odd}" in page.said
    assert ("script", {}) in page.tags
    assert sum(tag == "script" for tag, _ in page.tags) == 2
    assert "no cache" in page.said


# ── the user's own pauses ───────────────────────────────────────────────────────────────────────────────────────────


def test_pauses_of_the_last_months_are_counted() -> None:
    now = 1_760_000_000.0

    def one(days: float | None, spoken: tuple[int, int, int]) -> SessionFacts:
        times = [None, None if days is None else now - days * 86400]
        return SessionFacts("a", "pi", "anthropic", times=times, spoken=spoken, looped=(1, 0, 0))

    some = [one(1, (1, 2, 3)), one(PAUSE_DAYS - 1, (10, 20, 30)), one(PAUSE_DAYS + 1, (7, 7, 7)), one(None, (9, 9, 9))]
    assert collect_idle_times(some, now) == IdleTimes((11, 22, 33), (2, 0, 0), 2)
    assert collect_idle_times([], now) == IdleTimes()


def test_a_session_knows_its_pauses() -> None:
    found = session(log("a.py", "b.py", prompts=3))
    assert sum(found.spoken) == 3
    assert sum(found.looped) == 2
