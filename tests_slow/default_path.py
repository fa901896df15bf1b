"""Real clients as users run them: no `--upstream`, real host names, direct and through `ibidem wrap`.

The traffic of the client and of Ibidem goes through `gate.Gate` to a mock provider on loopback. A shim with the name of
the client is first in PATH. It notes the variables and arguments that the client gets and sets the proxy variables.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ibidem.testing import Answer, Says, Seen, Upstream, by_turn

from .gate import Contact, Gate
from .websocket_front import WebSocketFront

Json = dict[str, Any]
PATIENCE = 300
LEFTOVER_SECONDS = 10
"""How long processes of a client may take to end."""
END = "All done."
FILE = "".join(f"def function_{number}(argument): return argument * {number}  # {number}\n" for number in range(150))
OLD, NEW = "def function_77(argument): return argument * 77  # 77", "def function_77(argument): return 0"
COMMANDS = ("cat a.py", "head -n 140 a.py", "tail -n 140 a.py", "grep -n function_1 a.py", "grep -n function_1 a.py")
PROMPT = "Look at a.py, then change function_77."
SHIM = """#!/bin/sh
env -0 > "{notes}/variables"
printf '%s\\0' "$@" > "{notes}/arguments"
cat "{notes}/errors" > "{notes}/before"
export HTTPS_PROXY={proxy} https_proxy={proxy} NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost
exec "{program}" "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client with a login, and its scripted session."""

    program: str
    login: str
    format: str
    arguments: tuple[str, ...]
    session: Callable[[Path], list[Answer]]
    """Responses of the model, by turn, for a project folder."""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Json | str] = field(default_factory=dict)
    """Files in its home: text, or values to write as JSON."""
    canned: Mapping[str, Json] = field(default_factory=dict)
    """Responses of other services of the provider, by a part of the path."""
    routed: bool = True
    """Whether `wrap` has to route it. If not, `wrap` may leave it alone, and says so before the session."""

    @property
    def name(self) -> str:
        return f"{self.program} ({self.login})"


class Run(NamedTuple):
    """One session that has ended."""

    code: int
    out: str
    err: str
    requests: list[Seen]
    """Requests of the conversation, without those on the side (a title, a count)."""
    contacts: list[Contact]
    log: list[Json]
    """Rows of `--json-log`."""
    files: dict[str, bytes]
    """Content of the project."""
    variables: dict[str, str]
    """As the client got them from its caller."""
    arguments: list[str]
    said_before: str
    """Lines on standard error before the client started."""
    frames: list[str]
    """Messages of the client over WebSockets."""


class Desk:
    """Folders and programs for sessions, one after the other, at the same paths."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.home, self.project, self.notes = (folder / name for name in ("home", "project", "notes"))
        self._shims, self._folder, self._programs = folder / "shims", folder, programs

    def run(
        self, client: Client, *, wrapped: bool, shim: bool = True, websockets: bool = False, **variables: str
    ) -> Run:
        """Run a session in new folders. Without the shim, the variables decide about proxies. With `websockets`, the
        provider speaks these too."""
        self._prepare(client)
        answers, threads = client.session(self.project), list[Seen]()
        talk = by_turn(answers)

        def script(seen: Seen) -> Answer:
            if not is_conversation(seen):
                return Says("ok")
            if "thread" not in seen.json:
                return talk(seen)
            threads.append(seen)  # the history is the server's, so turns are counted here
            return answers[len(threads) - 1]

        canned = {part: json.dumps(body).encode() for part, body in client.canned.items()}
        with (
            Upstream(script) as upstream,
            WebSocketFront(upstream.url) as front,
            Gate(upstream.url, self._folder, canned, front.url if websockets else "") as gate,
        ):
            if shim:
                self._write_shim(client.program, gate.url("agent"))
                variables = {"HTTPS_PROXY": gate.url("ibidem"), **variables} if wrapped else variables
            given = {name: text.replace("{gate}", gate.url("agent")) for name, text in variables.items()}
            own = self._variables(client, gate.ca, shim)
            command = [*(self._wrap() if wrapped else ()), client.program, *client.arguments]
            with (self.notes / "output").open("w") as out, (self.notes / "errors").open("w") as err:
                ended = subprocess.run(
                    command,
                    cwd=self.project,
                    env={**own, **client.variables, **given},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    timeout=PATIENCE,
                )
            self._end_leftovers()
            requests = [each for each in upstream.seen if each.method == "POST" and is_conversation(each)]
            return self._ended(ended.returncode, requests, gate.contacts, front.frames)

    def _end_leftovers(self) -> None:
        """End processes that the client left behind: Cline starts one in the background for each project. They may
        write to its folders until they are gone."""
        end = time.monotonic() + LEFTOVER_SECONDS
        for number in self._leftovers():
            _signal(number, signal.SIGTERM)
        while (left := self._leftovers()) and time.monotonic() < end:
            time.sleep(0.05)
        for number in left:
            _signal(number, signal.SIGKILL)

    def _leftovers(self) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if str(self.project).encode() in entry.read_bytes():
                    found.append(int(entry.parent.name))
        return found

    def _prepare(self, client: Client) -> None:
        for folder in (self.home, self.project, self.notes, self._shims):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        (self.project / "a.py").write_text(FILE)
        for name, content in client.files.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))

    def _write_shim(self, program: str, proxy: str) -> None:
        found = shutil.which(program, path=str(self._programs))
        assert found, f"{program} is not installed"
        path = self._shims / program
        path.write_text(SHIM.format(notes=self.notes, proxy=proxy, program=found))
        path.chmod(0o755)

    def _variables(self, client: Client, ca: Path, shim: bool) -> dict[str, str]:
        paths = [*([str(self._shims)] if shim else []), str(self._programs), os.environ.get("PATH", os.defpath)]
        authority = dict.fromkeys(("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "CODEX_CA_CERTIFICATE"), str(ca))
        return {
            "PATH": os.pathsep.join(paths),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "CI": "1",
            "DISABLE_AUTOUPDATER": "1",
            "NODE_USE_ENV_PROXY": "1",
            **authority,
        }

    def _wrap(self) -> list[str]:
        log = str(self.notes / "log.jsonl")
        return [sys.executable, "-m", "ibidem.cli", "wrap", "--json-log", log, "--store", "memory:", "--"]

    def _ended(self, code: int, requests: list[Seen], contacts: list[Contact], frames: list[str]) -> Run:
        return Run(
            code=code,
            out=self._noted("output"),
            err=self._noted("errors"),
            requests=requests,
            contacts=contacts,
            log=[json.loads(line) for line in self._noted("log.jsonl").splitlines()],
            files={
                str(path.relative_to(self.project)): path.read_bytes()
                for path in sorted(self.project.rglob("*"))
                if path.is_file()
            },
            variables=dict(line.split("=", 1) for line in self._noted("variables").split("\0") if line),
            arguments=self._noted("arguments").split("\0")[:-1],
            said_before=self._noted("before"),
            frames=frames,
        )

    def _noted(self, name: str) -> str:
        path = self.notes / name
        return path.read_text() if path.exists() else ""


def _signal(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def is_conversation(seen: Seen) -> bool:
    """Whether tools are offered: requests on the side have none. Codex offers them in an item of the input. A message
    thread of Anthropic's has them in its first request only."""
    try:
        body = seen.json
    except ValueError:
        return False
    if not isinstance(body, dict) or "count" in seen.path:
        return False
    if body.get("tools") or body.get("thread"):
        return True
    return any("additional_tools" in str(each)[:200] for each in body.get("input") or ())
