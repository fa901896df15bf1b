"""Another system's habits, to the byte: what CodeTether's `context` does to a history, each habit a strategy.

- `snippet`: large old results keep their head and their tail.
- `lingua`: white space and rules in old assistant text go.
- `thinking`: old thinking goes. `tool_calls`: arguments of old calls that were made before.
- `middle`: the middle of a long conversation goes.

They are here to compare with, and for those who come from there. So nothing in them is improved: a difference from the
original is a fault even where the original is odd, and each that we know of is said beside it. Their wording is in
`markers.codetether`. Tests: tests/strategies/test_ported.py, with what the original gave for each case.
"""

from .lingua import Lingua
from .middle import DropMiddle
from .snippet import Snippet
from .thinking import PruneThinking
from .tool_calls import DedupToolCalls

__all__ = ["DedupToolCalls", "DropMiddle", "Lingua", "PruneThinking", "Snippet"]
