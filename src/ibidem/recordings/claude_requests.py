"""Requests that newer releases of Claude Code log themselves, in rows apart from the conversation lines.

An `api-request` lists the hashes of its messages: first those of an earlier request, then new ones. If the lines do not
contain a message as it was sent, it is in an `api-request-blob`. Otherwise, it is identified by the hash of the message
built from the lines. An `api-request-shape` has system prompt and tools. A line of the response names its request.
In release 2.1.325, logged and sent requests are equal (tests_slow/test_logs_claude_code.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from .recording import Json


class LoggedRequests:
    """The requests that one log contains."""

    def __init__(self) -> None:
        self._messages: dict[str, Json] = {}
        """Hash → message."""
        self._requests: dict[str, list[str]] = {}
        """Request id → hashes of its messages."""
        self._shapes: dict[str, Json] = {}
        self._shape_hashes: dict[str, str] = {}
        """Request id → hash of its shape."""

    def add_row(self, row: Json) -> bool:
        """Store the row if it belongs to a logged request; return False if it does not."""
        match row.get("type"):
            case "api-request-blob":
                self._messages[row["hash"]] = row["message"]
            case "api-request-shape":
                self._shapes[row["shapeHash"]] = row["shape"]
            case "api-request":
                base_hashes = self._requests.get(row.get("base") or "", [])[: row["keep"]]
                complete = len(base_hashes) == row["keep"]
                self._requests[row["id"]] = [*base_hashes, *row["tail"]] if complete else []
                self._shape_hashes[row["id"]] = row.get("shapeHash") or ""
            case _:
                return False
        return True

    def find_messages(self, request: str | None, built_messages: Iterable[Json]) -> list[Json]:
        """Return the messages of a request; empty if the log does not contain all of them.

        `built_messages` were built from lines since the previous request.
        """
        hashes = self._requests.get(request or "")
        if not hashes:
            return []
        for message in built_messages:
            self._messages.setdefault(_hash_message(message), message)
        messages = [self._messages.get(name) for name in hashes]
        return [message for message in messages if message] if all(messages) else []

    def request_params(self, request: str | None) -> Json:
        """Return system prompt and tools of a request, if the log has them."""
        shape = self._shapes.get(self._shape_hashes.get(request or "", ""), {})
        return {key: shape[key] for key in ("system", "tools") if shape.get(key)}


def _hash_message(message: Json) -> str:
    """Compute the hash that Claude Code logs for a message, so that a logged request can find it.

    The JSON must match Claude Code's byte for byte: any other form gives a hash that is in no log.
    """
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    content_fields: Any = {"content": blocks, "role": message["role"]}
    canonical_json = json.dumps(content_fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical_json.encode("utf-8", "surrogatepass")).hexdigest()
