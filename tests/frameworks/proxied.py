"""For what is not Python, or has no place for us: `ibidem proxy`, a process of its own, between it and the provider."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
import weakref
from typing import Any

from ibidem.providers.addresses import PROVIDERS

ADDRESS = re.compile(r"on (http://\S+)")


class Proxies:
    """What `Framework.adapter` gives: one proxy for each provider that is asked through it."""

    def __init__(self, profile: str = "lossless", cache: str = "off") -> None:
        self._profile, self._cache = profile, cache
        self._lock = threading.Lock()
        self._urls: dict[str, str] = {}
        self._running: list[subprocess.Popen[str]] = []
        weakref.finalize(self, _end, self._running)

    def to(self, upstream: str) -> str:
        """The address of the proxy to this provider."""
        with self._lock:
            if upstream not in self._urls:
                self._urls[upstream] = self._started(upstream)
            return self._urls[upstream]

    def _started(self, upstream: str) -> str:
        command = [sys.executable, "-m", "ibidem.cli", "proxy", "--port", "0", "--profile", self._profile]
        command += ["--cache", self._cache]
        for provider in PROVIDERS:
            command += ["--upstream", f"{provider}={upstream}"]
        command += ["--store", "memory:", "--budget-ms", "60000"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **_paths()})
        self._running.append(process)
        assert process.stdout is not None
        found = ADDRESS.search(process.stdout.readline())
        assert found is not None, "the proxy did not start"
        return found[1]


def state(url: str) -> Any:
    """What a proxy says about itself."""
    with urllib.request.urlopen(f"{url}/ibidem/api/state", timeout=60) as answer:
        return json.load(answer)


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


def _end(running: list[subprocess.Popen[str]]) -> None:
    for process in running:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
