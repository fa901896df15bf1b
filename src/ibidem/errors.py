"""Errors that callers may catch, and the escaping of request text in messages.

A separate module, because a command that only prints its version needs no other.
"""

from __future__ import annotations


class IbidemError(ValueError):
    """Invalid input. The message names the input and the fix."""


class UsageError(IbidemError, TypeError):
    """Invalid argument of a call. The message names the value passed and the expected one."""


def one_line(text: str) -> str:
    """Escape line breaks, control characters and lone surrogates, so that any text can be printed in a message."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
