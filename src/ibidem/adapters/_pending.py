"""A rewritten request of an adapter: the history to send, and methods to report its result. Also error handling."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from .. import formats
from ..billing.cache_ttl import TtlDecision
from ..live import LiveRequest, RewriteResult, error_location
from ..plan import Edit, Plan
from ..wire.json_tree import apply_changes
from ._breakpoints import with_breakpoints

if TYPE_CHECKING:
    from ._request_rewriter import RequestRewriter
    from ._wire_mirror import WireMirror

log = logging.getLogger("ibidem")
T = TypeVar("T")


class PendingRequest:
    """A rewritten request: the history to send, and methods to report the provider's response."""

    def __init__(
        self,
        rewriter: RequestRewriter,
        outcome: RewriteResult,
        original: list[Any],
        job: LiveRequest | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self._rewriter, self._outcome, self._original, self._job, self._params = (
            rewriter,
            outcome,
            original,
            job,
            params or {},
        )

    @property
    def history(self) -> list[Any]:
        """History to send; the original list if nothing changed. Unchanged messages are the same objects."""
        return self._result[0]

    @property
    def params(self) -> dict[str, Any]:
        """Request parameters to send in place of the original ones, with cache directives."""
        return self._result[1]

    @cached_property
    def _result(self) -> tuple[list[Any], dict[str, Any]]:
        return self._try_apply(self._apply_changes) or (self._original, {})

    def _apply_changes(self) -> tuple[list[Any], dict[str, Any]]:
        new_history = _apply_edits(self._original, self.edits)
        if not self._outcome.cache_additions or self._job is None:
            return new_history, {}
        return with_breakpoints(
            new_history, self._params, formats.format_named(self._job.format).history_key, self._outcome.cache_additions
        )

    @property
    def ttl_decision(self) -> TtlDecision | None:
        """TTL decision for the prompt cache; None if there is none."""
        return self._outcome.ttl_decision

    @property
    def outcome(self) -> RewriteResult:
        """Result of the rewriting."""
        return self._outcome

    @property
    def format(self) -> str:
        """Wire format of the request; empty if rewriting failed."""
        return self._job.format if self._job is not None else ""

    @property
    def has_directives(self) -> bool:
        """True if Ibidem added cache directives."""
        return bool(self._outcome.cache_additions)

    @property
    def is_changed(self) -> bool:
        """True if Ibidem changed the request."""
        return bool(self.edits) or self.has_directives

    def _try_apply(self, make: Callable[..., T], *args: Any) -> T | None:
        """Apply edits with `make`. If that fails, return None and record that the original is sent."""
        try:
            return make(*args)
        except Exception as error:
            pass_through_result(error)
            self.report_rejection()
            return None

    @property
    def edits(self) -> tuple[Edit, ...]:
        return self._outcome.edits

    @property
    def reason(self) -> str:
        """Why the request was not rewritten; empty if it was."""
        return self._outcome.reason

    def report_usage(self, *, context: int | None = None, cached: int | None = None) -> None:
        """Report the provider's usage: `context` input tokens in total, `cached` of them read from its cache."""
        self._rewriter.record_input_tokens(self._outcome, context, cached)

    def report_rejection(self) -> None:
        """Report that the provider rejected the request and the original is sent instead."""
        with log_errors():
            if self._job is not None:
                self._outcome = self._rewriter.record_fallback(replace(self._outcome, job=self._job))


class MirroredRequest(PendingRequest):
    """A rewritten request whose history was mirrored from framework messages."""

    def __init__(self, pending: PendingRequest, mirror: WireMirror) -> None:
        super().__init__(pending._rewriter, pending._outcome, pending._original, pending._job, pending._params)
        self.results: dict[Any, list[str]] = self._try_apply(mirror.changed_texts, self.edits) or {}
        """New texts of changed results, by the position that the adapter passed."""


def _apply_edits(history: list[Any], edits: tuple[Edit, ...]) -> list[Any]:
    if not edits:
        return history
    new: list[Any] = apply_changes(history, Plan(edits).changes())
    return new


def pass_through_result(error: Exception) -> RewriteResult:
    """Log an error, and return the result that sends the original request."""
    log.warning("request sent unchanged: %s", error_location(error))
    log.debug("request sent unchanged", exc_info=True)
    return RewriteResult(result="failed open", reason=error_location(error))


# ── for adapters ────────────────────────────────────────────────────────────────────────────────────────────────────


def call_or_default(function: Callable[..., T], *args: Any, default: T) -> T:
    """Call a function. If it fails, log the error and return `default`, so that the framework never sees it."""
    try:
        return function(*args)
    except Exception as error:
        pass_through_result(error)
        return default


@contextmanager
def log_errors() -> Iterator[None]:
    """Log an error in the `with` block, and continue after it."""
    try:
        yield
    except Exception as error:
        pass_through_result(error)
