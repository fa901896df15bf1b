"""`ibidem mcp`"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..environment import install_command
from ..errors import IbidemError, one_line
from .command_errors import InputError, print_error

if TYPE_CHECKING:
    from ..gateway.mcp_session import GatewaySettings, GatewayTotals

PORT = 8124


@click.command(
    short_help="Run an MCP server and deduplicate its results.",
    context_settings={"allow_interspersed_args": False},  # options after SERVER belong to the server
)
@click.argument("server", metavar="-- SERVER [ARG]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", metavar="URL", help="Forward to an MCP server at this URL, instead of running SERVER.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"With --url: local port to listen on; 0 selects a free port (default: {PORT}).",
)
@click.option("--rules", "rules_file", metavar="FILE", help="TOML file that describes the server's tools.")
@click.option("--name", default="", metavar="NAME", help="Server name in hints (default: the server's own name).")
@click.option(
    "--strip-schema", is_flag=True, help="Remove output schemas from tools, and replace structured results too."
)
@click.option(
    "--tools", "offers_forget", is_flag=True, help="Offer the model a tool that clears the remembered results."
)
@click.option("--no-subagents", is_flag=True, help="Only one agent uses this server, without subagents: enable hints.")
@click.option("--codex", is_flag=True, help="Send hints to Codex too. Its scripts may then get a hint instead of data.")
def mcp(server: tuple[str, ...], url: str | None, port: int | None, rules_file: str | None, **flags: bool | str) -> int:
    """Run an MCP server, and replace repeated tool results with a short hint.

    In the settings of your MCP client, put `ibidem mcp --` before the server's command. All messages are forwarded
    unchanged, except results that repeat one the model just got in full. The exit code is that of SERVER.
    docs/gateway.md lists the clients for which hints are safe.
    """
    if bool(server) is bool(url):
        raise click.UsageError("Pass a command or a URL: ibidem mcp -- SERVER, or ibidem mcp --url URL")
    if port is not None and not url:
        raise click.UsageError("--port needs --url: a server on standard input and output has no port")
    from ..gateway.mcp_session import GatewaySettings, GatewayTotals
    from ..gateway.tool_rules import GatewayRules, load_rules

    try:
        rules = load_rules(Path(rules_file)) if rules_file else GatewayRules()
    except IbidemError as error:
        where, _, what = str(error).partition(": ")
        raise InputError(where, what) from None
    settings = GatewaySettings(rules=rules, **flags)  # type: ignore[arg-type]
    totals = GatewayTotals()
    return (
        _run_http(url, PORT if port is None else port, settings, totals)
        if url
        else _run_stdio(server, settings, totals)
    )


def _run_stdio(command: tuple[str, ...], settings: GatewaySettings, totals: GatewayTotals) -> int:
    from ..gateway.mcp_session import McpSession
    from ..gateway.stdio import StdioBridge
    from .subprocesses import describe_start_error, exit_code_of, exit_like_program, find_program

    try:
        program = find_program(command[0])
        code = StdioBridge(McpSession(settings, totals, _print_line)).run(command, program)
    except OSError as error:
        _print_line(f"{one_line(command[0])}: {describe_start_error(error)}")
        return exit_code_of(error)
    _print_line(totals.summary_line())
    return exit_like_program(code)


def _run_http(url: str, port: int, settings: GatewaySettings, totals: GatewayTotals) -> int:
    from ..gateway.mcp_upstream import parse_mcp_upstream

    try:
        upstream = parse_mcp_upstream(url)
    except IbidemError as error:
        raise InputError("--url", str(error)) from None
    try:
        from ..gateway.http_transport import serve_http
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ibidem"):
            raise
        raise InputError(error.name or "aiohttp", f"not installed. Run: {install_command('proxy')}") from None
    try:
        serve_http(upstream, port, settings, totals, _print_line)
    except IbidemError as error:
        where, _, what = str(error).partition(": ")
        raise InputError(where, what) from None
    except OSError as error:
        raise InputError(f"port {port}", f"{error.strerror or error}: use another with --port") from None
    _print_line(totals.summary_line())
    return 0


def _print_line(line: str) -> None:
    with suppress(OSError, ValueError):  # standard error may be closed
        print_error(f"mcp: {line}")
