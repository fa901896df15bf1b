"""Configuration files that `wrap` writes for one run: who can read them, and that they are deleted."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ibidem.cli.clients.client_setup import ClientSetup
from ibidem.cli.wrap.run_wrapped import _create_temporary_folder

CONFIG = "models:\n  - provider: anthropic\n    apiKey: secret\n"
CLIENT = """#!{python}
import os, sys, time
path = sys.argv[sys.argv.index("--config") + 1]
print(path, oct(os.stat(path).st_mode), oct(os.stat(os.path.dirname(path)).st_mode), open(path).read(), flush=True)
time.sleep(60 if "wait" in sys.argv else 0)
"""
"""Continue, as far as `wrap` is concerned."""


def start_client(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    program, config, temporary = folder / "bin" / "cn", folder / ".continue" / "config.yaml", folder / "tmp"
    for each in (program.parent, config.parent, temporary):
        each.mkdir()
    config.write_text(CONFIG)
    program.write_text(CLIENT.format(python=sys.executable))
    program.chmod(0o755)
    own = {"HOME": str(folder), "TMPDIR": str(temporary), "IBIDEM_STORE": "memory:"}
    return subprocess.Popen(
        [sys.executable, "-m", "ibidem.cli", "wrap", "--", str(program), *arguments],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGHUP])
def test_files_are_readable_by_the_user_alone_and_are_deleted(tmp_path: Path, number: signal.Signals | None) -> None:
    with start_client(tmp_path, *(["wait"] if number else [])) as wrap:
        assert wrap.stdout
        name, mode, folder_mode = wrap.stdout.readline().split()[:3]
        if number:
            assert Path(name).exists()
            wrap.send_signal(number)
        rest = wrap.stdout.read()
        wrap.wait(60)
    assert (stat.S_IMODE(int(mode, 8)), stat.S_IMODE(int(folder_mode, 8))) == (0o600, 0o700)
    assert "apiBase: http://127.0.0.1:" in rest
    assert wrap.returncode == (-number if number else 0)
    assert Path(name).parent.parent == tmp_path / "tmp"
    assert not Path(name).parent.exists()
    assert (tmp_path / ".continue" / "config.yaml").read_text() == CONFIG


def test_nothing_is_left_if_a_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(OSError, match="no/such"):
        _create_temporary_folder(ClientSetup(files={"a": "x", "no/such": "x"}), "http://127.0.0.1:1")
    assert list(tmp_path.iterdir()) == []
