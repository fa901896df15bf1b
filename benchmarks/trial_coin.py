"""What `ibidem gain --trial` would say of agents whose habits are known: `python -m benchmarks.trial_coin`.

Conversations are made up: lengths with a long tail, agents that read files again more or less often, prices that
differ. A coin puts each on a side; on the rewritten one, requests are smaller and files are read again more often, by
as much as is said. First what is printed of one such ledger, then of many: how often the 95 % intervals hold the true
difference, how often that of reading again excludes `WORTH_EXCLUDING` and the margin, and in how many ledgers it ever
misses the truth if one looks after every few conversations.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC
from random import Random
from typing import NamedTuple

from ibidem.cli.gain_experiment import draw_comparison
from ibidem.trial.ab_comparison import (
    REREADS,
    WORTH_EXCLUDING,
    VariantComparison,
    compare_ratio,
    compare_variants,
    group_by_share,
)
from ibidem.usage_db import AssignedConversation

SHOWN_SEED = 2
"""Of the ledger that is printed; in the first one, an interval misses the truth, as one in twenty does."""
BEGIN = 1_790_000_000.0
"""When the first made-up conversation begins, in Unix seconds: in September 2026."""
TOKEN_PRICE, REREAD_BASE, FAILED_BASE, EDIT_SHARE, TURN_SHARE = 1e-6, 0.012, 0.05, 0.25, 0.08
"""About as in recorded sessions of Claude Code, as the proxy counts."""
HABIT = 95.0
"""How much alike agents are in reading again: the two numbers of the beta distribution add up to this."""
EVERY = 5
"""Conversations from one look to the next."""


class Truth(NamedTuple):
    """What rewriting does to these agents."""

    extra: float = 0.0
    """Files read again, per 100 requests."""
    saving: float = 0.11
    """Of the tokens of a request."""


class Work(NamedTuple):
    """What goes on meanwhile."""

    shares: Sequence[float] = (0.5,)
    """Of the coin, one after the other, for equally many conversations each."""
    drift: float = 0.0
    """How much more files are read again at the end than in the beginning, on either side: 1 is twice as much."""


STEADY = Work()


def made_up(count: int, truth: Truth, seed: int, work: Work = STEADY) -> list[AssignedConversation]:
    rng = Random(seed)
    shares = [work.shares[number * len(work.shares) // count] for number in range(count)]
    return [_unit(rng, number, share, truth, 1 + work.drift * number / count) for number, share in enumerate(shares)]


def _unit(rng: Random, number: int, share: float, truth: Truth, more: float) -> AssignedConversation:
    arm = "rewrite" if rng.random() < share else "measure"
    requests = max(1, round(rng.lognormvariate(4.0, 0.75)))
    turns = 1 + _some(rng, requests - 1, TURN_SHARE)
    habit = rng.betavariate(HABIT * more * REREAD_BASE, HABIT * (1 - more * REREAD_BASE))
    rewrites = arm == "rewrite"
    rereads = _some(rng, requests, habit) + rewrites * _some(rng, requests, truth.extra / 100)
    edits = _some(rng, requests, EDIT_SHARE)
    whole = requests * rng.lognormvariate(10.5, 0.5)
    tokens = round(whole * (1 - truth.saving * rewrites))
    return AssignedConversation(
        unit=str(number),
        first=BEGIN + 3600 * number,
        arm=arm,
        share=share,
        profile="lossless",
        off=False,
        requests=requests,
        priced=requests,
        turns=turns,
        rereads=rereads,
        edits=edits,
        failed_edits=_some(rng, edits, FAILED_BASE),
        input=tokens,
        output=400 * requests,
        paid=TOKEN_PRICE * tokens,
        saved=TOKEN_PRICE * (whole - tokens) * rewrites,
        could_save=TOKEN_PRICE * whole * truth.saving * (not rewrites),
    )


def _some(rng: Random, count: int, share: float) -> int:
    return sum(rng.random() < share for _ in range(count))


def true_difference(key: str, truth: Truth) -> float:
    if key == "rereads_per_100_requests":
        return truth.extra
    return -truth.saving if key.startswith(("tokens", "dollars")) else 0.0


class Found(NamedTuple):
    """Of many ledgers, by figure: how many there are of, and in how many the interval holds the truth."""

    told: Counter[str]
    held: Counter[str]
    excluded: Counter[str]


def simulated(seeds: int, conversations: int, truth: Truth, work: Work = STEADY) -> Found:
    found = Found(Counter(), Counter(), Counter())
    for seed in range(seeds):
        compared = compare_variants(made_up(conversations, truth, seed + 1, work))
        for each in compared.differences:
            if each.low is not None and each.high is not None:
                key = each.ratio.key
                found.told[key] += 1
                found.held[key] += each.low <= true_difference(key, truth) <= each.high
        found.excluded.update(_excluded(compared))
    return found


def _excluded(compared: VariantComparison) -> Iterator[str]:
    told = compared.reread_difference
    if told is not None and told.ever_low is not None and told.ever_high is not None:
        if told.ever_high < WORTH_EXCLUDING:
            yield f"+{WORTH_EXCLUDING:g} excluded"
        if compared.margin is not None and told.ever_high < compared.margin:
            yield "margin excluded"
        if told.ever_low > 0:
            yield "more reading again found"


def looked_at(seeds: int, conversations: int, truth: Truth, work: Work = STEADY) -> Counter[str]:
    """In how many ledgers an interval of reading again misses the truth at some look, and in how many it is above it:
    of the intervals for one look, and of those for all looks."""
    ledgers = (made_up(conversations, truth, seed + 1, work) for seed in range(seeds))
    return Counter(words for units in ledgers for words in {*_missed(units, truth.extra)})


def _missed(units: Sequence[AssignedConversation], extra: float) -> Iterator[str]:
    for count in range(EVERY, len(units) + 1, EVERY):
        compared = [each for each in group_by_share(units[:count]) if each.has_enough]
        told = compare_ratio(REREADS, compared) if compared else None
        if told is None or told.spread is None or told.value is None:
            continue
        for words, half in (
            ("for one look", told.spread.fixed_half_width),
            ("for all looks", told.spread.anytime_half_width()),
        ):
            if abs(told.value - extra) > half:
                yield f"interval {words} misses"
            if told.value - extra > half:
                yield f"interval {words} is above"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=120)
    parser.add_argument("--extra", type=float, default=0.0, help="files read again more, per 100 requests")
    parser.add_argument("--saving", type=float, default=0.11, help="share of the tokens of a request")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5], help="of the coin, one after the other")
    parser.add_argument("--drift", type=float, default=0.0, help="1 if files are read again twice as often at the end")
    parser.add_argument("--seeds", type=int, default=200)
    asked = parser.parse_args()
    truth, work = Truth(asked.extra, asked.saving), Work(asked.shares, asked.drift)
    draw_comparison(compare_variants(made_up(asked.conversations, truth, SHOWN_SEED, work)), "", UTC)
    print(f"\n{asked.seeds} made-up ledgers of {asked.conversations} conversations:")
    found = simulated(asked.seeds, asked.conversations, truth, work)
    for key, told in found.told.items():
        print(f"{key:28} interval holds the truth in {100 * found.held[key] / told:5.1f} % of {told}")
    for words, count in sorted(found.excluded.items()):
        print(f"{words:28} in {100 * count / asked.seeds:5.1f} %")
    print(f"Looked at after every {EVERY} conversations, of files read again per 100 requests:")
    for words, count in sorted(looked_at(asked.seeds, asked.conversations, truth, work).items()):
        print(f"{words:31} at some time in {100 * count / asked.seeds:5.1f} %")


if __name__ == "__main__":
    main()
