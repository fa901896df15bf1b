"""Options that commands share."""

from __future__ import annotations

import json
from typing import Any

import click

from ..environment import has_password
from ..errors import IbidemError
from ..formats import ALL_FORMATS
from ..strategies.profiles import PROFILES, is_profile_name, profile_strategies
from .command_errors import InputError

format_option = click.option(
    "--format", type=click.Choice(list(ALL_FORMATS)), help="Wire format, if it cannot be detected from the request."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


class _Profile(click.Choice[str]):
    """A profile of ours, or the user's own. The user's is imported here, so that errors are reported at once."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in PROFILES:
            return str(value)
        if not is_profile_name(str(value)):
            ours = ", ".join(map(repr, PROFILES))
            self.fail(f"{value!r} is not one of {ours}, or your own as module:attribute", param, ctx)
        try:
            profile_strategies(value)
        except IbidemError as error:
            self.fail(str(error), param, ctx)
        return str(value)


PROFILE = _Profile(list(PROFILES))


def reject_password(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Reject a store URL with a password on the command line: other users of the machine can see it."""
    typed = context.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
    if typed and has_password(value or ""):
        raise InputError("--store", "others can see a password on a command line: put the address in IBIDEM_STORE")
    return value


def echo_json(value: Any, err: bool = False) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2), err=err)
