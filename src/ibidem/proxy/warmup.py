"""What is loaded when it is first needed, loaded before.

Prices and token counts when the proxy starts. What the first rewriting builds, which takes more memory than a proxy
should that nobody uses, after the first request: an agent's first has little to rewrite, and its next is seconds away.
"""

from __future__ import annotations

import json
import logging

from ..billing.collapse import Verdict
from ..billing.prices import Prices
from ..billing.usage import Usage
from ..store import MemoryStore
from ..tokens import estimate
from .books.records import Records
from .conversations import Conversations
from .outcome import Job
from .rewriter import Rewriter
from .settings import Settings

log = logging.getLogger("ibidem")

REHEARSED_FORMAT, REHEARSED_MODEL = "anthropic", "claude-sonnet-4-5"
"""Of a little conversation; any would do."""


def load() -> None:
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
        outcome = rewriter.rewrite(Job(REHEARSED_FORMAT, "", "", body, 0.0))
        records = Records(Settings(profile=profile), 0.0)
        records.end(
            records.begin("/", outcome, 0.0, "", REHEARSED_FORMAT, len(body)), outcome, 200, Usage(fresh=1), Verdict()
        )
    except Exception as error:
        log.debug("nothing was rehearsed: %s", type(error).__name__)
