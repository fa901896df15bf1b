"""The last section of the page: what its figures rest on, and what they leave out."""

from __future__ import annotations

from collections.abc import Iterable

from .charts import counted, listed, text
from .names import Names
from .totals import Report, restored_notes

METHOD_PAGE = "docs/how-we-measure.md"

COMPUTED = f"""<p><b>What was paid</b> is what providers counted, input and output, at list prices.</p>
<p><b>What would have been is computed</b>: every recorded request is priced again under the rules of its provider's
cache, as <code>{METHOD_PAGE}</code> in ibidem's repository describes. <b>Only input is priced</b> there: no profile
changes what the model answers.</p>"""


def notes(report: Report, names: Names, profiles: Iterable[str]) -> str:
    found = [
        COMPUTED,
        listed(
            "priced as another, because they are not in the price list",
            [f"{text(model or '(none named)')}: as {text(other)}" for model, other in report.priced_as.items()],
            "model",
        ),
        listed(
            "that break a rule of their provider, as the log tells them "
            f"({report.accepted:,} were counted by it, so it took those); by rule",
            [f"{text(rule)}: {count:,}" for rule, count in report.violations.most_common()],
            "request",
            report.invalid,
        ),
        listed(
            "of logs skipped",
            counted(why for each in report.sessions for _, why in each.skipped),
            "line",
            report.skipped,
        ),
        listed("not read", [f"{text(each.path)}: {text(each.why)}" for each in report.unread], "file"),
        *(_laws(report, names, name) for name in profiles),
        *(f"<p>{text(note)}</p>" for note in restored_notes(report)),
    ]
    return "\n".join(filter(None, found))


def _laws(report: Report, names: Names, profile: str) -> str:
    outcomes = [(session, session.profiles[profile]) for session in report.sessions]
    items = [f"{names.linked(each)}: {text(why)}" for each, outcome in outcomes for why in outcome.failures]
    count = sum(outcome.law_failures for _, outcome in outcomes)
    return listed(f"with {text(profile)}: this is a fault of ibidem; please report it", items, "broken law", count)
