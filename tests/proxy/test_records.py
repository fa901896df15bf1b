"""What is shown of what happened: it is what was sent, and it is bounded."""

from collections.abc import Iterator
from typing import Any

import pytest

import ibidem
from ibidem.billing.cache_loss import CacheVerdict
from ibidem.billing.usage import Usage
from ibidem.engine.session import Session
from ibidem.live.conversation import LiveConversation
from ibidem.live.types import RewriteResult
from ibidem.plan import Edit
from ibidem.proxy.accounting import live_stats
from ibidem.proxy.accounting.live_stats import LiveStats
from ibidem.proxy.settings import Settings
from tests.support.proxied import Clock, dumped, growing, talk

USAGE = Usage(fresh=10, read=1000, written=90)


def outcome(id: str, *, size: int = 0, first_new: int = 0, messages: int = 3) -> RewriteResult:
    owner = LiveConversation(id, ("anthropic", ""), id, Session(), title=f"about {id}", model="claude-sonnet-4-5")
    removed = (f"{id} " * size,)
    edits = (Edit(strategy="spans", op="set", message=2, path=("content",), removed=removed, added="short"),)
    return RewriteResult(
        result="rewritten",
        body=b"short",
        conversation=owner,
        messages=messages,
        first_new=first_new,
        edits=edits if size else (),
        edit_tokens=(float(size),) if size else (),
        model=owner.model,
    )


def told(books: LiveStats, found: RewriteResult, at: float = 1.0, size: int = 1000) -> live_stats.ExchangeRow:
    exchange = books.begin_exchange("/v1/messages", found, at, "client", "anthropic", size)
    books.end_exchange(exchange, found, 200, USAGE, CacheVerdict())
    return exchange


def test_what_was_rewritten_is_shown_beside_the_original() -> None:
    bodies = [dumped(body) for body in growing("anthropic", 6)]
    with talk(clock=Clock()) as found:
        for body in bodies:
            found.send("anthropic", body)
        state = found.settled(len(bodies))
        exchanges = found.page("conversation/c1")["exchanges"]
        plan = ibidem.compact(bodies[-1]).plan
        last = found.page(f"exchange/{exchanges[-1]['id']}")
    assert [each["bytes_in"] for each in exchanges] == [len(body) for body in bodies]
    assert [each["bytes_out"] for each in exchanges] == [len(seen.body) for seen in found.upstream.seen]
    assert last["kept"]
    assert [(each["message"], each["before"], each["after"]) for each in last["edits"]] == [
        (edit.message, "\n".join(edit.removed), edit.added) for edit in plan
    ]
    assert [each["new"] for each in last["edits"]] == [edit.message >= 11 for edit in plan]
    assert sum(each["edits"] for each in state["strategies"]) == len(plan)


def test_the_newest_conversations_are_shown() -> None:
    books = LiveStats(Settings(conversations=300), 0.0)
    for number in range(400):
        told(books, outcome(f"c{number}"), at=float(number))
    shown = books.snapshot(500.0)["conversations"]
    assert [each["id"] for each in shown] == [f"c{number}" for number in range(399, 199, -1)]
    assert books.conversation_json("c100") is not None
    assert books.conversation_json("c99") is None
    assert books.snapshot(500.0)["totals"]["requests"] == 400


def test_texts_that_are_held_to_be_shown_take_no_more_than_their_share() -> None:
    books = LiveStats(Settings(memory_mb=4), 0.0)
    ids = [told(books, outcome(f"c{number}", size=80_000)).id for number in range(10)]  # 240 KB each, of 4 MB × 0.2
    kept = [books.exchange_json(id) for id in ids]
    assert [found["kept"] for found in kept if found is not None] == [False] * 7 + [True] * 3
    assert kept[-1] is not None
    assert kept[-1]["edits"][0]["before"].startswith("c9 ")
    assert books.snapshot(1.0)["totals"]["requests"] == 10


def test_the_requests_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_stats, "ALL_EXCHANGES", 100)
    books = LiveStats(Settings(), 0.0)
    for _ in range(60):
        for name in ("c1", "c2", "c3"):
            told(books, outcome(name))
    held = [len(found["exchanges"]) for name in ("c1", "c2", "c3") if (found := books.conversation_json(name))]
    assert 1 <= sum(held) <= 100
    assert [each["requests"] for each in books.snapshot(1.0)["conversations"]] == [60, 60, 60]


def test_a_conversation_is_active_as_long_as_a_request_is_on_its_way() -> None:
    books, found = LiveStats(Settings(), 0.0), outcome("c1")

    def active() -> Iterator[Any]:
        return (each["active"] for each in books.snapshot(1.0)["conversations"])

    one = books.begin_exchange("/v1/messages", found, 1.0, "", "anthropic", 10)
    two = books.begin_exchange("/v1/messages", found, 1.0, "", "anthropic", 10)
    books.end_exchange(one, found, 200, USAGE, CacheVerdict())
    assert list(active()) == [True]
    books.end_exchange(two, found, 0, None, CacheVerdict())
    assert list(active()) == [False]


def test_what_cannot_be_priced_is_in_no_sum() -> None:
    books, found = LiveStats(Settings(), 0.0), outcome("c1", size=100)
    exchange = books.begin_exchange("/v1/messages", found, 1.0, "", "anthropic", 10)
    books.end_exchange(exchange, found, 200, None, CacheVerdict())
    totals = books.snapshot(1.0)["totals"]
    assert (totals["unpriced"], totals["paid"], totals["removed"]) == (1, 0.0, 0)
    assert books.summary_line == "1 request, cost unknown: no response reported its token usage"
    late = RewriteResult(result="failed open", reason="time-out")
    books.end_exchange(
        books.begin_exchange("/v1/messages", late, 1.0, "", "anthropic", 10), late, 200, USAGE, CacheVerdict()
    )
    assert books.snapshot(1.0)["totals"]["unpriced"] == 2
