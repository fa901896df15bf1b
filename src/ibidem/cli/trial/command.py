"""`ibidem trial`"""

from __future__ import annotations

from math import isfinite
from typing import Any

import click

from ..options import PROFILE, json_option


@click.command(short_help="Test whether a live model acts the same on rewritten requests.")
@click.argument("paths", metavar="[LOG]...", nargs=-1)
@click.option("--budget", type=click.FloatRange(0.01), metavar="DOLLARS", help="Largest total cost of the trial.")
@click.option("--dry-run", is_flag=True, help="Only print the plan and its cost. Sends no requests.")
@click.option("--model", metavar="MODEL", help="Model to call (default: the most frequent model of the recordings).")
@click.option("--profile", type=PROFILE, help="Rewriting profile (default: lossless).")
@click.option("--samples", type=click.IntRange(1, 16), metavar="K", help="Samples per request (default: 4).")
@click.option("--points", type=click.IntRange(1), metavar="N", help="Largest number of decision points.")
@click.option("--probes", is_flag=True, help="Also test whether the model can follow references to their text.")
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Random seed for picking decision points (default: 0)."
)
@click.option("--upstream", metavar="URL", help="Send requests to this URL instead of the recorded provider.")
@click.option("--prices", "price_file", metavar="FILE", help="JSON file with your own prices.")
@click.option("--out", "-o", metavar="FILE", help="File for the run log.")
@click.option("--resume", metavar="FILE", help="Resume an interrupted trial from its run log.")
@click.option("--keep-answers", is_flag=True, help="Also save the texts of responses in the run log.")
@json_option
@click.option("--html", "page", metavar="OUT", help="Also write an HTML page to OUT; `-` is standard output.")
def trial(paths: tuple[str, ...], **asked: Any) -> int:
    """Test whether a live model acts the same on rewritten requests. This costs money.

    A decision point is a request of a recorded session, with the agent's next action. The model gets the original and
    the rewritten request several times each. This separates the effect of rewriting from random variation.

    LOG is a folder of `ibidem proxy --record`, the log of an agent, or a folder of logs. Without LOG, the agent logs on
    this machine are read. Requests are sent to the recorded provider, with the API key in ANTHROPIC_API_KEY,
    OPENAI_API_KEY or GEMINI_API_KEY.
    """
    if asked["budget"] is not None and not isfinite(asked["budget"]):  # NaN and infinity would never stop the trial
        raise click.UsageError("--budget must be a number of dollars, such as 15")
    if asked["resume"] is not None:
        fixed = [
            f"--{name}" for name in ("model", "profile", "samples", "points", "seed", "out") if asked[name] is not None
        ]
        fixed += ["--probes"] * asked["probes"]
        if fixed:
            raise click.UsageError(f"--resume uses the options of the first run: omit {fixed[0]}")
        if asked["dry_run"]:
            raise click.UsageError("--resume and --dry-run exclude each other")
    elif asked["budget"] is None and not asked["dry_run"]:
        raise click.UsageError("this costs money: set a limit with --budget, or see the price with --dry-run")
    if "-" in paths:
        raise click.UsageError("logs are read more than once, so standard input does not work: write it to a file")
    from .run_trial import TrialOptions, run_trial  # slow to import, and other commands do not need it

    return run_trial(paths, TrialOptions(**asked))
