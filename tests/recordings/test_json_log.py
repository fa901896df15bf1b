"""The log of the proxy: told apart from agents' logs, and read as figures."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ibidem import recordings
from ibidem.billing.usage import Usage
from ibidem.proxy.edge.server import BackgroundServer
from ibidem.recordings.proxy_json_log import LoggedExchange, read_usage_log
from ibidem.store import MemoryStore
from ibidem.testing import Says, Upstream, conv
from ibidem.wire import zstd
from tests.support.raw import asked, to

from . import claude_code
from .examples import lines

ROW = {
    **{"id": "e1", "at": 1767261600.5, "path": "/v1/messages", "outcome": "rewritten", "reason": "", "status": 200},
    **{"messages": 3, "edits": 1, "bytes_in": 900, "bytes_out": 500, "took_ms": 1.5},
    **{"input": 150, "read": 100, "written": 40, "written_1h": 30, "fresh": 10, "output": 7, "removed": 90},
    **{"paid": 0.01, "would_have_paid": 0.02, "conversation": "c1"},
    **{"model": "claude-opus-4-6", "format": "anthropic", "client": "claude-cli/2.1", "started": 1767261000.0},
}
EXCHANGE = LoggedExchange(
    time=1767261600.5,
    model="claude-opus-4-6",
    format="anthropic",
    usage=Usage(fresh=10, read=100, written=10, written_1h=30, output=7),
    paid=0.01,
    would_have_paid=0.02,
    observed=False,
    conversation="c1",
    started=1767261000.0,
    client="claude-cli/2.1",
    title="",
    status=200,
)


def read(*rows: Any) -> list[LoggedExchange] | None:
    return read_usage_log("some.log", lines(*rows))


def test_a_row_is_read() -> None:
    assert read(ROW) == [EXCHANGE]
    assert read(ROW, b"", b'{"id": "e2", "at', ROW | {"observe": True}) == [EXCHANGE, EXCHANGE._replace(observed=True)]
    assert read(b'", "missed": 0.0}', ROW) == [EXCHANGE], "the first line may be cut off"


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_a_packed_log_says_the_same(pack: Any) -> None:
    assert read_usage_log("some.log", pack(lines(ROW, ROW))) == [EXCHANGE, EXCHANGE]


def test_a_damaged_log_is_named() -> None:
    with pytest.raises(recordings.LogError, match=r"^some\.log: starts like a gzip file"):
        read_usage_log("some.log", gzip.compress(lines(*[ROW] * 2000)) + b"\x1f\x8brubbish")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n", b"hello", b"[1]", b"{}", b"\x1f\x8brubbish", b"\x28\xb5\x2f\xfdrubbish"),
        *(lines({"would_have_paid": 1}), lines(ROW | {"at": "noon"}), lines(ROW | {"outcome": None})),
        *(lines([ROW]), json.dumps(ROW, indent=1).encode(), claude_code.EXAMPLES[0].data),
    ],
    ids=lambda data: repr(data[:30]),
)
def test_any_other_file_is_none(data: bytes) -> None:
    assert read_usage_log("some.log", data) is None


def test_a_row_of_an_older_proxy_says_less() -> None:
    old = {key: value for key, value in ROW.items() if key not in ("model", "format", "client", "started")}
    assert read(old) == [EXCHANGE._replace(model="", format="", client="", started=None)]


def test_what_was_not_counted_is_not_known() -> None:
    passed = ROW | dict.fromkeys(("input", "read", "written", "written_1h", "fresh", "output"), 0)
    passed |= {"paid": None, "would_have_paid": None, "conversation": None, "outcome": "passed", "status": 0}
    [found] = read(passed) or []
    assert (found.usage, found.paid, found.would_have_paid) == (None, None, None)
    assert (found.conversation, found.status) == ("", 0)


@pytest.mark.parametrize("odd", [None, True, -1, 10**30, float("nan"), 1e999, "\x1b[1mx", [], {}, "\ud800"], ids=repr)
@pytest.mark.parametrize("field", ROW)
def test_whatever_stands_in_a_row_is_a_value_or_none(field: str, odd: Any) -> None:
    for found in read(ROW, ROW | {field: odd}) or []:
        assert all(text.isprintable() for text in (found.model, found.format, found.client, found.conversation))
        assert all(each is None or 0 <= each < 1e9 for each in (found.paid, found.would_have_paid)) or odd == 10**30
        assert found.usage is None or found.usage.input < 10**12


def test_it_is_no_recording_and_that_is_said() -> None:
    with pytest.raises(recordings.LogError) as error:
        recordings.read("some.log", lines(ROW))
    assert str(error.value) == (
        "some.log: a log of ibidem's proxy (--json-log): it has the cost of each request, but no conversations. "
        "Pass the agent's own log instead"
    )


def test_what_the_proxy_writes_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    body = json.dumps({**conv("u:hello"), "model": "claude-opus-4-6"}).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kettle/3 (x)\r\nContent-Length: {len(body)}"
    with (
        Upstream(lambda _: Says("ok")) as upstream,
        BackgroundServer(to(upstream.url, json_log=str(log)), MemoryStore()) as proxy,
    ):
        for _ in range(2):
            asked(proxy, f"{head}\r\n\r\n".encode() + body)
    found = read_usage_log(str(log), log.read_bytes())
    assert found is not None
    assert [(each.model, each.format, each.client) for each in found] == [
        ("claude-opus-4-6", "anthropic", "kettle/3")
    ] * 2
    assert [each.status for each in found] == [200, 200]
    assert all(each.usage is not None and each.usage.output and each.paid for each in found)
    assert all(each.started is not None and each.started <= each.time and each.conversation for each in found)
