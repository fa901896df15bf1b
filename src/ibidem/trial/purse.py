"""The money of a trial: a call is sent only if the most that it can cost is there."""

from __future__ import annotations

import asyncio

from .ledger import TrialLedger


class OutOfMoney(Exception):
    pass


class Purse:
    """What is left of a budget, less what calls under way can cost."""

    def __init__(self, ledger: TrialLedger) -> None:
        self._ledger = ledger
        self._held = 0.0
        self._calls = 0
        self._changed = asyncio.Condition()

    @property
    def left(self) -> float:
        return self._ledger.budget - self._ledger.spent - self._held

    async def hold(self, dollars: float) -> None:
        """Waits until there is room. Raises OutOfMoney if nothing is under way that could leave some."""
        async with self._changed:
            while dollars > self.left:
                if not self._calls:
                    raise OutOfMoney
                await self._changed.wait()
            self._held += dollars
            self._calls += 1

    async def free(self, dollars: float) -> None:
        async with self._changed:
            self._held -= dollars
            self._calls -= 1
            if not self._calls:
                self._held = 0.0  # whatever rounding left
            self._changed.notify_all()
