"""A text of a conversation, and its state: in the conversation, eligible for eviction, or evicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...markers.backref import Marker, Source
from ...model import Kind, Path, ToolCall
from ...plan import Edit
from ...tool_arguments import call_label, named_arguments


class Candidate(NamedTuple):
    """The reason why a text could be evicted."""

    label: str
    why: str
    """Reason in the marker, for the model. Short, because it is sent with every request."""
    reason: str = ""
    """Reason in reports, if it differs from `why`."""


class Eviction(NamedTuple):
    """The planned or completed eviction of a text."""

    label: str
    stub_text: str
    remaining_tokens: float
    """Tokens of the stub."""
    reason: str
    originals: Mapping[str, str]
    """Originals for the store, by reference."""


class Pin(NamedTuple):
    """Lines of a text that a back-reference in another text needs."""

    marker: Marker
    """The back-reference."""
    first: int
    last: int
    """Exclusive; 0 means the whole text."""


@dataclass(slots=True, eq=False)
class InventoryEntry:
    """A text of the conversation."""

    message: int
    path: Path
    kind: Kind
    text: str
    """The original text, as the client sent it."""
    turn: int
    """Number of the first request that sends it."""
    sources: tuple[Source, ...] = ()
    """Names by which markers refer to it."""
    pins: tuple[Pin, ...] = ()
    """Lines of other texts that it refers to."""
    tokens: float = 0.0
    sent_tokens: float = 0.0
    """Tokens of the text as it is sent now."""
    edit: Edit | None = None
    candidate: Candidate | None = None
    """Set while the text is eligible for eviction."""
    planned_eviction: Eviction | None = None
    eviction: Eviction | None = None
    """The completed eviction."""
    is_evictable: bool = True
    """True if the text may ever be evicted."""
    eviction_labels: frozenset[str] = frozenset()
    """For an argument: labels under which it may be evicted."""
    containing_json: str = ""
    """For an argument: the JSON text that contains it, if arguments are sent as a string."""
    call: ToolCall | None = None
    """The call whose result or argument it is."""
    file_names: frozenset[str] = frozenset()
    """Files that it may show, or that its call may write: see `file_names`."""
    is_file_protected: bool = False
    """True if a file in use may protect it: see `file_protection`."""
    queue_order: int = 0
    """Position in the order in which texts became eligible."""
    eligible_since: int = 0
    """Number of the request since which it is eligible."""
    options_by_pins: dict[Any, Any] = field(default_factory=dict)
    """While it is eligible: possible evictions, by the lines that must stay. See `eviction_queue`."""

    @property
    def description(self) -> str:
        """Description of the text and its reason, for a reader of the store."""
        part = "a text of yours" if self.kind == "assistant text" else "a result"
        if self.call is not None:
            kind = "the result" if self.kind == "result" else "an argument"
            part = f"{kind} of {call_label(self.call.name, named_arguments(self.call))}"
        why = self.candidate.why if self.candidate is not None else ""
        return f"{part} ({why})" if why else part

    @property
    def is_evicted(self) -> bool:
        """True if the text was evicted."""
        return self.eviction is not None

    @property
    def current_text(self) -> str:
        """The text as it is sent now."""
        return self.text if self.edit is None else self.edit.added
