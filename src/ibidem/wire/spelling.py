"""How a JSON string is spelled, and how a new one is spelled alike.

Writers differ in what they escape. A string that takes another's place is written in the way of the one it replaces, so
that putting the old one back gives the old bytes. Where the new string may have nothing in it that would show the way,
the first two characters in a row that nobody escapes show it: one of them is escaped for ASCII writers, both for
HTML-safe ones, which no reader notices.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from ..model import size

_ANY = rb"\\u[0-9a-fA-F]{4}|\\[^u]|[^\\]"
_PLAIN = [re.compile(rb'"(?:%b)*?([ !#-%%\'-;=?-\[\]-~]{%d})' % (_ANY, number)) for number in range(3)]
"""So many characters in a row that nobody escapes."""
_NEEDLESS = re.compile(rb'"(?:%b)*?((?:\\u00(?!3c|3e|26|7f)[2-7][0-9a-f]){1,2})' % _ANY, re.IGNORECASE)
_HTML = re.compile("[<>&\u2028\u2029]")


_unescaped = json.JSONEncoder(ensure_ascii=False).encode


def _raw(text: str) -> bytes:
    """Escape nothing but lone surrogates, which UTF-8 does not have. Python replaces them by what JSON has for them."""
    return _unescaped(text).encode("utf-8", "backslashreplace")


def _raw_text(text: str) -> bytes:
    """Escape nothing, in JSON that is a Python string."""
    return _unescaped(text).encode("utf-8", "surrogatepass")


def _ascii(text: str) -> bytes:
    return encode_basestring_ascii(text).encode()


def _html(text: str) -> bytes:
    return _HTML.sub(_as_escape, _unescaped(text)).encode("utf-8", "backslashreplace")


def _as_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


MAX_ESCAPE_BYTES = 12
"""Bytes of a character that is escaped as two."""
_EXTRA = 5
"""Bytes that an escape is longer than the character."""

SPELLINGS: tuple[Callable[[str], bytes], ...] = (_raw, _ascii, _html)
"""By the number of needless escapes that show it."""
TEXT_SPELLINGS = (_raw_text, _ascii, _html)
"""Of JSON that is a Python string."""


def respell(token: bytes, old: str, new: str, *, raw_surrogates: bool = False) -> bytes:
    """Spell `new` as `token` spells `old`. With `raw_surrogates`, the caller decodes lone surrogates again."""
    spellings = TEXT_SPELLINGS if raw_surrogates else SPELLINGS
    if b"\\u" not in token:
        return spellings[0](new)
    for number, way in enumerate(spellings):
        if way(old) == token:
            return _shown(way(new), number)
    return spellings[min(_needless(token), len(spellings) - 1)](new)


def no_larger(new: str, old: str) -> bool:
    """Whether a string in JSON is no longer with `new` in place of `old`, however it is spelled there.

    What is decided must not depend on the spelling: the same request as a value has none. What shows the way of an
    HTML-safe writer is not counted: these few bytes more are seldom worth an edit less for everyone.
    """
    if surely_no_larger(new, old):
        return True
    if _plain(new) and _plain(old):  # all of them write the same, but for what HTML-safe ones escape
        room = len(encode_basestring_ascii(old)) - len(encode_basestring_ascii(new))
        marked_up = _EXTRA * _marked_up(new)
        return room >= 0 and (marked_up <= room or not _marked_up(old) or marked_up - _EXTRA * _marked_up(old) <= room)
    try:
        raw, before = _unescaped(new).encode(), _unescaped(old).encode()
    except UnicodeEncodeError:  # a lone surrogate can only be escaped
        return all(_no_longer(new, old, way, shown) for way, shown in ((_raw, 0), (_ascii, 1), (_html, 0)))
    escaped = len(encode_basestring_ascii(new)) + _EXTRA <= len(encode_basestring_ascii(old))
    if len(raw) > len(before) or not (escaped or _plain(old) or _no_longer(new, old, _ascii, 1)):
        return False
    return not _marked_up(old) or _html_length(new, raw) <= _html_length(old, before)


def surely_no_larger(new: str, old: str) -> bool:
    """Whether `new` escaped is no longer than `old` as it is: then it is no larger, also if both stand beside more."""
    if MAX_ESCAPE_BYTES * len(new) + MAX_ESCAPE_BYTES <= len(old):  # most often it is far from it
        return True
    room = size(old) + 2 - _EXTRA - len(new)
    if room < 0:
        return False
    room += len(new) - len(encode_basestring_ascii(new))
    return room >= 0 and _EXTRA * _marked_up(new) <= room


def _no_longer(new: str, old: str, way: Callable[[str], bytes], shown: int) -> bool:
    """Whether one way to spell them makes it no longer, or is the same as to escape nothing."""
    before = way(old)
    same = way is not _raw and before == _raw(old)
    return same or len(_shown(way(new), shown)) <= len(before)


def _plain(text: str) -> bool:
    """Whether it has nothing that ASCII writers escape and others do not."""
    return text.isascii() and "\x7f" not in text


def _marked_up(text: str) -> int:
    """Characters that an HTML-safe writer escapes."""
    found = text.count("<") + text.count(">") + text.count("&")
    return found if text.isascii() else found + text.count("\u2028") + text.count("\u2029")


def _html_length(text: str, raw: bytes) -> int:
    """Bytes of it as an HTML-safe writer spells it; they are known without one that escapes nothing."""
    wide = text.count("\u2028") + text.count("\u2029")  # three bytes each
    return len(raw) + _EXTRA * (_marked_up(text) - wide) + (_EXTRA - 2) * wide


def _needless(token: bytes) -> int:
    """Characters in a row, the first of all, that are escaped without need."""
    found = _NEEDLESS.match(token)
    return len(found[1]) // len(b"\\u0000") if found else 0


def _shown(token: bytes, number: int) -> bytes:
    """The token with so many of these."""
    found = _PLAIN[number].match(token)
    if found is None:
        return token
    start = found.start(1)
    escapes = b"".join(b"\\u%04x" % byte for byte in found[1][:number])
    return token[:start] + escapes + token[start + number :]


# ── what is new ─────────────────────────────────────────────────────────────────────────────────────────────────────

_ESCAPED = re.compile(rb"(?<!\\)(?:\\\\)*\\u(?!00[0-7])")
_ESCAPED_HTML = re.compile(rb"(?<!\\)(?:\\\\)*\\u00(?:3c|3e|26)")


class Escapes(NamedTuple):
    """What the writer of a text escapes, as far as that shows."""

    foreign: bool
    """What is not ASCII."""
    html: bool

    @classmethod
    def of(cls, text: bytes) -> Escapes:
        plain = any(character in text for character in (b"<", b">", b"&"))
        html = not plain and _ESCAPED_HTML.search(text) is not None
        return cls(text.isascii() and _ESCAPED.search(text) is not None, html)


NO_ESCAPES = Escapes(False, False)


def may_be_escaped(value: Any) -> bool:
    """Whether writers differ in how they write it."""
    text = json.dumps(value, ensure_ascii=False)
    return not text.isascii() or _HTML.search(text) is not None


class Look(NamedTuple):
    """How JSON text parts its values, so that a value that is put in looks like those beside it."""

    comma: bytes = b","
    """With the space behind it."""
    colon: bytes = b":"

    def spelled(self, value: Any, escapes: Escapes, depth: int) -> bytes:
        """A value in the way of a text, so many containers deep in it."""
        _, broken, margin = self.comma.decode().rpartition("\n")
        unit = margin[: len(margin) // depth] if broken else None
        parting = "," if broken else margin, ":" if b"\n" in self.colon else self.colon.decode()
        written = json.dumps(value, ensure_ascii=escapes.foreign, indent=unit, separators=parting)
        written = _HTML.sub(_as_escape, written) if escapes.html else written
        return _utf8(written.replace("\n", f"\n{margin}"), value)


DEFAULT_LOOK = Look()


def _utf8(written: str, value: Any) -> bytes:
    try:
        return written.encode()
    except UnicodeEncodeError:  # a lone surrogate can only be escaped
        return json.dumps(value, separators=(",", ":")).encode()
