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
from ...trial.evalue import harm_evalue
from ...trial.export import verdict_json as as_values
from ...trial.outcomes import PointResult, Stratum
from ...trial.page import write_trial_page
from ...trial.planning import TrialPlan
from ...trial.probe_results import probe_values, tally_probes
from ...trial.run_log import RunLog, TrialSetup
from ...trial.schedule import count_by_stratum
from ...trial.terminal import draw_verdict
from ...trial.trial_runner import TrialHooks
from ...trial.trial_statistics import compute_statistics, required_points
from ...trial.verdict import TrialConditions
from ..command_errors import print_error
from ..options import echo_json
from ..output_file import open_output

STRATUM_NAMES: dict[Stratum, str] = {
    Stratum.FOLLOWS: "must follow a reference",
    Stratum.TOUCHES: "on a file with a reference",
    Stratum.ANY: "any other",
}
"""The agent's next action, in words."""


def print_plan(plan: TrialPlan, setup: TrialSetup, base: str, *, as_json: bool, dry_run: bool) -> None:
    """Print the plan. `base` is the base URL that requests are sent to."""
    if as_json:
        echo_json({**_plan_values(plan, setup), "address": base})
        return
    for line in _plan_lines(plan, setup, base):
        click.echo(one_line(line), err=not dry_run)


def _plan_values(plan: TrialPlan, setup: TrialSetup) -> dict[str, Any]:
    forecast, counts = plan.forecast, count_by_stratum(plan.points)
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
        "tokens": {
            "input": round(forecast.input_tokens),
            "read": round(forecast.read),
            "output": round(forecast.output),
        },
        "dollars": {"expected": forecast.dollars, "most": _max_dollars(plan, setup)},
        "saving": {"paid": setup.paid, "saved": setup.saved},
        "notes": list(setup.notes),
    }


def _max_dollars(plan: TrialPlan, setup: TrialSetup) -> float:
    return min(plan.forecast.max_dollars, setup.budget or plan.forecast.max_dollars)


def _plan_lines(plan: TrialPlan, setup: TrialSetup, base: str) -> list[str]:
    forecast, counts = plan.forecast, count_by_stratum(plan.points)
    sample_text = plural(setup.samples, "sample")
    scope = (
        f"{plural(len(plan.points), 'point')} of {plural(len(plan.sessions), 'session')}, {sample_text} of each request"
    )
    rewritten_count = sum(setup.population.values())
    lines = [
        f"Calling {setup.model} for {scope}, profile {setup.profile}, seed {setup.seed}.",
        f"Requests are sent to {base}.",
        "",
        f"{'next action of the agent':<28}{'recorded':>10}{'share':>8}{'planned':>9}",
    ]
    for name, words in STRATUM_NAMES.items():
        number = setup.population.get(name, 0)
        lines.append(f"{words:<28}{number:>10,}{percent(number / max(1, setup.requests)):>8}{counts[name]:>9}")
    unchanged_count = setup.requests - rewritten_count
    lines += [
        f"{'not rewritten':<28}{unchanged_count:>10,}{percent(unchanged_count / max(1, setup.requests)):>8}{0:>9}",
        "",
    ]
    read_share = percent(forecast.read / forecast.input_tokens) if forecast.input_tokens else percent(None)
    lines.append(
        f"{plural(forecast.calls, 'call')}: {tokens(forecast.input_tokens)} tokens in ({read_share} read from the"
        f" cache), {tokens(forecast.output)} out."
    )
    if forecast.probes:
        probe_text = f"{plural(forecast.probes // 2, 'probe')} after the requests of each variant"
        lines.append(f"They include {probe_text}: can the model follow a reference?")
    elif setup.probes:
        lines.append("No probes: these requests do not re-read a file with line numbers.")
    lines.append(f"About {dollars(forecast.dollars)}, at most {dollars(_max_dollars(plan, setup))}.")
    if setup.saving_margin is not None:
        lines.append(
            f"On these sessions, the profile saves {percent(setup.saved / setup.paid)} of the total cost. "
            f"{setup.saving_margin:.1f} extra requests per 100 rewritten ones would use up these savings."
        )
    elif setup.paid > 0:
        lines.append("On these sessions, the profile has no savings at these prices.")
    lines += [f"Note: {note}." for note in setup.notes]
    return lines


# ── result ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def progress_hooks(setup: TrialSetup) -> TrialHooks:
    """Return the statistics that may stop the trial early."""
    margin = setup.saving_margin
    if margin is None or setup.exact:
        return TrialHooks(harm_evalue=harm_evalue)
    return TrialHooks(
        harm_evalue=harm_evalue, required_points=lambda points: required_points(points, margin, samples=setup.samples)
    )


def print_verdict(ledger: RunLog, *, as_json: bool, page: str | None) -> None:
    """Print the verdict, and write the page if `page` is set."""
    setup, points = ledger.setup, ledger.point_results()
    if not points:
        print_error("no result yet: no decision point has samples of both variants")
        if not as_json and page is None:
            return
    statistics = compute_statistics(points, seed=setup.seed)
    probes = tally_probes(ledger.probe_results(), ledger.dropped_probe_count())
    conditions = TrialConditions(
        model=setup.model,
        date=f"{datetime.fromtimestamp(setup.started, UTC):%Y-%m-%d}",
        profile=setup.profile,
        samples=setup.samples,
        margin=setup.saving_margin,
        spent=ledger.spent,
        saved=setup.saved if setup.saved > 0 else None,
        drops=ledger.dropped_samples(),
        thinking=ledger.has_thinking,
        filled=_verdict_notes(ledger),
        planned=ledger.planned_points,
        rewritten=(sum(setup.population.values()), setup.requests),
        stopped=ledger.stop_reason == "harm",
        left=_untested_points(setup, points),
    )
    if as_json:
        probe_row = {} if probes is None else {"probes": probe_values(probes)}
        echo_json({**as_values(statistics, conditions), **probe_row}, err=page == "-")
    else:
        draw_verdict(statistics, conditions, sys.stderr if page == "-" else sys.stdout, probes=probes)
    with open_output(page) as write:  # last, so that a failure does not hide the verdict, which cost money
        if page is not None:
            text = io.StringIO()
            write_trial_page(statistics, conditions, text, probes)
            write(text.getvalue().encode("utf-8", "replace"))


def _verdict_notes(ledger: RunLog) -> tuple[str, ...]:
    """Return notes about the requests that a reader of the verdict must know."""
    untested = () if ledger.is_thinking_tested else ("thinking that the profile removes was not tested",)
    rejected = (
        (ledger.thinking_level.description,)
        if ledger.thinking_level and ledger.thinking_level.description not in ledger.setup.notes
        else ()
    )
    return (*ledger.setup.notes, *rejected, *untested)


def _untested_points(setup: TrialSetup, points: Sequence[PointResult]) -> dict[Stratum, int]:
    tested = {point.stratum for point in points}
    return {name: count for name in Stratum if name not in tested and (count := setup.population.get(name, 0))}
