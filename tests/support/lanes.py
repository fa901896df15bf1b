"""Which rows of a table are tried every time, and which in the whole run alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def daily(rows: Iterable[str], *every_time: str) -> list[Any]:
    """All rows for `parametrize`; those that are not named here are marked slow."""
    return [row if row in every_time else pytest.param(row, marks=pytest.mark.slow) for row in rows]
