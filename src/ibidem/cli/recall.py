"""`ibidem recall`"""

from __future__ import annotations

import click

from ..errors import one_line
from .command_errors import InputError
from .output_file import open_output
from .store import open_for_inspection, store_option


@click.command(short_help="Print a text that was evicted from a conversation.")
@click.argument("ref")
@store_option
def recall(ref: str, target: str) -> int:
    """Print the original of an evicted text, byte for byte.

    REF is the 12 hex digits in the marker that replaces the text.
    """
    from ..store.store import encode_text, is_reference

    name, reference = one_line(ref), ref.strip().lower()
    if not is_reference(reference):
        raise InputError(name, "not a reference. Pass the 12 hex digits in the marker")
    with open_for_inspection(target) as database:
        text = database.get([reference]).get(reference)
        where = database.where
    if text is None:
        raise InputError(name, f"not in the store {one_line(where)}: pass another store with --store")
    with open_output("-") as write:
        write(encode_text(text))
    return 0
