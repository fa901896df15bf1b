"""One tool output: its hash, the effect of its tool on files, and the text to send for it."""

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
"""Characters of an output that every version of Claude Code shows in full; Read has no such limit."""


def encode_utf8(text: str) -> bytes:
    # Text read from a process or a file name may hold lone surrogates; hashing it must not fail.
    return text.encode("utf-8", "surrogatepass")


def content_hash(data: bytes | str) -> bytes:
    """Return the first 16 bytes of SHA-256. Bytes are not normalized."""
    raw = encode_utf8(data) if isinstance(data, str) else data
    return hashlib.sha256(raw).digest()[:16]


def path_hash(path: str) -> str:
    """Return the first 8 hex digits of SHA-256 of the path as written; `./a` and `a` are two paths."""
    return hashlib.sha256(encode_utf8(path)).hexdigest()[:8]


class ToolKind(enum.Enum):
    """Effect of a call on files, according to its tool's name."""

    FILE_READ = "file-read"
    FILE_MUTATE = "file-mutate"
    OTHER = "other"

    @classmethod
    def from_tool_name(cls, name: str) -> ToolKind:
        """Return the kind of a tool. Names are matched exactly; an unknown one is OTHER."""
        return _KIND_OF_TOOL.get(name, cls.OTHER)


_KIND_OF_TOOL: Final = {
    **dict.fromkeys(("Read", "Grep", "Glob", "NotebookRead"), ToolKind.FILE_READ),
    **dict.fromkeys(("Edit", "Write", "MultiEdit", "NotebookEdit"), ToolKind.FILE_MUTATE),
}


def check_text(body: Any) -> None:
    if not isinstance(body, str):
        raise UsageError(f"body: {type(body).__name__} is not a str: pass the text for the model")


def check_hash(hash: Any) -> None:
    if not isinstance(hash, bytes):
        raise UsageError(f"hash: {type(hash).__name__} is not bytes: pass content_hash(text)")


def check_names(names: Iterable[str]) -> Iterable[str]:
    if isinstance(names, str):
        raise UsageError(f"{names!r} is one name: pass a list, [{names!r}]")
    return names


@dataclass(frozen=True, slots=True)
class Emission:
    """The text to send for one output, and why. Only `hint` and `near` differ from the body."""

    text: str
    kind: Literal["fresh", "short", "left", "hint", "near"]
    """`left` is only from `OutputMemory`: sent unchanged and not stored, because the call failed or the body has a
    reference."""
