"""Real `ibidem proxy` processes and the mock provider behind them."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ibidem.testing.answers import Answer, Says
from ibidem.testing.requests_seen import Seen
from ibidem.testing.upstream import Upstream
from tests.support.proxied import PATHS, PATIENCE, dumped, waited_for

COMMAND = (sys.executable, "-m", "ibidem.cli", "proxy")


class Connection:
    """A connection that stays open, so that one process gets all its requests."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._open = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)

    def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> bytes:
        sent = {"content-type": "application/json", "x-api-key": "k", **headers}
        self._open.request(method, target, body, sent)
        with self._open.getresponse() as response:
            content = response.read()
            assert response.status == 200, (response.status, content)
            return content

    def send(self, body: Any) -> bytes:
        return self.ask("POST", PATHS["anthropic"], dumped(body))

    def state(self) -> Any:
        return json.loads(self.ask("GET", "/ibidem/api/state"))

    def close(self) -> None:
        self._open.close()


class RunningProxy:
    """One process, with a provider that others may share."""

    def __init__(self, home: Path, provider: Upstream, *options: str, command: Sequence[str] = COMMAND) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IBIDEM_", "XDG_"))}
        self.provider = provider
        self.opened: list[Connection] = []
        self.process = subprocess.Popen(
            [*command, "--upstream", f"anthropic={provider.url}", *options],
            env={**kept, "HOME": str(home), "IBIDEM_BUDGET_MS": "60000", "PYTHONUNBUFFERED": "1"},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        url = re.search(r"http://127\.0\.0\.1:[0-9]+", self.process.stdout.readline())
        watch.cancel()
        assert url is not None, self.process.communicate()
        self.url = url[0]

    def page(self, path: str) -> Any:
        return json.loads(self.asked("GET", f"/ibidem/api/{path}"))

    def asked(self, method: str, target: str, body: bytes | None = None) -> bytes:
        """The response to one request, over a connection of its own."""
        connection = Connection(self.url)
        try:
            return connection.ask(method, target, body)
        finally:
            connection.close()

    def connection(self) -> Connection:
        self.opened.append(Connection(self.url))
        return self.opened[-1]

    def settled(self, requests: int) -> Any:
        """The state once so many requests are over."""

        def over() -> Any:
            state = self.page("state")
            going = any(each["active"] for each in state["conversations"])
            return state if state["totals"]["requests"] == requests and not going else None

        return waited_for(over)

    def end(self, number: int) -> tuple[int, str, str]:
        """Send a signal. Returns the exit code and what was printed."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err

    def close(self) -> None:
        for connection in self.opened:
            connection.close()
        self.process.kill()
        self.process.communicate()


@contextmanager
def running_proxies(
    home: Path,
    *options: str,
    count: int = 1,
    script: Callable[[Seen], Answer] = lambda _: Says("ok"),
    command: Sequence[str] = COMMAND,
) -> Iterator[list[RunningProxy]]:
    """`count` processes, on one port if they are more than one."""
    proxies: list[RunningProxy] = []
    with Upstream(script) as provider:
        try:
            for _ in range(count):
                port = str(urlsplit(proxies[0].url).port) if proxies else "0"
                shared = ("--reuse-port",) if count > 1 else ()
                proxies.append(RunningProxy(home, provider, "--port", port, *shared, *options, command=command))
            yield proxies
        finally:
            for each in proxies:
                each.close()
