"""Requests of a session that their provider would refuse by its rules."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import compress, islice

from .. import formats, rules
from ..model import Conversation, Message
from ..recordings import Recording


def invalid_in(
    session: Recording, messages: Sequence[Sequence[Message]], counted: Sequence[bool]
) -> tuple[int, int, dict[str, int]]:
    """Requests that break a rule of their provider, those among them that it counted, and how many break which rule.
    What is wrong in a history is wrong in every longer one."""
    dialect = formats.named(session.format)
    invalid, accepted, broken = 0, 0, Counter[str]()
    rest = iter(counted)
    for segment, history in zip(session.segments, messages, strict=True):
        here = list(islice(rest, len(segment.requests)))
        lengths = [sent.length for sent in segment.requests]
        found: dict[str, int] = {}
        whole = Conversation(tuple(history[: lengths[-1]]), dialect, session.head)
        for violation in rules.violations(whole):
            index = re.search(r"\[(\d+)\]", violation.position)
            place = int(index[1]) if index else 0
            found[violation.rule] = min(place, found.get(violation.rule, place))
        first = {rule: bisect_right(lengths, place) for rule, place in found.items()}
        start = min(first.values(), default=len(lengths))
        wrong = list(compress(segment.requests[start:], here[start:]))
        invalid += len(wrong)
        accepted += sum(sent.usage is not None for sent in wrong)
        broken.update({rule: sum(here[number:]) for rule, number in first.items()})
    return invalid, accepted, {rule: number for rule, number in broken.items() if number}
