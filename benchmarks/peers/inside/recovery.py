"""How peers give back what they left out, or folded: everything that they offer for it is tried."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEADROOM_KEY = re.compile(r"\b[0-9a-f]{12,24}\b")
HEADROOM_INVERSES = (
    *("search_unheading", "search_dir_unheading", "path_unheading", "expand_runs", "unfold_repeated_blocks"),
)
"""In `headroom.transforms.lossless_compaction`: each gives back what one way of folding made of a text."""
ENTROLY_MARKER = re.compile(r"\[entroly-recovery:([0-9a-f]+):([0-9a-f]+)\]")


def from_headroom(text: str, ask: Callable[[str], str | None]) -> list[str]:
    """By the keys in a text, which its store is asked for, and by the inverses that it has of its own foldings."""
    found = [kept for key in dict.fromkeys(HEADROOM_KEY.findall(text)) if (kept := ask(key)) is not None]
    module = importlib.import_module("headroom.transforms.lossless_compaction")
    for name in HEADROOM_INVERSES:
        with contextlib.suppress(Exception):
            found.append(getattr(module, name)(text))
    headroom = importlib.import_module("headroom")
    if headroom.is_compacted(text):
        with contextlib.suppress(Exception):
            back = headroom.expand_compacted(text)
            found.append(back if isinstance(back, str) else json.dumps(back))
    return found


def from_entroly(text: str, stores: list[Any]) -> list[str]:
    """By the markers in a text, from its stores of what was left out."""
    found = []
    for receipt, span in dict.fromkeys(ENTROLY_MARKER.findall(text)):
        for store in stores:
            with contextlib.suppress(Exception):
                kept = store.get_span(receipt, span)
                found += [kept.content] if kept is not None else []
    return found


def entroly_stores(home: Path) -> list[Any]:
    """The stores that its proxy wrote below the home folder."""
    module = importlib.import_module("entroly.compression_retrieval_store_secure")
    found = []
    for path in home.rglob("*.json"):
        if b"receipt_id" in path.read_bytes():
            with contextlib.suppress(Exception):
                found.append(module.CompressionRetrievalStore(path))
    return found
