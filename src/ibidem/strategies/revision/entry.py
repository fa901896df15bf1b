"""A text that stands in a conversation, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...calls import label_of, named_arguments
from ...markers.backref import Marker, Source
from ...model import Kind, Path, ToolCall
from ...plan import Edit


class Candidate(NamedTuple):
    """Why a text could go, and how much of it."""

    label: str
    why: str
    """What the model is told; every word is paid for at every turn."""
    reason: str = ""
    """What a report says, where that is more."""


class Eviction(NamedTuple):
    """How a text goes."""

    label: str
    added: str
    left: float
    """Tokens of what stands there afterwards."""
    reason: str
    originals: Mapping[str, str]
    """What the store has to keep, by reference."""


class Pin(NamedTuple):
    """Lines of a text that another refers to."""

    marker: Marker
    """It says which."""
    first: int
    last: int
    """Not included; 0 for all of it."""


@dataclass(slots=True, eq=False)
class Entry:
    """A text in the conversation."""

    message: int
    path: Path
    kind: Kind
    text: str
    """As it came."""
    turn: int
    """The request that is the first to send it."""
    sources: tuple[Source, ...] = ()
    """What references call it."""
    pins: tuple[Pin, ...] = ()
    """What it refers to."""
    tokens: float = 0.0
    sent: float = 0.0
    """Tokens of what stands there now."""
    edit: Edit | None = None
    candidate: Candidate | None = None
    """Waits for its moment."""
    going: Eviction | None = None
    evicted: Eviction | None = None
    """How it went."""
    free: bool = True
    """May go at all."""
    may: frozenset[str] = frozenset()
    """Of an argument: what it may go for."""
    written_in: str = ""
    """Of an argument: the JSON text it is a value in, where arguments are a string."""
    call: ToolCall | None = None
    """Whose result or argument it is."""
    names: frozenset[str] = frozenset()
    """Files that it may show, or that its call may write: see `names`."""
    gated: bool = False
    """A file that is in use protects it: see `gate`."""
    rank: int = 0
    """Which came to wait before which."""
    since: int = 0
    """The request from which on it could have gone."""
    answers: dict[Any, Any] = field(default_factory=dict)
    """While it waits: how it would go, by the lines that must stay; see `waiting`."""

    @property
    def place(self) -> str:
        """Where it stands and why it goes, for one who sees it out of its place."""
        part = "a text of yours" if self.kind == "assistant text" else "a result"
        if self.call is not None:
            kind = "the result" if self.kind == "result" else "an argument"
            part = f"{kind} of {label_of(self.call.name, named_arguments(self.call))}"
        why = self.candidate.why if self.candidate is not None else ""
        return f"{part} ({why})" if why else part

    @property
    def gone(self) -> bool:
        return self.evicted is not None

    @property
    def now(self) -> str:
        return self.text if self.edit is None else self.edit.added
