"""Whitespace and rules in old assistant text that say nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...model import Conversation, Kind, Text, size
from ...plan import Edit
from ..strategy import Strategy

_NOISE = re.compile(r"[.…\-_*=]*")
_SPACES = re.compile(r" {2,}")
_FENCE = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lingua(Strategy):
    """Collapse noise in assistant text older than the window.

    Code inside ``` fences is left alone; indented code is not recognised, so its indentation is lost.
    """

    name: ClassVar[str] = "lingua"
    touches: ClassVar[frozenset[Kind]] = frozenset({"assistant text"})

    window: int = 6
    """Text in the last so many messages stays."""

    def plan(self, conv: Conversation) -> Iterator[Edit]:
        for message in conv.older_than(self.window):
            if message.role != "assistant":
                continue
            for part in message.parts:
                if isinstance(part, Text) and not part.bound:
                    cleaned = self.clean(part.text)
                    # Providers refuse blank text, so what would vanish stays.
                    if cleaned.strip() and size(cleaned) < size(part.text):
                        yield Edit(
                            strategy=self.name,
                            op="set",
                            message=message.index,
                            path=part.path,
                            removed=(part.text,),
                            added=cleaned,
                            reason=f"assistant text older than the last {self.window} messages",
                        )

    @staticmethod
    def clean(text: str) -> str:
        lines = text.split("\n")
        final = lines.pop() if text.endswith("\n") else None  # no line, only the end of the last one
        kept: list[str] = []
        fenced = False
        for line in lines:
            if line.lstrip().startswith(_FENCE):
                fenced = not fenced
                kept.append(line)
            elif fenced:
                kept.append(line)
            elif _NOISE.fullmatch(line.strip()):
                if not kept or kept[-1] != "":
                    kept.append("")
            else:
                kept.append(_SPACES.sub(" ", line.rstrip()))
        return "\n".join(kept) + ("" if final is None else "\n")
