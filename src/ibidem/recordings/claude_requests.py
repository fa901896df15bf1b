"""Requests as Claude Code logs them itself, in newer releases: rows that share no chain with the lines.

An `api-request` names its messages by hash: those it keeps from the request before, then its own. A message that the
lines do not tell as it was sent stands in an `api-request-blob`; the others are found by the hash of what was built
from the lines. `api-request-shape` holds system prompt and tools. A line of the answer names its request. Seen in
2.1.325, which sends what it logs (tests_slow/test_logs_claude_code.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from .recording import Json


class SentRequests:
    """The requests of one log, as far as it tells them."""

    def __init__(self) -> None:
        self._messages: dict[str, Json] = {}
        """Hash → message."""
        self._requests: dict[str, list[str]] = {}
        """Request → hashes of its messages."""
        self._shapes: dict[str, Json] = {}
        self._shaped: dict[str, str] = {}
        """Request → its shape."""

    def take(self, row: Json) -> bool:
        """Whether the row is one of these."""
        match row.get("type"):
            case "api-request-blob":
                self._messages[row["hash"]] = row["message"]
            case "api-request-shape":
                self._shapes[row["shapeHash"]] = row["shape"]
            case "api-request":
                kept = self._requests.get(row.get("base") or "", [])[: row["keep"]]
                complete = len(kept) == row["keep"]
                self._requests[row["id"]] = [*kept, *row["tail"]] if complete else []
                self._shaped[row["id"]] = row.get("shapeHash") or ""
            case _:
                return False
        return True

    def messages(self, request: str | None, built: Iterable[Json]) -> list[Json]:
        """What the request carried, given the messages that were built from lines since the one before; empty if that
        is not told."""
        names = self._requests.get(request or "")
        if not names:
            return []
        for message in built:
            self._messages.setdefault(_hash(message), message)
        found = [self._messages.get(name) for name in names]
        return [message for message in found if message] if all(found) else []

    def head(self, request: str | None) -> Json:
        shape = self._shapes.get(self._shaped.get(request or "", ""), {})
        return {key: shape[key] for key in ("system", "tools") if shape.get(key)}


def _hash(message: Json) -> str:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    whole: Any = {"content": blocks, "role": message["role"]}
    written = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()
