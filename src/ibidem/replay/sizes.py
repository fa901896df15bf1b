"""How large every request of a recorded session was.

Where a log has usage, a request is as large as the last recorded one plus `scale` times our weighed count of what was
added since (`billing.calibration`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..billing.calibration import scale_of
from ..recordings import RecordedRequest, RecordedSegment


def fitted(segments: Sequence[tuple[RecordedSegment, Sequence[float]]], model: str) -> float:
    """How much larger than our weighed count the provider finds what this model is sent.

    Each segment comes with its sizes, summed up: `sums[n]` is the size of its first n entries.
    """
    return scale_of(_grown(segments, model))


def _grown(segments: Sequence[tuple[RecordedSegment, Sequence[float]]], model: str) -> Iterator[tuple[float, float]]:
    for segment, sums in segments:
        for first, second in pairwise(segment.requests):
            if first.usage and second.usage and first.model == second.model == model:
                yield sums[second.length] - sums[first.length], second.usage.input - first.usage.input


def anchored(segment: RecordedSegment, sums: Sequence[float], scale: dict[str, float], head: float) -> list[float]:
    """The size of every request of a segment. `head` is what they carry beside their history, if no usage tells."""
    found: list[float] = []
    last: RecordedRequest | None = None
    for sent in segment.requests:
        factor = scale[sent.model]
        if last is not None and last.usage:
            found.append(last.usage.input + factor * (sums[sent.length] - sums[last.length]))
        elif sent.usage:
            found.append(float(sent.usage.input))
        else:
            grown = found[-1] + factor * (sums[sent.length] - sums[last.length]) if last else 0.0
            found.append(grown or head + factor * sums[sent.length])
        last = sent
    return found
