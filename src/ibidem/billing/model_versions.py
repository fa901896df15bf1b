"""Compare the version in a model's name, for rules that depend on it."""

from __future__ import annotations

import re
from collections.abc import Mapping

Versions = Mapping[str, tuple[int, int]]
"""Part of a model's name → first version for which a rule is true. The first match wins."""

NEVER = (99, 0)
"""A version above all real ones: the rule is never true."""

ANY = (0, 0)

FIRST_CLAUDES = ("claude-instant", "claude-v", "claude-1", "claude-2")
"""Parts of the names of Claude models before families such as Sonnet."""

_VERSION = re.compile(r"(?<![\d.])(\d{1,2})(?:[.-](\d{1,2}))?(?![\d.])")


def is_version(model: str, versions: Versions, unknown: bool) -> bool:
    """Whether a model has at least the version in the table. Returns `unknown` if no name matches.

    A name without a version counts as the newest version.
    """
    name = model.lower().rpartition("/")[2]
    first = next((first for family, first in versions.items() if family in name), None)
    if first is None:
        return unknown
    match = _VERSION.search(name)
    return first != NEVER and (match is None or (int(match[1]), int(match[2] or 0)) >= first)
