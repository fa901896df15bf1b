"""The new side of a patch: its lines as they stand in the file afterwards, without the sign in front of each.

A view of what was sent, which a marker names: `lines 12-40 of call 7.input without +`. The rule is for lines that
stand next to each other: each begins with a plus or a space, which is taken off, or is empty. A line that was taken out
of the file, or belongs to no side, is in no view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

VIEW = "without +"

SIGNED = {"with +": "+", "with -": "-"}
"""The other way round, for a diff of what was shown before: a view of lines with this sign in front of each. Those
around a change are few, and stay: they show where it is."""

VIEWS = (VIEW, *SIGNED)

_SIGNS = ("+", " ", "")
_BEGINNINGS = ("@@", "*** Add File: ", "*** Update File: ", "*** Move to: ")
"""Lines that the lines of a patch stand below."""


def viewed(lines: Sequence[str], view: str) -> Sequence[str] | None:
    """The lines as a view shows them; None if one of them is not in it."""
    if view in SIGNED:
        return [SIGNED[view] + line for line in lines]
    return new_side(lines) if view else lines


def signed_lines(lines: Sequence[str], sign: str, blank: str) -> list[str]:
    """Those of a diff that have this sign, without it; `blank` for every other line."""
    return [line[1:] if line[:1] == sign else blank for line in lines]


def new_side(lines: Sequence[str]) -> list[str] | None:
    """The lines as the file has them; None if one of them is not on its new side."""
    if any(line[:1] not in _SIGNS for line in lines):
        return None
    return [line[1:] for line in lines]


def may_be_patch(text: str) -> bool:
    """Most texts are none, and single characters are found fastest."""
    if "+" not in text:
        return False
    begins = ("@" in text and "\n@@" in text) or ("*" in text and "*** Begin Patch\n" in text)
    return begins and "\n+" in text


def shown_lines(lines: Sequence[str], blank: str) -> Iterator[str]:
    """Those of a patch that are on the new side, without their signs; `blank` for every other line."""
    within = False
    for line in lines:
        if line.startswith(_BEGINNINGS):
            within = True
        elif line[:1] not in ("+", " ", "-", "\\", ""):
            within = False
        yield line[1:] if within and line[:1] in _SIGNS else blank
