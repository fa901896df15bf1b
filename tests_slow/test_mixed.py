"""Ten thousand requests of all kinds, with faults everywhere: every byte that either side saw is compared."""

from __future__ import annotations

import pytest

from tests.proxy import test_mixed

from .conftest import Tally

PROFILES = {"lossless": 7000, "recoverable": 3000}
"""Requests for each profile."""
stumbling = test_mixed.stumbling


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.usefixtures("stumbling")
def test_mixed_requests_with_faults(profile: str, tally: Tally) -> None:
    test_mixed.run_mixed(profile, PROFILES[profile])
    tally(f"mixed requests, {profile}", requests=PROFILES[profile])
