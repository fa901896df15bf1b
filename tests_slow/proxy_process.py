"""A real `ibidem proxy` process for attacks: own home, memory limit, a clock that a test can move, SIGKILL.

The process reads a clock offset (seconds) from a file each time it asks for the time of day, so every module sees the
same jump: the proxy, the store and the usage database.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MEMORY_BYTES = 2**30
PATIENCE = 60.0
SERVE = """
import sys, time
real, offset_file = time.time, sys.argv[1]
def moved():
    with open(offset_file) as file:
        return real() + float(file.read() or 0)
time.time = moved
from ibidem.cli import main
main(sys.argv[2:])
"""


class ProxyProcess:
    """One proxy after another in the same home. `start` begins the next one."""

    def __init__(self, home: Path, upstream: str, *options: str) -> None:
        self._home, self._options = home, ("--port", "0", "--upstream", f"anthropic={upstream}", *options)
        self._offset = home / "clock-offset"
        self.set_clock(0)
        self.start()

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
        environment |= {"HOME": str(self._home), "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        self.errors = self._home / "stderr.txt"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-c", SERVE, str(self._offset), "proxy", *self._options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                cwd=self._home,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := re.search(r"http://127\.0\.0\.1:\d+", line):
                self.url = match[0]
                return
        raise AssertionError(f"the proxy did not start: {self.errors.read_text()[-2000:]}")

    def set_clock(self, seconds: float) -> None:
        """Set the time of day of the process to the real time plus `seconds`."""
        new = self._offset.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._offset)

    def post(self, body: bytes, path: str = "/v1/messages", **headers: str) -> tuple[int, bytes]:
        """Return status and body of the response. The status is 0 if the connection broke."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named = {"content-type": "application/json", "x-api-key": "k", **named}
        try:
            request = urllib.request.Request(self.url + path, body, named)
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, http.client.HTTPException):
            return 0, b""

    @property
    def state(self) -> Any:
        with urllib.request.urlopen(f"{self.url}/ibidem/api/state", timeout=PATIENCE) as response:
            return json.loads(response.read())

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


@contextmanager
def proxy_process(home: Path, upstream: str, *options: str) -> Iterator[ProxyProcess]:
    proxy = ProxyProcess(home, upstream, *options)
    try:
        yield proxy
    finally:
        if proxy.process.poll() is None:
            proxy.kill()
