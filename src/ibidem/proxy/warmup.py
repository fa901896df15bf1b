"""What rewriting needs, loaded beside the first request, and no sooner: it takes as much memory as all the rest.

Prices and token counts while the first request still comes in. What the first rewriting builds after it has gone: an
agent's first request has little to rewrite, and its next is seconds away.
"""

from __future__ import annotations

import json
import logging
import threading

from ..billing.collapse import Verdict
from ..billing.prices import Prices
from ..billing.usage import Usage
from ..live.live import Rewriter
from ..live.recognition import Conversations
from ..live.types import LiveRequest
from ..store import MemoryStore
from ..tokens import estimate
from .books.records import Records
from .settings import Settings

log = logging.getLogger("ibidem")

REHEARSED_FORMAT, REHEARSED_MODEL = "anthropic", "claude-sonnet-4-5"
"""Of a little conversation; any would do."""


LOADING_SECONDS = 5.0
"""Seconds that a request may take longer while all is loaded beside it: a third of one, or two where much goes on."""
HURRIED_MS = 1000.0
"""Milliseconds: whoever gives a request less than that has all loaded before there is one."""


class WarmUp:
    """What each moment in the life of a proxy sets off, once, beside everything else."""

    def __init__(self, settings: Settings) -> None:
        self._profile = settings.profile
        self._hurried = settings.budget_ms < HURRIED_MS
        self._loads = self._rehearses = True
        self.allowance = 0.0
        """Seconds that a request may take longer than its budget: not 0 while all is loaded, which it waits for."""
        self._loaded = self._rehearsed = False

    @property
    def over(self) -> bool:
        """All is loaded and was tried: no request takes longer than it will from now on."""
        return self._loaded and self._rehearsed

    def started(self) -> None:
        if self._hurried:
            self.request_came()

    def request_came(self) -> None:
        if self._loads:
            self._loads = False
            self.allowance = 0.0 if self._hurried else LOADING_SECONDS
            threading.Thread(target=self._load, daemon=True).start()

    def request_went(self) -> None:
        if self._rehearses:
            self._rehearses = False
            threading.Thread(target=self._rehearse, daemon=True).start()

    def _load(self) -> None:
        load()
        self.allowance = 0.0
        self._loaded = True

    def _rehearse(self) -> None:
        rehearse(self._profile)
        self._rehearsed = True


def load() -> None:
    """Ranks of tokens, and prices. Never raises: whoever needs them loads them, and says what is wrong."""
    try:
        estimate("a text")
        Prices().of(REHEARSED_MODEL, REHEARSED_FORMAT)
    except Exception as error:
        log.debug("nothing was loaded before it is needed: %s", type(error).__name__)


def rehearse(profile: str) -> None:
    """Rewrites a little conversation and bills it, all of which is then forgotten."""
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
        outcome = rewriter.rewrite(LiveRequest(REHEARSED_FORMAT, "", "", body, 0.0))
        records = Records(Settings(profile=profile), 0.0)
        records.end(
            records.begin("/", outcome, 0.0, "", REHEARSED_FORMAT, len(body)), outcome, 200, Usage(fresh=1), Verdict()
        )
    except Exception as error:
        log.debug("nothing was rehearsed: %s", type(error).__name__)
