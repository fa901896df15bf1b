"""Print the plan of a trial with its cost, and the result."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from ...errors import one_line
from ...render.number_format import dollars, percent, plural, tokens
from ...trial.driver import TrialHooks
from ...trial.evalue import harm
from ...trial.export import as_json as as_values
from ...trial.ledger import TrialLedger, TrialSetup
from ...trial.order import by_stratum
from ...trial.outcomes import PointResult, Stratum
from ...trial.page import write_trial_page
from ...trial.planning import TrialPlan
from ...trial.probed import probe_values, tally
from ...trial.stats import judge, needed
from ...trial.terminal import draw_verdict
from ...trial.verdict import Setting
from ..errors import say
from ..options import echo_json
from ..writing import output

STRATA: dict[Stratum, str] = {
    Stratum.FOLLOWS: "must follow a reference",
    Stratum.TOUCHES: "on a file with a reference",
    Stratum.ANY: "any other",
}
"""The agent's next action, in words."""


def told_plan(plan: TrialPlan, setup: TrialSetup, base: str, *, as_json: bool, dry_run: bool) -> None:
    """Print the plan. `base` is the base URL that requests are sent to."""
    if as_json:
        echo_json({**_plan_values(plan, setup), "address": base})
        return
    for line in _plan_lines(plan, setup, base):
        click.echo(one_line(line), err=not dry_run)


def _plan_values(plan: TrialPlan, setup: TrialSetup) -> dict[str, Any]:
    forecast, counts = plan.forecast, by_stratum(plan.points)
    return {
        "model": setup.model,
        "format": setup.format,
        "profile": setup.profile,
        "seed": setup.seed,
        "samples": setup.samples,
        "budget": setup.budget or None,
        "sessions": len(plan.sessions),
        "points": {str(name): counts[name] for name in Stratum},
        "recordings": {"requests": setup.requests, "points": dict(setup.population)},
        "calls": forecast.calls,
        **({"probes": forecast.probes // 2} if setup.probes else {}),
        "tokens": {"input": round(forecast.input), "read": round(forecast.read), "output": round(forecast.output)},
        "dollars": {"expected": forecast.dollars, "most": _most(plan, setup)},
        "saving": {"paid": setup.paid, "saved": setup.saved},
        "notes": list(setup.notes),
    }


def _most(plan: TrialPlan, setup: TrialSetup) -> float:
    return min(plan.forecast.most, setup.budget or plan.forecast.most)


def _plan_lines(plan: TrialPlan, setup: TrialSetup, base: str) -> list[str]:
    forecast, counts = plan.forecast, by_stratum(plan.points)
    answers = plural(setup.samples, "sample")
    about = f"{plural(len(plan.points), 'point')} of {plural(len(plan.sessions), 'session')}, {answers} of each request"
    rewritten = sum(setup.population.values())
    lines = [
        f"Calling {setup.model} for {about}, profile {setup.profile}, seed {setup.seed}.",
        f"Requests are sent to {base}.",
        "",
        f"{'next action of the agent':<28}{'recorded':>10}{'share':>8}{'planned':>9}",
    ]
    for name, words in STRATA.items():
        number = setup.population.get(name, 0)
        lines.append(f"{words:<28}{number:>10,}{percent(number / max(1, setup.requests)):>8}{counts[name]:>9}")
    none = setup.requests - rewritten
    lines += [f"{'not rewritten':<28}{none:>10,}{percent(none / max(1, setup.requests)):>8}{0:>9}", ""]
    read = percent(forecast.read / forecast.input) if forecast.input else percent(None)
    lines.append(
        f"{plural(forecast.calls, 'call')}: {tokens(forecast.input)} tokens in ({read} read from the cache), "
        f"{tokens(forecast.output)} out."
    )
    if forecast.probes:
        asked = f"{plural(forecast.probes // 2, 'probe')} after the requests of each variant"
        lines.append(f"They include {asked}: can the model follow a reference?")
    elif setup.probes:
        lines.append("No probes: these requests do not re-read a file with line numbers.")
    lines.append(f"About {dollars(forecast.dollars)}, at most {dollars(_most(plan, setup))}.")
    if setup.margin is not None:
        lines.append(
            f"On these sessions, the profile saves {percent(setup.saved / setup.paid)} of the total cost. "
            f"{setup.margin:.1f} extra requests per 100 rewritten ones would use up these savings."
        )
    elif setup.paid > 0:
        lines.append("On these sessions, the profile has no savings at these prices.")
    lines += [f"Note: {note}." for note in setup.notes]
    return lines


# ── result ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def hooks(setup: TrialSetup) -> TrialHooks:
    """Return the statistics that may stop the trial early."""
    margin = setup.margin
    if margin is None or setup.exact:
        return TrialHooks(harm=harm)
    return TrialHooks(harm=harm, needed=lambda points: needed(points, margin, samples=setup.samples))


def told(ledger: TrialLedger, *, as_json: bool, page: str | None) -> None:
    """Print the verdict, and write the page if `page` is set."""
    setup, points = ledger.setup, ledger.results()
    if not points:
        say("no result yet: no decision point has samples of both variants")
        if not as_json and page is None:
            return
    judgement = judge(points, seed=setup.seed)
    probes = tally(ledger.probed(), ledger.probes_dropped())
    setting = Setting(
        model=setup.model,
        date=f"{datetime.fromtimestamp(setup.started, UTC):%Y-%m-%d}",
        profile=setup.profile,
        samples=setup.samples,
        margin=setup.margin,
        spent=ledger.spent,
        saved=setup.saved if setup.saved > 0 else None,
        drops=ledger.dropped(),
        thinking=ledger.thinks,
        filled=_filled(ledger),
        planned=ledger.planned,
        rewritten=(sum(setup.population.values()), setup.requests),
        stopped=ledger.stopped == "harm",
        left=_left(setup, points),
    )
    if as_json:
        asked = {} if probes is None else {"probes": probe_values(probes)}
        echo_json({**as_values(judgement, setting), **asked}, err=page == "-")
    else:
        draw_verdict(judgement, setting, sys.stderr if page == "-" else sys.stdout, probes=probes)
    with output(page) as write:  # last, so that a failure does not hide the verdict, which cost money
        if page is not None:
            text = io.StringIO()
            write_trial_page(judgement, setting, text, probes)
            write(text.getvalue().encode("utf-8", "replace"))


def _filled(ledger: TrialLedger) -> tuple[str, ...]:
    """Return notes about the requests that a reader of the verdict must know."""
    untold = () if ledger.tells_of_thinking else ("thinking that the profile removes was not tested",)
    refused = (ledger.rung.words,) if ledger.rung and ledger.rung.words not in ledger.setup.notes else ()
    return (*ledger.setup.notes, *refused, *untold)


def _left(setup: TrialSetup, points: Sequence[PointResult]) -> dict[Stratum, int]:
    asked = {point.stratum for point in points}
    return {name: count for name in Stratum if name not in asked and (count := setup.population.get(name, 0))}
