"""One request that an adapter had rewritten: what is to be sent, and where to tell what became of it."""

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
    """One request that was rewritten: what is to be sent, and where to tell what the provider counted."""

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
        """What is to be sent: the very list that was given if nothing changed. Untouched messages are the same
        objects."""
        return self._written[0]

    @property
    def head(self) -> dict[str, Any]:
        """Fields beside the history that are to be sent as they are here, for the provider's cache."""
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
        """For how long the provider is asked to keep what, if that was decided."""
        return self._outcome.kept

    @property
    def outcome(self) -> RewriteResult:
        return self._outcome

    @property
    def format(self) -> str:
        return self._job.format if self._job is not None else ""

    @property
    def marked(self) -> bool:
        """Whether there is anything in it for the provider's cache."""
        return bool(self._outcome.marks)

    @property
    def changed(self) -> bool:
        """Whether there is anything of ours in it."""
        return bool(self.edits) or self.marked

    def _made(self, make: Callable[..., T], *args: Any) -> T | None:
        """What is made of the edits; if that fails the request goes as it came, and its conversation has to know."""
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
        """Why the request goes as it came, if something stood against rewriting it."""
        return self._outcome.reason

    def answered(self, *, context: int | None = None, cached: int | None = None) -> None:
        """The provider answered: it counted so many tokens of input in all, and read so many of them from its cache."""
        self._seat.answered(self._outcome, context, cached)

    def refused(self) -> None:
        """The provider did not take it, and it goes as it came: so it stays."""
        with failing_open():
            if self._job is not None:
                self._outcome = self._seat.sent_as_it_came(replace(self._outcome, job=self._job))


class ShadowTurn(Turn):
    """Of a request that a shadow stood for."""

    def __init__(self, turn: Turn, shadow: Shadow) -> None:
        super().__init__(turn._seat, turn._outcome, turn._given, turn._job, turn._head)
        self.results: dict[Any, list[str]] = self._made(shadow.changed, self.edits) or {}
        """The texts of the results that changed, by the place that the adapter gave them."""


def _edited(history: list[Any], edits: tuple[Edit, ...]) -> list[Any]:
    if not edits:
        return history
    new: list[Any] = rebuild(history, Plan(edits).changes())
    return new


def failed_open(error: Exception) -> RewriteResult:
    log.warning("request sent as it came: %s", whereabouts(error))
    log.debug("request sent as it came", exc_info=True)
    return RewriteResult(result="failed open", reason=whereabouts(error))


# ── for adapters ────────────────────────────────────────────────────────────────────────────────────────────────────


def safely(function: Callable[..., T], *args: Any, otherwise: T) -> T:
    """What a function returns, or that, if it fails: a mistake of ours never reaches the framework."""
    try:
        return function(*args)
    except Exception as error:
        failed_open(error)
        return otherwise


@contextmanager
def failing_open() -> Iterator[None]:
    """What goes wrong inside is told in the log, and nowhere else."""
    try:
        yield
    except Exception as error:
        failed_open(error)
