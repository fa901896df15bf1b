"""Whether a provider still finds what it was sent: judged from its counts alone."""

from __future__ import annotations

import pytest

from ibidem.billing.cache_loss import BilledRequest, CacheHistory, CacheVerdict, judge_cache
from ibidem.billing.cache_rules import CacheRules
from ibidem.billing.usage import Usage

LAST = BilledRequest(size=12_000.0, sent=10_000, messages=9, model="m", at=100.0, revised=True)
KNOWN = CacheHistory(CacheRules(minimum=1024), LAST, hits=3)
FOUND, LOST = Usage(fresh=1_000, read=10_000), Usage(fresh=9_000, read=2_000)

CASES: dict[str, tuple[CacheHistory, Usage, CacheVerdict]] = {
    "there is nothing to find for the first": (CacheHistory(CacheRules(1024)), LOST, CacheVerdict()),
    "what was sent is found": (KNOWN, FOUND, CacheVerdict(warm=True, hit=True)),
    "it is not, right after a change": (KNOWN, LOST, CacheVerdict(warm=True, lost=True, collapsed=True)),
    "nothing was changed": (KNOWN._replace(last=LAST._replace(revised=False)), LOST, CacheVerdict(warm=True)),
    "it was never found": (KNOWN._replace(hits=0), LOST, CacheVerdict(warm=True, lost=True)),
    "it was stopped before": (KNOWN._replace(stopped=True), LOST, CacheVerdict(warm=True, lost=True)),
    "it is too short to be kept": (KNOWN, Usage(fresh=2_000), CacheVerdict(warm=True, lost=True)),
    "the cache is cold": (KNOWN._replace(last=LAST._replace(at=-500.0)), LOST, CacheVerdict()),
    "it is another model": (KNOWN._replace(last=LAST._replace(model="n")), LOST, CacheVerdict()),
}


@pytest.mark.parametrize(("history", "usage", "expected"), CASES.values(), ids=CASES)
def test_a_cache_is_judged(history: CacheHistory, usage: Usage, expected: CacheVerdict) -> None:
    assert judge_cache(history, usage, "m", 150.0, is_revision=False) == expected


def test_a_request_that_changes_something_itself_is_no_sign() -> None:
    assert judge_cache(KNOWN, LOST, "m", 150.0, is_revision=True) == CacheVerdict(warm=True)
