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

from ..model import utf8_size

_ANY = rb"\\u[0-9a-fA-F]{4}|\\[^u]|[^\\]"
_PLAIN = [re.compile(rb'"(?:%b)*?([ !#-%%\'-;=?-\[\]-~]{%d})' % (_ANY, number)) for number in range(3)]
"""By number: the first characters in a row that no writer escapes."""
_NEEDLESS = re.compile(rb'"(?:%b)*?((?:\\u00(?!3c|3e|26|7f)[2-7][0-9a-f]){1,2})' % _ANY, re.IGNORECASE)
_HTML = re.compile("[<>&\u2028\u2029]")


_encode_string = json.JSONEncoder(ensure_ascii=False).encode


def _encode_unescaped(text: str) -> bytes:
    """Escape only lone surrogates, which UTF-8 cannot encode. Python's backslash escapes for them are valid JSON."""
    return _encode_string(text).encode("utf-8", "backslashreplace")


def _encode_text_unescaped(text: str) -> bytes:
    """Escape nothing, not even lone surrogates, because the JSON text is a Python string."""
    return _encode_string(text).encode("utf-8", "surrogatepass")


def _encode_ascii(text: str) -> bytes:
    return encode_basestring_ascii(text).encode()


def _encode_html_safe(text: str) -> bytes:
    return _HTML.sub(_escape_match, _encode_string(text)).encode("utf-8", "backslashreplace")


def _escape_match(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


MAX_ESCAPE_BYTES = 12
"""Length of a surrogate pair: a character outside the basic plane needs two escapes."""
_EXTRA = 5
"""Bytes that an escape needs in addition to the one byte of an ASCII character."""

STRING_ENCODERS: tuple[Callable[[str], bytes], ...] = (_encode_unescaped, _encode_ascii, _encode_html_safe)
"""String encoders, indexed by the number of needless escapes that record them."""
TEXT_STRING_ENCODERS = (_encode_text_unescaped, _encode_ascii, _encode_html_safe)
"""String encoders for JSON text that is a Python string, with the same index."""


def encode_like(token: bytes, old: str, new: str, *, raw_surrogates: bool = False) -> bytes:
    """Encode `new` in the style in which `token` encodes `old`.

    With `raw_surrogates`, lone surrogates are not escaped, and the caller decodes them with "surrogatepass".
    """
    encoders = TEXT_STRING_ENCODERS if raw_surrogates else STRING_ENCODERS
    if b"\\u" not in token:
        return encoders[0](new)
    for number, encode in enumerate(encoders):
        if encode(old) == token:
            return _add_needless_escapes(encode(new), number)
    return encoders[min(_count_needless_escapes(token), len(encoders) - 1)](new)


def no_larger(new: str, old: str) -> bool:
    """Return True if replacing `old` with `new` makes a JSON string no longer, in any style.

    The result must not depend on the style, because the same request as a Python object has no style. The two needless
    escapes for HTML-safe writers are not counted: otherwise their few bytes would prevent edits for all writers.
    """
    if surely_no_larger(new, old):
        return True
    if _is_plain_ascii(new) and _is_plain_ascii(
        old
    ):  # all writers agree, except on the characters that HTML-safe writers escape
        room = len(encode_basestring_ascii(old)) - len(encode_basestring_ascii(new))
        html_bytes = _EXTRA * _count_html_characters(new)
        return room >= 0 and (
            html_bytes <= room
            or not _count_html_characters(old)
            or html_bytes - _EXTRA * _count_html_characters(old) <= room
        )
    try:
        raw, before = _encode_string(new).encode(), _encode_string(old).encode()
    except UnicodeEncodeError:  # a lone surrogate can only be escaped
        return all(
            _is_no_longer(new, old, encode, escape_count)
            for encode, escape_count in ((_encode_unescaped, 0), (_encode_ascii, 1), (_encode_html_safe, 0))
        )
    is_shorter_escaped = len(encode_basestring_ascii(new)) + _EXTRA <= len(encode_basestring_ascii(old))
    if len(raw) > len(before) or not (
        is_shorter_escaped or _is_plain_ascii(old) or _is_no_longer(new, old, _encode_ascii, 1)
    ):
        return False
    return not _count_html_characters(old) or _html_length(new, raw) <= _html_length(old, before)


def surely_no_larger(new: str, old: str) -> bool:
    """Return True if `new` with all escapes is no longer than `old` without escapes.

    Then `new` is at most as long as `old` in any style, also if both are parts of a longer string.
    """
    if MAX_ESCAPE_BYTES * len(new) + MAX_ESCAPE_BYTES <= len(old):  # usually `new` is much shorter
        return True
    room = utf8_size(old) + 2 - _EXTRA - len(new)
    if room < 0:
        return False
    room += len(new) - len(encode_basestring_ascii(new))
    return room >= 0 and _EXTRA * _count_html_characters(new) <= room


def _is_no_longer(new: str, old: str, encode: Callable[[str], bytes], escape_count: int) -> bool:
    """Return True if one encoder makes `new` no longer than `old`, or encodes `old` without escapes."""
    before = encode(old)
    same = encode is not _encode_unescaped and before == _encode_unescaped(old)
    return same or len(_add_needless_escapes(encode(new), escape_count)) <= len(before)


def _is_plain_ascii(text: str) -> bool:
    """Return True if the text has no character that only ASCII writers escape."""
    return text.isascii() and "\x7f" not in text


def _count_html_characters(text: str) -> int:
    """Count the characters that only HTML-safe writers escape."""
    count = text.count("<") + text.count(">") + text.count("&")
    return count if text.isascii() else count + text.count("\u2028") + text.count("\u2029")


def _html_length(text: str, raw: bytes) -> int:
    """Return the length of `text` from an HTML-safe writer, computed from `raw`, its bytes without escapes."""
    wide = text.count("\u2028") + text.count("\u2029")  # three bytes each in UTF-8
    return len(raw) + _EXTRA * (_count_html_characters(text) - wide) + (_EXTRA - 2) * wide


def _count_needless_escapes(token: bytes) -> int:
    """Count the needless escapes in the first such sequence of the token."""
    match = _NEEDLESS.match(token)
    return len(match[1]) // len(b"\\u0000") if match else 0


def _add_needless_escapes(token: bytes, number: int) -> bytes:
    """Return the token with `number` needless escapes, if it has enough characters for them."""
    match = _PLAIN[number].match(token)
    if match is None:
        return token
    start = match.start(1)
    escapes = b"".join(b"\\u%04x" % byte for byte in match[1][:number])
    return token[:start] + escapes + token[start + number :]


# ── inserted values ─────────────────────────────────────────────────────────────────────────────────────────────────

_ESCAPED = re.compile(rb"(?<!\\)(?:\\\\)*\\u(?!00[0-7])")
_ESCAPED_HTML = re.compile(rb"(?<!\\)(?:\\\\)*\\u00(?:3c|3e|26)")


class EscapeStyle(NamedTuple):
    """The characters that a JSON text escapes, if the text shows it."""

    non_ascii: bool
    """True if non-ASCII characters are escaped."""
    html: bool
    """True if the characters `<`, `>` and `&` are escaped."""

    @classmethod
    def from_text(cls, text: bytes) -> EscapeStyle:
        plain = any(character in text for character in (b"<", b">", b"&"))
        html = not plain and _ESCAPED_HTML.search(text) is not None
        return cls(text.isascii() and _ESCAPED.search(text) is not None, html)


NO_ESCAPES = EscapeStyle(False, False)


def may_be_escaped(value: Any) -> bool:
    """Return True if the value has characters that only some writers escape."""
    text = json.dumps(value, ensure_ascii=False)
    return not text.isascii() or _HTML.search(text) is not None


class JsonStyle(NamedTuple):
    """Separators of a JSON text, so that an inserted value gets the same whitespace as its neighbors."""

    comma: bytes = b","
    """The comma with the whitespace after it, which includes the indentation."""
    colon: bytes = b":"

    def encode_value(self, value: Any, escapes: EscapeStyle, depth: int) -> bytes:
        """Encode a value in this style, nested `depth` containers deep."""
        _, line_break, margin = self.comma.decode().rpartition("\n")
        unit = margin[: len(margin) // depth] if line_break else None
        separators = "," if line_break else margin, ":" if b"\n" in self.colon else self.colon.decode()
        text = json.dumps(value, ensure_ascii=escapes.non_ascii, indent=unit, separators=separators)
        text = _HTML.sub(_escape_match, text) if escapes.html else text
        return _encode_utf8(text.replace("\n", f"\n{margin}"), value)


DEFAULT_STYLE = JsonStyle()


def _encode_utf8(text: str, value: Any) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate can only be escaped
        return json.dumps(value, separators=(",", ":")).encode()
