"""One tool output: its hash, what its tool does to files, and what is sent for it."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..errors import UsageError

WHITE_SPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""White space of Rust, in which the ported systems are written. Python's `strip` also takes U+001C to U+001F."""
MAX_SHOWN_CHARS: Final = 16_000
"""Characters of an output that every version of Claude Code is known to show in full; Read has no such limit."""


def utf8(text: str) -> bytes:
    # Text read from a process or a file name may hold lone surrogates; hashing it must not fail.
    return text.encode("utf-8", "surrogatepass")


def content_hash(data: bytes | str) -> bytes:
    """The first 16 bytes of SHA-256. Nothing is normalised: one other byte, another hash."""
    raw = utf8(data) if isinstance(data, str) else data
    return hashlib.sha256(raw).digest()[:16]


def path_hash(path: str) -> str:
    """The first 8 hex digits of SHA-256 of the path as spelled; `./a` and `a` are two paths."""
    return hashlib.sha256(utf8(path)).hexdigest()[:8]


class ToolKind(enum.Enum):
    """What a call does to files, as far as its tool's name tells."""

    FILE_READ = "file-read"
    FILE_MUTATE = "file-mutate"
    OTHER = "other"

    @classmethod
    def from_tool_name(cls, name: str) -> ToolKind:
        """Names are matched exactly; an unknown one is OTHER."""
        return _KIND_OF_TOOL.get(name, cls.OTHER)


_KIND_OF_TOOL: Final = {
    **dict.fromkeys(("Read", "Grep", "Glob", "NotebookRead"), ToolKind.FILE_READ),
    **dict.fromkeys(("Edit", "Write", "MultiEdit", "NotebookEdit"), ToolKind.FILE_MUTATE),
}


def be_text(body: Any) -> None:
    if not isinstance(body, str):
        raise UsageError(f"body: {type(body).__name__} is no text: pass what the model is to read")


def be_hash(hash: Any) -> None:
    if not isinstance(hash, bytes):
        raise UsageError(f"hash: {type(hash).__name__} is no hash: pass content_hash(text)")


def be_names(names: Iterable[str]) -> Iterable[str]:
    if isinstance(names, str):
        raise UsageError(f"{names!r} is one name: pass a list, [{names!r}]")
    return names


@dataclass(frozen=True, slots=True)
class Emission:
    """What to send for one output, and why: only a hint or a near-reference is not the body."""

    text: str
    kind: Literal["fresh", "short", "left", "hint", "near"]
    """`left`: passed on and not remembered, since it failed or has a reference in it; of `OutputMemory` only."""
