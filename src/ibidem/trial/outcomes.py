"""Values for the statistics of a trial: samples, points and probes as classes and counts, without texts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Stratum(StrEnum):
    """How much the recorded next action depends on a reference, in descending order."""

    FOLLOWS = "follows"
    """The action edits a line that the last view of its file has only as a reference."""
    TOUCHES = "touches"
    """The action uses a file whose last view has a reference."""
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Sample:
    """One classified response of the model."""

    action: str
    """Class of the action: tool and main argument, for several calls as a sorted set, or `says` without a call."""
    looks_again: bool
    """The action reads lines that are in the request and have not changed since."""
    broken_edit: bool | None = None
    """The action edits a text that the request does not show; None without an edit that quotes text."""
    output_tokens: int = 0
    same_file: bool | None = None
    """The action uses a file of the recorded action; None if that uses no file."""
    edit_likeness: float | None = None
    """Similarity of the edited text to the recorded edit, from 0 to 1; None without a recorded edit."""


@dataclass(frozen=True, slots=True)
class PointResult:
    """A decision point with its valid samples. Refused, failed or truncated ones are dropped and counted elsewhere."""

    point: str
    """Id of the point, a digest."""
    session: str
    """Digest of the session. Points of one session are not independent."""
    stratum: Stratum
    weight: float
    """Number of recorded points that it represents."""
    recorded: str
    """Class of the recorded action."""
    original: tuple[Sample, ...]
    rewritten: tuple[Sample, ...]


class DroppedSamples(NamedTuple):
    """Number of samples that were dropped for one reason, by variant."""

    original: int
    rewritten: int
    only_original: int = 0
    only_rewritten: int = 0
    """Number of points at which it happened in this variant only."""


class ProbeKind(StrEnum):
    """Kind of text that a probe requests."""

    LINE = "line"
    BLOCK = "block"
    """Consecutive lines, verbatim."""
    WHICH = "which"
    """A line that had another text in an earlier view."""
    ABSENT = "absent"
    """A line that was never shown."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """One graded answer to a probe."""

    kind: ProbeKind
    inside: bool
    """The rewritten request has a reference instead of the requested text. All other probes are a control."""
    fits: int
    """Number of earlier results with the label of the reference; 0 without a reference."""
    right: bool
    """The answer equals the text in the original, after normalization."""
    ratio: float
    """Similarity to the right answer, from 0 to 1."""
    called: bool = False
    """The answer called a tool, against the instruction."""
    followed: bool | None = None
    """The answer has the text that the altered reference points at; None without an altered reference."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Answers to one probe: with the original, the rewritten and the altered request."""

    point: str
    original: ProbeAnswer
    rewritten: ProbeAnswer
    altered: ProbeAnswer | None = None
