"""JSON style: encode a new string or value with the escapes and whitespace of the text around it.

JSON writers escape different characters. A replacement string uses the style of the string it replaces, so that
restoring the old string restores the old bytes. If no character of the new string shows the style, needless escapes
record it: one for ASCII writers, two for HTML-safe writers. The escaped characters are the first ones in a row that no
writer escapes. A parser reads the same text.
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
"""By number: the first characters in a row that no writer escapes."""
_NEEDLESS = re.compile(rb'"(?:%b)*?((?:\\u00(?!3c|3e|26|7f)[2-7][0-9a-f]){1,2})' % _ANY, re.IGNORECASE)
_HTML = re.compile("[<>&\u2028\u2029]")


_unescaped = json.JSONEncoder(ensure_ascii=False).encode


def _raw(text: str) -> bytes:
    """Escape only lone surrogates, which UTF-8 cannot encode. Python's backslash escapes for them are valid JSON."""
    return _unescaped(text).encode("utf-8", "backslashreplace")


def _raw_text(text: str) -> bytes:
    """Escape nothing, not even lone surrogates, because the JSON text is a Python string."""
    return _unescaped(text).encode("utf-8", "surrogatepass")


def _ascii(text: str) -> bytes:
    return encode_basestring_ascii(text).encode()


def _html(text: str) -> bytes:
    return _HTML.sub(_as_escape, _unescaped(text)).encode("utf-8", "backslashreplace")


def _as_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


MAX_ESCAPE_BYTES = 12
"""Length of a surrogate pair: a character outside the basic plane needs two escapes."""
_EXTRA = 5
"""Bytes that an escape needs in addition to the one byte of an ASCII character."""

SPELLINGS: tuple[Callable[[str], bytes], ...] = (_raw, _ascii, _html)
"""String encoders, indexed by the number of needless escapes that record them."""
TEXT_SPELLINGS = (_raw_text, _ascii, _html)
"""String encoders for JSON text that is a Python string, with the same index."""


def respell(token: bytes, old: str, new: str, *, raw_surrogates: bool = False) -> bytes:
    """Encode `new` in the style in which `token` encodes `old`.

    With `raw_surrogates`, lone surrogates are not escaped, and the caller decodes them with "surrogatepass".
    """
    spellings = TEXT_SPELLINGS if raw_surrogates else SPELLINGS
    if b"\\u" not in token:
        return spellings[0](new)
    for number, way in enumerate(spellings):
        if way(old) == token:
            return _shown(way(new), number)
    return spellings[min(_needless(token), len(spellings) - 1)](new)


def no_larger(new: str, old: str) -> bool:
    """Return True if replacing `old` with `new` makes a JSON string no longer, in any style.

    The result must not depend on the style, because the same request as a Python object has no style. The two needless
    escapes for HTML-safe writers are not counted: otherwise their few bytes would prevent edits for all writers.
    """
    if surely_no_larger(new, old):
        return True
    if _plain(new) and _plain(old):  # all writers agree, except on the characters that HTML-safe writers escape
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
    """Return True if `new` with all escapes is no longer than `old` without escapes.

    Then `new` is at most as long as `old` in any style, also if both are parts of a longer string.
    """
    if MAX_ESCAPE_BYTES * len(new) + MAX_ESCAPE_BYTES <= len(old):  # usually `new` is much shorter
        return True
    room = size(old) + 2 - _EXTRA - len(new)
    if room < 0:
        return False
    room += len(new) - len(encode_basestring_ascii(new))
    return room >= 0 and _EXTRA * _marked_up(new) <= room


def _no_longer(new: str, old: str, way: Callable[[str], bytes], shown: int) -> bool:
    """Return True if one encoder makes `new` no longer than `old`, or encodes `old` without escapes."""
    before = way(old)
    same = way is not _raw and before == _raw(old)
    return same or len(_shown(way(new), shown)) <= len(before)


def _plain(text: str) -> bool:
    """Return True if the text has no character that only ASCII writers escape."""
    return text.isascii() and "\x7f" not in text


def _marked_up(text: str) -> int:
    """Count the characters that only HTML-safe writers escape."""
    found = text.count("<") + text.count(">") + text.count("&")
    return found if text.isascii() else found + text.count("\u2028") + text.count("\u2029")


def _html_length(text: str, raw: bytes) -> int:
    """Return the length of `text` from an HTML-safe writer, computed from `raw`, its bytes without escapes."""
    wide = text.count("\u2028") + text.count("\u2029")  # three bytes each in UTF-8
    return len(raw) + _EXTRA * (_marked_up(text) - wide) + (_EXTRA - 2) * wide


def _needless(token: bytes) -> int:
    """Count the needless escapes in the first such sequence of the token."""
    found = _NEEDLESS.match(token)
    return len(found[1]) // len(b"\\u0000") if found else 0


def _shown(token: bytes, number: int) -> bytes:
    """Return the token with `number` needless escapes, if it has enough characters for them."""
    found = _PLAIN[number].match(token)
    if found is None:
        return token
    start = found.start(1)
    escapes = b"".join(b"\\u%04x" % byte for byte in found[1][:number])
    return token[:start] + escapes + token[start + number :]


# ── inserted values ─────────────────────────────────────────────────────────────────────────────────────────────────

_ESCAPED = re.compile(rb"(?<!\\)(?:\\\\)*\\u(?!00[0-7])")
_ESCAPED_HTML = re.compile(rb"(?<!\\)(?:\\\\)*\\u00(?:3c|3e|26)")


class Escapes(NamedTuple):
    """The characters that a JSON text escapes, if the text shows it."""

    foreign: bool
    """True if non-ASCII characters are escaped."""
    html: bool
    """True if the characters `<`, `>` and `&` are escaped."""

    @classmethod
    def of(cls, text: bytes) -> Escapes:
        plain = any(character in text for character in (b"<", b">", b"&"))
        html = not plain and _ESCAPED_HTML.search(text) is not None
        return cls(text.isascii() and _ESCAPED.search(text) is not None, html)


NO_ESCAPES = Escapes(False, False)


def may_be_escaped(value: Any) -> bool:
    """Return True if the value has characters that only some writers escape."""
    text = json.dumps(value, ensure_ascii=False)
    return not text.isascii() or _HTML.search(text) is not None


class Look(NamedTuple):
    """Separators of a JSON text, so that an inserted value gets the same whitespace as its neighbors."""

    comma: bytes = b","
    """The comma with the whitespace after it, which includes the indentation."""
    colon: bytes = b":"

    def spelled(self, value: Any, escapes: Escapes, depth: int) -> bytes:
        """Encode a value in this style, nested `depth` containers deep."""
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
