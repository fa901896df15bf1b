"""`ibidem doctor`"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..options import echo_json, json_option

if TYPE_CHECKING:
    from .checking import Check, CheckLine

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
    from ..proxy.serving import current_folder
    from .checking import Machine, examine

    home = environment.home()
    lines = examine(all_checks(), Machine(environment.variables(), home, current_folder() or home, sys.platform))
    if as_json:
        echo_json([line._asdict() for line in lines])
    else:
        click.echo("\n".join(_drawn(lines)))
    return FOUND_PROBLEMS if any(line.status == "problem" for line in lines) else 0


def all_checks() -> tuple[Check, ...]:
    """Return all checks, in the order of the output. Loads the proxy, the store and the log readers."""
    from .checking import Check
    from .checks_addresses import addresses
    from .checks_data import ledger, prices, store
    from .checks_logs import newest_logs
    from .checks_machine import agents, node, optional_parts, versions
    from .checks_network import certificates, egress, own_settings
    from .checks_proxy import requests_come_through

    return (
        Check("versions", versions),
        Check("parts", optional_parts),
        Check("agents", agents),
        Check("node", node),
        Check("addresses", addresses),
        Check("settings", own_settings),
        Check("egress", egress),
        Check("certificates", certificates),
        Check("proxy", requests_come_through),
        Check("store", store),
        Check("ledger", ledger),
        Check("prices", prices),
        Check("logs", newest_logs),
    )


def _drawn(lines: Sequence[CheckLine]) -> list[str]:
    status = max(len(line.status) for line in lines)
    name = max(len(line.check) for line in lines)
    margin = " " * (status + name + 4)
    drawn: list[str] = []
    for line in lines:
        lead = f"{line.status:{status}}  {line.check:{name}}  "
        drawn += _wrapped(line.text, lead, margin)
        if line.remedy:
            drawn += _wrapped(f"what to do: {line.remedy}", margin, margin)
    return [*drawn, "", _summed(lines)]


def _wrapped(text: str, lead: str, margin: str) -> list[str]:
    """Wrap a line between words only, so that users can copy paths and commands."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )


def _summed(lines: Sequence[CheckLine]) -> str:
    counts = [(sum(line.status == status for line in lines), status) for status in ("problem", "note")]
    parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
    return f"{', '.join(parts)}." if parts else "No problems found."
