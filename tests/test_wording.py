"""Private words are counted in docs, messages and docstrings, so that texts stay readable for newcomers.

The list has words that this project once used in a meaning of its own. Plain English matches some of them now and then,
so an area may have a few hits per 1,000 words. A failure lists every hit as file:line with the word to use instead.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent

# Highest number of hits per 1,000 words of an area. Lower a bound when the texts got better; never raise one.
BOUNDS = {"docs": 5.0, "messages": 8.0, "docstrings": 5.0}

# What to search for, and what to write instead. Case does not matter.
WORDS = (
    (r"laws?", "invariant"),
    (r"goes|went|gone", "is sent, is removed, continues"),
    (r"stands?|stood", "is, appears"),
    (r"as (?:it|they) (?:came|comes?)", "unchanged"),
    (r"comes? by|came by", "arrives, is received"),
    (r"told|tells?", "reports, states"),
    (r"said|says", "states, reports; sent"),
    (r"kept", "stored, cached, retained"),
    (r"remember(?:s|ed)?|forgets?|forgotten", "stores; deletes"),
    (r"lets? go|letting go", "evicts"),
    (r"begins?|began|begun|beginnings?", "starts; prefix"),
    (r"nothing|nobody|somebody", "no + noun; the role: client, caller, user"),
    (r"whoever|whom|for who|by who", "the role: client, caller, user"),
    (r"wherever|whichever", "in every; any"),
    (r"of (?:it|them|which)", "its; repeat the noun"),
    (r"what (?:is|are|was|were|it|they)", "the noun"),
    (r"is asked|are asked|was asked|asked for", "is requested"),
    (r"dear|dearer|dearest", "expensive"),
    (r"books|ledgers?|purse|coins?|tapes?", "accounting, usage database, budget, assignment, capture"),
    (r"moments?", "request, time, context"),
    (r"arms?|rungs?|worlds?|errands?", "variant, level, scenario, task"),
    (r"seats?|doors?", "hook point, integration"),
    (r"ways? (?:out|back)", "fallback; restore"),
    (r"sacred|hindsight|forger(?:y|ies)", "protected, offline optimum, forged marker"),
    (r"mended|spelt|put back", "fixed, spelled, restored"),
    (r"anew|likewise|once more", "again, the same"),
    (r"besides?", "next to, in addition to"),
    (r"figures", "numbers, statistics"),
)
PATTERNS = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), instead) for words, instead in WORDS]
SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|PRAGMA|WITH)\b")


class Line(NamedTuple):
    """One line of prose, without code."""

    place: str
    text: str


def prose(text: str) -> str:
    """Remove inline code, link targets and HTML comments."""
    return re.sub(r"`[^`]*`|\]\([^)]*\)|https?://\S+|<!--.*?-->", " ", text)


def doc_lines() -> Iterator[Line]:
    folders = [("docs", "*.md"), ("plugins", "**/*.md"), ("deploy", "*.md")]
    for path in (*ROOT.glob("*.md"), *(path for folder, names in folders for path in (ROOT / folder).glob(names))):
        in_code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.lstrip().startswith("```"):
                in_code = not in_code
            elif not in_code and not line.startswith("    "):
                yield Line(f"{path.relative_to(ROOT)}:{number}", prose(line))


def is_message(text: str) -> bool:
    """Return True for text with at least three words that is not SQL, a pattern or markup."""
    letters = sum(char.isalpha() or char in " ,.:;'-{}\n" for char in text)
    return len(text.split()) > 2 and letters > 0.85 * len(text) and not SQL.match(text)


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"# *(?:noqa|type:|pragma|ruff|mypy)", token.string):
            yield token.start[0], token.string.lstrip("# ")


def strings(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Yield the area, line and text of each docstring and message. An expression in an f-string is a `{}`."""
    docstrings, inner = set[int](), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # the docstring of a function, a class, a module or an attribute
            docstrings.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            inner.update(map(id, node.values))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            text = node.value
        else:
            continue
        if id(node) in docstrings:
            yield from (("docstrings", node.lineno + row, line) for row, line in enumerate(text.splitlines()))
        elif is_message(text):
            yield "messages", node.lineno, " ".join(text.split())


@cache
def areas() -> dict[str, list[Line]]:
    """Return all lines of prose by area."""
    lines: dict[str, list[Line]] = {"docs": list(doc_lines()), "messages": [], "docstrings": []}
    for path in sorted((ROOT / "src").rglob("*.py")):
        source, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
        for number, text in comments(source):
            lines["docstrings"].append(Line(f"{name}:{number}", prose(text)))
        for area, number, text in strings(ast.parse(source)):
            if not text.lstrip().startswith((">>>", "...")):
                lines[area].append(Line(f"{name}:{number}", prose(text)))
    return lines


def hits(line: Line) -> list[str]:
    return [
        f"{line.place}: {match[0]!r}, use: {instead}"
        for pattern, instead in PATTERNS
        for match in pattern.finditer(line.text)
    ]


@pytest.mark.parametrize("area", BOUNDS)
def test_private_words_stay_below_the_bound(area: str) -> None:
    lines = areas()[area]
    listed = [hit for line in lines for hit in hits(line)]
    rate = 1000 * len(listed) / sum(len(re.findall(r"[A-Za-z][\w'-]*", line.text)) for line in lines)
    message = f"{area}: {rate:.1f} private words per 1,000 words, bound {BOUNDS[area]:g}. Reword some of these:"
    assert rate <= BOUNDS[area], "\n".join([message, *listed])


def test_each_hit_names_its_place_and_the_word_to_use() -> None:
    assert hits(Line("page.md:7", "The twelve laws.")) == ["page.md:7: 'laws', use: invariant"]
    assert not hits(Line("page.md:8", "Restore the original request. Default: 16 MiB."))
