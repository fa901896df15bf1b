"""`ibidem trial`"""

from __future__ import annotations

from math import isfinite
from typing import Any

import click

from ..options import PROFILE, json_option


@click.command(short_help="Ask a live model whether it does the same with rewritten requests.")
@click.argument("paths", metavar="[LOG]...", nargs=-1)
@click.option("--budget", type=click.FloatRange(0.01), metavar="DOLLARS", help="What it may cost, and no cent more.")
@click.option("--dry-run", is_flag=True, help="Only print what would be asked and what it would cost. Nothing is sent.")
@click.option("--model", metavar="MODEL", help="Whom to ask; the model of most of the recordings if not given.")
@click.option("--profile", type=PROFILE, help="Which strategies run; lossless if not given.")
@click.option("--samples", type=click.IntRange(1, 16), metavar="K", help="Answers to each request; 4 if not given.")
@click.option("--points", type=click.IntRange(1), metavar="N", help="Moments to ask about, at most.")
@click.option("--probes", is_flag=True, help="Ask as well for text that references stand for: can it follow them?")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Draws others of them; 0 if not given.")
@click.option("--upstream", metavar="URL", help="Send requests there, rather than to the provider they came from.")
@click.option("--prices", "price_file", metavar="FILE", help="Prices of your own, as JSON.")
@click.option("--out", "-o", metavar="FILE", help="Where to write what was asked and answered.")
@click.option("--resume", metavar="FILE", help="Go on with a trial that was ended.")
@click.option("--keep-answers", is_flag=True, help="Write the texts of answers there as well.")
@json_option
@click.option("--html", "page", metavar="OUT", help="Write a page to OUT as well; `-` is standard output.")
def trial(paths: tuple[str, ...], **asked: Any) -> int:
    """Ask a live model whether it does the same with rewritten requests. This costs money.

    Moments are picked from recorded sessions: a request, and what the agent did next. The model is asked for its next
    action several times with the original request and with the rewritten one, so that what differs between the two can
    be told from what differs anyway.

    LOG is a folder of `ibidem proxy --record`, a log of an agent, or a folder of them; without LOG the logs of the
    agents on this machine are read. Requests go to the provider that they came from, with the API key in
    ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY.
    """
    if asked["budget"] is not None and not isfinite(asked["budget"]):  # no sum is ever above what is no number
        raise click.UsageError("--budget is a number of dollars, like 15")
    if asked["resume"] is not None:
        fixed = [
            f"--{name}" for name in ("model", "profile", "samples", "points", "seed", "out") if asked[name] is not None
        ]
        fixed += ["--probes"] * asked["probes"]
        if fixed:
            raise click.UsageError(f"--resume goes on as it was begun: leave {fixed[0]} out")
        if asked["dry_run"]:
            raise click.UsageError("--resume and --dry-run exclude each other")
    elif asked["budget"] is None and not asked["dry_run"]:
        raise click.UsageError(
            "this costs money: say how much it may be with --budget, or see the price with --dry-run"
        )
    if "-" in paths:
        raise click.UsageError("logs are read more than once, and standard input cannot be: write it to a file")
    from .running import TrialOptions, run  # readers, prices and the loop are nothing that other commands wait for

    return run(paths, TrialOptions(**asked))
