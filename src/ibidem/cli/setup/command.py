"""`ibidem setup`"""

from __future__ import annotations

import sys

import click

from ...proxy.settings import Settings, base_url, is_loopback
from ..errors import InputError

CLIENTS = ("claude", "codex", "opencode", "ide", "service", "statusline")
MANAGERS = {"linux": "systemd", "darwin": "launchd"}
"""By platform: what starts services of a user."""


@click.command(short_help="Print what to put where, for a proxy that is always on.")
@click.argument("client", type=click.Choice(CLIENTS), metavar="CLIENT")
@click.option("--url", help="Where the proxy listens; http://127.0.0.1:8123 if not given.")
@click.option("--systemd", "manager", flag_value="systemd", default=None, help="A service for systemd.")
@click.option("--launchd", "manager", flag_value="launchd", default=None, help="A service for launchd (macOS).")
def setup(client: str, url: str | None, manager: str | None) -> int:
    """Print what to put where, so that CLIENT always uses the proxy. Nothing is written or changed.

    CLIENT is claude, codex, opencode, ide (extensions of editors), service (the proxy itself, started when you log in)
    or statusline (figures in Claude Code). What is to be put there is on standard output, advice on standard error.
    """
    if manager and client != "service":
        raise click.UsageError(f"--{manager} is for: ibidem setup service")
    from .advice import ADVICE, after, before

    advice = ADVICE[_manager(manager) if client == "service" else client]
    address = _address(url)
    text = advice.text(address)
    click.echo("\n".join(before(advice)), err=True)
    click.echo(text, nl=False)
    click.echo("\n".join(after(advice, address)), err=True)
    return 0


def _manager(named: str | None) -> str:
    found = named or MANAGERS.get(sys.platform)
    if found is None:
        raise InputError("service", "this system has neither systemd nor launchd: start `ibidem proxy` when you log in")
    return found


def _address(text: str | None) -> str:
    usual = Settings()
    try:
        url = base_url(text) if text is not None else f"http://{usual.host}:{usual.port}"
    except ValueError as error:
        raise InputError("--url", str(error)) from None
    from urllib.parse import urlsplit

    if not is_loopback(urlsplit(url).hostname or ""):
        raise InputError(
            "--url", "settings are printed for a proxy of this machine: use one like http://127.0.0.1:8123"
        )
    return url
