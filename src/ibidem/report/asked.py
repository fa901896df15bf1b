"""A session with caching asked for in another way, alone and with every profile: what that would have cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..billing.budget import Economy
from ..billing.prices import economy_of
from ..replay.billing import Bill, Replay, Told
from ..replay.caching import CachingName, Keeping, cached_bill
from ..replay.simulate import Simulation
from ..strategies import profiles
from ..strategies.strategy import Strategy
from .figures import NOTHING_DONE

Simulate = Callable[[Sequence[Strategy], Economy, Told], Simulation]


def asked_for(
    caching: CachingName,
    replay: Replay,
    economy: Economy,
    simulations: Mapping[str, Simulation],
    simulate: Simulate,
) -> dict[str, Bill]:
    """The bill with nothing done, and with every profile. A profile that changes what had been sent does so for other
    reasons where caching costs something else, so it is simulated again. `auto` knows nothing of the user beforehand:
    of the pauses in other sessions, none is known inside of one."""
    found = {NOTHING_DONE: cached_bill(replay, None, caching)}
    for name, simulation in simulations.items():
        strategies = profiles.named(name)
        if caching == "recorded" or all(each.final for each in strategies):
            found[name] = cached_bill(replay, simulation.views, caching)
        else:
            keeping = Keeping(replay, caching)
            simulated = simulate(strategies, _economy(caching, replay, economy), keeping.told())
            found[name] = keeping.finish(simulated.views)
    return found


def _economy(caching: CachingName, replay: Replay, recorded: Economy) -> Economy:
    """What looking back has to reckon with: the lifetime that is asked for."""
    if caching == "auto":
        return recorded
    return replace(economy_of(replay.steps[0].price, caching == "1h"), keeps_thinking=recorded.keeps_thinking)
