"""The group of all commands: `ibidem` itself, and how each of its ways to end becomes an exit code and one line."""

from __future__ import annotations

import codecs
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

import click

from .. import __version__
from ..errors import IbidemError
from .errors import our_fault, place, reason, say

PLAIN_SIGNS = "ibidem-plain-signs"
"""The name under which a stream is told of it."""

PLAIN = {
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", ""),
    "→": "->",
    "…": "...",
    "»": ">",
    "│": "|",
    "−": "-",
    "–": "-",
    "—": "-",
    "·": "-",
    "×": "x",
    "≥": ">=",
    "≤": "<=",
    "’": "'",
    "“": '"',
    "”": '"',
    "─": "-",
    "━": "-",
}
"""Signs that mean as much in ASCII."""


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = [PLAIN.get(sign, sign.encode("ascii", "backslashreplace").decode()) for sign in _signs(error)]
    return "".join(found), error.end


def _signs(error: UnicodeEncodeError) -> str:
    return error.object[error.start : error.end]


codecs.register_error(PLAIN_SIGNS, _plain)


COMMANDS: dict[str, tuple[str, str]] = {
    "compact": (".compact", "Say nothing twice, and show what that saves."),
    "detach": (".detach", "Prepare a conversation to continue without Ibidem."),
    "doctor": (".doctor.command", "Check that everything is in order on this machine."),
    "expand": (".expand", "The way back: put in again what references point at."),
    "gain": (".gain", "Show cost and savings so far."),
    "hooks": (".hooks", "Answer the hooks of Claude Code, where no proxy runs."),
    "mcp": (".mcp", "Run an MCP server whose results are not sent twice."),
    "off": (".off", "Rewrite nothing new in a conversation of a running proxy."),
    "on": (".off", "Rewrite what is new again."),
    "proxy": (".proxy.command", "Rewrite requests on their way, until stopped."),
    "recall": (".recall", "Print a text that was removed from a conversation."),
    "recall-server": (".recall_server", "Offer `recall` to a model, as an MCP server."),
    "report": (".report.command", "What recorded sessions cost, and would have cost."),
    "setup": (".setup.command", "Print what to put where, for a proxy that is always on."),
    "show": (".show.command", "Show what is rewritten, and why."),
    "statusline": (".statusline", "Print figures for the status line of Claude Code."),
    "store": (".store", "Look after what was removed from conversations."),
    "trial": (".trial.command", "Ask a live model whether it does the same with rewritten requests."),
    "validate": (".validate", "Say what the provider would refuse."),
    "wrap": (".wrap.command", "Run a command whose requests are rewritten."),
}
"""Where each command is, loaded when it is called, and its line in the list of all, which loads none of them."""

EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141
"""What a shell reports for any program that was writing when `head` had seen enough."""


class _Commands(click.Group):
    """Ends every way there is to end with an exit code and at most one line. Commands return their exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(COMMANDS[name][0], __package__), name.replace("-", "_"))
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, 1)
            if close:
                ctx.fail(f"No such command '{args[0]}'. Did you mean '{close[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character must not stop us
                stream.reconfigure(errors=PLAIN_SIGNS)
        try:
            code = super().main(*args, **{**extra, "prog_name": _called(), "standalone_mode": False})
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else _called()
            say(f"{error.format_message().rstrip('.')} (see {command} --help)")
            code = error.exit_code
        except click.ClickException as error:
            say(error.format_message())
            code = error.exit_code
        except (click.Abort, KeyboardInterrupt):
            code = EXIT_INTERRUPTED
        except IbidemError as error:
            say(str(error))
            code = click.UsageError.exit_code
        except OSError as error:
            _forget(sys.stdout)
            say(f"{place(error)}: {reason(error)}")
            code = click.UsageError.exit_code
        except Exception as error:
            say(our_fault(error))
            code = click.UsageError.exit_code
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            if sys.stdout is not None:  # here, because what is left for the end of the process fails with a traceback
                sys.stdout.flush()
        except BrokenPipeError:
            _forget(sys.stdout, sys.stderr)
            return EXIT_READER_GONE
        return code


def _called() -> str:
    """The command has a second name, that of the distribution: who came by `uvx ibidem-llm` has no other."""
    return "ibidem-llm" if sys.argv and Path(sys.argv[0]).stem == "ibidem-llm" else "ibidem"


def _forget(*streams: IO[str] | None) -> None:
    """What they still hold goes nowhere, so that nothing is tried again when the process ends."""
    with open(os.devnull, "wb") as nowhere:
        for stream in streams:
            if stream is not None:
                os.dup2(nowhere.fileno(), stream.fileno())


@click.group(
    cls=_Commands,
    name="ibidem",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", message="ibidem %(version)s")
@click.pass_context
def main(context: click.Context) -> int:
    """Rewrite LLM agent requests so that nothing is said twice and nothing is lost."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0
