"""The group of all commands: `ibidem` itself, and how each of its ways to end becomes an exit code and one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, Any, NoReturn

import click

from .. import __version__
from ..model import IbidemError
from .compact import compact
from .doctor.command import doctor
from .encoding import PLAIN_SIGNS
from .errors import our_fault, place, reason, say
from .expand import expand
from .gain import gain
from .off import off, on
from .proxy.command import proxy
from .recall import recall
from .recall_server import recall_server
from .report.command import report
from .setup.command import setup
from .show.command import show
from .statusline import statusline
from .store import store
from .validate import validate
from .wrap.command import wrap

EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141
"""What a shell reports for any program that was writing when `head` had seen enough."""


class _OneLineErrors(click.Group):
    """Ends every way there is to end with an exit code and at most one line. Commands return their exit code."""

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
    cls=_OneLineErrors,
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


main.add_command(compact)
main.add_command(doctor)
main.add_command(expand)
main.add_command(gain)
main.add_command(off)
main.add_command(on)
main.add_command(proxy)
main.add_command(recall)
main.add_command(recall_server)
main.add_command(report)
main.add_command(setup)
main.add_command(show)
main.add_command(statusline)
main.add_command(store)
main.add_command(validate)
main.add_command(wrap)
