"""What a trial (`--trial`) knows of a request that is worked on, whatever becomes of it."""

from __future__ import annotations

from .books.rows import TrialNote
from .coin import Coin, Toss
from .conduct import Conduct
from .outcome import Job


def toss_of(coin: Coin | None, job: Job) -> Toss | None:
    """The side that it is on, as far as it is known whose it is; None for what takes part in no trial."""
    if coin is None or job.counts or job.profile:
        return None
    if job.conversation is not None:
        return job.conversation.toss
    return coin.toss(job.named) if job.named else None


def is_measured(coin: Coin | None, job: Job) -> bool:
    """Whether it goes as it came because of the side that it is on. Who asks for a size has a side too."""
    if job.conversation is not None:
        return job.conversation.measured
    toss = toss_of(coin, job)
    return toss is not None and toss.arm == "measure"


def trial_note(coin: Coin | None, job: Job, profile: str) -> TrialNote | None:
    toss = toss_of(coin, job)
    if toss is None or coin is None:
        return None
    return TrialNote(*toss, coin.share, profile, *(job.conduct or Conduct()))
