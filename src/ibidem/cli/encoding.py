"""For terminals that cannot show every character: signs of ours become plain ones, the rest is spelt out."""

from __future__ import annotations

import codecs

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
