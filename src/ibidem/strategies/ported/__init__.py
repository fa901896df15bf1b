"""Strategies of two other systems, exact. codetether-agent: each strategy does what one pass does to a history.

- `prune_thinking`, `dedup` (two passes), `lingua`, `snippet`, `drop_middle`: one pass each. `id_pairing`: the last
  pass, whose strategy is `strategies.repair.RepairPairing(by_place=False)`.
- `devboy`: the response pipeline of devboy-format-pipeline (`ibidem.cache`), run over the results of a history.
- `ported_strategy`: the base class, and the history as codetether counts it. `signed_thinking`: edits that signed
  thinking allows. `ProviderDemands` records if a provider's demands outrank the original.

Do not improve the algorithms. A difference from the original is a bug, unless the provider would reject the result;
docs/profiles.md lists those. The texts are in `markers.codetether`, the public functions in `ibidem.codetether`.
Tests: tests/seeds, against a second implementation.
"""

from .dedup import Dedup, DedupToolCalls
from .devboy import Devboy
from .drop_middle import DropMiddle
from .lingua import Lingua
from .prune_thinking import PruneThinking
from .snippet import Snippet

__all__ = ["Dedup", "DedupToolCalls", "Devboy", "DropMiddle", "Lingua", "PruneThinking", "Snippet"]
