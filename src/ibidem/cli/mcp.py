"""`ibidem mcp`"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..environment import install_command
from ..errors import IbidemError, one_line
from .errors import InputError, say

if TYPE_CHECKING:
    from ..gateway.session import GatewaySettings, GatewayTotals

PORT = 8124


@click.command(
    short_help="Run an MCP server whose results are not sent twice.",
    context_settings={"allow_interspersed_args": False},  # what stands behind SERVER is its own
)
@click.argument("server", metavar="-- SERVER [ARG]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", metavar="URL", help="A server that is reached by HTTP, instead of SERVER.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"With --url: listen here, on this machine; 0 is a free port. Default: {PORT}.",
)
@click.option("--rules", "rules_file", metavar="FILE", help="A TOML file: which tools change what, which never repeat.")
@click.option("--name", default="", metavar="NAME", help="What hints call the server. Default: its own name.")
@click.option("--strip-schema", is_flag=True, help="Also hint in place of structured results: tools promise none.")
@click.option("--tools", "offers_forget", is_flag=True, help="Offer a tool by which a model has everything forgotten.")
@click.option("--no-subagents", is_flag=True, help="One agent or chat uses this server, and no other: hint to it.")
@click.option("--codex", is_flag=True, help="Also hint to Codex, whose scripts may get a hint in place of data.")
def mcp(server: tuple[str, ...], url: str | None, port: int | None, rules_file: str | None, **flags: bool | str) -> int:
    """Run SERVER, an MCP server, and say "as before" where a result of its tools was sent already.

    Put it before the command in the settings of an MCP client. Every message passes as it came, except results that
    repeat one that the model was just sent in full. The exit code is that of SERVER. docs/gateway.md says for which
    clients this is right.
    """
    if bool(server) is bool(url):
        raise click.UsageError("Say what to run: ibidem mcp -- SERVER, or ibidem mcp --url URL")
    if port is not None and not url:
        raise click.UsageError("--port is for --url: a SERVER that is run has no port")
    from ..gateway.rules import GatewayRules, load_rules
    from ..gateway.session import GatewaySettings, GatewayTotals

    try:
        rules = load_rules(Path(rules_file)) if rules_file else GatewayRules()
    except IbidemError as error:
        where, _, what = str(error).partition(": ")
        raise InputError(where, what) from None
    settings = GatewaySettings(rules=rules, **flags)  # type: ignore[arg-type]
    totals = GatewayTotals()
    return _ask(url, PORT if port is None else port, settings, totals) if url else _run(server, settings, totals)


def _run(command: tuple[str, ...], settings: GatewaySettings, totals: GatewayTotals) -> int:
    from ..gateway.pump import StdioPump
    from ..gateway.session import McpSession
    from .programs import end_as, exit_code_of, found_program, why_not_run

    try:
        program = found_program(command[0])
        code = StdioPump(McpSession(settings, totals, _tell)).run(command, program)
    except OSError as error:
        _tell(f"{one_line(command[0])}: {why_not_run(error)}")
        return exit_code_of(error)
    _tell(totals.line())
    return end_as(code)


def _ask(url: str, port: int, settings: GatewaySettings, totals: GatewayTotals) -> int:
    from ..gateway.address import upstream_at

    try:
        upstream = upstream_at(url)
    except IbidemError as error:
        raise InputError("--url", str(error)) from None
    try:
        from ..gateway.web import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ibidem"):
            raise
        raise InputError(error.name or "aiohttp", f"needs: {install_command('proxy')}") from None
    try:
        serve(upstream, port, settings, totals, _tell)
    except IbidemError as error:
        where, _, what = str(error).partition(": ")
        raise InputError(where, what) from None
    except OSError as error:
        raise InputError(f"port {port}", f"{error.strerror or error}: use another with --port") from None
    _tell(totals.line())
    return 0


def _tell(line: str) -> None:
    with suppress(OSError, ValueError):  # nobody may be left to hear it
        say(f"mcp: {line}")
