"""`ibidem setup`"""

from __future__ import annotations

import sys

import click

from ...proxy.settings import Settings, is_loopback, normalize_base_url
from ..command_errors import InputError

CLIENTS = ("claude", "codex", "opencode", "ide", "service", "statusline")
MANAGERS = {"linux": "systemd", "darwin": "launchd"}
"""By platform: service manager of the user's session."""


@click.command(short_help="Print client settings for a permanent proxy.")
@click.argument("client", type=click.Choice(CLIENTS), metavar="CLIENT")
@click.option("--url", help="Address of the proxy (default: http://127.0.0.1:8123).")
@click.option("--systemd", "manager", flag_value="systemd", default=None, help="Print a systemd unit.")
@click.option("--launchd", "manager", flag_value="launchd", default=None, help="Print a launchd property list (macOS).")
def setup(client: str, url: str | None, manager: str | None) -> int:
    """Print the settings with which CLIENT always uses the proxy. Changes no files.

    CLIENT is claude, codex, opencode, ide (editor extensions), service (starts the proxy at login) or statusline (cost
    and savings in Claude Code). Settings are printed on standard output, advice on standard error.
    """
    if manager and client != "service":
        raise click.UsageError(f"--{manager} needs the client service: ibidem setup service --{manager}")
    from .advice import ADVICE, lines_after, lines_before

    advice = ADVICE[_select_manager(manager) if client == "service" else client]
    address = _proxy_address(url)
    text = advice.make_settings(address)
    click.echo("\n".join(lines_before(advice)), err=True)
    click.echo(text, nl=False)
    click.echo("\n".join(lines_after(advice, address)), err=True)
    return 0


def _select_manager(option: str | None) -> str:
    manager = option or MANAGERS.get(sys.platform)
    if manager is None:
        raise InputError("service", "this system has no systemd or launchd: start `ibidem proxy` when you log in")
    return manager


def _proxy_address(text: str | None) -> str:
    defaults = Settings()
    try:
        url = normalize_base_url(text) if text is not None else f"http://{defaults.host}:{defaults.port}"
    except ValueError as error:
        raise InputError("--url", str(error)) from None
    from urllib.parse import urlsplit

    if not is_loopback(urlsplit(url).hostname or ""):
        raise InputError("--url", "not an address of this machine: use one such as http://127.0.0.1:8123")
    return url
