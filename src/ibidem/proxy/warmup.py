"""Load the data for rewriting in the background during the first request. It doubles the memory of an idle proxy.

Prices and token ranks are loaded while the first request arrives. A rehearsal after that request builds what the first
rewrite needs. An agent's first request has little to rewrite, and its next one comes seconds later.
"""

from __future__ import annotations

import json
import logging
import threading

from ..billing.cache_loss import CacheVerdict
from ..billing.prices import Prices
from ..billing.usage import Usage
from ..live.live import Rewriter
from ..live.recognition import Conversations
from ..live.types import LiveRequest
from ..store import MemoryStore
from ..tokens import estimate
from .accounting.live_stats import LiveStats
from .settings import Settings

log = logging.getLogger("ibidem")

REHEARSED_FORMAT, REHEARSED_MODEL = "anthropic", "claude-sonnet-4-5"
"""Format and model of the rehearsal. Any others would do."""


LOADING_SECONDS = 5.0
"""Extra seconds for a request during loading. Loading takes a third of a second, or two on a busy machine."""
HURRIED_MS = 1000.0
"""With a smaller time budget for a request, the proxy loads everything at its start."""


class WarmUp:
    """Background tasks at the start of a proxy, each run once."""

    def __init__(self, settings: Settings) -> None:
        self._profile = settings.profile
        self._is_hurried = settings.budget_ms < HURRIED_MS
        self._may_load = self._may_rehearse = True
        self.allowance = 0.0
        """Seconds that a request may exceed its budget. Above 0 only during loading, for which the request waits."""
        self._is_loaded = self._is_rehearsed = False

    @property
    def is_complete(self) -> bool:
        """True if loading and rehearsal are complete."""
        return self._is_loaded and self._is_rehearsed

    def start_early(self) -> None:
        """Start loading at once if the time budget is small."""
        if self._is_hurried:
            self.begin_loading()

    def begin_loading(self) -> None:
        """Start loading at the first request."""
        if self._may_load:
            self._may_load = False
            self.allowance = 0.0 if self._is_hurried else LOADING_SECONDS
            threading.Thread(target=self._run_loading, daemon=True).start()

    def begin_rehearsal(self) -> None:
        """Start the rehearsal after the first request."""
        if self._may_rehearse:
            self._may_rehearse = False
            threading.Thread(target=self._run_rehearsal, daemon=True).start()

    def _run_loading(self) -> None:
        load_data()
        self.allowance = 0.0
        self._is_loaded = True

    def _run_rehearsal(self) -> None:
        rehearse_rewrite(self._profile)
        self._is_rehearsed = True


def load_data() -> None:
    """Load token ranks and prices. Never raises: on failure, the first use loads them again and reports the error."""
    try:
        estimate("a text")
        Prices().of(REHEARSED_MODEL, REHEARSED_FORMAT)
    except Exception as error:
        log.debug("loading in advance failed: %s", type(error).__name__)


def rehearse_rewrite(profile: str) -> None:
    """Rewrite and bill a small conversation in memory, then discard it. Never raises."""
    try:
        text = "\n".join(f"{number:6}→  a line, number {number}, of a file" for number in range(60))
        call = {"type": "tool_use", "name": "Read", "input": {}}
        messages = [{"role": "user", "content": "read it"}]
        for ident in ("a", "b"):
            result = {"type": "tool_result", "tool_use_id": ident, "content": text}
            messages += [
                {"role": "assistant", "content": [{**call, "id": ident}]},  # type: ignore[dict-item]
                {"role": "user", "content": [result]},  # type: ignore[dict-item]
            ]
        body = json.dumps({"model": REHEARSED_MODEL, "max_tokens": 1, "messages": messages}).encode()
        store = MemoryStore()
        rewriter = Rewriter(Conversations(profile, store, 1, 2**20), False, 2**20)
        outcome = rewriter.rewrite_request(LiveRequest(REHEARSED_FORMAT, "", "", body, 0.0))
        records = LiveStats(Settings(profile=profile), 0.0)
        records.end_exchange(
            records.begin_exchange("/", outcome, 0.0, "", REHEARSED_FORMAT, len(body)),
            outcome,
            200,
            Usage(fresh=1),
            CacheVerdict(),
        )
    except Exception as error:
        log.debug("the rehearsal failed: %s", type(error).__name__)
