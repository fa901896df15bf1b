"""Settings of `Evict` for tests of what happens to texts that go, whatever protects them elsewhere."""

from __future__ import annotations

from typing import Any

from ibidem import Evict

NO_CLOCKS: dict[str, Any] = {"working_set": (0, 0), "pending": (0, 0)}
"""Reads go like all other results."""

EAGER = Evict(mask=4, **NO_CLOCKS)
COLD_ONLY = Evict(mask=4, phi=0.0, credit=0.0, **NO_CLOCKS)
EAGER_PROFILE, COLD_PROFILE = f"{__name__}:EAGER", f"{__name__}:COLD_ONLY"
"""Profiles for short conversations: evict soon, and evict soon but only while the cache is cold."""
