"""`ibidem recall`"""

from __future__ import annotations

import click

from ..errors import one_line
from .errors import InputError
from .store import opened, store_option
from .writing import output


@click.command(short_help="Print a text that was evicted from a conversation.")
@click.argument("ref")
@store_option
def recall(ref: str, target: str) -> int:
    """Print the original of an evicted text, byte for byte.

    REF is the 12 hex digits in the marker that replaces the text.
    """
    from ..store.store import encoded, is_reference

    name, wanted = one_line(ref), ref.strip().lower()
    if not is_reference(wanted):
        raise InputError(name, "not a reference. Pass the 12 hex digits in the marker")
    with opened(target) as found:
        text = found.get([wanted]).get(wanted)
        where = found.where
    if text is None:
        raise InputError(name, f"not in the store {one_line(where)}: pass another store with --store")
    with output("-") as write:
        write(encoded(text))
    return 0
