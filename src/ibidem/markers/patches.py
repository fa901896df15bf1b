"""The new side of a patch: its lines as they are in the file afterwards, without the sign before each.

A marker names this view of a sent text: `lines 12-40 of call 7.input without +`. It applies to adjacent lines. Each
starts with a plus or a space, which is removed, or is empty. A line that the patch removes from the file, or that
belongs to neither side, is not in the view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

VIEW = "without +"

SIGN_BY_VIEW = {"with +": "+", "with -": "-"}
"""The reverse, for a diff of text that was shown before: a view of lines with this sign before each. Context lines
around a change are few. They stay, because they show its position."""

VIEWS = (VIEW, *SIGN_BY_VIEW)

_SIGNS = ("+", " ", "")
_BLOCK_STARTS = ("@@", "*** Add File: ", "*** Update File: ", "*** Move to: ")
"""Lines that start a block of patch lines."""


def lines_in_view(lines: Sequence[str], view: str) -> Sequence[str] | None:
    """Return the lines as a view shows them; None if one of them is not in the view."""
    if view in SIGN_BY_VIEW:
        return [SIGN_BY_VIEW[view] + line for line in lines]
    return new_side(lines) if view else lines


def signed_lines(lines: Sequence[str], sign: str, blank: str) -> list[str]:
    """Return the diff lines with this sign, without it, and `blank` for every other line."""
    return [line[1:] if line[:1] == sign else blank for line in lines]


def new_side(lines: Sequence[str]) -> list[str] | None:
    """Return the lines as they are in the file; None if one of them is not on the new side."""
    if any(line[:1] not in _SIGNS for line in lines):
        return None
    return [line[1:] for line in lines]


def may_be_patch(text: str) -> bool:
    """Return False quickly for most texts that are not a patch. Searching for single characters is fastest."""
    if "+" not in text:
        return False
    has_block = ("@" in text and "\n@@" in text) or ("*" in text and "*** Begin Patch\n" in text)
    return has_block and "\n+" in text


def new_side_lines(lines: Sequence[str], blank: str) -> Iterator[str]:
    """Yield the lines on the new side of a patch, without signs, and `blank` for every other line."""
    is_in_block = False
    for line in lines:
        if line.startswith(_BLOCK_STARTS):
            is_in_block = True
        elif line[:1] not in ("+", " ", "-", "\\", ""):
            is_in_block = False
        yield line[1:] if is_in_block and line[:1] in _SIGNS else blank
