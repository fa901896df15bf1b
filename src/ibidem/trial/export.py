"""Convert the verdict to JSON values."""

from __future__ import annotations

from typing import Any

from .estimates import Estimate
from .stats import Comparison, Judgement
from .verdict import OUTCOMES, Setting, call, compared, lines

JSON_VERSION = 1
"""Version of the JSON. It is raised if a field is removed or changes its meaning."""


def as_json(judgement: Judgement, setting: Setting) -> dict[str, Any]:
    """Return the verdict and its numbers as JSON values. Shares are fractions (0.01 is one point), unknown is None."""
    return {
        "version": JSON_VERSION,
        "verdict": str(call(judgement, setting)),
        "lines": list(lines(judgement, setting)),
        "alarm": judgement.alarm,
        "e_value": judgement.harm,
        "points": judgement.points,
        "sessions": judgement.sessions,
        "answers": list(judgement.samples),
        "seed": judgement.seed,
        "outcomes": {key: _outcome(compared(judgement, key)) for key, *_ in OUTCOMES},
        "setting": {
            "model": setting.model,
            "date": setting.date,
            "profile": setting.profile,
            "samples": setting.samples,
            "margin_per_100": setting.margin,
            "spent": setting.spent,
            "saved": setting.saved,
            "drops": {why: {"A": each.original, "B": each.rewritten} for why, each in setting.drops.items()},
            "thinking": setting.thinking,
            "filled": list(setting.filled),
            "planned": setting.planned,
            "not_asked": {str(name): count for name, count in setting.left.items()},
            "stopped": setting.stopped,
            "simulated": setting.simulated,
        },
    }


def _outcome(told: Comparison) -> dict[str, Any]:
    return {
        "p": told.p,
        "adjusted_p": told.adjusted,
        "alarm": told.alarm,
        "problem": told.problem,
        "weighted": _estimate(told.weighted),
        "asked": _estimate(told.asked),
        "strata": {str(stratum): _estimate(each) for stratum, each in told.strata.items()},
    }


def _estimate(told: Estimate | None) -> dict[str, Any] | None:
    if told is None:
        return None
    names = ("original", "rewritten", "value", "low", "high", "points", "sessions", "effective")
    return {name: getattr(told, name) for name in names}
