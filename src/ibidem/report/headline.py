"""What a report says first: what was paid, what would have been saved, and what to type next."""

from __future__ import annotations

from ..render.number_format import dollars, percent, plural
from .aggregate import Report, ReportRow

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
    row = report.total
    sessions, requests = len(row.sessions) or len(row.replayed), row.requests or row.session_requests
    count = f"{plural(sessions, 'session')}, {plural(requests, 'request')}"
    if not row.counted:
        return f"{count}. What was paid is not known: the logs record no usage."
    split = f"{dollars(row.input)} for input, {dollars(row.output)} for output"
    part = ""
    if row.counted < row.requests:
        part = f", of which {row.counted:,} recorded their usage"
    return f"Paid {dollars(row.total)} ({split}) for {count}{part}."


def saving_line(report: Report) -> str:
    """What each profile would have saved of the input; empty where nothing was replayed."""
    row = report.total
    parts = []
    spelt = False  # what follows "would have saved" may leave it out, what follows a cost may not
    for name in report.profiles if row.costs else ():
        saved, part = row.net_saved(name), row.net_saved_share(name)
        if saved < 0 and dollars(-saved) != dollars(0.0):
            parts.append(f"{name} would have cost {dollars(-saved)} more ({percent(-part)})")
            spelt = False
        elif spelt:
            parts.append(f"{name} {dollars(saved)} ({percent(part)})")
        else:
            parts.append(f"{name} would have saved {dollars(saved)} ({percent(part)} of the input)")
            spelt = True
    return f"{'; '.join(parts)}." if parts else ""


def need_line(name: str, row: ReportRow) -> str:
    """What a profile saves before and after need; empty if no request needs text that it evicted."""
    outcome, requests = row.profiles[name], row.session_requests
    if not outcome.needs:
        return ""
    return (
        f"{name}: {plural(outcome.needs, 'request')} ({percent(outcome.needs / requests)}) used evicted text later."
        f" Saved {dollars(row.saved(name))}, net of one more request for each {dollars(row.net_saved(name))}."
    )


def logged_line(row: ReportRow) -> str:
    """What was saved in fact, where requests went through our own proxy and it logged them."""
    if not row.otherwise:
        return ""
    part = 1 - row.logged / row.otherwise
    how = f"{percent(abs(part))} {'less' if part >= 0 else 'more'}"
    return f"Through ibidem: input at list prices {dollars(row.logged)} instead of {dollars(row.otherwise)} ({how})."


def next_step(report: Report) -> str:
    """What to type to have it saved from now on; empty where nothing would be."""
    first = report.profiles[0] if report.profiles else ""
    row = report.total
    if not row.costs or row.saved(first) <= 0 or row.logged >= ALREADY_SHARE * row.input > 0:
        return ""
    return f"To save it from now on: {wrap_command(report)}"


def wrap_command(report: Report) -> str:
    """For the agent that costs most; for Claude Code where it has none."""
    costs: dict[str, float] = {}
    for session in report.sessions:
        costs[session.agent] = costs.get(session.agent, 0.0) + session.baseline.cost
    dearest = max(costs, key=lambda agent: costs[agent], default="")
    return COMMANDS.get(dearest, COMMANDS["claude-code"])
