"""What was asked and what came back, as far as the statistics are concerned: classes and counts, never texts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Stratum(StrEnum):
    """How much the next action has to do with a reference, the most first."""

    FOLLOWS = "follows"
    """It edits a line that the last view of its file shows only through a reference."""
    TOUCHES = "touches"
    """It is on a file whose last view holds a reference."""
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer of the model."""

    action: str
    """Its class: tool and main argument, several calls as a sorted set in one line; `says` without a call."""
    looks_again: bool
    """It reads what stands, unchanged since, in the request."""
    broken_edit: bool | None = None
    """It edits a text that the request does not show; None where it edits nothing that can be told of."""
    output_tokens: int = 0
    same_file: bool | None = None
    """It is on a file that the recorded action is on; None where that is on none."""
    edit_likeness: float | None = None
    """How much of what its edits put in is alike what was put in then, of 1; None where nothing was."""


@dataclass(frozen=True, slots=True)
class PointResult:
    """A decision point and the answers to it. Arms may have fewer answers than were asked: what was refused, failed or
    cut off is dropped, and counted elsewhere."""

    point: str
    """A digest that names it."""
    session: str
    """A digest; points of a session are not independent of each other."""
    stratum: Stratum
    weight: float
    """Points of the recordings that it stands for."""
    recorded: str
    """The class of what the agent did."""
    original: tuple[Sample, ...]
    rewritten: tuple[Sample, ...]


class DroppedAnswers(NamedTuple):
    """Answers that do not count, for one reason."""

    original: int
    rewritten: int
    only_original: int = 0
    only_rewritten: int = 0
    """Points at which it happened in one arm and not in the other."""


class ProbeKind(StrEnum):
    """What a probe asks for."""

    LINE = "line"
    BLOCK = "block"
    """Lines one after the other, verbatim."""
    WHICH = "which"
    """A line that was shown with other words before."""
    ABSENT = "absent"
    """A line that was never shown."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """One answer to a probe."""

    kind: ProbeKind
    inside: bool
    """In the rewritten request a reference stands for what is asked for. Everything else is a control."""
    fits: int
    """Earlier results that the reference's label fits; 0 without a reference."""
    right: bool
    """It says what the original says, to the letter."""
    ratio: float
    """How much of it is alike, of 1."""
    called: bool = False
    """It called a tool, although it was asked not to."""
    followed: bool | None = None
    """Whether it says what an altered number points at; None where none was altered."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A question and its answers: to the original, the rewritten and the altered request."""

    point: str
    original: ProbeAnswer
    rewritten: ProbeAnswer
    altered: ProbeAnswer | None = None
