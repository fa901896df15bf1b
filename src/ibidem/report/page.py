"""The report as one self-contained HTML page: no network, no foreign scripts, light and dark, printable.

`page.html`, `summary.html` and `sections.html` have the markup, this module the values. The table of sessions
may have thousands of rows, so it is sent as data, and the page's script makes the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice
from statistics import median
from types import MappingProxyType
from typing import IO, NamedTuple

from .. import __version__
from ..render.charts import ChartPoint, Ranking, rank_points
from ..render.number_format import ROUNDING, dollars, drop_rounding, plural, tokens
from ..render.templates import fill_template, page_assets, read_asset
from . import caching_section
from .aggregate import RepeatTotals, Report, ReportRow, ScenarioTotals
from .footnotes import restored_notes
from .headline import logged_line, need_line, next_step, share_text, wrap_command
from .session_names import Links, SessionLinks
from .session_result import NOTHING_DONE, Removal, SendCost, SessionResult
from .session_table import session_table
from .timeline import TimeSlots, time_slots

COLOURED_PROFILES = 4
"""Number of colors for profiles. The name is always next to the color."""
NAMED_MODELS = 6
NAMED_REPEATS = 6
"""Tools, and files, on the first screen; the sections below have all."""


def write_page(report: Report, stream: IO[str], links: Links = MappingProxyType({})) -> None:
    """Write the page. `links` names the pages with details of sessions."""
    names = SessionLinks(report, links)
    profiles = report.profiles if report.sessions else ()
    looks = {name: f"p{number % COLOURED_PROFILES}" for number, name in enumerate(profiles)}
    slots = time_slots(report)
    page = _ReportPage(report, looks, slots)
    stream.write(
        fill_template(
            "report/page.html",
            **page_assets(read_asset(__package__, "page.css"), read_asset(__package__, "page.js")),
            version=__version__,
            report=report,
            total=report.total,
            names=names,
            looks=looks,
            slots=slots,
            page=page,
            table=session_table(report, names, looks) if names.known else None,
            caching=caching_section,
            zip=zip,
            NOTHING_DONE=NOTHING_DONE,
            NAMED_MODELS=NAMED_MODELS,
            NO_REMOVAL=Removal(),
        )
    )


class ProfileVerdict(NamedTuple):
    """How many sessions a profile makes cheaper and more expensive, and the worst sessions."""

    cheaper: int
    same: int
    more: int
    worst: SessionResult | None
    """The session with the lowest saving; None if no session cost more."""
    worst_moment: SessionResult | None
    """The session with the highest extra cost at any time; None if no session ever was more expensive."""


class ContextRow(NamedTuple):
    """A row of the section about context sizes: a profile, or the baseline."""

    what: str
    look: str
    spent: SendCost
    median_peak: float


class _ReportPage:
    """Computed values for the templates."""

    def __init__(self, report: Report, looks: Mapping[str, str], slots: TimeSlots) -> None:
        self.report, self.total, self.looks, self.slots = report, report.total, looks, slots

    # --- the first screen -----------------------------------------------------------------------

    @property
    def period(self) -> str:
        """The requested period in words, or else the first and the last day."""
        rows = self.slots.shown
        if self.report.asked.period or not rows:
            return self.report.asked.period
        return " to ".join(dict.fromkeys((rows[0].key[0], rows[-1].key[0])))

    def paid_notes(self) -> Iterable[str]:
        row = self.total
        sessions, requests = len(row.sessions) or len(row.replayed), row.requests or row.session_requests
        if row.counted:
            yield f"{dollars(row.input)} input, {dollars(row.output)} output"
        else:
            yield "The logs record no usage."
            yield f"Input, by our replay: {dollars(row.baseline.cost)}"
        yield f"{plural(sessions, 'session')}, {plural(requests, 'request')}"
        if 0 < row.counted < requests:
            yield f"{requests - row.counted:,} without recorded usage"

    @property
    def logged(self) -> str:
        return logged_line(self.total)

    @property
    def next_step(self) -> str:
        return next_step(self.report)

    @property
    def command(self) -> str:
        return wrap_command(self.report)

    @property
    def saving_keys(self) -> list[tuple[str, str]]:
        return [(look, f"{name} would have saved") for name, look in self.looks.items()]

    def most_repeated(self, totals: Mapping[str, RepeatTotals]) -> list[tuple[str, list[float]]]:
        """Tools or files with a saving, by the saving of the first profile."""
        savings = {
            name: [each.profiles[profile].cost if profile in each.profiles else 0.0 for profile in self.looks]
            for name, each in totals.items()
        }
        by_saving = sorted(savings.items(), key=lambda pair: -pair[1][0]) if self.looks else []
        return list(islice((pair for pair in by_saving if max(pair[1]) > 0), NAMED_REPEATS))

    # --- sections -------------------------------------------------------------------------------

    @cached_property
    def highest_cost(self) -> float:
        check = self.total.recorded
        costs = [self.total.baseline.cost, *(self.total.profiles[name].spent.cost for name in self.looks)]
        if check:
            costs.append(check.cost)
            if check.requests < self.total.session_requests:
                costs.append(check.baseline)
        return max(costs)

    @cached_property
    def _saved_shares(self) -> dict[str, list[tuple[float, SessionResult]]]:
        """Profile → saved share of each session, with the session; the best first."""
        by_profile = {name: self.report.rank_sessions(name) for name in self.looks}
        return {
            name: [(drop_rounding(each.saved_share(name)), each) for each in some] for name, some in by_profile.items()
        }

    def ranking(self, name: str) -> Ranking:
        shares = [share for ranked in self._saved_shares.values() for share, _ in ranked]
        names = SessionLinks(self.report, {})
        points = [ChartPoint(share, names.title(session)) for share, session in self._saved_shares[name]]
        return rank_points(points, min(shares), max(shares))

    def verdict(self, name: str) -> ProfileVerdict:
        sessions, dearer_count = self.report.sessions, self.total.more_expensive(name)
        cheaper = sum(share > 0 for share, _ in self._saved_shares[name])
        was_above = self.total.profiles[name].worst > ROUNDING
        return ProfileVerdict(
            cheaper,
            len(sessions) - cheaper - dearer_count,
            dearer_count,
            min(sessions, key=lambda session: session.saved_share(name)) if dearer_count else None,
            max(sessions, key=lambda session: session.profiles[name].worst) if was_above else None,
        )

    def need_notes(self, name: str) -> tuple[str, ...]:
        """Why the saving of a profile is less than the difference of both costs."""
        needs = self.total.profiles[name].needs if name in self.total.profiles else 0
        return (f"net of one more request for each of {needs:,} that used evicted text later",) if needs else ()

    def share_text(self, name: str) -> str:
        return share_text(self.total, name)

    def need_line(self, name: str) -> str:
        return need_line(name, self.total)

    def strategy_rows(self, name: str) -> list[tuple[str, str, str, float]]:
        profile = self.total.profiles[name]
        by_saving = sorted(profile.strategies.items(), key=lambda pair: -pair[1].cost)
        rows = [(what, f"{each.hits:,}", tokens(each.tokens), each.cost) for what, each in by_saving]
        saving = self.total.baseline.cost - profile.spent.cost
        remainder = saving - sum(each.cost for each in profile.strategies.values())
        if abs(remainder) > 0.001 * abs(saving):
            rows.append(("not due to one strategy", "", "", remainder))
        return rows

    @cached_property
    def strategy_scale(self) -> tuple[float, float]:
        costs = [0.0, *(row[-1] for name in self.looks for row in self.strategy_rows(name))]
        return min(costs), max(costs)

    def by_cost(self, groups: Mapping[str, ReportRow]) -> list[tuple[str, ReportRow]]:
        return sorted(groups.items(), key=lambda pair: -pair[1].baseline.cost)

    def by_removal(self, totals: Mapping[str, RepeatTotals]) -> list[tuple[str, RepeatTotals]]:
        """Tools or files by the tokens that a profile removes, the most first."""

        def sort_key(pair: tuple[str, RepeatTotals]) -> tuple[float, float]:
            most = max((removal.tokens for removal in pair[1].profiles.values()), default=0.0)
            return -most, -pair[1].results.tokens

        return sorted(totals.items(), key=sort_key)

    def context_rows(self) -> list[ContextRow]:
        sessions = self.report.sessions
        peak = median(session.baseline.peak for session in sessions)
        rows = [ContextRow(NOTHING_DONE, "nothing", self.total.baseline, peak)]
        for name, look in self.looks.items():
            peak = median(session.profiles[name].spent.peak for session in sessions)
            rows.append(ContextRow(name, look, self.total.profiles[name].spent, peak))
        return rows

    # --- revisions ------------------------------------------------------------------------------

    @cached_property
    def revising(self) -> dict[str, dict[str, ScenarioTotals]]:
        """Scenarios of the profiles that changed text already sent."""
        return {name: self.total.revision_scenarios(name) for name in self.looks if self.total.revision_scenarios(name)}

    @property
    def has_optimum(self) -> bool:
        return any(each.best is not None for scenarios in self.revising.values() for each in scenarios.values())

    def revision_reasons(self, name: str) -> list[tuple[str, int]]:
        return Counter(self.total.profiles[name].points).most_common()

    def worst_revisions(self, name: str) -> Iterable[tuple[str, list[SessionResult]]]:
        scenarios = self.revising[name].values()
        highest = [each.highest for each in scenarios if each.highest and each.more_expensive]
        worst = [each.worst_in for each in scenarios if each.worst_in]
        for what, sessions in (("worst for", highest), ("worst at any time in", worst)):
            if sessions:
                yield what, list({session.key: session for session in sessions}.values())

    # --- notes ----------------------------------------------------------------------------------

    def assumed_prices(self) -> list[str]:
        return [f"{model or '(none named)'}: as {other}" for model, other in self.report.priced_as.items()]

    @property
    def skip_reasons(self) -> Counter[str]:
        return Counter(why for session in self.report.sessions for _, why in session.skipped)

    def counts(self, reasons: Counter[str]) -> list[str]:
        return [f"{why}: {count:,}" for why, count in reasons.most_common()]

    def unread(self) -> list[str]:
        return [f"{each.path}: {each.why}" for each in self.report.unread]

    def restored_notes(self) -> list[str]:
        return list(restored_notes(self.report))
