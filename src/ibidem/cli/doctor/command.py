"""`ibidem doctor`"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..options import echo_json, json_option

if TYPE_CHECKING:
    from .check_runner import Check, CheckLine

WIDTH = 100
FOUND_PROBLEMS = 1


@click.command(short_help="Check installation, settings, proxy and store.")
@json_option
def doctor(as_json: bool) -> int:
    """Check everything on this machine that rewritten requests use: programs, settings, proxy, store, prices.

    Each line is "ok", a note, or a problem with its fix. The exit code is 1 if there is a problem. The checks need no
    API key, send no requests to other machines, and make no changes.
    """
    from ... import environment
    from ..proxy.serve import current_folder
    from .check_runner import CheckContext, run_checks

    home = environment.home_folder()
    lines = run_checks(
        all_checks(), CheckContext(environment.environment_variables(), home, current_folder() or home, sys.platform)
    )
    if as_json:
        echo_json([line._asdict() for line in lines])
    else:
        click.echo("\n".join(_format_lines(lines)))
    return FOUND_PROBLEMS if any(line.status == "problem" for line in lines) else 0


def all_checks() -> tuple[Check, ...]:
    """Return all checks, in the order of the output. Loads the proxy, the store and the log readers."""
    from .check_runner import Check
    from .checks_addresses import check_addresses
    from .checks_data import check_prices, check_store, check_usage_db
    from .checks_logs import check_newest_logs
    from .checks_machine import check_agents, check_node, check_optional_parts, check_versions
    from .checks_network import check_certificates, check_outbound_proxy, check_settings
    from .checks_proxy import check_requests

    return (
        Check("versions", check_versions),
        Check("parts", check_optional_parts),
        Check("agents", check_agents),
        Check("node", check_node),
        Check("addresses", check_addresses),
        Check("settings", check_settings),
        Check("egress", check_outbound_proxy),
        Check("certificates", check_certificates),
        Check("proxy", check_requests),
        Check("store", check_store),
        Check("ledger", check_usage_db),
        Check("prices", check_prices),
        Check("logs", check_newest_logs),
    )


def _format_lines(lines: Sequence[CheckLine]) -> list[str]:
    status = max(len(line.status) for line in lines)
    name = max(len(line.check) for line in lines)
    margin = " " * (status + name + 4)
    output: list[str] = []
    for line in lines:
        lead = f"{line.status:{status}}  {line.check:{name}}  "
        output += _wrap_text(line.text, lead, margin)
        if line.remedy:
            output += _wrap_text(f"what to do: {line.remedy}", margin, margin)
    return [*output, "", _summary_line(lines)]


def _wrap_text(text: str, lead: str, margin: str) -> list[str]:
    """Wrap a line between words only, so that users can copy paths and commands."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )


def _summary_line(lines: Sequence[CheckLine]) -> str:
    counts = [(sum(line.status == status for line in lines), status) for status in ("problem", "note")]
    parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
    return f"{', '.join(parts)}." if parts else "No problems found."
