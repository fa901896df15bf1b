"""Which conversations are rewritten and which only measured (`--trial`): a coin for each, that always falls alike.

The coin is a keyed hash of what the client calls its session, so that helpers of an agent fall as the agent does, and
of what a conversation begins with where the client does not say. Its key is drawn at random once and kept in the store:
nobody can tell beforehand how it falls, and every process that shares the store tosses the same coin, also after a
restart. A conversation stays on its side whatever becomes of its requests, or the sides could not be compared.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Literal, NamedTuple

import msgspec

from ..store.store import Store

Arm = Literal["rewrite", "measure"]

KEY_NAME = "ibidem-trial-coin"
"""Under which the store has the key: it is one note, which only the first who comes can add."""
KEY_BYTES = 32

_SESSION = re.compile(r'session_(?:id"\s*:\s*")?([0-9A-Za-z-]{8,64})(?:"|$)')
"""A session in what Claude Code sends as the user's id: at its end, or as a field of JSON in that text."""


class _RequestMetadata(msgspec.Struct):
    user_id: str = ""


class _RequestHead(msgspec.Struct):
    """Of a request; all else in it is passed over."""

    metadata: _RequestMetadata | None = None


_head = msgspec.json.Decoder(_RequestHead)


class Toss(NamedTuple):
    """How the coin fell for one client's session, or for one conversation where none is named."""

    arm: Arm
    unit: str
    """What was tossed for, as a keyed hash: it names no session and tells no text."""


class Coin:
    """Of one proxy. A larger share leaves those that were rewritten on their side."""

    def __init__(self, key: bytes, share: float) -> None:
        self._key, self.share = key, share

    def toss(self, name: str) -> Toss:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()
        heads = int.from_bytes(digest[:8]) < self.share * 2**64
        return Toss("rewrite" if heads else "measure", digest[8:].hex())

    def keep(self, store: Store) -> None:
        """The store has the key and remembers it for longer. Raises StoreError, and what a store raises."""
        shared_key(store, self._key)


def shared_key(store: Store, mine: bytes | None = None) -> bytes:
    """The key of all who share the store. The first one brings it: `mine`, or one that is drawn now."""
    found = store.notes(KEY_NAME)
    if not found.rows:
        drawn = mine or secrets.token_bytes(KEY_BYTES)
        found = store.note(KEY_NAME, [drawn], found.place)
        if found.added:
            return drawn
    return found.rows[0]


def session_in(body: bytes) -> str:
    """The client's session, where it is told in the request and not in a header; empty if it is not."""
    try:
        metadata = _head.decode(body).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""  # it is packed, or none that we know
    found = _SESSION.search(metadata.user_id) if metadata is not None else None
    return found[1] if found else ""
