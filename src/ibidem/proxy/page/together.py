"""What several processes of one proxy say, as one: the object of /ibidem/api/state, summed.

Counts and dollars are added up, by name where they have one. Of settings all have the same. The time is that of the
newest, the start that of the oldest. Lists (conversations, events, what is off) are joined, the newest first; what is
listed is bounded as for one process. Figures of a process that is gone are counted as they were last known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..books.records import MAX_CONVERSATIONS, MAX_EVENTS

State = Mapping[str, Any]


def summed(states: Sequence[State], fleet: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The first is a whole one; others may lack lists. `fleet` says what is known of the processes themselves."""
    if fleet is None:
        return dict(states[0])
    return {
        **states[0],
        **counted(states),
        "workers": dict(fleet),
        "memory": added(each.get("memory", {}) for each in states),
        "now": max(each["now"] for each in states if "now" in each),
        "started": min(each["started"] for each in states if "started" in each),
        "conversations": _newest(_all(states, "conversations"), "last")[:MAX_CONVERSATIONS],
        "all_off": any(each.get("all_off") for each in states),
        "off": _all(states, "off"),
        "ledger": max((each["ledger"] for each in states if "ledger" in each), key=lambda one: bool(one["trouble"])),
    }


def counted(states: Sequence[State]) -> dict[str, Any]:
    """What is still true of processes that are gone."""
    return {
        "totals": added(each.get("totals", {}) for each in states),
        "rewriting": added(each.get("rewriting", {}) for each in states),
        "lookups": added(each.get("lookups", {}) for each in states),
        "failures": _by("reason", _all(states, "failures"), "count"),
        "strategies": _by("name", _all(states, "strategies"), "tokens"),
        "events": _newest(_all(states, "events"), "at")[:MAX_EVENTS],
    }


def added(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers by name, and names below these likewise."""
    total: dict[str, Any] = {}
    for each in found:
        for name, value in each.items():
            if isinstance(value, Mapping):
                total[name] = added((total.get(name, {}), value))
            else:
                total[name] = total.get(name, 0) + value
    return total


def _all(states: Iterable[State], name: str) -> list[Any]:
    return [one for each in states for one in each.get(name, ())]


def _newest(rows: Iterable[Any], when: str) -> list[Any]:
    return sorted(rows, key=lambda row: row[when], reverse=True)


def _by(name: str, rows: Iterable[Mapping[str, Any]], most: str) -> list[dict[str, Any]]:
    """Rows of the same name as one, those with the most first."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row[name], Counter()).update({key: value for key, value in row.items() if key != name})
    return [{name: key, **figures} for key, figures in sorted(found.items(), key=lambda one: -one[1][most])]
