"""`ibidem mcp -- SERVER`: real servers, whose clients must not notice us."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .servers import INITIALIZE, SCRIPTED, program, ran, through
from .talks import LONG, line, texts

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and pipes of another kind")


def odd_message(dice: random.Random, id: int) -> bytes:
    """Anything that a server may say, and things that none should; no text stands in it twice."""
    text = f"{dice.random()} " * 30
    return dice.choice(
        (
            lambda: line(id=id, result=texts(text)),
            lambda: line(id=id, result=texts(text)).replace(b"\n", b"\r\n"),
            lambda: line(id=id, result=texts(text, isError=True)),
            lambda: line(id=id, error={"code": -1, "message": text}),
            lambda: line(id=id, result={"content": [{"type": "image", "data": text, "mimeType": "image/png"}]}),
            lambda: line(id=f"{id}", method="sampling/createMessage", params={"text": text}),
            lambda: line(method="notifications/progress", params={"progress": dice.random()}),
            lambda: b"[" + line(id=id, result=texts(text)).strip() + b"]\n",
            lambda: b"\n \n" + text.encode("utf-16") + b"\n",
            lambda: bytes(dice.randrange(256) for _ in range(300)) + b"\n",
            lambda: b'{"id": %d, "result": {"content": [{"type": "te\n' % id,
            lambda: line(id=id, result=texts("🦀\ud800" + text)),
        )
    )()


@pytest.mark.parametrize("seed", range(2))
def test_all_but_repeated_results_passes_to_the_byte(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    asked = [INITIALIZE]
    answers = [line(id=0, result={"serverInfo": {"name": "odd", "version": "1"}})]
    for id in range(1, 150):
        asked.append(line(id=id, method=dice.choice(["tools/call"] * 3 + ["ping"]), params={"name": "t"}))
        answers.append(odd_message(dice, id))
    repeats = [line(id=1000 + each, method="tools/call", params={"name": "t", "n": each}) for each in range(2)]
    results = [line(id=1000 + each, result=texts(LONG)) for each in range(2)]
    (tmp_path / "answers").write_bytes(b"<next>".join([*answers, *results]))
    server = program(tmp_path, SCRIPTED, str(tmp_path / "answers"), str(tmp_path / "asked"))
    given = b"".join([*asked, *repeats])
    done = ran(through(server), given)
    *passed, last = done.stdout.splitlines(keepends=True)
    assert (tmp_path / "asked").read_bytes() == given
    assert b"".join(passed) == b"".join([*answers, results[0]])
    assert json.loads(last)["result"]["content"][0]["text"].startswith("[ibidem: unchanged, same as the result 1 odd")
    assert done.returncode == 7
    assert done.stderr.decode().splitlines()[-1].startswith("ibidem: mcp: ")
    assert ", 1 hint, " in done.stderr.decode()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            "print('{\"half\": ', end='', flush=True); import os; os._exit(3)", id="half a line and an exit code"
        ),
        pytest.param("import os, signal; print('a', flush=True); os.kill(os.getpid(), signal.SIGKILL)", id="killed"),
        pytest.param("import os; os.close(0); os.write(1, b'x' * 300000); os._exit(0)", id="reads nothing"),
        pytest.param("import sys; sys.stderr.write('own words\\n'); sys.exit('and an end')", id="words of its own"),
        pytest.param("import os, sys; sys.stdin.read(); os.write(1, b'\\xff\\xfe\\x00\\n')", id="no UTF-8"),
        pytest.param("import sys; sys.stdout.write('x' * 12_000_000 + '\\n{}\\n')", id="a line longer than is held"),
    ],
)
def test_a_server_ends_as_without_us(tmp_path: Path, source: str) -> None:
    server = program(tmp_path, source)
    direct, ours = ran(server, INITIALIZE), ran(through(server), INITIALIZE)
    assert (ours.returncode, ours.stdout) == (direct.returncode, direct.stdout)
    assert ours.stderr == direct.stderr + b"ibidem: mcp: 0 results, 0 hints, 0 bytes saved\n"


def begun(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_the_servers(tmp_path: Path, number: int) -> None:
    source = f"import signal, sys, time; signal.signal({int(number)}, lambda *_: sys.exit(9))"
    source += "; print('up', flush=True); time.sleep(60)"
    with begun(through(program(tmp_path, source))) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == b"up\n"
        ours.send_signal(number)
        assert ours.wait(60) == 9


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child of its parent's end")
def test_who_kills_us_has_killed_the_server(tmp_path: Path) -> None:
    source = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with begun(through(program(tmp_path, source))) as ours:
        assert ours.stdout is not None
        child = int(ours.stdout.readline())
        ours.kill()
    for _ in range(200):
        if not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text():
            return
        time.sleep(0.05)
    pytest.fail("the server lives on")


def test_who_does_not_read_holds_up_who_writes(tmp_path: Path) -> None:
    """And all of it comes in the end, also what a server wrote before it ended."""
    source = (
        "import os, sys\nfor n in range(4000): print(n, 'x' * 500)\nsys.stdout.flush(); open(sys.argv[1], 'w').close()"
    )
    with begun(through(program(tmp_path, source, str(tmp_path / "done")))) as ours:
        time.sleep(0.7)
        assert not (tmp_path / "done").exists()
        assert ours.stdout is not None
        lines = ours.stdout.read().splitlines()
    assert [int(each.split()[0]) for each in lines] == list(range(4000))


FILLS_THE_PIPES = """
import fcntl, os, sys, time
os.set_blocking(1, False)
size = stalled = 0
while stalled < 10 or 2 * size < 3 * fcntl.fcntl(1, fcntl.F_GETPIPE_SZ):
    try:
        size += os.write(1, b"x" * 99 + b"\\n")
        stalled = 0
    except BlockingIOError:
        stalled += 1
        time.sleep(0.05)
with open(sys.argv[1], "w") as told: told.write(f"{size}\\n")
os._exit(3)
"""
"""And ends, while nobody reads: one pipe cannot hold what was said. Two may hold a little less than they say."""


def left_by_a_server(ours: subprocess.Popen[bytes], told: Path) -> int:
    """What the client has not read of what a server said that has ended."""
    for _ in range(1200):
        if told.exists() and told.read_text().endswith("\n"):
            time.sleep(0.3)
            assert ours.poll() is None, "a client that is slow is waited for"
            return int(told.read_text())
        time.sleep(0.05)
    pytest.fail("the server is not held up")


linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells how much a pipe holds")


@pytest.mark.sampled(1)
@linux_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_once_the_server_has_ended_a_signal_ends_us_too(tmp_path: Path, number: int) -> None:
    with begun(through(program(tmp_path, FILLS_THE_PIPES, str(tmp_path / "told")))) as ours:
        assert left_by_a_server(ours, tmp_path / "told") > 0
        ours.send_signal(number)
        try:
            assert ours.wait(60) == 3
        finally:
            ours.kill()


@linux_only
def test_a_signal_does_not_cut_off_a_client_that_reads(tmp_path: Path) -> None:
    with begun(through(program(tmp_path, FILLS_THE_PIPES, str(tmp_path / "told")))) as ours:
        size = left_by_a_server(ours, tmp_path / "told")
        ours.send_signal(signal.SIGTERM)
        assert ours.stdout is not None
        assert len(ours.stdout.read()) == size


def test_each_end_that_is_closed_is_closed_on_the_other_side(tmp_path: Path) -> None:
    source = "import os, sys, time\nos.close(1)\nassert sys.stdin.buffer.read() == b'{}\\n{half a line'\nsys.exit(5)"
    with begun(through(program(tmp_path, source))) as ours:
        assert ours.stdout is not None
        assert ours.stdin is not None
        assert ours.stdout.read() == b"", "while the server goes on"
        ours.stdin.write(b"{}\n{half a line")
        ours.stdin.close()
        assert ours.wait(60) == 5


def test_a_process_that_the_server_leaves_behind_does_not_keep_us(tmp_path: Path) -> None:
    source = "import subprocess, sys; no = subprocess.DEVNULL; sleeps = 'import time; time.sleep(20)'"
    source += "; subprocess.Popen([sys.executable, '-c', sleeps], stdin=no, stderr=no); print('{}')"
    with begun(through(program(tmp_path, source))) as ours:
        assert ours.wait(15) == 0
        assert ours.stdout is not None
        assert ours.stdout.readline() == b"{}\n"
