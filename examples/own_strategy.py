"""A custom strategy: remove terminal color codes from tool results.

PYTHONPATH=examples ibidem report --profile own_strategy:PROFILE
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import ibidem
from ibidem.model import Conversation, Kind, Text

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class NoColours(ibidem.Strategy):
    name: ClassVar[str] = "no-colours"
    touches: ClassVar[frozenset[Kind]] = frozenset({"result"})  # the engine drops edits of other parts
    final: ClassVar[bool] = True  # the edits of a message depend only on earlier messages

    def plan(self, conv: Conversation) -> Iterator[ibidem.Edit]:
        for message in conv.messages:
            for segment in (each for result in message.results for each in result.segments):
                if isinstance(segment, Text) and (plain := COLOURS.sub("", segment.text)) != segment.text:
                    yield ibidem.Edit(
                        strategy=self.name,
                        op="set",
                        message=message.index,
                        path=segment.path,
                        removed=(segment.text,),
                        added=plain,
                        reason="colours",
                    )


PROFILE = (NoColours(), ibidem.BackReferences())
