"""The page's section on profiles that change what had been sent: what that costs, why they did it, and for which
session it cost most. Empty where no profile does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .charts import money_cell, percent, share_cell, table, text, tidy
from .groups import Group, Profile, Worlds, share
from .names import Names
from .numbers import NO_NUMBER, dollars, plural

FINDS = {"hit": "what stands before the change", "miss": "nothing of the conversation"}
"""What a provider finds afterwards, by world."""

EXPLAINED = (
    "A change of what had been sent makes the provider write everything after it again; where it then finds nothing of "
    "the conversation, all of it. Rewrites are what that cost, compared with reading. The worst bill is that of the "
    "session with the highest one, as a share of its bill with nothing done."
)
HINDSIGHT = (
    " In hindsight, the same edits would have saved so much, had the moments for them been the best; reached is the "
    "share of it that was saved."
)


def changes(total: Group, names: Names, looks: Mapping[str, str]) -> str:
    """A table of all such profiles in both worlds, and a word on each."""
    revising = {name: total.profiles[name] for name in looks if total.profiles[name].changing}
    if not revising:
        return ""
    hindsight = any(world.best is not None for profile in revising.values() for world in profile.changing.values())
    rows = "".join(
        f'<tr><th scope="row">{text(name) if place == 0 else ""}</th><td class="text">{FINDS[world]}</td>'
        f"{_cells(each, total.baseline.cost, hindsight)}</tr>"
        for name, profile in revising.items()
        for place, (world, each) in enumerate(profile.changing.items())
    )
    more = "<th>in hindsight</th><th>reached</th>" if hindsight else ""
    head = (
        '<tr><th>profile</th><th class="text">after a change the provider finds</th><th>cost</th><th>saved</th>'
        f"<th>rewrites</th>{more}<th>worst bill</th><th>worst moment</th></tr>"
    )
    said = "\n".join(line for name, profile in revising.items() for line in _said(name, profile, names))
    note = EXPLAINED + (HINDSIGHT if hindsight else "")
    return f'{table(head, rows, "changes of what had been sent", "narrow")}\n{said}\n<p class="soft">{note}</p>'


def _cells(world: Worlds, base: float, hindsight: bool) -> str:
    cells = [money_cell(world.cost), share_cell(tidy(share(base, world.cost))), f"<td>{dollars(world.rewrites)}</td>"]
    if hindsight:
        best, reached = world.best, world.reached(base)
        cells.append(f"<td>{NO_NUMBER}</td>" if best is None else share_cell(tidy(share(base, best))))
        cells.append(f"<td>{percent(reached)}</td>")
    cells.append(_more(percent(world.ratio), world.ratio > 1 + 1e-9))
    cells.append(_more(percent(world.worst, signed=True) if world.worst_in else "never more", bool(world.worst_in)))
    return "".join(cells)


def _more(content: str, bad: bool) -> str:
    return f'<td class="neg">{content}</td>' if bad else f"<td>{content}</td>"


def _said(name: str, profile: Profile, names: Names) -> Iterator[str]:
    if profile.points:
        reasons = ", ".join(f"{text(reason)} {number:,}" for reason, number in profile.points.most_common())
        count = plural(profile.points.total(), "time")
        yield f"<p><b>{text(name)}</b> changed what had been sent {count}: {reasons}.</p>"
    highest = {names.linked(each.dearest): None for each in profile.changing.values() if each.dearest and each.dearer}
    worst = {names.linked(each.worst_in): None for each in profile.changing.values() if each.worst_in}
    for what, sessions in (("worst for", highest), ("at its worst moment in", worst)):
        if sessions:
            yield f"<p><b>{text(name)}</b> was {what} {' and, where nothing was found, '.join(sessions)}.</p>"
