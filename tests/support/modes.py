"""Modes of files, in tests that run as root too."""

from __future__ import annotations

import os

DROP, SEARCH = 24, (1, 2)
"""prctl's number for giving up a capability, and those to read and search what one may not."""


def mortal() -> None:
    """For `preexec_fn`: from here on modes of files bind us, also if we are root."""
    if os.geteuid() == 0:
        import ctypes

        for capability in SEARCH:
            ctypes.CDLL(None).prctl(DROP, capability, 0, 0, 0)
