"""A rewritten request of an adapter: the history to send, and methods to report its result. Also error handling."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from .. import formats
from ..billing.lifetimes import Kept
from ..live import LiveRequest, RewriteResult, whereabouts
from ..plan import Edit, Plan
from ..wire.tree import rebuild
from ._marks import with_marks

if TYPE_CHECKING:
    from ._seat import Seat
    from ._shadow import Shadow

log = logging.getLogger("ibidem")
T = TypeVar("T")


class Turn:
    """A rewritten request: the history to send, and methods to report the provider's response."""

    def __init__(
        self,
        seat: Seat,
        outcome: RewriteResult,
        given: list[Any],
        job: LiveRequest | None = None,
        head: Mapping[str, Any] | None = None,
    ) -> None:
        self._seat, self._outcome, self._given, self._job, self._head = seat, outcome, given, job, head or {}

    @property
    def history(self) -> list[Any]:
        """History to send; the original list if nothing changed. Unchanged messages are the same objects."""
        return self._written[0]

    @property
    def head(self) -> dict[str, Any]:
        """Request parameters to send in place of the original ones, with cache directives."""
        return self._written[1]

    @cached_property
    def _written(self) -> tuple[list[Any], dict[str, Any]]:
        return self._made(self._write) or (self._given, {})

    def _write(self) -> tuple[list[Any], dict[str, Any]]:
        edited = _edited(self._given, self.edits)
        if not self._outcome.marks or self._job is None:
            return edited, {}
        return with_marks(edited, self._head, formats.named(self._job.format).history_key, self._outcome.marks)

    @property
    def kept(self) -> Kept | None:
        """TTL decision for the prompt cache; None if there is none."""
        return self._outcome.kept

    @property
    def outcome(self) -> RewriteResult:
        """Result of the rewriting."""
        return self._outcome

    @property
    def format(self) -> str:
        """Wire format of the request; empty if rewriting failed."""
        return self._job.format if self._job is not None else ""

    @property
    def marked(self) -> bool:
        """True if Ibidem added cache directives."""
        return bool(self._outcome.marks)

    @property
    def changed(self) -> bool:
        """True if Ibidem changed the request."""
        return bool(self.edits) or self.marked

    def _made(self, make: Callable[..., T], *args: Any) -> T | None:
        """Apply edits with `make`. If that fails, return None and record that the original is sent."""
        try:
            return make(*args)
        except Exception as error:
            failed_open(error)
            self.refused()
            return None

    @property
    def edits(self) -> tuple[Edit, ...]:
        return self._outcome.edits

    @property
    def reason(self) -> str:
        """Why the request was not rewritten; empty if it was."""
        return self._outcome.reason

    def answered(self, *, context: int | None = None, cached: int | None = None) -> None:
        """Report the provider's usage: `context` input tokens in total, `cached` of them read from its cache."""
        self._seat.answered(self._outcome, context, cached)

    def refused(self) -> None:
        """Report that the provider rejected the request and the original is sent instead."""
        with failing_open():
            if self._job is not None:
                self._outcome = self._seat.sent_as_it_came(replace(self._outcome, job=self._job))


class ShadowTurn(Turn):
    """A rewritten request whose history was mirrored from framework messages."""

    def __init__(self, turn: Turn, shadow: Shadow) -> None:
        super().__init__(turn._seat, turn._outcome, turn._given, turn._job, turn._head)
        self.results: dict[Any, list[str]] = self._made(shadow.changed, self.edits) or {}
        """New texts of changed results, by the position that the adapter passed."""


def _edited(history: list[Any], edits: tuple[Edit, ...]) -> list[Any]:
    if not edits:
        return history
    new: list[Any] = rebuild(history, Plan(edits).changes())
    return new


def failed_open(error: Exception) -> RewriteResult:
    """Log an error, and return the result that sends the original request."""
    log.warning("request sent unchanged: %s", whereabouts(error))
    log.debug("request sent unchanged", exc_info=True)
    return RewriteResult(result="failed open", reason=whereabouts(error))


# ── for adapters ────────────────────────────────────────────────────────────────────────────────────────────────────


def safely(function: Callable[..., T], *args: Any, otherwise: T) -> T:
    """Call a function. If it fails, log the error and return `default`, so that the framework never sees it."""
    try:
        return function(*args)
    except Exception as error:
        failed_open(error)
        return otherwise


@contextmanager
def failing_open() -> Iterator[None]:
    """Log an error in the `with` block, and continue after it."""
    try:
        yield
    except Exception as error:
        failed_open(error)
