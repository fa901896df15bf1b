"""The user's own prices, read from the file of the `--prices` option."""

from __future__ import annotations

from pathlib import Path

import click

from ..billing.prices import Price, own_prices
from ..errors import IbidemError, one_line
from .command_errors import InputError, describe_os_error


def read_price_file(file: str | None) -> dict[str, Price]:
    """Read the user's prices; empty without a file. Raises InputError or click.UsageError if the file is invalid."""
    if file is None:
        return {}
    name = one_line(click.format_filename(file))
    try:
        return own_prices(Path(file).read_bytes(), name)
    except OSError as error:
        raise InputError(name, describe_os_error(error)) from None
    except IbidemError as error:
        raise click.UsageError(str(error)) from None
