"""Limits of a store in time and size, and the size of the batches in which it deletes.

A session that was used within `live_for` seconds is never deleted because of a limit. The store may then exceed the
size limit, and logs a warning.

Content is deleted in batches, so that a write never takes long. Each `put`, `save` and `note` deletes one batch, which
is larger than what it adds. `prune` deletes all batches.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import NamedTuple

from .. import environment
from ..errors import IbidemError, one_line

DAY_SECONDS = 86_400.0
DEFAULT_DAYS, DEFAULT_BYTES = 30, 2_000_000_000
"""Default limits."""

MOST_SESSIONS, MOST_ORIGINALS, MOST_BYTES = 16, 256, 4 << 20
"""Maximum size of a batch."""

MOST_NOTES = 16_384
"""Maximum journal entries of a session, the newest ones."""
MOST_PLACES = 3
"""Maximum positions of an original, the newest ones."""
USED_SECONDS = 60.0
"""A read updates a session's time of last use only if it is older than this, to avoid a write per read."""

log = logging.getLogger("ibidem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a store in time and size."""

    max_age: float | None = DEFAULT_DAYS * DAY_SECONDS
    """Seconds after its last use until a session expires; None for no limit."""
    max_bytes: int | None = DEFAULT_BYTES
    """Maximum stored bytes of originals, states and journals; None for no limit."""
    live_for: float = DAY_SECONDS
    """Seconds after its last use in which a session is live. The other limits do not apply to it."""

    @classmethod
    def of(cls, days: float | None = None, size: int | None = None) -> Limits:
        """Return limits in days and bytes. None is the default, 0 is no limit."""
        days, size = DEFAULT_DAYS if days is None else days, DEFAULT_BYTES if size is None else size
        return cls(max_age=days * DAY_SECONDS if days else None, max_bytes=size or None)

    @classmethod
    def usual(cls) -> Limits:
        """Return the limits in the environment variables. Raises IbidemError for an invalid value."""
        days, size = environment.store_limits()
        return cls.of(_parse_days(days, environment.STORE_DAYS), _parse_size(size, environment.STORE_BYTES))

    def over_before(self, now: float) -> float:
        """Return the time before which a session's last use makes it expired."""
        return -math.inf if self.max_age is None else now - max(self.max_age, self.live_for)

    def idle_before(self, now: float) -> float:
        """Return the time before which a session's last use makes it deletable if the store is too large."""
        return now - self.live_for

    def excess(self, stored_bytes: int) -> int:
        """Return the bytes by which a store of this size exceeds the limit."""
        return 0 if self.max_bytes is None else max(0, stored_bytes - self.max_bytes)


class PrunedBatch(NamedTuple):
    """Result of deleting one batch."""

    originals: int
    sessions: int
    excess: int
    """Remaining bytes above the limit."""
    is_complete: bool
    """No more content can be deleted now."""

    @property
    def has_deletions(self) -> bool:
        """Whether the batch deleted anything."""
        return bool(self.originals or self.sessions)


def batch_bytes(added_bytes: int) -> int:
    """Return the batch size after a write of `added_bytes`. It is larger, so that the store shrinks to its limit."""
    return max(MOST_BYTES, 2 * added_bytes)


USE_DAYS = "use a number of days, 1 or more, or 0 for no limit"
USE_BYTES = "use a number of bytes, or 0 for no limit"


def is_valid_days(days: float) -> bool:
    """Return whether a setting is a valid number of days.

    Values below a day are invalid, because live sessions are never deleted.
    """
    return days == 0 or 1 <= days < 1e6


def _parse_days(text: str, where: str) -> float | None:
    try:
        days = float(text) if text else None
    except ValueError:
        days = math.nan
    if days is not None and not is_valid_days(days):
        raise IbidemError(f"{where}: {one_line(repr(text))} cannot be used: {USE_DAYS}")
    return days


def _parse_size(text: str, where: str) -> int | None:
    try:
        size = int(text) if text else None
    except ValueError:
        size = -1
    if size is not None and size < 0:
        raise IbidemError(f"{where}: {one_line(repr(text))} cannot be used: {USE_BYTES}")
    return size


class SizeWarning:
    """Logs a warning when a store exceeds its limit, once until it is below the limit again."""

    def __init__(self) -> None:
        self._already = False

    def __call__(self, where: str, limits: Limits, batch: PrunedBatch) -> None:
        over = batch.is_complete and batch.excess > 0
        if over and not self._already:
            log.warning(
                "%s: %s bytes above the limit of %s: conversations that were used in the last %g hours need them. "
                "Raise the limit, or run `ibidem store forget`",
                where,
                f"{batch.excess:,}",
                f"{limits.max_bytes:,}",
                limits.live_for / 3600,
            )
        self._already = over or (self._already and not batch.is_complete)
