"""Sizes of requests with thinking that nobody can read: kept by its provider or not, recorded or told by a seal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ibidem
from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.prices import Price, Prices, Rates
from ibidem.billing.token_fit import Keeping
from ibidem.billing.usage import Usage
from ibidem.model import to_json
from ibidem.recordings import RecordedRequest, RecordedSegment, Recording
from ibidem.replay.replay_bill import Replay, parse_histories
from ibidem.replay.simulate import Simulation

PRICE = Price("toy", ((0, Rates(10.0, 1.0, 12.5, 20.0)),), CacheRules(minimum=0))
PRICES = Prices({"toy": PRICE, "other": PRICE})
HEAD = 5000
"""Tokens of what the log does not show."""
PART = 19


def words(text: str) -> int:
    return len(text.split())


class Log:
    """A session as its provider counts it: a word is a token, and thinking is sealed."""

    def __init__(
        self, keeping: Keeping = "kept", *, signed: bool = True, output: bool = True, usage: bool = True
    ) -> None:
        self.keeping, self.signed, self.output, self.usage = keeping, signed, output, usage
        self.model = "toy"
        self.history: list[dict[str, Any]] = []
        self.requests: list[RecordedRequest] = []
        self._size, self._thought, self._last, self._begun = HEAD, 0, 0, 0

    def turn(self, number: int, calls: int = 4) -> None:
        """The user asks, the model calls, and answers."""
        if self.keeping == "turn":  # from the first thinking on, nothing is as it was
            self._size, self._thought, self._last = self._size - self._thought, 0, self._begun
        self._add({"role": "user", "content": text(100 + number)})
        self._begun = self._size
        for call in range(calls):
            ident = f"{number}.{call}"
            place = len(self.requests)
            block = {"type": "tool_use", "id": ident, "name": "Read", "input": {"path": text(30 + place % 5 * 10)}}
            self._answer(300 + place % 4 * 200, block)
            result = {"type": "tool_result", "tool_use_id": ident, "content": text(400 + place % 6 * 100)}
            self._add({"role": "user", "content": [result]})
        self._answer(150, {"type": "text", "text": text(60)})

    def _answer(self, thought: int, said: dict[str, Any]) -> None:
        given = to_json(said["input"]) if "input" in said else said["text"]
        visible = PART + words(f"{said.get('name', '')} {given}")
        usage = Usage(0, self._last, self._size - self._last, output=visible + thought if self.output else 0)
        self.requests.append(RecordedRequest(len(self.history), self.model, usage=usage if self.usage else None))
        self._last = self._size
        seal = {"signature": "x" * (290 + 6 * thought)} if self.signed else {}
        self.history.append({"role": "assistant", "content": [{"type": "thinking", "thinking": "", **seal}, said]})
        self._size += visible
        if self.keeping != "never":
            self._size, self._thought = self._size + thought, self._thought + thought

    def _add(self, message: dict[str, Any]) -> None:
        self.history.append(message)
        content = message["content"]
        self._size += PART + words(content if isinstance(content, str) else content[0]["content"])

    def recording(self) -> Recording:
        return Recording("test", "anthropic", [RecordedSegment(self.history, self.requests)])


def text(number: int) -> str:
    return " ".join(["word"] * number)


def session(keeping: Keeping = "kept", *, turns: int = 6, **fields: bool) -> Recording:
    log = Log(keeping, **fields)
    for number in range(turns):
        log.turn(number)
    return log.recording()


def replay(found: Recording) -> Replay:
    return Replay(found, PRICES, words, parse_histories(found))


def errors(found: Replay) -> list[float]:
    """Of every request but the first."""
    return [step.size - step.sent.usage.input for step in found.steps[1:] if step.sent.usage]


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "without a signature"])
@pytest.mark.parametrize("keeping", ["kept", "turn", "never"])
def test_requests_with_sealed_thinking_are_predicted(keeping: Keeping, signed: bool) -> None:
    found = replay(session(keeping, signed=signed))
    assert found.sizes.calibrations["toy"].keeping == keeping
    assert found.keeps_thinking is (keeping == "kept")
    assert max(map(abs, errors(found))) < 60
    assert found.bill().cost == pytest.approx(sum(cost or 0 for cost in found.recorded_costs()), rel=0.01)


def test_a_seal_tells_the_size_where_output_was_not_recorded() -> None:
    found = replay(session(output=False))
    assert not found.sizes.calibrations["toy"].counted
    assert max(map(abs, errors(found))) < 100


def test_without_usage_a_seal_is_all_there_is() -> None:
    sealed, plain = replay(session(usage=False)), replay(session(usage=False, signed=False))
    more = sealed.steps[-1].size - plain.steps[-1].size
    thought = sum(300 + place % 4 * 200 if place % 5 < 4 else 150 for place in range(29))
    assert more == pytest.approx(thought, rel=0.01)
    assert (sealed.thinking_cost() > 0, plain.thinking_cost()) == (True, 0.0)


def test_thinking_that_counts_is_part_of_the_bill() -> None:
    kept, turn, never = (replay(session(keeping)) for keeping in ("kept", "turn", "never"))
    assert kept.thinking_cost() > 1.5 * turn.thinking_cost() > 0
    assert never.thinking_cost() == 0
    tokens = kept.steps[-1].prefix.thinking_before(kept.steps[-1].sent.length)
    assert tokens == pytest.approx(
        sum(300 + place % 4 * 200 if place % 5 < 4 else 150 for place in range(29)), rel=0.05
    )


def test_thinking_of_one_model_does_not_count_for_another() -> None:
    log = Log()
    for number in range(3):
        log.turn(number)
    log.model, log._size, log._thought = "other", log._size - log._thought, 0
    for number in range(3, 6):
        log.turn(number)
    found = replay(log.recording())
    assert max(map(abs, errors(found))) < 60


def test_leaving_thinking_out_saves_what_was_counted_for_it() -> None:
    """Its text is empty, so by what is removed on the wire nothing would be saved."""
    found = session()
    messages, priced = parse_histories(found), replay(found)
    strategies = (ibidem.PruneThinking(window=4),)
    simulation = Simulation(found, messages, strategies, priced.weights, words, usage=priced.reported_usage("hit"))
    last = priced.steps[-1]
    gone = last.scale * simulation.views[-1].removed_before(last.sent.length)
    stays = sum(priced.thinking_tokens(message) for message in messages[0][last.sent.length - 9 : last.sent.length])
    assert gone == pytest.approx(last.prefix.thinking_before(last.sent.length) - stays, rel=0.05)
    assert gone > 5000  # all but the running loop's
    assert priced.bill(simulation.views).tokens < priced.bill().tokens - gone


@pytest.mark.parametrize("keeping", ["turn", "never"])
def test_leaving_thinking_out_that_does_not_count_saves_nothing(keeping: Keeping) -> None:
    found = session(keeping)
    messages, priced = parse_histories(found), replay(found)
    simulation = Simulation(
        found, messages, (ibidem.PruneThinking(window=4),), priced.weights, words, usage=priced.reported_usage("hit")
    )
    assert priced.bill(simulation.views).tokens == pytest.approx(priced.bill().tokens)


def test_what_is_usually_missing_from_a_full_read_is_missing_in_the_replay() -> None:
    """A provider that finds prefixes in blocks finds a little less than the request before."""
    found = session()
    for place, sent in enumerate(found.segments[0].requests[1:], 1):
        used, before = sent.usage, found.segments[0].requests[place - 1].usage
        assert used is not None
        assert before is not None
        read = before.input - before.input % 128
        more = RecordedRequest(sent.length, sent.model, usage=Usage(used.input - read, read, output=used.output))
        found.segments[0].requests[place] = more
    priced = replay(found)
    assert priced.bill().read == pytest.approx(
        sum(step.sent.usage.read for step in priced.steps if step.sent.usage), rel=0.01
    )


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.sampled_from(["kept", "turn", "never"]),
    st.booleans(),
    st.booleans(),
)
def test_nothing_is_ever_negative_and_sums_only_grow(
    turns: Sequence[int], keeping: Keeping, output: bool, usage: bool
) -> None:
    log = Log(keeping, output=output, usage=usage)
    for number, calls in enumerate(turns):
        log.turn(number, calls)
    found = replay(log.recording())
    for step in found.steps:
        before = [step.prefix.tokens_before(entry) for entry in range(step.sent.length + 1)]
        assert before[0] == 0
        assert all(one <= other for one, other in pairwise(before))
        assert 0 <= step.prefix.thinking_before(step.sent.length) <= before[-1]
        assert step.size >= 0
    bill = found.bill()
    assert min(bill.costs) >= 0
    assert 0 <= found.thinking_cost() <= bill.cost
