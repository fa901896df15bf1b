"""`ibidem show` with a log: one request of a session, and the page of all of them."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import ibidem
from ibidem import recordings
from ibidem.cli import elapsed_time
from ibidem.cli.command_errors import InputError
from ibidem.cli.view.details import details_name, details_page, write_details
from ibidem.recordings import Recording
from ibidem.recordings.session_ids import file_name_ids, session_id
from ibidem.report.measure import UNDONE_LABEL, ReportSettings, measure_session
from ibidem.report.trace import SessionTrace

from ..recordings import claude_code, codex, mini_swe_agent
from ..recordings.examples import lines
from ..support.browser import launched
from .test_show import HOSTILE, LINES, LONG, Page, process, run

ID = "5f0a1d2e-1111-4222-8333-444455556666"
OTHER_ID = "5f0b0000-1111-4222-8333-444455556666"
START = datetime(2026, 1, 1, 10, tzinfo=UTC).timestamp()


def claude_log(*results: str, pause_before: int = -1, words: str = "Fix the bug", tool: str = "Read") -> bytes:
    """An agent that reads as often as there are results, a minute apart, and after an hour once."""
    script = claude_code.Script()
    rows: list[dict[str, Any]] = []
    clock = START

    def add(row: dict[str, Any]) -> None:
        nonlocal clock
        clock += 20
        rows.append({**row, "timestamp": datetime.fromtimestamp(clock, UTC).isoformat()})

    add(script.user(words))
    for number, text in enumerate(results):
        call = {**claude_code.call(f"t{number}", "src/a.py"), "name": tool}
        add(script.answer(f"m{number}", call, read=100 * number))
        if number == pause_before:
            clock += 7200
        add(script.user([claude_code.result(f"t{number}", text)]))
    add(script.answer("end", claude_code.text("Done"), read=300))
    return lines(*rows)


def codex_log(*results: str) -> bytes:
    script = codex.Script()
    rows = [script.meta(), script.model("gpt-5.5"), script.message("user", "Fix the bug")]
    for number, text in enumerate(results):
        rows += [script.call(f"c{number}"), {**script.output(f"c{number}")}]
        rows[-1]["payload"]["output"] = text
        rows.append(script.tokens(500 * (number + 1), 400 * number))
    return lines(*rows, script.message("assistant", "Done"))


def chat_log(*results: str) -> bytes:
    made = mini_swe_agent
    rows = [made.SYSTEM, made.TASK]
    for number, text in enumerate(results):
        rows += [made.answer("Look", f"c{number}"), made.result(f"c{number}", text)]
    return json.dumps(made.run(*rows, made.answer("Done"))).encode()


LOGS = {"claude-code": claude_log, "codex": codex_log, "mini-swe-agent": chat_log}
PART = "a start of its own\n" + LONG + "an end of its own\n"


def saved(tmp_path: Path, data: bytes, name: str = "log.jsonl") -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def told(*args: str | Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    result = run("show", *args, "--json", stdin=None, **(env or {}))
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def read(path: Path) -> Recording:
    (session,) = recordings.read(str(path), path.read_bytes())
    return session


# --- one request ---------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", LOGS)
def test_the_last_request_with_a_new_edit_is_shown(tmp_path: Path, agent: str) -> None:
    path = saved(tmp_path, LOGS[agent](LONG, "short", PART, "short too"))
    shown = run("show", path, COLUMNS="80").stdout
    assert re.search(rf"^{agent}, .*profile lossless$", shown, re.MULTILINE)
    assert re.search(r"^request 4 of 5", shown, re.MULTILINE)
    assert re.search(
        r"^ +as sent   with ibidem +saved\ntokens .+\ndollars .+\ndollars, requests 1-4 ", shown, re.MULTILINE
    )
    assert "1 new edit in this request.\n" in shown
    assert "\nspans: stands in part in result 1 (" in shown
    assert re.search(r"\nsaved: .*in this request, .+ in the whole\n? ?session\n", shown)
    assert shown.endswith(f"ibidem show {path} --request 5\n")
    assert all(len(line) <= 80 for line in shown.splitlines() if " show " not in line)


@pytest.mark.parametrize("agent", LOGS)
@pytest.mark.parametrize("profile", ["lossless", "recoverable", "aggressive"])
def test_what_edits_saved_adds_up_to_the_report(tmp_path: Path, agent: str, profile: str) -> None:
    session = read(saved(tmp_path, LOGS[agent](LONG, PART, LONG, LONG + PART, PART, LONG)))
    figures = measure_session(session, ReportSettings((profile,))).profiles[profile]
    trace = SessionTrace(session, ReportSettings((profile,)), profile)
    in_all = sum(each.saved_in_all for _, edits in trace.edits_by_request() for each in edits)
    reported = sum(each.cost for name, each in figures.strategies.items() if name != UNDONE_LABEL)
    assert math.isclose(in_all, reported)
    assert math.isclose(trace.costs_between(0, len(trace))[1], figures.spent.cost)
    for number, request in enumerate(trace.requests):
        edits = trace.edits_at(number)
        assert request.new == sum(each.since == number for each in edits)
        if edits:
            assert math.isclose(sum(each.saved for each in edits), request.paid - request.would_pay, abs_tol=1e-9)
            taken_out = sum(each.before - each.after for each in edits)
            assert math.isclose(taken_out, request.before - request.after, abs_tol=1e-6)


@pytest.mark.parametrize("agent", LOGS)
def test_a_request_is_shown_as_compact_sends_it(tmp_path: Path, agent: str) -> None:
    path = saved(tmp_path, LOGS[agent](LONG, "short", PART, LONG))
    for number, (body, _) in enumerate(read(path).requests(), 1):
        edits = sorted(ibidem.compact(body).plan, key=lambda edit: edit.message)
        found = told(path, "--request", str(number))
        assert [(each["message"], each["original"], each["sent"]) for each in found["edits"]] == [
            (edit.message, "\n".join(edit.removed), edit.added) for edit in edits
        ]


def test_earlier_edits_are_counted_and_all_shows_them(tmp_path: Path) -> None:
    path = saved(tmp_path, claude_log(LONG, PART, "short", LONG))
    few, all_ = (run("show", path, "--request", "-1", *more, COLUMNS="120").stdout for more in ([], ["--all"]))
    assert "request 5 of 5" in few
    assert "1 new edit in this request.\n1 more edit from earlier requests: --all shows them.\n" in few
    assert ("since request 3; saved: " in few, "since request 3; saved: " in all_) == (False, True)
    assert (few.count("\nmessages["), all_.count("\nmessages[")) == (1, 2)
    third = run("show", path, "--request", "4").stdout
    assert "No new edits in this request.\n1 edit from earlier requests" in third
    found = told(path, "--request", "4")
    assert (found["previous_with_new_edits"], found["next_with_new_edits"], found["new_edits"]) == (3, 5, 0)
    assert [each["since_request"] for each in found["edits"]] == [3]


def test_what_is_evicted_says_when_and_why(tmp_path: Path) -> None:
    results = ["\n".join(f"{line} in read {number}" for line in LINES * 3) for number in range(8)]
    path = saved(tmp_path, claude_log(*results, pause_before=6))
    shown = run("show", path, "--profile", "aggressive", "--request", "8", COLUMNS="120").stdout
    assert re.search(r"\nEvicted here: [\d.k]+ tokens that were already sent \(the provider's cache had expired", shown)
    assert "evicted here (cold cache); saved: " in shown
    found = told(path, "--profile", "aggressive")
    assert {each["changes_what_was_sent"] for each in found["edits"]} == {True}
    at = told(path, "--profile", "aggressive", "--request", "8")
    assert [each["reason"] for each in at["evictions"]] == ["cold cache"]
    later = run("show", path, "--profile", "aggressive", "--request", "9", "--all", COLUMNS="120").stdout
    assert "evicted in request 8 (cold cache); saved: " in later


@pytest.mark.parametrize("number", ["0", "6", "-6"])
def test_a_request_that_there_is_not(tmp_path: Path, number: str) -> None:
    path = saved(tmp_path, claude_log(LONG, LONG, LONG, LONG))
    result = run("show", path, "--request", number)
    assert result.exit_code == 2
    assert result.stderr == f"ibidem: {path}: has 5 requests: --request takes 1 to 5, or -1 for the last\n"


def test_of_several_sessions_the_longest_is_shown_and_the_rest_named(tmp_path: Path) -> None:
    (example,) = [each for each in claude_code.EXAMPLES if each.name.startswith("sub-agents")]
    path = saved(tmp_path, example.data)
    names = [each.name for each in recordings.read(str(path), example.data)]
    shown = run("show", path).stdout
    assert "has 3 sessions. Showing main, with 2 requests. --session NAME shows another: left, " in shown
    assert told(path, "--session", "le")["name"] == "left" == names[1]
    result = run("show", path, "--session", "nobody")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "no such session: pass one of main, left, " in result.stderr


def test_request_bodies_stay_requests_unless_one_is_asked_for(tmp_path: Path) -> None:
    bodies = [body for body, _ in read(saved(tmp_path, claude_log(LONG, PART, LONG))).requests()]
    path = saved(tmp_path, lines(*bodies), "bodies.jsonl")
    assert f"{path} has 4 requests. Showing line 4, the last valid one." in run("show", path).stdout
    assert "request 2 of 4" in run("show", path, "--request", "2").stdout
    sample = saved(tmp_path, b'{"prompt": "nothing that is known"}', "other.json")
    for args in (["--request", "1"], ["--session", "x"]):
        result = run("show", sample, *args)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert run("show", *args).exit_code == 2


def test_a_log_may_come_through_a_pipe() -> None:
    result = run("show", "-", stdin=claude_log(LONG, LONG))
    assert (result.exit_code, "request 3 of 3" in result.stdout) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["80", "200"])
def test_what_a_log_holds_cannot_reach_the_terminal(tmp_path: Path, columns: str) -> None:
    evil = "\x1b[31m<script>alert(1)</script>\x07"
    path = saved(tmp_path, claude_log(HOSTILE + LONG, HOSTILE + LONG, words=evil, tool=evil), "\x1b[5m.jsonl")
    done = process("show", path, "--all", env={"COLUMNS": columns})
    shown = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert shown.replace("\n", "").isprintable()
    assert r"\x1b[31mred\x1b[0m\x07 [red]markup[/red] :smile: <script>" in shown


@pytest.mark.slow
def test_signs_are_plain_where_there_are_no_others(tmp_path: Path) -> None:
    path = saved(tmp_path, claude_log(LONG, LONG))
    done = process("show", path, env={"PYTHONIOENCODING": "ascii", "COLUMNS": "80"})
    shown = done.stdout.decode("ascii")
    assert done.returncode == 0
    assert all(sign in shown for sign in (" -> ", "\n> [ibidem ", "... 35 lines ..."))
    assert not any(sign in shown for sign in ("\\u", "?"))


# --- by id -----------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of a user of two agents."""
    saved(tmp_path, claude_log(LONG, LONG), f".claude/projects/shop/{ID}.jsonl")
    saved(tmp_path, codex_log(LONG, LONG), f".codex/sessions/2026/rollout-2026-01-01T10-00-00-{OTHER_ID}.jsonl")
    saved(tmp_path, b"no log at all", ".claude/projects/shop/empty.jsonl")
    return tmp_path


def at_home(home: Path) -> dict[str, str]:
    names = ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "CODEX_HOME", "COPILOT_HOME", "XDG_DATA_HOME")
    return {"HOME": str(home), "USERPROFILE": str(home), **dict.fromkeys(names, "")}


@pytest.mark.parametrize(("beginning", "agent"), [("5f0a", "claude-code"), (OTHER_ID, "codex"), ("5F0B", "codex")])
def test_a_session_is_found_by_the_beginning_of_its_id(home: Path, beginning: str, agent: str) -> None:
    assert told(beginning, env=at_home(home))["agent"] == agent
    assert f"ibidem show {beginning} --request 2\n" in run("show", beginning, stdin=None, **at_home(home)).stdout


@pytest.mark.parametrize(
    ("beginning", "words"),
    [
        ("5f0", f"5f0: 2 session ids start with this: {ID}, {OTHER_ID}: type more characters"),
        ("zzz", "zzz: no such file, and no session id in 3 logs on this machine starts with this: `ibidem report"),
        ("missing.jsonl", "missing.jsonl: no such file or folder: check the path"),
        ("folder/zzz", "folder/zzz: no such file or folder: check the path"),
    ],
)
def test_an_id_that_is_not_enough_is_one_line(home: Path, beginning: str, words: str) -> None:
    result = run("show", beginning, stdin=None, **at_home(home))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert words in result.stderr


def test_an_id_is_looked_for_in_logs_whose_names_do_not_say_it(home: Path) -> None:
    (example,) = [each for each in claude_code.EXAMPLES if each.name.startswith("sub-agents")]
    saved(home, example.data, ".claude/projects/shop/main.jsonl")
    assert told("left", env=at_home(home))["name"] == "left"


@pytest.mark.parametrize(
    ("path", "ids"),
    [
        (f"/a/{ID}.jsonl", (ID,)),
        (f"rollout-2026-01-01T10-00-00-{ID}.jsonl.zst", (ID, f"rollout-2026-01-01T10-00-00-{ID}")),
        ("/home/me/.copilot/session-state/abc/events.jsonl", ("abc",)),
        ("runs/gpt-4.1.json", ("gpt-4.1",)),
    ],
)
def test_the_name_of_a_log_says_its_id(path: str, ids: tuple[str, ...]) -> None:
    assert file_name_ids(path) == ids
    assert session_id(Recording("x", "anthropic", [], path)) == ids[0]
    assert session_id(Recording("x", "anthropic", [], path, id="own")) == "own"


# --- commands that take requests -----------------------------------------------------------------


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
@pytest.mark.parametrize("command", ["compact", "expand", "validate"])
def test_other_commands_say_who_reads_a_log(tmp_path: Path, agent: str, command: str) -> None:
    data = LOGS[agent](LONG, LONG)
    path = saved(tmp_path, b'{"type": "summary", "summary": "what no reader knows"}\n' + data)
    result = run(command, path)
    assert (result.exit_code, result.stdout) == (2, "")
    commands = f"`ibidem report {path}` shows its cost, `ibidem show {path}` its requests"
    assert result.stderr == f"ibidem: {path}: a log of {agent}, not a request: {commands}\n"
    assert f"standard input: a log of {agent}" in run(command, "-", stdin=data).stderr


# --- the page of a request, and of a session --------------------------------------------------------


def check_page(text: str) -> Page:
    page = Page(text)
    assert {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "base", "form"} == set()
    assert [tag for tag, _ in page.tags].count("script") == 1
    anchors = page.values("id")
    assert len(anchors) == len(set(anchors))
    assert {link.removeprefix("#") for link in page.values("href")} <= set(anchors)
    assert "default-src 'none'" in page.values("content")[0]
    return page


def test_a_request_as_a_page(tmp_path: Path) -> None:
    path, out = saved(tmp_path, claude_log(HOSTILE + LONG, "x", HOSTILE + LONG, words="<b>&")), tmp_path / "page.html"
    result = run("show", path, "--html", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "1 new edit in this request." in result.stderr
    page = check_page(out.read_text("utf-8"))
    assert "request 4 of 4" in page.text
    assert "<script>alert(1)</script>" in page.text
    assert f"ibidem show {path} --request 3" in page.text
    assert "Targets of markers" in page.text


def page_of(tmp_path: Path, data: bytes, profile: str = "lossless") -> Path:
    session = read(saved(tmp_path, data))
    folder = tmp_path / "details"
    return folder / write_details(session, ReportSettings((profile,)), folder, profile)


@pytest.mark.parametrize("agent", LOGS)
@pytest.mark.parametrize("profile", ["lossless", "aggressive"])
def test_a_page_of_a_session_has_every_request_and_every_edit_once(tmp_path: Path, agent: str, profile: str) -> None:
    log = LOGS[agent](LONG, PART, "short", LONG, PART)
    page = check_page(page_of(tmp_path, log, profile).read_text("utf-8"))
    trace = SessionTrace(read(tmp_path / "log.jsonl"), ReportSettings((profile,)), profile)
    assert [tag for tag, _ in page.tags].count("tr") == 1 + len(trace)
    assert page.values("class").count("part") == sum(each.new for each in trace.requests) > 1
    edited = [f"request-{number}" for number, each in enumerate(trace.requests, 1) if each.new]
    assert [each for each in page.values("id") if each.startswith("request-")] == edited
    assert "6 requests: $" in page.text


def test_a_page_of_a_session_is_private_and_has_a_name_that_stays(tmp_path: Path) -> None:
    found = [page_of(tmp_path, claude_log(LONG, LONG)) for _ in range(2)]
    assert found[0] == found[1]
    assert re.fullmatch(r"claude-code-s1-[0-9a-f]{10}\.html", found[0].name)
    assert os.listdir(found[0].parent) == [found[0].name]
    if os.name == "posix":
        assert [stat.S_IMODE(place.stat().st_mode) for place in (found[0], found[0].parent)] == [0o600, 0o700]
    names = {
        details_name(Recording("../../x", "anthropic", [], "a/../<b>.jsonl", name), profile)
        for name in ("", "one", "\x1b/..")
        for profile in ("lossless", "mine:own")
    }
    assert len(names) == 6
    assert all(re.fullmatch(r"[A-Za-z0-9-]+\.html", name) for name in names)


@pytest.mark.parametrize("limits", [{"max_edits": 1}, {"max_text": 2 * len(LONG)}], ids=["edits", "text"])
def test_a_page_is_bounded_and_says_what_is_missing(tmp_path: Path, limits: dict[str, int]) -> None:
    path = saved(tmp_path, claude_log(LONG, LONG, LONG, LONG))
    trace = SessionTrace(read(path), ReportSettings(), "lossless")
    page = check_page(details_page(trace, **limits))
    assert page.values("class").count("part") == 1
    assert "1 edit not shown, because the page would be too large" in page.text
    assert f"1 edit of request 5: ibidem show {path} --request 5" in page.text


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    saved(tmp_path, b"", "details")
    with pytest.raises(InputError, match=r"details.*: File exists: try another file"):
        page_of(tmp_path, claude_log(LONG, LONG))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_session_in_a_browser(chromium: Browser, tmp_path: Path, scheme: Any) -> None:
    evil = "<img src=x onerror=document.title='owned'>" + "wide" * 400
    path = page_of(tmp_path, claude_log(evil + LONG, "x", evil + LONG, words=evil, tool=evil))
    context = chromium.new_context(viewport={"width": 375, "height": 800}, color_scheme=scheme)
    page, asked, complaints = context.new_page(), list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert page.title() != "owned"
    assert page.locator("img").count() == 0
    assert (asked, complaints) == ([path.as_uri()], [])
    paper, ink = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
    brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (paper, ink)]
    assert (brightness[0] > brightness[1]) == (scheme == "light")
    page.locator('.requests a[href="#request-4"]').click()
    assert page.locator("#request-4").is_visible()
    context.close()


# --- while one waits ------------------------------------------------------------------------------


class Terminal:
    """Standard error that somebody watches."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...


@pytest.mark.parametrize(("patience", "said"), [(0.0, True), (60.0, False)])
def test_who_waits_long_is_told_for_what(monkeypatch: pytest.MonkeyPatch, patience: float, said: bool) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(elapsed_time, "PATIENCE", patience)
    with elapsed_time.show_elapsed_time("looking for \x1b[5m"):
        wait_until(lambda: bool(terminal.text) == said)
    assert (r"looking for \x1b[5m, 0 s" in terminal.text) == said
    assert terminal.text.endswith(elapsed_time.ERASE_LINE) == said


def wait_until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not met() and time.monotonic() < end:
        time.sleep(0.01)
