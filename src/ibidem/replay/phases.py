"""Evictions of texts already sent: when each was possible, and when the profile made it. Input of `offline_optimum`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..billing.budget import Moment
from ..plan import Edit
from ..strategies.revision.entry import Entry
from ..strategies.revision.inventory import Inventory
from ..strategies.strategy import Progress
from .views import SentView


class Stage(NamedTuple):
    """A change of a text already sent."""

    first: int
    """The first request at which the change was possible, counted through the session."""
    made: int
    """The request at which it was made; the end of the window if it was not made."""
    edit: Edit


@dataclass(slots=True)
class TextStages:
    """A text of a window, with its changes."""

    entry: Entry
    arrival: Edit | None
    """The edit with which it was first sent."""
    stages: list[Stage] = field(default_factory=list)

    def at(self, point: int) -> Edit | None:
        """Find the edit of the text if all eligible texts were evicted at this request."""
        found = [stage.edit for stage in self.stages if stage.first <= point]
        return found[-1] if found else self.arrival


@dataclass(slots=True)
class Phase:
    """The requests of a segment and the texts in them, for which `offline_optimum` chooses eviction times."""

    first: int
    last: int
    """End of the range, not included. Both are counted through the session."""
    staged_texts: list[TextStages]
    points: list[int]
    """Requests at which the profile evicted texts."""
    view: Callable[[int], SentView]
    """Request → view of the window after all texts that were eligible then are evicted, without later evictions."""


class FoldWatch:
    """Watcher of a strategy state. After every request, it records which texts changed, and since when each could.

    A text is eligible from the first request after which the state lists it. If an eviction left it out, it is eligible
    from the next request. The target of a reference is not evicted before the referring text can be, so every schedule
    has only requests that could have been sent (invariant 5).
    """

    def __init__(self, progress: Progress, inventory: Inventory) -> None:
        self.staged_texts: list[TextStages] = []
        self.points: list[int] = []
        self._progress = progress
        self._inventory = inventory
        self._since: dict[int, int] = {}
        self._referrers: dict[Any, list[TextStages]] = {}
        self._made = 0

    def look(self, number: int) -> None:
        """Record the state after the request of this number."""
        inventory = self._inventory
        for entry in inventory.all[len(self.staged_texts) :]:
            staged = TextStages(entry, None if entry.gone else entry.edit)
            self.staged_texts.append(staged)
            for pin in entry.pins:
                self._referrers.setdefault(pin.marker.source, []).append(staged)
            if entry.gone and entry.edit is not None:
                staged.stages.append(Stage(number, number, entry.edit))
        passed = len(self._progress.points) > self._made
        if passed:
            self._made = len(self._progress.points)
            self.points.append(number)
            self._changed(number)
        self._since = {  # without texts that are not eligible any more, because their file was named again
            key: number + 1 if passed else self._since.get(key, number) for key in inventory.waiting.texts
        }

    def _changed(self, number: int) -> None:
        for staged in reversed(self.staged_texts):  # referring texts come after their targets
            edit = staged.entry.edit
            if edit is None or edit is (staged.stages[-1].edit if staged.stages else staged.arrival):
                continue
            first = self._since.get(id(staged.entry), number)
            for source in staged.entry.sources:
                for other in self._referrers.get(source, ()):
                    first = max([first, *(stage.first for stage in other.stages)])
            staged.stages.append(Stage(first, number, edit))

    def end(self, number: int) -> None:
        """Finish the window: texts that are still eligible get the edits of an eviction with a cold cache."""
        self._progress.fold.request(Moment(idle=float("inf")))
        self._changed(number)
