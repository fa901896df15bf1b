"""Notes at the end of a report, in the terminal and in the page."""

from __future__ import annotations

from collections.abc import Iterator

from ..recordings import READERS, UNKNOWN
from .aggregate import Report

NAMED_FILES = 8
"""Number of files without a session that are named."""


def unread_notes(report: Report) -> list[str]:
    """List files without a session, with the reason: a line for each of the first, and one for all further files."""
    notes = [f"Not read: {unread.path}: {unread.why}" for unread in report.unread[:NAMED_FILES]]
    if len(report.unread) > NAMED_FILES:
        notes.append(f"Not read: {len(report.unread) - NAMED_FILES:,} more: --json names them.")
    if any(unread.why == UNKNOWN for unread in report.unread):
        notes.append(f"Supported logs: {', '.join(reader.agent for reader in READERS)}.")
    return notes


def restored_notes(report: Report) -> Iterator[str]:
    """Note how many requests were expanded and compared with the original, for profiles without a failure."""
    requests = report.total.session_requests
    for name, outcome in report.total.profiles.items():
        if outcome.restored and outcome.strategies and not outcome.law_failures:
            is_complete = outcome.restored == requests
            which = "every request" if is_complete else f"{outcome.restored:,} of {requests:,} requests"
            hint = "" if is_complete else " --verify checks every request."
            yield f"{name}: {which} expanded to the original text.{hint}"
