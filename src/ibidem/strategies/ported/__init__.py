"""Strategies of two other systems, exact. codetether-agent: each strategy does what one pass does to a history.

- `thinking`, `dedup` (two passes), `lingua`, `snippet`, `middle`: one pass each. `pairing`: the last pass, whose
  strategy is `strategies.repair.RepairPairing(by_place=False)`.
- `devboy`: the response pipeline of devboy-format-pipeline (`ibidem.cache`), run over the results of a history.
- `exact`: how codetether counts messages, and `ProviderDemands`, which records where a provider outranks the original.

Nothing here is improved. A difference from the original is a fault, unless the provider would reject the result; those
are listed in docs/profiles.md. The texts are in `markers.codetether`, the public functions in `ibidem.codetether`.
Tests: tests/seeds, against a second implementation.
"""

from .dedup import Dedup, DedupToolCalls
from .devboy import Devboy
from .lingua import Lingua
from .middle import DropMiddle
from .snippet import Snippet
from .thinking import PruneThinking

__all__ = ["Dedup", "DedupToolCalls", "Devboy", "DropMiddle", "Lingua", "PruneThinking", "Snippet"]
