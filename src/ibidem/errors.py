"""Errors that callers may catch, and how text from a request is quoted in a message.

A module of its own, because a command that prints its version needs nothing else.
"""

from __future__ import annotations


class IbidemError(ValueError):
    """Invalid input. The message says which input is wrong and what to do about it."""


class UsageError(IbidemError, TypeError):
    """Invalid argument of a call. The message says what was passed and what is expected."""


def one_line(text: str) -> str:
    """Escape line breaks, control characters and lone surrogates, so that any text can be printed in a message."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
