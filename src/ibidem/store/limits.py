"""How long a store remembers and how much, and in which steps it forgets.

Whatever the limits say, a session that was used within `live_for` seconds loses nothing: then the store is larger than
it should be, and says so.

Forgetting is done in slices, so that nobody who writes waits long for it: every `put` and `save` does one, which is
more than it added, and `prune` does as many as there are.
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
"""What is kept where nobody says otherwise."""

MOST_SESSIONS, MOST_ORIGINALS, MOST_BYTES = 16, 256, 4 << 20
"""What goes in one slice."""

MOST_NOTES = 16_384
"""Notes of a session that are kept, the newest."""
MOST_PLACES = 3
"""Places of an original that are remembered, the newest."""
USED_SECONDS = 60.0
"""Seconds within which it need not be written down again that a session is used, by one who only reads."""

log = logging.getLogger("ibidem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_age: float | None = DEFAULT_DAYS * DAY_SECONDS
    """Seconds after its last use for which a session is remembered; None is for ever."""
    max_bytes: int | None = DEFAULT_BYTES
    """Of originals and states as they are kept; None is no limit."""
    live_for: float = DAY_SECONDS
    """Seconds after its last use for which a session loses nothing, whatever the other two say."""

    @classmethod
    def of(cls, days: float | None = None, size: int | None = None) -> Limits:
        """As they are set: None is what is usual, 0 is no limit."""
        days, size = DEFAULT_DAYS if days is None else days, DEFAULT_BYTES if size is None else size
        return cls(max_age=days * DAY_SECONDS if days else None, max_bytes=size or None)

    @classmethod
    def usual(cls) -> Limits:
        """As the environment of this process sets them. Raises IbidemError that names the variable."""
        days, size = environment.store_limits()
        return cls.of(_days(days, environment.STORE_DAYS), _size(size, environment.STORE_BYTES))

    def over_before(self, now: float) -> float:
        """A session that was last used before that is over."""
        return -math.inf if self.max_age is None else now - max(self.max_age, self.live_for)

    def idle_before(self, now: float) -> float:
        """A session that was last used before that may go to make room."""
        return now - self.live_for

    def excess(self, kept: int) -> int:
        return 0 if self.max_bytes is None else max(0, kept - self.max_bytes)


class Slice(NamedTuple):
    """What was forgotten at once."""

    originals: int
    sessions: int
    excess: int
    """Bytes above the limit that are left."""
    done: bool
    """Nothing else may go now."""

    @property
    def any(self) -> bool:
        return bool(self.originals or self.sessions)


def slice_bytes(added: int) -> int:
    """Bytes that go in the slice of one who added so many: more than that, so that the limit is reached in the end."""
    return max(MOST_BYTES, 2 * added)


USE_DAYS = "use a number of days, 1 or more, or 0 for no limit"
USE_BYTES = "use a number of bytes, or 0 for no limit"


def are_days(days: float) -> bool:
    """What was used within a day stays in any case, so less would promise what is not done."""
    return days == 0 or 1 <= days < 1e6


def _days(text: str, where: str) -> float | None:
    try:
        found = float(text) if text else None
    except ValueError:
        found = math.nan
    if found is not None and not are_days(found):
        raise IbidemError(f"{where}: {one_line(repr(text))} cannot be used: {USE_DAYS}")
    return found


def _size(text: str, where: str) -> int | None:
    try:
        found = int(text) if text else None
    except ValueError:
        found = -1
    if found is not None and found < 0:
        raise IbidemError(f"{where}: {one_line(repr(text))} cannot be used: {USE_BYTES}")
    return found


class SizeWarning:
    """Says once that a store is larger than it should be, and again only after it was not."""

    def __init__(self) -> None:
        self._already = False

    def __call__(self, where: str, limits: Limits, found: Slice) -> None:
        over = found.done and found.excess > 0
        if over and not self._already:
            log.warning(
                "%s: %s bytes above the limit of %s: conversations that were used in the last %g hours need them, and "
                "keep them; allow more, or run `ibidem store forget`",
                where,
                f"{found.excess:,}",
                f"{limits.max_bytes:,}",
                limits.live_for / 3600,
            )
        self._already = over or (self._already and not found.done)
