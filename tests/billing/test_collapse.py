"""Whether a provider still finds what it was sent: judged from its counts alone."""

from __future__ import annotations

import pytest

from ibidem.billing.caching import Caching
from ibidem.billing.collapse import Billed, CacheHistory, Verdict, judge
from ibidem.billing.usage import Usage

LAST = Billed(size=12_000.0, sent=10_000, messages=9, model="m", at=100.0, revised=True)
KNOWN = CacheHistory(Caching(minimum=1024), LAST, hits=3)
FOUND, LOST = Usage(fresh=1_000, read=10_000), Usage(fresh=9_000, read=2_000)

CASES: dict[str, tuple[CacheHistory, Usage, Verdict]] = {
    "there is nothing to find for the first": (CacheHistory(Caching(1024)), LOST, Verdict()),
    "what was sent is found": (KNOWN, FOUND, Verdict(warm=True, hit=True)),
    "it is not, right after a change": (KNOWN, LOST, Verdict(warm=True, lost=True, collapsed=True)),
    "nothing was changed": (KNOWN._replace(last=LAST._replace(revised=False)), LOST, Verdict(warm=True)),
    "it was never found": (KNOWN._replace(hits=0), LOST, Verdict(warm=True, lost=True)),
    "it was stopped before": (KNOWN._replace(stopped=True), LOST, Verdict(warm=True, lost=True)),
    "it is too short to be kept": (KNOWN, Usage(fresh=2_000), Verdict(warm=True, lost=True)),
    "the cache is cold": (KNOWN._replace(last=LAST._replace(at=-500.0)), LOST, Verdict()),
    "it is another model": (KNOWN._replace(last=LAST._replace(model="n")), LOST, Verdict()),
}


@pytest.mark.parametrize(("history", "usage", "expected"), CASES.values(), ids=CASES)
def test_a_cache_is_judged(history: CacheHistory, usage: Usage, expected: Verdict) -> None:
    assert judge(history, usage, "m", 150.0, revised=False) == expected


def test_a_request_that_changes_something_itself_is_no_sign() -> None:
    assert judge(KNOWN, LOST, "m", 150.0, revised=True) == Verdict(warm=True)
