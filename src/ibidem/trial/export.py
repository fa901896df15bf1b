"""Convert the verdict to JSON values."""

from __future__ import annotations

from typing import Any

from .estimates import Estimate
from .trial_statistics import Comparison, TrialStatistics
from .verdict import OUTCOMES, TrialConditions, comparison_for, decide_verdict, verdict_lines

JSON_VERSION = 1
"""Version of the JSON. It is raised if a field is removed or changes its meaning."""


def verdict_json(statistics: TrialStatistics, conditions: TrialConditions) -> dict[str, Any]:
    """Return the verdict and its numbers as JSON values. Shares are fractions (0.01 is one point), unknown is None."""
    return {
        "version": JSON_VERSION,
        "verdict": str(decide_verdict(statistics, conditions)),
        "lines": list(verdict_lines(statistics, conditions)),
        "alarm": statistics.has_alarm,
        "e_value": statistics.harm,
        "points": statistics.points,
        "sessions": statistics.sessions,
        "answers": list(statistics.samples),
        "seed": statistics.seed,
        "outcomes": {key: _outcome_json(comparison_for(statistics, key)) for key, *_ in OUTCOMES},
        "setting": {
            "model": conditions.model,
            "date": conditions.date,
            "profile": conditions.profile,
            "samples": conditions.samples,
            "margin_per_100": conditions.margin,
            "spent": conditions.spent,
            "saved": conditions.saved,
            "drops": {why: {"A": each.original, "B": each.rewritten} for why, each in conditions.drops.items()},
            "thinking": conditions.thinking,
            "filled": list(conditions.filled),
            "planned": conditions.planned,
            "not_asked": {str(name): count for name, count in conditions.left.items()},
            "stopped": conditions.stopped,
            "simulated": conditions.simulated,
        },
    }


def _outcome_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "p": comparison.p,
        "adjusted_p": comparison.adjusted,
        "alarm": comparison.has_alarm,
        "problem": comparison.problem,
        "weighted": _estimate_json(comparison.weighted),
        "asked": _estimate_json(comparison.unweighted),
        "strata": {str(stratum): _estimate_json(estimate) for stratum, estimate in comparison.strata.items()},
    }


def _estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    names = ("original", "rewritten", "value", "low", "high", "points", "sessions", "effective")
    return {name: getattr(estimate, name) for name in names}
