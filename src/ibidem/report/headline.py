"""First lines of a report: the recorded cost, the savings, and the next command to run."""

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
"""Agent name in logs → command that saves. `ibidem proxy` is for agents whose base URL is a setting."""

ALREADY_SHARE = 0.99
"""If requests through our proxy have this share of the input cost, no command is suggested."""


def paid_line(report: Report) -> str:
    """Report the recorded cost, or that it is unknown. Needs no replay."""
    row = report.total
    sessions, requests = len(row.sessions) or len(row.replayed), row.requests or row.session_requests
    count = f"{plural(sessions, 'session')}, {plural(requests, 'request')}"
    if not row.counted:
        return f"{count}. Cost unknown: the logs record no usage."
    split = f"{dollars(row.input)} for input, {dollars(row.output)} for output"
    part = ""
    if row.counted < row.requests:
        part = f" ({row.counted:,} with recorded usage)"
    return f"Paid {dollars(row.total)} ({split}) for {count}{part}."


def saving_line(report: Report) -> str:
    """Report what each profile would have saved, as a share of input cost and of total cost; empty without a replay."""
    row = report.total
    parts: list[str] = []
    has_verb = False  # the words "would have saved" are not repeated from one saving to the next
    for name in report.profiles if row.costs else ():
        saving, shares = row.net_saved(name), share_text(row, name, with_bases=not parts)
        if saving < 0 and dollars(-saving) != dollars(0.0):
            parts.append(f"{name} would have cost {dollars(-saving)} more ({shares})")
            has_verb = False
        elif has_verb:
            parts.append(f"{name} {dollars(saving)} ({shares})")
        else:
            parts.append(f"{name} would have saved {dollars(saving)} ({shares})")
            has_verb = True
    return f"{'; '.join(parts)}." if parts else ""


def share_text(row: ReportRow, name: str, *, with_bases: bool = True) -> str:
    """Format the size of a profile's net saving, or extra cost, as a share of the input and of everything paid.

    Without recorded output, only the share of the input is known.
    """
    share = abs(row.net_saved_share(name))
    bases = {"of the input": share, "of everything paid": row.share_of_total(share)}
    known_shares = ((base, each) for base, each in bases.items() if each is not None)
    return ", ".join(f"{percent(each)} {base}" if with_bases else percent(each) for base, each in known_shares)


def need_line(name: str, row: ReportRow) -> str:
    """Report what a profile saves before and after need; empty if no request used text that it evicted."""
    outcome, requests = row.profiles[name], row.session_requests
    if not outcome.needs:
        return ""
    return (
        f"{name}: {plural(outcome.needs, 'request')} ({percent(outcome.needs / requests)}) used evicted text later."
        f" Saved {dollars(row.saved(name))}, net of one more request for each {dollars(row.net_saved(name))}."
    )


def logged_line(row: ReportRow) -> str:
    """Report the actual saving of requests that our proxy logged; empty without such requests."""
    if not row.otherwise:
        return ""
    part = 1 - row.logged / row.otherwise
    how = f"{percent(abs(part))} {'less' if part >= 0 else 'more'}"
    return f"Through ibidem: input at list prices {dollars(row.logged)} instead of {dollars(row.otherwise)} ({how})."


def next_step(report: Report) -> str:
    """Suggest the command that saves from now on; empty without a saving, or if it is in use already."""
    first = report.profiles[0] if report.profiles else ""
    row = report.total
    if not row.costs or row.saved(first) <= 0 or row.logged >= ALREADY_SHARE * row.input > 0:
        return ""
    return f"To save it from now on: {wrap_command(report)}"


def wrap_command(report: Report) -> str:
    """Choose the command for the most expensive agent; that of Claude Code if the agent is unknown."""
    costs: dict[str, float] = {}
    for session in report.sessions:
        costs[session.agent] = costs.get(session.agent, 0.0) + session.baseline.cost
    top_agent = max(costs, key=lambda agent: costs[agent], default="")
    return COMMANDS.get(top_agent, COMMANDS["claude-code"])
