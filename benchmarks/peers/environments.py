"""An environment for each peer, with nothing in it but the peer, and a worker that runs in it without a network."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from .sessions import Json

ROOT = Path(__file__).parent.parent.parent
WORKER = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from benchmarks.peers.inside import worker
sys.path.remove({str(ROOT)!r})
worker.main()
"""
"""Our folder is on the path for as long as it takes to load this: a peer may have modules of the same names."""
TOOLS = ("pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack")
"""What every environment begins with."""
INSTALL_SECONDS = 1800
UNREACHABLE = "http://127.0.0.1:9"
"""Where nobody listens: the way out for those who ask the environment, where a network cannot be taken away."""
OFFLINE = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""What is not there need not be asked for again and again."""


class UnavailableError(Exception):
    """A peer that cannot be run here, and why."""


class WorkerError(Exception):
    """A worker that ended, or took too long."""


@dataclass(frozen=True)
class Environment:
    python: Path
    version: str
    megabytes: float
    """Of all that was installed for it."""
    packages: Path
    variables: dict[str, str] = field(default_factory=dict)


def made(folder: Path, name: str, requirements: Sequence[str], variables: dict[str, str]) -> Environment:
    """The environment of a peer, installed where it is not there yet."""
    place = folder / name
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = place / "installed.json"
    ours = Path(requirements[0]).is_dir()  # it may have changed since
    if ours or not done.exists() or json.loads(done.read_text()) != list(requirements):
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True, symlinks=os.name != "nt")
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
        with (folder / f"{name}.install.log").open("w") as log:
            try:
                subprocess.run(command, stdout=log, stderr=log, timeout=INSTALL_SECONDS, check=True)
            except (OSError, subprocess.SubprocessError) as error:
                raise UnavailableError(f"cannot be installed ({type(error).__name__}, see {log.name})") from error
        done.write_text(json.dumps(list(requirements)))
    packages = next(place.glob("lib/python*/site-packages"), place / "Lib" / "site-packages")
    filled = {key: value.format(packages=packages) for key, value in variables.items()}
    return Environment(python, _version(python, requirements[0]), _megabytes(packages), packages, filled)


def _version(python: Path, requirement: str) -> str:
    name = "ibidem-llm" if Path(requirement).is_dir() else requirement.partition("[")[0].partition("=")[0]
    code = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip() or "?"


def _megabytes(packages: Path) -> float:
    found = (
        path for each in packages.iterdir() if not each.name.startswith(TOOLS) for path in (each, *each.rglob("*"))
    )
    return sum(path.stat().st_size for path in found if path.is_file() and "__pycache__" not in path.parts) / 1e6


def without_network() -> list[str]:
    """What to put before a command so that it has no network; nothing where that is not allowed."""
    command = ["unshare", "--map-root-user", "--net"]
    try:
        return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else []
    except OSError:
        return []


class Worker:
    """A peer at work: sessions go in, one after the other."""

    def __init__(self, environment: Environment, settings: Json, home: Path, log: TextIO, seconds: float) -> None:
        """`home` is an empty folder: peers find no settings of the user, and write nothing beside them."""
        known = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        ways = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), UNREACHABLE)
        bounds = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost", "HOME": str(home)}
        alone = without_network()
        path = f"{environment.python.parent}{os.pathsep}{known.get('PATH', '')}"
        self._process = subprocess.Popen(
            [*alone, str(environment.python), "-c", WORKER, json.dumps({**settings, "isolated": bool(alone)})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=home,
            env={**known, **ways, **bounds, **OFFLINE, **environment.variables, "PATH": path},
            start_new_session=True,
        )
        self._rest = b""
        self._closed = False
        try:
            self._answer(seconds)  # that it is ready
        except WorkerError:
            self.close()
            raise

    def ask(self, session: Json, seconds: float, count: Callable[[Json], Json]) -> Json:
        """What the peer makes of a session. `count` says what the provider counts for a request that was sent so."""
        end = time.monotonic() + seconds
        self._write(session)
        while "turn" in (answer := self._answer(end - time.monotonic())):
            self._write(count(answer["turn"]))
        return answer

    def _write(self, value: Json) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerError("the worker ended") from error

    def _answer(self, seconds: float) -> Json:
        assert self._process.stdout is not None
        end, pieces = time.monotonic() + seconds, [self._rest]
        while b"\n" not in pieces[-1]:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise WorkerError("took too long")
            piece = os.read(self._process.stdout.fileno(), 1 << 20)
            if not piece:
                raise WorkerError(f"the worker ended with {self._process.wait()}")
            pieces.append(piece)
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        found: Any = json.loads(line)
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        """The worker and all that it started."""
        if self._closed:
            return
        self._closed = True
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
