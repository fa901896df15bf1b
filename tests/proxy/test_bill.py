"""What was paid and what would have been paid: against what the other way really cost, and against sums by hand."""

from collections.abc import Iterable
from typing import Any

import pytest

from ibidem.billing.calibration import GrowthFit
from ibidem.billing.prices import Prices
from ibidem.billing.usage import Usage
from ibidem.live.conversation import removed_tokens
from ibidem.plan import Edit
from ibidem.proxy.accounting.bill import RemovedInput, RemovedTokens, input_cost, usage_with_edits, usage_without_edits
from ibidem.testing.answers import Answer, Fails, Says
from ibidem.testing.requests_seen import Seen
from tests.support.evict import COLD_PROFILE
from tests.support.proxied import Clock, growing, requests, stale, talk, turns

MINUTE = 60.0


def run(format: str, bodies: Iterable[Any], gaps: dict[int, float], **more: Any) -> Any:
    """The totals of a conversation; time passes between its requests, more of it where a gap is."""
    clock, count = Clock(), 0
    with talk(clock=clock, **more) as found:
        for body in bodies:
            clock.now += gaps.get(count, 10.0)
            status, answer = found.send(format, body)
            assert status == 200, answer
            count += 1
            state = found.settled(count)
        return state["totals"]


WARM: dict[int, float] = {}
GAPS = {5: 20 * MINUTE, 11: 70 * MINUTE}

SCENES = [
    pytest.param("anthropic", True, WARM, id="anthropic with marks"),
    pytest.param("anthropic", True, GAPS, id="anthropic with marks and cold gaps"),
    pytest.param("anthropic", False, WARM, id="anthropic without a cache"),
    pytest.param("openai-chat", False, WARM, id="chat with its automatic cache"),
    pytest.param("openai-chat", False, GAPS, id="chat with cold gaps"),
    pytest.param("openai-responses", False, GAPS, id="responses with cold gaps"),
    pytest.param("gemini", False, WARM, id="gemini"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("format", "marks", "gaps"), SCENES)
def test_each_way_foretells_the_bill_of_the_other(format: str, marks: bool, gaps: dict[int, float]) -> None:
    bodies = list(growing(format, 14, marks=marks))
    ours, theirs = run(format, bodies, gaps), run(format, bodies, gaps, observe=True)
    assert ours["paid"] < 0.95 * theirs["paid"]
    assert ours["would_have_paid"] == pytest.approx(theirs["paid"], rel=0.02)
    assert theirs["would_have_paid"] == pytest.approx(ours["paid"], rel=0.04)


def branches(format: str, marks: bool) -> list[Any]:
    """A conversation that is taken back twice, and goes on in another way each time."""
    trunk, found = turns(10), []
    for seed in (2, 3, 4):
        whole = [*trunk, *turns(5, seed=seed)[1:]]
        bodies = list(requests(format, whole, {}, marks=marks))
        found += bodies if seed == 2 else bodies[11:]
    return found


@pytest.mark.parametrize(("format", "marks"), [("anthropic", True), ("openai-chat", False)])
def test_a_branch_is_billed_as_what_it_goes_on(format: str, marks: bool) -> None:
    bodies = branches(format, marks)
    ours, theirs = run(format, bodies, {}), run(format, bodies, {}, observe=True)
    assert ours["would_have_paid"] == pytest.approx(theirs["paid"], rel=0.02)
    assert theirs["would_have_paid"] == pytest.approx(ours["paid"], rel=0.04)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("format", "marks"), [("anthropic", True), ("openai-chat", False)])
def test_a_conversation_that_was_let_go_is_billed_alike(format: str, marks: bool) -> None:
    """Nothing is known of what was sent before: only what the provider read tells."""
    pair = [list(growing(format, 14, marks=marks, seed=seed, first=f"job {seed}")) for seed in (1, 2)]
    bodies = [body for both in zip(*pair, strict=True) for body in both]
    ours = run(format, bodies, {}, conversations=1)
    theirs = run(format, bodies, {}, observe=True)
    assert ours["would_have_paid"] == pytest.approx(theirs["paid"], rel=0.08)


def test_what_failed_costs_nothing_and_what_is_sent_again_costs_once() -> None:
    def script(seen: Seen) -> Answer:
        return Fails(429, retry_after=1) if seen.header("x-fails") else Says("ok")

    bodies = list(growing("anthropic", 10, marks=True))
    clock, totals = Clock(), []
    for fails in (False, True):
        with talk(script, clock=clock) as found:
            for body in bodies:
                if fails:
                    assert found.send("anthropic", body, x_fails="yes")[0] == 429
                assert found.send("anthropic", body)[0] == 200
            state = found.settled(len(bodies) * (2 if fails else 1))
            exchanges = found.page("conversation/c1")["exchanges"]
            assert state["totals"]["paid"] == pytest.approx(sum(each["paid"] or 0 for each in exchanges))
            assert state["totals"]["removed"] == sum(each["removed"] for each in exchanges if each["status"] == 200)
            assert sum(each["tokens"] for each in state["strategies"]) == pytest.approx(
                state["totals"]["removed"], 0.01
            )
            totals.append(state["totals"])
    for name in ("paid", "would_have_paid", "removed", "read", "hits"):
        assert totals[0][name] == pytest.approx(totals[1][name]), name


@pytest.mark.slow
@pytest.mark.parametrize(("format", "marks"), [("anthropic", True), ("openai-chat", False)])
@pytest.mark.parametrize(
    ("reason", "gaps", "profile"),
    [("cold cache", {14: 90 * MINUTE}, COLD_PROFILE), ("it pays", WARM, "recoverable")],
)
def test_a_revision_is_billed_as_it_is(
    format: str, marks: bool, gaps: dict[int, float], reason: str, profile: str
) -> None:
    bodies = list(requests(format, *stale(8), marks=marks))
    ours = run(format, bodies, gaps, profile=profile)
    theirs = run(format, bodies, gaps, profile=profile, observe=True)
    assert [*ours["breaks"]] == [reason]
    assert ours["would_have_paid"] == pytest.approx(theirs["paid"], rel=0.02)
    assert theirs["would_have_paid"] == pytest.approx(ours["paid"], rel=0.1)


# ── sums by hand ────────────────────────────────────────────────────────────────────────────────────────────────────

SONNET = Prices().of("claude-sonnet-4-5", "anthropic")
WARM_ONE = Usage(fresh=4, read=9000, written=800, output=50)


def test_a_request_costs_what_the_list_says() -> None:
    usage = Usage(fresh=1000, read=20_000, written=300, written_1h=100, output=9)
    assert input_cost(usage, SONNET) == pytest.approx((1000 * 3 + 20_000 * 0.3 + 300 * 3.75 + 100 * 6) / 1e6)


@pytest.mark.parametrize(
    ("usage", "removed", "found", "expected"),
    [
        pytest.param(
            WARM_ONE, RemovedInput(1000, 200), None, Usage(4, 10_000, 1000), id="warm: read, and written at the end"
        ),
        pytest.param(Usage(600, 9000), RemovedInput(1000, 200), None, Usage(800, 10_000), id="no writes: fresh"),
        pytest.param(Usage(4, 0, 0, 900), RemovedInput(0, 200), None, Usage(4, 0, 0, 1100), id="written for an hour"),
        pytest.param(
            Usage(0, 0, 5000), RemovedInput(0, 3000), None, Usage(0, 0, 8000), id="cold: all of it is written"
        ),
        pytest.param(Usage(0, 9000), RemovedInput(1000, 0), None, Usage(0, 10_000), id="sent again: all of it is read"),
        pytest.param(
            Usage(0, 1000, 4000), RemovedInput(3000, 0), 7600.0, Usage(0, 7600, 400), id="changed: it was known"
        ),
        pytest.param(
            Usage(0, 1000, 4000), RemovedInput(0, 0), 9e9, Usage(0, 5000), id="never more is read than there is"
        ),
    ],
)
def test_the_usage_without_us(usage: Usage, removed: RemovedInput, found: float | None, expected: Usage) -> None:
    counted = usage_without_edits(usage, removed, found)
    assert (counted.fresh, counted.read, counted.written, counted.written_1h) == (
        expected.fresh,
        expected.read,
        expected.written,
        expected.written_1h,
    )
    assert counted.input == usage.input + removed.total_tokens


@pytest.mark.parametrize(
    ("usage", "removed", "again", "least", "expected"),
    [
        pytest.param(WARM_ONE, RemovedInput(1000, 200), 0.0, 0, (8000, 604), id="warm"),
        pytest.param(WARM_ONE, RemovedInput(1000, 200), 5000.0, 0, (3000, 5604), id="changed: written again"),
        pytest.param(WARM_ONE, RemovedInput(1000, 200), 9e9, 0, (0, 8604), id="changed: all of it at worst"),
        pytest.param(WARM_ONE, RemovedInput(8500, 0), 0.0, 1024, (0, 1304), id="too small to be found"),
        pytest.param(Usage(0, 0, 5000), RemovedInput(0, 1000), 0.0, 0, (0, 4000), id="cold"),
    ],
)
def test_the_usage_with_us(
    usage: Usage, removed: RemovedInput, again: float, least: int, expected: tuple[int, int]
) -> None:
    counted = usage_with_edits(usage, removed, again, least)
    assert (counted.read, counted.input - counted.read) == pytest.approx(expected, abs=2)


def edit(message: int, size: int, strategy: str = "spans") -> Edit:
    return Edit(strategy=strategy, op="set", message=message, path=("content",), removed=("word " * size,))


def test_what_was_taken_out_is_counted_once_and_by_place() -> None:
    account = RemovedTokens()

    def take(*edits: Edit) -> list[Edit]:
        return list(account.replace_edits(edits, removed_tokens(edits)))

    first, second, third = edit(2, 100), edit(4, 50, "dedup"), edit(6, 25)
    assert take(first, second) == [first, second]
    assert take(first, second, third) == [third]
    assert take(first, second, third) == []
    assert [account.tokens_before(message) for message in (2, 3, 6, 7)] == pytest.approx([0, 100, 150, 175], abs=5)
    assert account.by_strategy == pytest.approx({"spans": 125, "dedup": 50}, abs=5)
    other = edit(2, 400, "stale")
    assert take(other, third) == [other]
    assert account.total_tokens == pytest.approx(425, abs=5)
    assert account.tokens_before(6) == pytest.approx(400, abs=5)


def test_what_was_taken_out_is_known_after_its_texts_were_forgotten() -> None:
    account = RemovedTokens()
    first, second = edit(2, 100), edit(4, 50, "dedup")
    account.replace_edits((first, second), (100.0, 50.0))
    account.forget_texts()
    assert account.edits == ()
    assert (account.total_tokens, account.tokens_before(4)) == (150.0, 100.0)
    again = (edit(2, 100), edit(4, 50, "dedup"), third := edit(6, 25))
    assert list(account.replace_edits(again, (100.0, 50.0, 25.0))) == [third]
    assert (account.total_tokens, account.by_strategy) == (175.0, {"spans": 125, "dedup": 50})
    account.forget_texts()
    assert list(account.replace_edits((), ())) == []
    assert account.total_tokens == 0.0


def test_texts_that_were_counted_are_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = edit(2, 100), edit(4, 50), edit(6, 25)
    counted = removed_tokens((first, second))
    monkeypatch.setattr("ibidem.live.conversation.estimate", lambda text: len(text))
    assert removed_tokens((first, second), (first, second), counted) == counted
    assert removed_tokens((first, second, third), (first, second), counted) == (*counted, 125)
    assert removed_tokens((third, first), (first, second), counted) == (125, counted[0])


def test_the_scale_of_a_conversation_is_learnt_from_its_growth() -> None:
    account = RemovedTokens(GrowthFit(1.1))
    assert account.scale == pytest.approx(1.1)
    for _ in range(20):
        account.fit.add_growth(2000, 2600)
    assert account.scale == pytest.approx(1.3, abs=0.02)
    account.fit.add_growth(20_000, 1000)  # an image, or a history that was cut
    account.fit.add_growth(10, 1000)
    assert account.scale == pytest.approx(1.3, abs=0.02)


@pytest.mark.parametrize("per_block", [-60.0, 0.0, 40.0])
def test_tokens_per_block_do_not_change_the_scale_of_text(per_block: float) -> None:
    fit = GrowthFit(1.1)
    for ours, blocks in [(2000, 3), (450, 3), (1500, 3), (500, 3), (900, 6)] * 4:
        fit.add_growth(ours, 1.4 * ours + per_block * blocks, blocks)
    assert fit.scale == pytest.approx(1.4, rel=0.02)
    assert fit.per_block == pytest.approx(per_block, abs=10)
