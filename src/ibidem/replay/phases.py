"""The texts of a session that may change after they were sent: since when each could have, and when it did.

What `hindsight` chooses better moments from.
"""

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
    """A change of a text that had been sent."""

    first: int
    """The request from which on it could have been made, counted through the session."""
    made: int
    """The request at which it was; one after the last of its phase if it still waited there."""
    edit: Edit


@dataclass(slots=True)
class TextStages:
    """A text of a phase, and what became of it."""

    entry: Entry
    arrival: Edit | None
    """How it was sent first."""
    stages: list[Stage] = field(default_factory=list)

    def at(self, point: int) -> Edit | None:
        """How it is sent if everything that waited at this request went then."""
        found = [stage.edit for stage in self.stages if stage.first <= point]
        return found[-1] if found else self.arrival


@dataclass(slots=True)
class Phase:
    """The requests of a segment, and the texts in them: what `hindsight` chooses the moments for."""

    first: int
    last: int
    """Not included. Both are counted through the session."""
    staged_texts: list[TextStages]
    points: list[int]
    """Requests at which the profile let texts go."""
    view: Callable[[int], SentView]
    """How the phase is sent after everything that waited at a request went then, and nothing since."""


class FoldWatch:
    """Looks at a fold after every request: which texts changed, and since when each could have.

    A text waits from the first request after which it is seen waiting; one that was passed over when others went, from
    the request after that. What something refers to does not go before what refers to it can, so that every request
    of every choice of moments is one that could have been sent (law 5).
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
        """The request of this number was sent."""
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
        self._since = {  # without those that do not wait any more: their file was named again
            key: number + 1 if passed else self._since.get(key, number) for key in inventory.waiting.texts
        }

    def _changed(self, number: int) -> None:
        for staged in reversed(self.staged_texts):  # what refers stands below
            edit = staged.entry.edit
            if edit is None or edit is (staged.stages[-1].edit if staged.stages else staged.arrival):
                continue
            first = self._since.get(id(staged.entry), number)
            for source in staged.entry.sources:
                for other in self._referrers.get(source, ()):
                    first = max([first, *(stage.first for stage in other.stages)])
            staged.stages.append(Stage(first, number, edit))

    def end(self, number: int) -> None:
        """What still waits after the last request would have gone as it does when the cache is cold."""
        self._progress.fold.request(Moment(idle=float("inf")))
        self._changed(number)
