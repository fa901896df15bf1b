"""Remove white space and rules from old assistant text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ...cache.outputs import WHITE_SPACE
from ...model import Conversation, Kind, Text, utf8_size
from ...plan import Edit
from ..strategy import ProviderDemands
from .ported_strategy import Ported, codetether_messages, older_than

_NOISE = ".…-_*="
_SPACES = re.compile(r" {2,}")
_FENCE = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lingua(Ported):
    """Collapse noise in assistant text older than the window.

    Code inside ``` fences is left alone. Indented code is not recognized, so its indentation is lost.
    """

    name: ClassVar[str] = "lingua"
    touches: ClassVar[frozenset[Kind]] = frozenset({"assistant text"})
    reads: ClassVar[frozenset[Kind]] = frozenset({"assistant text", "messages"})

    window: int = 6
    """Number of last messages whose text stays."""

    def edits(self, conv: Conversation, demands: ProviderDemands) -> Iterator[Edit]:
        for message in older_than(codetether_messages(conv), self.window):
            if message.role != "assistant":
                continue
            for part in message.parts:
                if type(part) is not Text or part.bound:
                    continue
                cleaned_text = self.clean(part.text)
                if utf8_size(cleaned_text) >= utf8_size(part.text):
                    continue
                is_blank = not cleaned_text.strip()
                if is_blank and conv.dialect.blank_is_empty and demands.override_original(is_certain=False):
                    continue
                yield Edit(
                    strategy=self.name,
                    op="set",
                    message=message.index,
                    path=part.path,
                    removed=(part.text,),
                    added=cleaned_text,
                    reason=f"assistant text older than the last {self.window} messages",
                )

    @staticmethod
    def clean(text: str) -> str:
        """Return the text with runs of spaces and of noise lines shortened."""
        *lines, last = text.split("\n")
        cleaned_lines: list[str] = []
        in_code = in_noise = False
        for line in [*lines, last] if last else lines:
            if line.lstrip(WHITE_SPACE).startswith(_FENCE):
                in_code, in_noise = not in_code, False
            elif not in_code:
                line = line.rstrip(WHITE_SPACE)
                if not line.strip(_NOISE):
                    if not in_noise:
                        cleaned_lines.append("")
                    in_noise = True
                    continue
                in_noise = False
                if "  " in line:
                    line = _SPACES.sub(" ", line)
            cleaned_lines.append(line)
        # A noise line ends in a line break, even the last one without a line break in the original text.
        if cleaned_lines and (not last or in_noise):
            cleaned_lines.append("")
        return "\n".join(cleaned_lines)
