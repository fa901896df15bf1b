"""Options that commands share."""

from __future__ import annotations

import json
from typing import Any

import click

from ..formats import FORMATS

format_option = click.option(
    "--format", type=click.Choice(list(FORMATS)), help="The wire format, where the request does not show it."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def echo_json(value: Any, err: bool = False) -> None:
    click.echo(json.dumps(value, indent=2), err=err)
