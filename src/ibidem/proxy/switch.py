"""Off, and on again: which conversations get new edits.

What is off goes on by law 12: what its provider has stays as it was sent, what is new goes as it came. A conversation
has a switch of its own; the one for all also counts for those to come. All of it is in memory, and this proxy's alone.
Processes of one proxy (`--workers`) tell each other, by the name that a conversation has in the store.

A conversation that is let go to make room comes back under another name for the page. So that it comes back as it was,
the names in the store are kept of those that were off; and what branches off one that is off is off too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal

MAX_NAMES = 10_000
"""Names of conversations that are remembered after they were let go."""

WISH_HEADER = "x-ibidem"
"""By which a request says what is to become of its conversation, from itself on: `on` or `off`."""

Wish = Literal["on", "off"]


def wish(value: str) -> Wish | None:
    """What a header says; None for anything else, which changes nothing."""
    found = value.strip().lower()
    return "off" if found == "off" else "on" if found == "on" else None


class Switch:
    """What is known of it beside the conversations in use. Changed under the lock of who has these."""

    def __init__(self) -> None:
        self.all_off = False
        """Those that begin now are off."""
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._elsewhere: OrderedDict[str, None] = OrderedDict()
        """Names of conversations that another process of this proxy had when one of them was switched."""

    def turn_all(self, off: bool) -> None:
        self.all_off = off
        self._gone.clear()

    def let_go(self, name: str, off: bool) -> None:
        """One of this name is not in use any more."""
        if off:
            _remember(self._gone, name)

    def hear(self, names: Iterable[str], off: bool | None) -> None:
        """Another process has conversations of these names, and they were switched; None: not each by itself."""
        for name in names:
            _remember(self._elsewhere, name)
            if off:
                _remember(self._gone, name)
            elif off is not None:
                self.forget(name)

    def forget(self, name: str) -> None:
        """One of this name is on again."""
        self._gone.pop(name, None)

    def is_elsewhere(self, name: str) -> bool:
        return name in self._elsewhere

    def begins_off(self, name: str, further: bool, parent_off: bool) -> bool:
        """`further`: it comes with a history, so that it may be one that was here before, or a branch of its parent."""
        return self.all_off or (further and (parent_off or name in self._gone))


def _remember(names: OrderedDict[str, None], name: str) -> None:
    names[name] = None
    names.move_to_end(name)
    if len(names) > MAX_NAMES:
        names.popitem(last=False)
