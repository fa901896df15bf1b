"""What a report says first: what was paid, what would have been saved, and what to type next."""

from __future__ import annotations

from .numbers import dollars, percent, plural
from .tally import Tally
from .totals import Report

COMMANDS = {
    "claude-code": "ibidem wrap -- claude",
    "codex": "ibidem wrap -- codex",
    "opencode": "ibidem wrap -- opencode",
    "gemini-cli": "ibidem wrap -- gemini",
    "pi": "ibidem proxy",
    "copilot-cli": "ibidem proxy",
}
"""By the name of an agent in its logs. Where its address is a setting, it is told about a proxy that runs."""

ALREADY_SHARE = 0.99
"""Who paid this share of the input through us needs no advice to."""


def paid_line(report: Report) -> str:
    """What was paid, or why that is not known. Known before anything is replayed."""
    tally = report.tally
    sessions, requests = len(tally.sessions) or report.total.sessions, tally.requests or report.total.requests
    count = f"{plural(sessions, 'session')}, {plural(requests, 'request')}"
    if not tally.counted:
        return f"{count}. What was paid is not known: the logs record no usage."
    split = f"{dollars(tally.input)} for input, {dollars(tally.output)} for output"
    part = ""
    if tally.counted < tally.requests:
        part = f", of which {tally.counted:,} recorded their usage"
    return f"Paid {dollars(tally.total)} ({split}) for {count}{part}."


def saving_line(report: Report) -> str:
    """What each profile would have saved of the input; empty where nothing was replayed."""
    tally = report.tally
    parts = []
    spelt = False  # what follows "would have saved" may leave it out, what follows a cost may not
    for name in report.profiles if tally.costs else ():
        saved, part = tally.saved(name), tally.saved_share(name) or 0.0
        if saved < 0 and dollars(-saved) != dollars(0.0):
            parts.append(f"{name} would have cost {dollars(-saved)} more ({percent(-part)})")
            spelt = False
        elif spelt:
            parts.append(f"{name} {dollars(saved)} ({percent(part)})")
        else:
            parts.append(f"{name} would have saved {dollars(saved)} ({percent(part)} of the input)")
            spelt = True
    return f"{'; '.join(parts)}." if parts else ""


def logged_line(tally: Tally) -> str:
    """What was saved in fact, where requests went through our own proxy and it logged them."""
    if not tally.otherwise:
        return ""
    part = 1 - tally.logged / tally.otherwise
    how = f"{percent(abs(part))} {'less' if part >= 0 else 'more'}"
    return (
        f"Through ibidem: input at list prices {dollars(tally.logged)} instead of {dollars(tally.otherwise)} ({how})."
    )


def next_step(report: Report) -> str:
    """What to type to have it saved from now on; empty where nothing would be."""
    first = report.profiles[0] if report.profiles else ""
    tally = report.tally
    if not tally.costs or tally.saved(first) <= 0 or tally.logged >= ALREADY_SHARE * tally.input > 0:
        return ""
    return f"To save it from now on: {wrap_command(report)}"


def wrap_command(report: Report) -> str:
    """For the agent that costs most; for Claude Code where it has none."""
    costs: dict[str, float] = {}
    for session in report.sessions:
        costs[session.agent] = costs.get(session.agent, 0.0) + session.baseline.cost
    dearest = max(costs, key=lambda agent: costs[agent], default="")
    return COMMANDS.get(dearest, COMMANDS["claude-code"])
