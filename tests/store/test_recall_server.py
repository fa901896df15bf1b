"""`ibidem recall-server`: asked by the official client, as a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ibidem import IbidemError
from ibidem.store import SqliteStore, reference
from ibidem.store.recall_server import bounded_lines, fetch_original

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

pytestmark = pytest.mark.slow  # each starts a process, and its client takes a second to import

TEXT = 'Größe\r\n\ttabs, "quotes", \\ and \x1b[0m, \x00, \u2028, 😀\rno newline at the end'
SURROGATE = "a lone \ud800 surrogate"
OLD = "kept by another session\n" * 1000

PLACE = "the result of Read(src/app.py) (the file was changed later)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite3"
    with SqliteStore(path) as kept:
        kept.put("one", {reference(text): text for text in (TEXT, SURROGATE, "")})
        kept.put("two", {reference(OLD): OLD})
        kept.place({reference(OLD): PLACE})
    return path


def test_of_a_line_that_is_too_long_no_more_is_held_than_its_beginning() -> None:
    lines = b"x" * 100 + b"\n" + b"y" * 10 + b"\n" + b"z" * 9 + b"\nend"
    assert [*bounded_lines(BytesIO(lines), 10)] == [b"x" * 10, b"y" * 10, b"z" * 9 + b"\n", b"end"]


def ask(target: Path, *calls: Callable[[Client], Awaitable[Any]], by: str = "option") -> list[Any]:
    """What the server answers to each of these, in one run."""
    from mcp import Client, StdioServerParameters  # takes a second, and every run collects these tests

    arguments = ["-m", "ibidem.cli", "recall-server", *(["--store", str(target)] if by == "option" else [])]
    environment = {**os.environ, **({"IBIDEM_STORE": str(target)} if by == "variable" else {})}
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)

    async def run() -> list[Any]:
        async with Client(server, read_timeout_seconds=60) as client:
            return [await call(client) for call in calls]

    return asyncio.run(run())


def recalled(ref: str) -> Callable[[Client], Awaitable[CallToolResult]]:
    return lambda client: client.call_tool("recall", {"ref": ref})


def text_of(result: CallToolResult) -> str:
    """The text comes first, and the note of where it stood apart from it; an error has none."""
    content, *notes = result.content
    assert content.type == "text"
    assert result.structured_content is None
    assert len(notes) == (not result.is_error)
    return content.text


def test_there_is_one_tool_and_it_says_what_to_give_it(store: Path) -> None:
    (listed,) = ask(store, lambda client: client.list_tools())
    (tool,) = listed.tools
    assert tool.name == "recall"
    assert "[ibidem 123 3f9a1c0b77de: 340 lines left out" in tool.description
    assert list(tool.input_schema["properties"]) == ["ref"]
    assert tool.annotations.read_only_hint is True


@pytest.mark.parametrize("by", ["option", "variable"])
def test_the_original_comes_back_as_it_was(store: Path, by: str) -> None:
    results = ask(store, *(recalled(reference(text)) for text in (TEXT, OLD, "")), by=by)
    assert [result.is_error for result in results] == [False] * 3
    assert [text_of(result) for result in results] == [TEXT, OLD, ""]


def test_who_gets_a_text_back_is_told_where_it_stood(store: Path) -> None:
    placed, unplaced = ask(store, recalled(reference(OLD)), recalled(reference(TEXT)))
    assert placed.content[1].text == (
        f"(These {OLD.count(chr(10)) + 1} lines stood where the marker with {reference(OLD)} is: {PLACE}.)"
    )
    assert unplaced.content[1].text.endswith(f"stood where the marker with {reference(TEXT)} is.)")


def test_the_whole_marker_is_understood(store: Path) -> None:
    marker = f"[ibidem 123 {reference(OLD)}: 1000 lines left out, Read(deadbeef.py)]"
    recorded = marker.replace(": 1000", "+0123456789ab: 1000")
    results = ask(store, recalled(f" {reference(OLD).upper()}\n"), recalled(marker), recalled(recorded))
    assert [text_of(result) for result in results] == [OLD] * 3


def test_what_cannot_be_given_is_an_error_that_says_what_to_do(store: Path) -> None:
    missing, wrong, unsendable = ask(store, recalled("0" * 12), recalled("result 14"), recalled(reference(SURROGATE)))
    assert all(result.is_error for result in (missing, wrong, unsendable))
    assert "000000000000 is not in the store: use the tool that gave the text again" in text_of(missing)
    assert "this is no reference: give the 12 digits that stand in the marker" in text_of(wrong)
    assert f"run `ibidem recall {reference(SURROGATE)}`" in text_of(unsendable)


def test_a_store_that_is_made_later_is_found_and_none_is_made_by_looking(tmp_path: Path) -> None:
    path = tmp_path / "later.sqlite3"

    async def look_and_make(client: Client) -> CallToolResult:
        result = await client.call_tool("recall", {"ref": reference(TEXT)})
        assert not path.exists()
        with SqliteStore(path) as made:
            made.put("one", {reference(TEXT): TEXT})
        return result

    before, after = ask(path, look_and_make, recalled(reference(TEXT)))
    assert (before.is_error, after.is_error) == (True, False)
    assert text_of(after) == TEXT


def test_a_damaged_store_is_an_error_of_that_call(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    path.write_bytes(b"this is no database, and it is long enough to be looked at" * 100)
    (result,) = ask(path, recalled("0" * 12))
    assert result.is_error
    assert str(path) in text_of(result)


@pytest.mark.parametrize("ref", ["", "0" * 11, "0" * 13, f"{'0' * 12} {'1' * 12}", "g" * 12])
def test_what_is_no_single_reference_is_refused(store: Path, ref: str) -> None:
    with pytest.raises(IbidemError, match="this is no reference"):
        fetch_original(ref, str(store))
