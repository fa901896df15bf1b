"""Logs without thinking, and how a log is replaced on disk."""

from __future__ import annotations

import errno
import json
import os
import random
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.recordings import detached, log_backup
from ibidem.recordings.detached import EDITABLE_LOGS, RowLinks, ThinkingSurvey, remove_thinking, survey_log
from ibidem.recordings.discovery import find_logs
from ibidem.recordings.log_backup import LogFileError, ReplaceableLog

from . import hostile, pi
from .claude_code import Script, call, result, text
from .examples import lines

CLAUDE, PI = EDITABLE_LOGS["claude-code"], EDITABLE_LOGS["pi"]
SIGNING, EARLIER = "claude-opus-5-5", "claude-opus-4-6"
THOUGHT = {"type": "thinking", "thinking": "hm – ü", "signature": "sig"}
SEALED = {"type": "redacted_thinking", "data": "sealed"}
Json = dict[str, Any]


def answer(script: Script, name: str, *blocks: Json, model: str | None = SIGNING, **fields: Any) -> Json:
    row = script.answer(name, *blocks, **fields)
    row["message"]["model"] = model
    return row


def without_thinking(data: bytes, layout: detached.EditableLog = CLAUDE) -> bytes:
    rows = data.splitlines(keepends=True)
    survey = survey_log(rows, layout)
    return b"".join(remove_thinking(rows, layout, RowLinks([survey]), survey.remaining_ids))


def values(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines() if line.strip()]


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_of_thinking_is_removed_and_its_children_get_its_parent() -> None:
    s = Script()
    rows = [s.user("Begin"), answer(s, "m1", THOUGHT), answer(s, "m1", text("Ah")), answer(s, "m1", call("t1"))]
    rows += [s.user([result("t1")]), answer(s, "m2", SEALED), answer(s, "m2", THOUGHT), answer(s, "m2", text("Done"))]
    left = values(without_thinking(lines(*rows)))
    assert [row["uuid"] for row in left] == ["u1", "u3", "u4", "u5", "u8"]
    assert [row["parentUuid"] for row in left] == [None, "u1", "u3", "u4", "u5"]
    expected = [
        {**rows[number - 1], "parentUuid": left[place]["parentUuid"]} for place, number in enumerate((1, 3, 4, 5, 8))
    ]
    assert left == expected


def test_a_row_keeps_its_bytes_but_for_the_blocks_that_go() -> None:
    row = (
        rb'{ "uuid" : "u2","parentUuid":"u1", "n": 1.0e+2, "sessionId":"\u0073", "type":"assistant", '
        rb'"message":{"model":"claude-opus-5-5","content":[ %s{"type":"text", "text":"\u00fc<\/>"}, '
        rb'%s{"type":"tool_use"}%s ]} }'
    )
    thought = rb'{"type":"thinking","thinking":"a","signature":"b"}'
    before = row % (thought + b", ", thought + b", ", b", " + thought) + b"\r\n"
    left = without_thinking(before)
    assert left == row % (b"", b"", b"") + b"\r\n"


def test_other_lines_keep_their_bytes() -> None:
    s = Script()
    odd = (
        b"{broken",
        b"",
        b"   ",
        b"\x00\x00\x00",
        b"[1, 2]",
        b'"thinking"',
        b'{"a": "\xff\xfe"}',
        b'{"type":"summary" }',
    )
    rows: list[Any] = [s.user("Begin"), *odd, answer(s, "m1", THOUGHT), *odd, answer(s, "m1", text("Done"))]
    left = without_thinking(lines(*rows))
    kept = lines(rows[0], *odd, *odd)
    assert left.startswith(kept)
    assert values(left[len(kept) :]) == [{**rows[-1], "parentUuid": "u1"}]


def test_the_last_line_may_have_no_end() -> None:
    s = Script()
    data = lines(s.user("Begin"), answer(s, "m1", THOUGHT), answer(s, "m1", text("Done")))
    assert without_thinking(data[:-1]) == without_thinking(data)[:-1]


REFERENCES = {
    "leafUuid": ({"type": "summary", "leafUuid": "u2"}, {"type": "summary", "leafUuid": "u1"}),
    "logicalParentUuid": ({"type": "system", "logicalParentUuid": "u2"}, {"type": "system", "logicalParentUuid": "u1"}),
    "sourceToolAssistantUUID": ({"sourceToolAssistantUUID": "u2"}, {"sourceToolAssistantUUID": "u1"}),
    "messageId": (
        {"messageId": "u2", "snapshot": {"messageId": "u2"}},
        {"messageId": "u1", "snapshot": {"messageId": "u1"}},
    ),
    "a list": (
        {"compactMetadata": {"preservedMessages": {"anchorUuid": "u2", "uuids": ["u1", "u2", "u3"]}}},
        {"compactMetadata": {"preservedMessages": {"anchorUuid": "u1", "uuids": ["u1", "u3"]}}},
    ),
    "a range": (
        {"compactMetadata": {"preservedSegment": {"headUuid": "u2", "tailUuid": "u2"}}},
        {"compactMetadata": {"preservedSegment": {"headUuid": "u3", "tailUuid": "u1"}}},
    ),
    "a range that ends with it": ({"headUuid": "u4"}, {"headUuid": "u3"}),
    "text that was sent": ({"content": "u2", "toolUseResult": ["u2"]}, {"content": "u2", "toolUseResult": ["u2"]}),
    "a message": ({"message": {"content": "u2"}}, {"message": {"content": "u2"}}),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_no_reference_points_at_a_removed_row(name: str) -> None:
    s = Script()
    before, after = REFERENCES[name]
    rows = [s.user("Begin"), answer(s, "m1", THOUGHT), answer(s, "m1", text("Done")), answer(s, "m2", THOUGHT)]
    assert values(without_thinking(lines(*rows, before)))[-1] == after


def test_the_log_of_a_subagent_may_name_a_row_of_the_main_log() -> None:
    s = Script()
    main = survey_log([lines(row) for row in (s.user("Begin"), answer(s, "m1", THOUGHT), s.user("Go"))], CLAUDE)
    fork = lines({"type": "fork-context-ref", "parentLastUuid": "u2"})
    own = survey_log([fork], CLAUDE)
    (line,) = remove_thinking([fork], CLAUDE, RowLinks([own, main]), own.remaining_ids)
    assert json.loads(line)["parentLastUuid"] == "u1"


def test_an_id_that_stays_once_is_not_relinked() -> None:
    s = Script()
    rows = [
        s.user("Begin"),
        answer(s, "m1", THOUGHT),
        answer(s, "m1", text("Ah"), uuid="u2"),
        s.user("Go", parentUuid="u2"),
    ]
    assert [row["parentUuid"] for row in values(without_thinking(lines(*rows)))][-1] == "u2"


def test_parents_in_a_cycle_lead_nowhere() -> None:
    s = Script()
    one, two = answer(s, "m1", THOUGHT, parentUuid="u2"), answer(s, "m1", THOUGHT, parentUuid="u1")
    own = answer(s, "m2", THOUGHT, parentUuid="u3")
    rows = [one, two, own, s.user("a", parentUuid="u1"), s.user("b", parentUuid="u3"), {"headUuid": "u2"}]
    left = values(without_thinking(lines(*rows)))
    assert [row.get("parentUuid", row.get("headUuid")) for row in left] == [None, None, None]


def test_a_long_chain_of_removed_rows_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    s, size = Script(), 300
    rows = [s.user("Begin"), *(answer(s, f"m{number}", THOUGHT) for number in range(size))]
    rows += [s.user("Go", parentUuid=f"u{size + 1}") for _ in range(size)]
    looked = 0
    usual = RowLinks.is_removed

    def counted(self: RowLinks, name: str, remaining: Any) -> bool:
        nonlocal looked
        looked += 1
        return usual(self, name, remaining)

    monkeypatch.setattr(RowLinks, "is_removed", counted)
    left = values(without_thinking(lines(*rows)))
    assert {row["parentUuid"] for row in left[1:]} == {"u1"}
    assert looked < 20 * size


def test_a_line_that_cannot_be_spliced_says_the_same_without_thinking() -> None:
    twice = b'{"type":"assistant","message":{"content":1},"message":{"content":[%s{"type":"text","text":"x"}]}}'
    thought = b'{"type":"thinking","thinking":"a"},'
    assert values(without_thinking(twice % thought)) == values(twice % b"")
    bad = b'{"type":"assistant","k\xff":1,"message":{"content":[%s{"type":"text","text":"\xfe"}]}}\n'
    expected = json.loads((bad % b"").decode(errors="replace"))
    (found,) = without_thinking(bad % thought).splitlines()
    assert json.loads(found.decode(errors="replace")) == expected


NAMES = st.integers(0, 12).map(lambda number: f"r{number}")


@settings(deadline=None)  # machines are busy
@given(st.lists(st.tuples(NAMES, st.none() | NAMES, st.booleans()), max_size=30))
def test_rows_that_stay_hang_below_the_nearest_that_stays(tree: list[tuple[str, str | None, bool]]) -> None:
    """Any ids, also twice, in cycles, or of rows that are not there."""
    rows: list[Json] = [
        {
            "uuid": name,
            "parentUuid": parent,
            "type": "assistant",
            "message": {"content": [THOUGHT if thinks else text(name)]},
        }
        for name, parent, thinks in tree
    ]
    remaining = {name for name, _, thinks in tree if not thinks}
    removed = {name: parent for name, parent, thinks in reversed(tree) if thinks and name not in remaining}

    def nearest(name: str | None) -> str | None:
        seen = set()
        while name in removed and name not in seen:
            seen.add(name)
            name = removed[str(name)]
        return None if name in seen else name

    expected = [
        {**row, "parentUuid": nearest(row["parentUuid"])}
        for row, (*_, thinks) in zip(rows, tree, strict=True)
        if not thinks
    ]
    assert values(without_thinking(lines(*rows))) == expected


@pytest.mark.parametrize("name", ["claude-code", "pi"])
def test_whatever_a_log_holds_thinking_goes_and_other_lines_stay(name: str) -> None:
    s = Script()
    rows = [
        s.user("Begin"),
        answer(s, "m1", THOUGHT),
        answer(s, "m1", THOUGHT, text("Ah")),
        {"leafUuid": "u2", "uuids": ["u2"]},
    ]
    if name == "pi":
        rows = [
            pi.HEADER,
            pi.entry(1, None, message=pi.user("Go")),
            pi.entry(2, 1, message=pi.answer(pi.THOUGHT, "Ah")),
        ]
    layout, made = EDITABLE_LOGS[name], hostile.Hostile(lines(*rows))
    every = [(place, odd) for place in made.places for odd in hostile.ODD]
    variants = [made.with_odd(*each) for each in random.sample(every, 500)]
    for data in (*variants, *map(made.with_gap, made.places)):
        left = without_thinking(data, layout)
        assert survey_log(left.splitlines(keepends=True), layout).blocks == 0
        for line in data.splitlines(keepends=True):
            assert line in left or b"thinking" in line or b'"u2"' in line


# ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("models", "signed"),
    [
        ([SIGNING], True),
        ([EARLIER], False),
        ([EARLIER, SIGNING], True),
        ([None], True),
        ([""], True),
        (["gpt-5.5"], False),
    ],
)
def test_only_thinking_of_models_that_sign_or_are_unknown_counts(models: list[str | None], signed: bool) -> None:
    s = Script()
    rows = [answer(s, f"m{number}", THOUGHT, model=model) for number, model in enumerate(models)]
    survey = survey_log([lines(row) for row in rows], CLAUDE)
    assert (survey.blocks, survey.has_signed_thinking) == (len(models), signed)


def test_a_model_that_signs_but_does_not_think_leaves_nothing_to_remove() -> None:
    s = Script()
    rows = [answer(s, "m1", THOUGHT, model=EARLIER), answer(s, "m2", text("x"))]
    assert not survey_log([lines(row) for row in rows], CLAUDE).has_signed_thinking


# ── pi ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_of_pi_stay_and_lose_their_thinking() -> None:
    edit = {"content": [pi.THOUGHT, {"type": "text", "text": "less"}]}
    rows = [
        pi.HEADER,
        pi.entry(1, None, message=pi.user("Go")),
        pi.entry(2, 1, message=pi.answer(pi.THOUGHT, "Ah", pi.call("c1"))),
        pi.entry(3, 2, message=pi.result("c1")),
        pi.entry(4, 3, message=pi.answer(pi.THOUGHT)),
        pi.entry(5, 4, message=pi.answer(pi.SEALED, "Mine", api=pi.API, model="gpt-5.5")),
        pi.entry(6, 5, "context_edit", targetId="n2", replacement=edit),
        pi.entry(7, 6, "label", targetId="n4"),
    ]
    left = values(without_thinking(lines(*rows), PI))
    rows[2]["message"]["content"].pop(0)
    rows[4]["message"]["content"] = []
    rows[6]["replacement"] = {"content": [{"type": "text", "text": "less"}]}
    assert left == rows


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────

posix = pytest.mark.skipif(os.name != "posix", reason="links and modes of another kind")
OLD, NEW = b"one\ntwo\n", b"ONE\nTWO\n"


@pytest.fixture
def log(tmp_path: Path) -> ReplaceableLog:
    folder = tmp_path / "projects" / "shop"
    folder.mkdir(parents=True)
    path = folder / "s1.jsonl"
    path.write_bytes(OLD)
    path.chmod(0o640)
    os.utime(path, ns=(1_700_000_000_000_000_001, 1_700_000_000_123_456_789))
    return ReplaceableLog(path, tmp_path / "projects")


def upper(given: Iterable[bytes]) -> Iterator[bytes]:
    return (line.upper() for line in given)


def replace(log: ReplaceableLog, edit: Callable[[Iterable[bytes]], Iterable[bytes]] = upper, number: int = 1) -> Path:
    return log.replace(log.read_signature(), edit, number)


def there(log: ReplaceableLog) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.path.parent.iterdir()}


@posix
def test_the_log_is_replaced_and_the_original_stays_beside_it(log: ReplaceableLog) -> None:
    before = log.path.stat()
    backup = replace(log)
    assert there(log) == {"s1.jsonl": NEW, "s1.jsonl.ibidem-backup": OLD}
    assert backup == log.path.with_name("s1.jsonl.ibidem-backup")
    now = log.path.stat()
    assert (stat.S_IMODE(now.st_mode), now.st_mtime_ns) == (0o640, before.st_mtime_ns)
    assert backup.stat().st_ino == before.st_ino
    assert (backup.stat().st_mode, backup.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


def test_no_reader_takes_a_backup_for_a_log(log: ReplaceableLog) -> None:
    replace(log)
    replace(log, number=2)
    assert len(there(log)) == 3
    assert find_logs(log.path.parent) == [log.path]
    assert not [name for name in there(log) if name.endswith(".jsonl") and name != "s1.jsonl"]


def test_a_backup_is_restored(log: ReplaceableLog) -> None:
    replace(log)
    assert log.backup_numbers() == {1}
    log.restore(1)
    assert there(log) == {"s1.jsonl": OLD}


def test_backups_of_several_runs_are_told_apart(log: ReplaceableLog) -> None:
    replace(log)
    replace(log, lambda given: (line + b"!\n" for line in given), number=2)
    log.restore(2)
    assert there(log) == {"s1.jsonl": NEW, "s1.jsonl.ibidem-backup": OLD}
    log.restore(1)
    assert there(log) == {"s1.jsonl": OLD}


def test_a_log_that_grew_is_not_restored(log: ReplaceableLog) -> None:
    replace(log)
    with log.path.open("ab") as file:
        file.write(b"three\n")
    with pytest.raises(LogFileError, match="continued after it was detached"):
        log.restore(1)
    assert there(log) == {"s1.jsonl": NEW + b"three\n", "s1.jsonl.ibidem-backup": OLD}


@posix
def test_without_hard_links_the_backup_is_a_copy(log: ReplaceableLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **more: Any) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    before = log.path.stat()
    monkeypatch.setattr(os, "link", refused)
    backup = replace(log)
    assert there(log) == {"s1.jsonl": NEW, "s1.jsonl.ibidem-backup": OLD}
    found = backup.stat()
    assert found.st_ino != before.st_ino
    assert (found.st_mode, found.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    log.restore(1)
    assert there(log) == {"s1.jsonl": OLD}


FAILING = {"fsync": errno.EIO, "replace": errno.EXDEV, "chmod": errno.EPERM, "utime": errno.EPERM}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("linked", [True, False])
def test_what_fails_changes_nothing(
    log: ReplaceableLog, monkeypatch: pytest.MonkeyPatch, name: str, linked: bool
) -> None:
    def fails(*args: Any, **more: Any) -> None:
        raise OSError(FAILING[name], "made up")

    if not linked:
        monkeypatch.setattr(os, "link", fails)
    monkeypatch.setattr(os, name, fails)
    before = log.path.stat()
    with pytest.raises(OSError, match="made up"):
        replace(log)
    assert there(log) == {"s1.jsonl": OLD}
    assert (log.path.stat().st_ino, log.path.stat().st_nlink) == (before.st_ino, 1)


@pytest.mark.parametrize("linked", [True, False])
def test_a_full_disk_changes_nothing(log: ReplaceableLog, linked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new log, or the copy of the old one, does not fit."""
    resource = pytest.importorskip("resource")
    log.path.write_bytes(OLD * 10_000)
    before = log.path.read_bytes()

    def refused(*args: Any, **more: Any) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    if not linked:
        monkeypatch.setattr(os, "link", refused)
    small = (lambda given: [b"little\n"]) if not linked else upper
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, usual[1]))
    try:
        with pytest.raises(OSError, match="large"):
            replace(log, small)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert there(log) == {"s1.jsonl": before}


def test_an_interruption_changes_nothing(log: ReplaceableLog) -> None:
    def interrupted(given: Iterable[bytes]) -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(log, interrupted)
    assert there(log) == {"s1.jsonl": OLD}


@posix
def test_a_run_that_was_killed_before_the_end_can_be_repeated(log: ReplaceableLog) -> None:
    os.link(log.path, log.path.with_name("s1.jsonl.ibidem-backup"))
    replace(log)
    assert there(log) == {"s1.jsonl": NEW, "s1.jsonl.ibidem-backup": OLD}


@pytest.mark.parametrize("linked", [True, False])
def test_a_log_that_changes_meanwhile_is_not_replaced(
    log: ReplaceableLog, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: Any, **more: Any) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    def late(given: Iterable[bytes]) -> Iterator[bytes]:
        yield from upper(given)
        with log.path.open("ab") as file:
            file.write(b"three\n")

    if not linked:
        monkeypatch.setattr(os, "link", refused)
    with pytest.raises(LogFileError, match="changed while it was read"):
        replace(log, late)
    assert there(log) == {"s1.jsonl": OLD + b"three\n"}


def test_a_log_that_changed_since_it_was_surveyed_is_not_even_read(log: ReplaceableLog) -> None:
    signature = log.read_signature()
    log.path.write_bytes(b"another\n")
    with pytest.raises(LogFileError, match="changed while it was read"):
        log.replace(signature, lambda given: pytest.fail("it was read"), 1)
    assert there(log) == {"s1.jsonl": b"another\n"}


@posix
def test_what_is_written_at_the_last_moment_is_not_lost(log: ReplaceableLog, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = os.replace

    def late(*args: Any, **more: Any) -> None:
        monkeypatch.undo()
        with log.path.open("ab") as file:
            file.write(b"three\n")
        usual(*args, **more)

    monkeypatch.setattr(os, "replace", late)
    with pytest.raises(LogFileError, match="changed while it was read"):
        replace(log)
    assert there(log) == {"s1.jsonl": OLD + b"three\n"}


@posix
def test_another_file_with_the_name_of_the_backup_stays(log: ReplaceableLog) -> None:
    other = log.path.with_name("s1.jsonl.ibidem-backup")
    other.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        replace(log)
    assert there(log) == {"s1.jsonl": OLD, other.name: b"mine"}


def _linked(log: ReplaceableLog) -> None:
    real = log.path.with_name("real")
    log.path.rename(real)
    log.path.symlink_to(real)


def _folder_linked(log: ReplaceableLog) -> None:
    real = log.path.parent.with_name("elsewhere")
    log.path.parent.rename(real)
    log.path.parent.symlink_to(real)


def _named_twice(log: ReplaceableLog) -> None:
    os.link(log.path, log.path.with_name("second"))


def _pipe(log: ReplaceableLog) -> None:
    log.path.unlink()
    os.mkfifo(log.path)


def _folder(log: ReplaceableLog) -> None:
    log.path.unlink()
    log.path.mkdir()


REFUSED = {
    "a symbolic link": (_linked, "a symbolic link"),
    "a folder that is a symbolic link": (_folder_linked, "a symbolic link"),
    "two names": (_named_twice, "2 names"),
    "a pipe": (_pipe, "not a regular file"),
    "a folder": (_folder, "not a regular file"),
}


@posix
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_plain_log_is_refused(log: ReplaceableLog, name: str) -> None:
    prepare, why = REFUSED[name]
    signature = log.read_signature()
    prepare(log)
    before = sorted(each.name for each in log.path.parent.iterdir())
    for act in (lambda: log.replace(signature, upper, 1), log.read_signature, lambda: list(log.read_lines())):
        with pytest.raises(LogFileError, match=why):
            act()
    assert sorted(each.name for each in log.path.parent.iterdir()) == before


@posix
def test_no_link_is_followed_that_appears_after_the_first_look(
    log: ReplaceableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = log.read_signature()
    _folder_linked(log)
    monkeypatch.setattr(Path, "is_symlink", lambda self: False)
    with pytest.raises(NotADirectoryError):
        log.replace(signature, upper, 1)


@posix
def test_the_root_itself_may_be_a_link(log: ReplaceableLog, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(tmp_path / "projects")
    linked = ReplaceableLog(tmp_path / "other" / "shop" / "s1.jsonl", tmp_path / "other")
    replace(linked)
    assert there(log)["s1.jsonl"] == NEW


@posix
def test_a_backup_that_is_a_link_is_not_restored(log: ReplaceableLog) -> None:
    replace(log)
    backup = log.path.with_name("s1.jsonl.ibidem-backup")
    backup.rename(backup.with_name("real"))
    backup.symlink_to("real")
    with pytest.raises(LogFileError, match="not a regular file"):
        log.restore(1)


def test_paths_serve_where_folders_cannot_be_opened(log: ReplaceableLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_backup, "_AT_FOLDER", False)
    replace(log)
    assert there(log) == {"s1.jsonl": NEW, "s1.jsonl.ibidem-backup": OLD}
    log.restore(1)
    assert there(log) == {"s1.jsonl": OLD}


def test_a_survey_of_nothing_is_empty() -> None:
    assert survey_log([], CLAUDE) == ThinkingSurvey()
