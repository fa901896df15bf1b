"""What depends on a model's version: told by its name, where nothing that was counted tells."""

from __future__ import annotations

import re
from collections.abc import Mapping

Versions = Mapping[str, tuple[int, int]]
"""By what a model's name holds, the first version of which something is true. The first that fits counts."""

NEVER = (99, 0)
"""A version that there is not."""

ANY = (0, 0)

FIRST_CLAUDES = ("claude-instant", "claude-v", "claude-1", "claude-2")
"""Names from before there were families."""

_VERSION = re.compile(r"(?<![\d.])(\d{1,2})(?:[.-](\d{1,2}))?(?![\d.])")


def reaches(model: str, versions: Versions, unknown: bool) -> bool:
    """Whether a model is of such a version; `unknown` if none of the names fits. A name that tells no version may be of
    any, so it counts as the newest."""
    name = model.lower().rpartition("/")[2]
    first = next((first for family, first in versions.items() if family in name), None)
    if first is None:
        return unknown
    told = _VERSION.search(name)
    return first != NEVER and (told is None or (int(told[1]), int(told[2] or 0)) >= first)
