"""The `ibidem` command group. It turns every exception into an exit code and at most one line on standard error."""

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
from .command_errors import bug_message, describe_os_error, error_location, print_error

ASCII_ERROR_HANDLER = "ibidem-plain-signs"
"""Name of the error handler that replaces characters which the stream's encoding lacks."""

ASCII_REPLACEMENTS = {
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
"""ASCII replacements for characters in our output."""


def _replace_unencodable(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    replacements = [
        ASCII_REPLACEMENTS.get(sign, sign.encode("ascii", "backslashreplace").decode())
        for sign in _unencodable_text(error)
    ]
    return "".join(replacements), error.end


def _unencodable_text(error: UnicodeEncodeError) -> str:
    return error.object[error.start : error.end]


codecs.register_error(ASCII_ERROR_HANDLER, _replace_unencodable)


COMMANDS: dict[str, tuple[str, str]] = {
    "compact": (".compact", "Deduplicate a request and show the savings."),
    "detach": (".detach", "Prepare a conversation to continue without Ibidem."),
    "doctor": (".doctor.command", "Check installation, settings, proxy and store."),
    "expand": (".expand", "Restore the original request."),
    "gain": (".gain", "Show cost and savings so far."),
    "hooks": (".hooks", "Handle Claude Code hooks without a proxy."),
    "mcp": (".mcp", "Run an MCP server and deduplicate its results."),
    "off": (".pause", "Pause rewriting in a running proxy."),
    "on": (".pause", "Resume rewriting in a running proxy."),
    "proxy": (".proxy.command", "Run a proxy that rewrites requests."),
    "recall": (".recall", "Print a text that was evicted from a conversation."),
    "recall-server": (".recall_server", "Run an MCP server that lets a model recall evicted text."),
    "report": (".report.command", "Report cost and possible savings of recorded sessions."),
    "setup": (".setup.command", "Print client settings for a permanent proxy."),
    "show": (".show.command", "Show the edits of a request, with their reasons."),
    "statusline": (".statusline", "Print cost, savings and context for Claude Code's status line."),
    "store": (".store", "Inspect and clean up the store of evicted texts."),
    "trial": (".trial.command", "Test whether a live model acts the same on rewritten requests."),
    "validate": (".validate", "Check a request against the provider's rules."),
    "wrap": (".wrap.command", "Run a command and rewrite its requests."),
}
"""By command: its module, imported when the command runs, and its line in `ibidem --help`, which imports no command."""

EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141
"""128 + SIGPIPE: a shell reports this for a program whose reader, such as `head`, closed the pipe."""


class _CommandGroup(click.Group):
    """Command group that converts exceptions into an exit code and one line. Commands return their exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[name][0], __package__), name.replace("-", "_"))
        return command

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
                stream.reconfigure(errors=ASCII_ERROR_HANDLER)
        try:
            code = super().main(*args, **{**extra, "prog_name": _program_name(), "standalone_mode": False})
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else _program_name()
            # click lists the choices of a missing argument on lines of their own
            message = error.format_message().replace("\n\t", " ").rstrip(".")
            print_error(f"{message} (see {command} --help)")
            code = error.exit_code
        except click.ClickException as error:
            print_error(error.format_message())
            code = error.exit_code
        except (click.Abort, KeyboardInterrupt):
            code = EXIT_INTERRUPTED
        except IbidemError as error:
            print_error(str(error))
            code = click.UsageError.exit_code
        except OSError as error:
            _discard_output(sys.stdout)
            print_error(f"{error_location(error)}: {describe_os_error(error)}")
            code = click.UsageError.exit_code
        except Exception as error:
            print_error(bug_message(error))
            code = click.UsageError.exit_code
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            if sys.stdout is not None:  # flush here: an error while the interpreter exits prints a traceback
                sys.stdout.flush()
        except BrokenPipeError:
            _discard_output(sys.stdout, sys.stderr)
            return EXIT_READER_GONE
        return code


def _program_name() -> str:
    """Return the program name that the user typed. With `uvx ibidem-llm`, only the distribution's name exists."""
    return "ibidem-llm" if sys.argv and Path(sys.argv[0]).stem == "ibidem-llm" else "ibidem"


def _discard_output(*streams: IO[str] | None) -> None:
    """Redirect these streams to the null device, so that Python does not flush them again when it exits."""
    with open(os.devnull, "wb") as nowhere:
        for stream in streams:
            if stream is not None:
                os.dup2(nowhere.fileno(), stream.fileno())


@click.group(
    cls=_CommandGroup,
    name="ibidem",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", message="ibidem %(version)s")
@click.pass_context
def main(context: click.Context) -> int:
    """Rewrite LLM agent requests to save tokens. The default profile is lossless."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    return 0
