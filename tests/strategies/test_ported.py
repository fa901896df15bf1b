"""The behaviour of the codetether system, case by case, over the public API.

Its own shape is closest to OpenAI chat: a message per result. Where a case makes sense elsewhere it is run in all four
formats.
"""

from __future__ import annotations

from typing import Any

import pytest

import ibidem
from ibidem import Dedup, DedupToolCalls, DropMiddle, Lingua, PruneThinking, RepairPairing, Snippet
from ibidem.formats import FORMATS
from ibidem.model import Text
from ibidem.testing import conv, read

every_format = pytest.mark.parametrize("format", FORMATS)
FILLER = ("u:m0", "a:m1")


def run(request: Any, *strategies: Any, format: str | None = None) -> ibidem.Compacted:
    return ibidem.compact(request, strategies=strategies, format=format)


def filler(count: int) -> tuple[str, ...]:
    """So many messages of plain chat, ending in the user's."""
    return tuple(f"{'u' if (count - n) % 2 else 'a'}:m{n}" for n in range(count))


def result_texts(request: Any, format: str) -> list[str]:
    """Texts of the results, in order."""
    results = [result for message in read(request, format).messages for result in message.results]
    return [segment.text for result in results for segment in result.segments if isinstance(segment, Text)]


def reads(*outputs: str, format: str) -> Any:
    """A conversation that gets these outputs one after the other, from calls c0, c1, …"""
    lines = ["u:go"]
    for number, output in enumerate(outputs):
        lines += [f"a>c{number}", f"rc{number}:{output}"]
    return conv(*lines, format=format)


# ── dedup ───────────────────────────────────────────────────────────────────────────────────────────────────────────

CRAB = "🦀"


@every_format
@pytest.mark.parametrize(
    ("outputs", "hits", "markers"),
    [
        pytest.param(
            ["x" * 1024] * 2,
            1,
            {1: "[DEDUP] identical to tool_call_id=c0 (1024 bytes)"},
            id="the second copy points at it",
        ),
        pytest.param(["ok", "ok"], 0, {}, id="short copies stay"),
        pytest.param(["x" * 1024, "y" * 1024], 0, {}, id="different results stay"),
        pytest.param(
            ["z" * 2048] * 3,
            2,
            dict.fromkeys((1, 2), "[DEDUP] identical to tool_call_id=c0 (2048 bytes)"),
            id="no chains: all later copies point at the first",
        ),
        pytest.param(["q" * 255] * 2, 0, {}, id="255 bytes stay"),
        pytest.param(
            ["q" * 256] * 2, 1, {1: "[DEDUP] identical to tool_call_id=c0 (256 bytes)"}, id="256 bytes are replaced"
        ),
        pytest.param(
            [CRAB * 64] * 2, 1, {1: "[DEDUP] identical to tool_call_id=c0 (256 bytes)"}, id="64 crabs are 256 bytes"
        ),
        pytest.param([CRAB * 63] * 2, 0, {}, id="63 crabs are 252 bytes"),
        pytest.param(
            ["a" * 300, "b" * 300, "a" * 300],
            1,
            {2: "[DEDUP] identical to tool_call_id=c0 (300 bytes)"},
            id="something else may stand between",
        ),
    ],
)
def test_dedup(outputs: list[str], hits: int, markers: dict[int, str], format: str) -> None:
    request = reads(*outputs, format=format)
    done = run(request, Dedup(), format=format)
    assert result_texts(done.request, format) == [markers.get(n, text) for n, text in enumerate(outputs)]
    saved = sum(len(outputs[n].encode()) - len(marker) for n, marker in markers.items())
    assert (done.stats.dedup_hits, done.stats.total_bytes_saved) == (hits, saved)


def test_dedup_needs_no_calls_to_know_a_result() -> None:
    big = "x" * 1024
    shape = [{"role": "tool", "tool_call_id": name, "content": big} for name in "ab"]
    done = run(shape, Dedup())
    assert done.stats.dedup_hits == 1
    assert done.stats.total_bytes_saved > 512
    assert done.request[0] is shape[0]
    assert done.request[1]["content"] == "[DEDUP] identical to tool_call_id=a (1024 bytes)"


# ── snippet ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_format
@pytest.mark.parametrize(
    ("output", "after", "hits"),
    [
        pytest.param("A" * 10_000, 0, 0, id="a lone result stays"),
        pytest.param("A" * 10_000, 7, 0, id="in the last eight messages it stays"),
        pytest.param("A" * 10_000, 8, 1, id="followed by exactly eight it is snipped"),
        pytest.param("A" * 4095, 10, 0, id="4095 bytes stay"),
        pytest.param("A" * 4096, 10, 1, id="4096 bytes are snipped"),
        pytest.param(CRAB * 4000, 10, 1, id="crabs are snipped between crabs"),
        pytest.param("x" + CRAB * 4000, 10, 1, id="crabs are not cut in two"),
    ],
)
def test_snippet(output: str, after: int, hits: int, format: str) -> None:
    request = conv("u:go", "a>1", f"r1:{output}", *filler(after), format=format)
    done = run(request, Snippet(), format=format)
    assert done.stats.snippet_hits == hits
    (text,) = result_texts(done.request, format)
    if not hits:
        assert text == output
        return
    data = output.encode()
    head, tail = data[:1024].decode(errors="ignore"), data[-1024:].decode(errors="ignore")
    elided = len(data) - len((head + tail).encode())
    assert text == f"{head}\n[...elided {elided} bytes...]\n{tail}"
    assert done.stats.total_bytes_saved == len(data) - len(text.encode())


def test_snippet_saves_and_keeps_both_ends() -> None:
    done = run(conv("u:go", "a>1", f"r1:{'A' * 10_000}", *filler(10), format="openai-chat"), Snippet())
    assert done.stats.total_bytes_saved > 5_000
    assert done.request["messages"][2]["content"][0] == done.request["messages"][2]["content"][-1] == "A"


@pytest.mark.parametrize(
    ("output", "plain", "heeding"),
    [
        pytest.param(f"{'H' * 2000}\n[...elided 99 bytes...]\n{'T' * 2000}", 0, 0, id="snipped before, and short"),
        pytest.param(
            f"{'H' * 9000}\n[...elided 99 bytes...]\n{'T' * 2000}", 1, 0, id="long text that says it was snipped"
        ),
        pytest.param("[DEDUP]" + "x" * 9000, 1, 0, id="long text that says it is a reference"),
    ],
)
def test_only_the_codetether_profile_heeds_what_a_result_says_of_itself(output: str, plain: int, heeding: int) -> None:
    request = conv("u:go", "a>1", f"r1:{output}", *filler(10), format="openai-chat")
    assert run(request, Snippet()).stats.snippet_hits == plain
    assert run(request, Snippet(heed_markers=True)).stats.snippet_hits == heeding
    assert ibidem.compact(request, profile="codetether-all").stats.snippet_hits == heeding


# ── lingua ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_format
@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        pytest.param(
            "Here is my   plan.\n\n\n\n...\n   \nAnd it works.  \n",
            "Here is my plan.\n\nAnd it works.\n",
            id="noise collapses",
        ),
        pytest.param("a\n```\nx  =   1  \n\n\n```\nb  c", "a\n```\nx  =   1  \n\n\n```\nb c", id="fenced code stays"),
        pytest.param("nothing to do", "nothing to do", id="clean text stays"),
        pytest.param("rule\n-----\n*****\n=====\n…\nend", "rule\n\nend", id="rules are noise"),
        pytest.param("- a\n- b", "- a\n- b", id="list items are not"),
        pytest.param("  \n\n  ", "  \n\n  ", id="what would vanish stays"),
    ],
)
def test_lingua(text: str, cleaned: str, format: str) -> None:
    said = text.strip() and text
    request = conv("u:go", f"a:{said or text}", *filler(7)[1:], format=format)
    done = run(request, Lingua(), format=format)
    message = read(done.request, format).messages[1]
    assert isinstance(message.parts[0], Text)
    assert message.parts[0].text == cleaned


@every_format
def test_lingua_leaves_the_user_and_the_last_six_alone(format: str) -> None:
    noisy = "so   much \n\n\n\n space"
    request = conv(f"u:{noisy}", "a:yes", f"u:{noisy}", f"a:{noisy}", *filler(5), format=format)
    assert run(request, Lingua(), format=format).request is request


# ── thinking ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", ["anthropic", "gemini"])
@pytest.mark.parametrize(
    ("lines", "left", "thoughts"),
    [
        pytest.param(["a?hm"], 1, 1, id="alone it stays"),
        pytest.param(["a?hm", *filler(5)], 5, 0, id="a message of nothing else goes"),
        pytest.param(["u:q", "a?hm:text", *filler(5)], 7, 0, id="the text beside it stays"),
        pytest.param(["u:q", "a?hm:text", "u:1", "a:2", "u:3"], 5, 1, id="in the last four messages it stays"),
        pytest.param(
            ["u:q", "a?hm>1", "r1:x", "a>2", "r2:x", "a>3", "r3:x"], 7, 1, id="in the running tool loop it stays"
        ),
        pytest.param(
            ["u:q", "a?hm>1", "r1:x", "a:done", "u:next", "a>2", "r2:x", "a>3", "r3:x"],
            9,
            0,
            id="before the loop it goes",
        ),
    ],
)
def test_thinking(lines: list[str], left: int, thoughts: int, format: str) -> None:
    done = run(conv(*lines, format=format), PruneThinking(), format=format)
    after = read(done.request, format).messages
    assert len(after) == left
    assert sum("hm" in message.texts() for message in after) == thoughts
    assert done.stats.total_bytes_saved == (0 if thoughts else 2)


def test_reasoning_items_stay_with_what_they_led_to() -> None:
    request = conv("u:q", "a?hm:text", *filler(9), format="openai-responses")
    assert run(request, PruneThinking()).request is request


def test_a_message_that_parts_two_turns_of_the_user_stays_where_turns_alternate() -> None:
    request = conv("u:q", "a?hm", *filler(7), format="anthropic")
    done = run(request, PruneThinking())
    assert done.request is request
    assert not done.reason


# ── repeated calls ──────────────────────────────────────────────────────────────────────────────────────────────────

LONG = {
    "command": "find . -name '*.py' -newer setup.cfg -not -path './build/*' | xargs grep -n TODO | sort | head -200"
}


def repeated(*calls: tuple[str, dict[str, Any]], after: int, format: str) -> Any:
    lines, table = ["u:go"], {}
    for number, call in enumerate(calls):
        table[f"c{number}"] = call
        lines += [f"a>c{number}", f"rc{number}:out {number}"]
    return conv(*lines, *filler(after), format=format, calls=table)


@every_format
@pytest.mark.parametrize(
    ("calls", "after", "hits"),
    [
        pytest.param([("Bash", LONG), ("Bash", LONG)], 8, 1, id="the second is a repeat"),
        pytest.param([("Bash", LONG), ("Shell", LONG)], 8, 0, id="another tool is another call"),
        pytest.param([("Bash", {}), ("Bash", {})], 8, 0, id="short arguments stay"),
        pytest.param([("Bash", LONG), ("Bash", LONG)], 6, 0, id="inside the last eight it stays"),
    ],
)
def test_repeated_calls(calls: list[Any], after: int, hits: int, format: str) -> None:
    request = repeated(*calls, after=after, format=format)
    done = run(request, DedupToolCalls(), format=format)
    made = [call for message in read(done.request, format).messages for call in message.calls]
    assert [call.id for call in made] == ["c0", "c1"]
    if not hits:
        assert done.request is request
        return
    size = len(read(request, format).messages[1].calls[0].arguments.encode())
    marker = f"[REPEAT of call_id=c0, {size} bytes]"
    assert made[1].input == ({"repeat": marker} if FORMATS[format].object_arguments else marker)
    assert done.stats.strategies["tool_calls"].hits == 1
    assert not done.violations


# ── the middle ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_short_conversations_keep_their_middle() -> None:
    for count in (4, 21):
        request = conv(*filler(count), format="openai-chat")
        assert run(request, DropMiddle()).request is request


def test_the_middle_goes_and_the_sinks_stay() -> None:
    request = conv(*filler(2 + 120 + 16), format="openai-chat")["messages"]
    done = run(request, DropMiddle(), format="openai-chat").request
    bytes_gone = sum(len(message["content"]) for message in request[2:122])
    marker = f"[...streaming-llm trim: 120 messages ({bytes_gone} bytes) elided between sinks and recent window...]"
    assert done[:2] == request[:2]
    assert done[2] == {"role": "user", "content": marker}
    assert done[3:] == request[-16:]


@every_format
@pytest.mark.parametrize("shift", range(6))
def test_the_cut_never_parts_a_call_from_its_result(shift: int, format: str) -> None:
    lines = ["u:go"]
    for number in range(30):
        lines += [f"a?hm>c{number}.0,c{number}.1", f"rc{number}.0:one", f"rc{number}.1:two"]
    request = conv(*lines, *filler(6)[: shift * 2], "a:so", "u:and?", format=format)
    done = run(request, DropMiddle(window=16 + shift), format=format)
    assert not done.reason
    assert done.plan
    assert not done.violations


# ── pairing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

MISSING = "[tool result unavailable: elided by context management]"


@pytest.mark.parametrize("repair", [RepairPairing(), RepairPairing(by_place=False)], ids=["by place", "by id"])
@pytest.mark.parametrize(
    ("lines", "hits", "roles"),
    [
        pytest.param(["u:q", "a>a", "ra:x", "a:done"], 0, "user assistant tool assistant", id="well-formed stays"),
        pytest.param(["u:q", "a>a", "u:follow-up"], 1, "user assistant tool user", id="an unanswered call is answered"),
        pytest.param(["u:q", "rx:lost", "u:next"], 1, "user user", id="a result without a call goes"),
        pytest.param(
            ["u:q", "a>a", "a>b", "rb:x", "u:mid", "rc:lost"],
            2,
            "user assistant tool assistant tool user",
            id="one of each: two repairs",
        ),
    ],
)
def test_pairing(lines: list[str], hits: int, roles: str, repair: RepairPairing) -> None:
    request = conv(*lines, format="openai-chat")
    done = run(request, repair, format="openai-chat")
    assert [message["role"] for message in done.request["messages"]] == roles.split()
    assert sum(each.hits for each in done.stats.strategies.values()) == hits
    assert (done.request is request) == (hits == 0)
    if "a>a" in lines and hits:
        assert done.request["messages"][2] == {"role": "tool", "tool_call_id": "a", "content": MISSING}


@every_format
def test_the_profile_answers_an_unanswered_call_in_every_format(format: str) -> None:
    request = conv("u:q", "a>a", "u:follow-up", format=format)
    done = ibidem.compact(request, profile="codetether", format=format).request
    after = read(done, format).messages
    assert [message.role for message in after] == ["user", "assistant", "tool", "user"]
    assert result_texts(done, format) == [MISSING]


# ── all of it ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_in_nothing_out() -> None:
    done = ibidem.compact([], profile="codetether")
    assert done.request == []
    assert (done.stats.dedup_hits, done.stats.snippet_hits, done.stats.total_bytes_saved) == (0, 0, 0)


@every_format
def test_a_chat_without_tools_is_left_alone(format: str) -> None:
    request = conv(*filler(50)[1:], format=format)
    for profile in ("codetether", "lossless", "devboy"):
        assert ibidem.compact(request, profile=profile, format=format).request is request


@every_format
def test_the_default_order(format: str, caplog: pytest.LogCaptureFixture) -> None:
    big = "file contents: hello world" * 40
    request = conv("u:q", "a?hm:I   look>1", f"r1:{big}", "a>2", f"r2:{big}", "a:ok", *filler(7), format=format)
    with caplog.at_level("INFO", logger="ibidem"):
        done = ibidem.compact(request, profile="codetether", format=format)
    names = ["thinking", "dedup", "lingua"] if format in ("anthropic", "gemini") else ["dedup", "lingua"]
    assert list(done.stats.strategies) == names
    assert done.stats.total_bytes_saved == sum(each.bytes for each in done.stats.strategies.values())
    assert done.stats.dedup_hits == 1
    saved = done.stats.total_bytes_saved
    assert [r.getMessage() for r in caplog.records] == [
        f"context rewritten: dedup_hits=1 snippet_hits=0 bytes_saved={saved}"
    ]


def test_everything_switched_on_runs_in_the_order_of_the_system() -> None:
    assert [strategy.name for strategy in ibidem.PROFILES["codetether-all"]] == [
        "thinking",
        "tool_calls",
        "dedup",
        "snippet",
        "lingua",
        "middle",
        "pairing",
    ]


# ── devboy over a history ───────────────────────────────────────────────────────────────────────────────────────────


@every_format
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(["Read a:A", "Read a:A"], ["A", "> [ref: c0, byte-identical]"], id="a re-read is a hint"),
        pytest.param(
            ["Read a:A", "Edit a:ok", "Read a:A"], ["A", "ok", "A"], id="after an edit even equal bytes are fresh"
        ),
        pytest.param(
            ["Read a:A", "Edit b:ok", "Read a:A"], ["A", "ok", "> [ref: c0, byte-identical]"], id="another file"
        ),
        pytest.param(
            [*(f"Read {n}:{n}" for n in range(6)), "Read 0:0"],
            ["0", "1", "2", "3", "4", "5", "0"],
            id="only five are kept",
        ),
        pytest.param(["Bash x:s", "Bash x:s"], ["s", "s"], id="short bodies pass"),
    ],
)
def test_devboy(steps: list[str], expected: list[str], format: str) -> None:
    bodies = {key: key * 300 for key in "A012345"}
    lines, table = ["u:go"], {}
    for number, step in enumerate(steps):
        call, body = step.split(":")
        name, path = call.split()
        table[f"c{number}"] = (name, {"file_path": path})
        lines += [f"a>c{number}", f"rc{number}:{bodies.get(body, body)}"]
    done = ibidem.compact(conv(*lines, format=format, calls=table), profile="devboy", format=format)
    assert result_texts(done.request, format) == [bodies.get(text, text) for text in expected]
