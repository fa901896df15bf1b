"""Evictions of texts already sent: when each was possible, and when the profile made it. Input of `offline_optimum`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..billing.revision_budget import RequestContext
from ..plan import Edit
from ..strategies.revision.entry import InventoryEntry
from ..strategies.revision.inventory import Inventory
from ..strategies.strategy import StrategyRun
from .sent_views import SentView


class TextChange(NamedTuple):
    """A change of a text already sent."""

    first: int
    """The first request at which the change was possible, counted through the session."""
    made: int
    """The request at which it was made; the end of the window if it was not made."""
    edit: Edit


@dataclass(slots=True)
class TextStages:
    """A text of a window, with its changes."""

    entry: InventoryEntry
    arrival: Edit | None
    """The edit with which it was first sent."""
    stages: list[TextChange] = field(default_factory=list)

    def edit_at(self, point: int) -> Edit | None:
        """Find the edit of the text if all eligible texts were evicted at this request."""
        edits = [stage.edit for stage in self.stages if stage.first <= point]
        return edits[-1] if edits else self.arrival


@dataclass(slots=True)
class EvictionWindow:
    """The requests of a segment and the texts in them, for which `offline_optimum` chooses eviction times."""

    first: int
    last: int
    """End of the range, not included. Both are counted through the session."""
    staged_texts: list[TextStages]
    points: list[int]
    """Requests at which the profile evicted texts."""
    view: Callable[[int], SentView]
    """Request → view of the window after all texts that were eligible then are evicted, without later evictions."""


class StateWatcher:
    """Watcher of a strategy state. After every request, it records which texts changed, and since when each could.

    A text is eligible from the first request after which the state lists it. If an eviction left it out, it is eligible
    from the next request. The target of a reference is not evicted before the referring text can be, so every schedule
    has only requests that could have been sent (invariant 5).
    """

    def __init__(self, progress: StrategyRun, inventory: Inventory) -> None:
        self.staged_texts: list[TextStages] = []
        self.points: list[int] = []
        self._progress = progress
        self._inventory = inventory
        self._since: dict[int, int] = {}
        self._referrers: dict[Any, list[TextStages]] = {}
        self._made = 0

    def record_request(self, number: int) -> None:
        """Record the state after the request of this number."""
        inventory = self._inventory
        for entry in inventory.entries[len(self.staged_texts) :]:
            staged_text = TextStages(entry, None if entry.is_evicted else entry.edit)
            self.staged_texts.append(staged_text)
            for pin in entry.pins:
                self._referrers.setdefault(pin.marker.source, []).append(staged_text)
            if entry.is_evicted and entry.edit is not None:
                staged_text.stages.append(TextChange(number, number, entry.edit))
        has_revised = len(self._progress.points) > self._made
        if has_revised:
            self._made = len(self._progress.points)
            self.points.append(number)
            self._record_changes(number)
        self._since = {  # without texts that are not eligible any more, because their file was named again
            key: number + 1 if has_revised else self._since.get(key, number) for key in inventory.queue.texts
        }

    def _record_changes(self, number: int) -> None:
        for staged_text in reversed(self.staged_texts):  # referring texts come after their targets
            edit = staged_text.entry.edit
            if edit is None or edit is (staged_text.stages[-1].edit if staged_text.stages else staged_text.arrival):
                continue
            first = self._since.get(id(staged_text.entry), number)
            for source in staged_text.entry.sources:
                for referrer in self._referrers.get(source, ()):
                    first = max([first, *(stage.first for stage in referrer.stages)])
            staged_text.stages.append(TextChange(first, number, edit))

    def finish_window(self, number: int) -> None:
        """Finish the window: texts that are still eligible get the edits of an eviction with a cold cache."""
        self._progress.fold.request(RequestContext(idle=float("inf")))
        self._record_changes(number)
