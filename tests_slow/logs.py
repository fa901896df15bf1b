"""Agents run for real against the scripted provider, so that what a reader makes of their logs can be held against it.

They are installed from npm: set IBIDEM_TEST_CLIENTS to a folder to keep them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ibidem import formats, recordings
from ibidem.recordings.discovery import discover_logs, load_log
from ibidem.recordings.recording import RequestBody
from ibidem.testing import Seen, Upstream

Json = dict[str, Any]
PATIENCE = 300
NOTHING: Mapping[str, str] = {}
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001000527"
    "de7f8e0000000049454e44ae426082"
)
"""One pixel."""
PI_VERSION = "1.5.2"
FILE = "".join(f"def function_{number}(): return {number}\n" for number in range(40))


def installed(package: str, program: str, folder: Path) -> Path:
    """The folder of an agent's program, which is installed if it is not there. A version of its own has a folder of
    its own."""
    kept = os.environ.get("IBIDEM_TEST_CLIENTS")
    folder = Path(kept) if kept else folder
    if "@" in package[1:]:
        folder /= package.strip("@").replace("/", "-").replace("@", "-")
    found = folder / "node_modules" / ".bin"
    if not (found / program).exists():
        npm = shutil.which("npm")
        assert npm, "these tests need npm"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [npm, "install", "--prefix", str(folder), "--no-fund", "--no-audit", package], check=True, timeout=1800
        )
    return found


def installed_pi(folder: Path) -> Path:
    """Install the newest pi, the Node that runs it and the loader of its extensions; return the folder of the programs.

    pi comes from its package alone: the registry does not have all packages that it names, and it needs few of them.
    """
    folder /= f"pi-{PI_VERSION}"
    found = folder / "node_modules" / ".bin"
    if not (found / "pi").exists():
        npm, quiet = shutil.which("npm"), ["--silent", "--no-fund", "--no-audit"]
        assert npm, "these tests need npm"
        folder.mkdir(parents=True, exist_ok=True)
        run = partial(subprocess.run, check=True, timeout=1800, stdout=subprocess.DEVNULL)
        run([npm, "install", "--prefix", str(folder), *quiet, "node@22", "jiti@2.7.0"])
        run([npm, "pack", *quiet, f"@earendil-works/pi-coding-agent@{PI_VERSION}", "--pack-destination", str(folder)])
        (packed,) = folder.glob("*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        program = folder / "package" / "dist" / "bundle" / "cli.js"
        program.chmod(0o755)
        (found / "pi").symlink_to(program)
    return found


class Place:
    """A home and a project of an agent's own, with nothing of this machine's but the programs."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.home, self.project, self.programs = folder / "home", folder / "project", programs
        for each in (self.home, self.project):
            each.mkdir(parents=True)
        (self.project / "a.py").write_text(FILE)

    def run(self, *command: str, fails: bool = False, **variables: str) -> str:
        paths = os.pathsep.join([str(self.programs), os.environ.get("PATH", "")])
        ended = subprocess.run(
            command,
            cwd=self.project,
            env={"PATH": paths, "HOME": str(self.home), "TMPDIR": str(self.home), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert fails or ended.returncode == 0, (ended.stdout[-2000:], ended.stderr[-2000:])
        return ended.stdout

    def recorded(self) -> list[recordings.Recording]:
        """What the reader finds where the agent keeps its logs."""
        return [
            each
            for path in discover_logs({}, self.home, "linux")
            for each in recordings.read(str(path), load_log(path))
        ]


def turns(upstream: Upstream) -> list[Seen]:
    """Requests of the conversation: those on the side come without tools."""
    return [each for each in upstream.seen if each.method == "POST" and each.json.get("tools")]


def same(
    session: recordings.Recording,
    seen: Sequence[Seen],
    as_logged: Callable[[list[Json]], list[Any]] = list,
    *,
    after: int = 0,
) -> None:
    """Request by request, the history as the log tells it is the one that was sent, but for what `as_logged` takes
    out of both. The first ones may be passed over: the log was changed since."""
    key = formats.format_named(session.format).history_key
    read: list[RequestBody] = list(session.requests())
    assert len(read) == len(seen), (len(read), len(seen))
    for number, (found, sent) in list(enumerate(zip(read, seen, strict=True)))[after:]:
        ours, theirs = as_logged(found.body[key]), as_logged(sent.json[key])
        assert ours == theirs, f"request {number}: {_first_difference(ours, theirs)}"


def _first_difference(ours: Iterable[Any], theirs: Iterable[Any]) -> str:
    one, other = list(ours), list(theirs)
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f"entry {number}:\n read {left}\n sent {right}"
    return f"{len(one)} entries were read, {len(other)} sent: {(one + other)[min(len(one), len(other)) :][:1]}"


OWN = {"status", "phase", "annotations", "cache_control"}


def plain(history: list[Any]) -> list[Any]:
    """Without the system prompt, cache marks, and what makes no difference to a provider: a text as a string or as a
    list of one part, neighbours of one role in Anthropic's format, what the Responses API says of its own items."""
    found: list[Any] = []
    for entry in history:
        if entry.get("role") in ("system", "developer"):
            continue
        entry = {key: value for key, value in entry.items() if key not in OWN | {"id"}}
        if "call_id" in entry:
            entry["call_id"] = entry["call_id"].partition("_fc_")[0]
        if "content" in entry:
            entry["content"] = _parts(entry["content"])
        if entry.get("type") == "message":
            del entry["type"]
        if found and entry.keys() == found[-1].keys() == {"role", "content"} and entry["role"] == found[-1]["role"]:
            found[-1]["content"] += entry["content"]
        else:
            found.append(entry)
    return found


def _parts(content: Any) -> list[Any]:
    listed = [{"type": "text", "text": content}] if content and isinstance(content, str) else content or []
    return [{k: v for k, v in part.items() if k not in OWN and (k, v) != ("is_error", False)} for part in listed]
