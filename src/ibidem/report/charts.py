"""What the page is made of: texts, tables, and charts as SVG. All of it is HTML.

Styles are classes and sizes are attributes: the page's policy allows no inline styles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor
from typing import NamedTuple

from ..errors import one_line
from . import numbers
from .figures import SessionFigures
from .groups import share
from .numbers import ROUNDING, dollars, plural, sign
from .totals import saved_in

MAX_ROWS = 250
"""Rows of a list in the page; what is left out is said, and stands in `--json`."""
MAX_BARS = 600
"""Bars that a chart can show apart on a screen; where there are more, one stands for several."""
MIN_SHARE = -1.0
"""Below a loss of 100 % a bar is cut off: one bad session must not flatten all the others."""
MAX_BAR_PERCENT = 4.0
"""Percent of a chart's width that a bar has at most."""
MIN_BAR_PERCENT = 0.3
"""Percent of a chart's height that a bar has at least, so that something can be pointed at."""
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)


def text(value: str) -> str:
    """Nothing is markup, and control characters, direction marks and lone surrogates are spelt out."""
    return escape(one_line(value))


def percent(share: float | None, *, signed: bool = False) -> str:
    """As everywhere, but a `<` in it is no markup."""
    return escape(numbers.percent(share, signed))


def table(head: str, rows: str, label: str, look: str) -> str:
    """A wide one scrolls in its own frame, by keyboard too."""
    return (
        f'<div class="scroll {look}" role="region" aria-label="{label}" tabindex="0">'
        f"<table><thead>{head}</thead><tbody>{rows}</tbody></table></div>"
    )


def heads(fixed: Sequence[str], each: Sequence[str], looks: Mapping[str, str]) -> str:
    """Two lines: profiles stand side by side, each over its own columns."""
    first = "".join(f'<th rowspan="2">{name}</th>' for name in fixed)
    groups = "".join(
        f'<th class="group {look}" colspan="{len(each)}" scope="colgroup">{text(name)}</th>'
        for name, look in looks.items()
    )
    return f"<tr>{first}{groups}</tr><tr>{''.join(f'<th>{name}</th>' for name in each) * len(looks)}</tr>"


def cell(content: str, number: float) -> str:
    """What is below zero stands out, and what is nothing steps back."""
    look = ' class="neg"' if number < 0 else "" if number else ' class="zero"'
    return f"<td{look}>{content}</td>"


def share_cell(saved: float) -> str:
    return cell(percent(saved), saved)


def money_cell(amount: float) -> str:
    return cell(dollars(amount), amount)


def left_out(length: int) -> str:
    more = length - MAX_ROWS
    return (
        f'<p class="soft">… and {more:,} more: <code>ibidem report --json</code> has them all.</p>' if more > 0 else ""
    )


def counted(reasons: Iterable[str]) -> list[str]:
    return [f"{text(why)}: {count:,}" for why, count in Counter(reasons).most_common()]


def listed(what: str, items: Sequence[str], noun: str, count: int | None = None) -> str:
    if not items and not count:
        return ""
    lines = "".join(f"<li>{item}</li>" for item in items[:MAX_ROWS])
    head = f"<b>{plural(len(items) if count is None else count, noun)}</b> {what}"
    unfolded = " open" * (len(items) <= 8)
    return f"<details{unfolded}><summary>{head}</summary><ul>{lines}</ul>{left_out(len(items))}</details>"


def path_cell(path: str, title: str, name: str = "") -> str:
    """As the script writes it: the file with the session's name, and below it the folder."""
    cut = last_slash(path)
    file = f"{path[cut:]} ({name})" if name else path[cut:]
    lines = f"<span><bdi>{text(file)}</bdi></span><small><bdi>{text(path[:cut])}</bdi></small>"
    return f'<th scope="row" class="path" title="{text(title)}">{lines}</th>'


def last_slash(path: str) -> int:
    """Where the name begins. A slash at the very end belongs to it."""
    end = len(path) - 1
    return max(path.rfind("/", 0, end), path.rfind("\\", 0, end)) + 1 if path else 0


def saved_share(session: SessionFigures, profile: str) -> float:
    return tidy(saved_in(session, profile))


def tidy(saved: float) -> float:
    return 0.0 if abs(saved) < ROUNDING else saved


def compared(before: float, after: float) -> str:
    saved = tidy(share(before, after))
    if not saved:
        return "the same"
    word, look = ("less", "good") if saved > 0 else ("more", "neg")
    return f'<b class="{look}">{percent(abs(saved))} {word}</b>, {dollars(abs(before - after))}'


def bar(value: float, low: float, high: float, look: str) -> str:
    """A bar from zero to the value, on a scale from `low` (not above zero) to `high`. The number stands beside it."""
    span = (high - low) or 1.0
    zero, end = -low / span, (value - low) / span
    left, width = min(zero, end), abs(end - zero)
    axis = f'<rect class="axis" x="{zero:.2%}" width="1" height="100%"/>' if low < 0 else ""
    return (
        f'<svg class="bar {look}{" neg" * (value < 0)}" aria-hidden="true">{axis}'
        f'<rect class="v" x="{left:.2%}" width="{width:.2%}" height="100%"/></svg>'
    )


class Mark(NamedTuple):
    """One session in the chart of all."""

    share: float
    label: str


def ranking(marks: Sequence[Mark], low: float, high: float, look: str, caption: str) -> str:
    """What was saved by session, best first. `low` and `high` are those of all charts beside this one."""
    low, high = max(min(low, 0.0), MIN_SHARE), max(high, 0.0) or 0.01
    each = ceil(len(marks) / MAX_BARS)
    shown = [marks[min(start + each, len(marks)) - 1] for start in range(0, len(marks), each)]
    grid = "".join(_grid_line(tick, low, high) for tick in _ticks(low, high))
    bars = "".join(_bars(shown, low, high))
    several = f" Each bar stands for {each} sessions, and shows the one that saved least." if each > 1 else ""
    cut = f" Cut off at {percent(MIN_SHARE)}." if any(mark.share < MIN_SHARE for mark in marks) else ""
    return (
        f'<figure><svg class="ranking {look}" role="img" aria-label="{caption}">{grid}{bars}</svg>'
        f"<figcaption>{caption}.{several}{cut}</figcaption></figure>"
    )


def _ticks(low: float, high: float) -> Iterator[float]:
    tick = next((tick for tick in TICKS if (high - low) / tick <= 5), TICKS[-1])
    yield from (number * tick for number in range(ceil(low / tick), floor(high / tick) + 1))


def _grid_line(tick: float, low: float, high: float) -> str:
    """Bars fall from left to right: above zero there is room for the label on the right, below it on the left."""
    top = (high - tick) / (high - low)
    zero = abs(tick) < 1e-9
    across = f'<line class="{"axis" if zero else "grid"}" x1="0" x2="100%" y1="{top:.2%}" y2="{top:.2%}"/>'
    if zero:
        return across
    place = 'x="100%" text-anchor="end" dy="12"' if tick > 0 else 'x="0" dy="-4"'
    return f'{across}<text {place} y="{top:.2%}">{sign(tick)}{abs(tick):.0%}</text>'


def _bars(marks: Sequence[Mark], low: float, high: float) -> Iterator[str]:
    step = min(100 / len(marks), MAX_BAR_PERCENT)
    width = step * 0.8 if len(marks) <= 150 else step + 0.15  # many overlap a little: no seams between them
    for number, (saved, label) in enumerate(marks):
        height = max(abs(max(saved, MIN_SHARE)) / (high - low) * 100, MIN_BAR_PERCENT)
        zero = high / (high - low) * 100
        look, top = ("neg", zero) if saved < 0 else ("v", zero - height)
        yield (
            f'<rect class="{look}" x="{number * step:.2f}%" width="{width:.2f}%" y="{top:.2f}%" height="{height:.2f}%">'
            f"<title>{text(label)}: {percent(saved)} saved</title></rect>"
        )
