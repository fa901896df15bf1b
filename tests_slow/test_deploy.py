"""The proxy starts with what `deploy/` gives it, and the probes there tell whether it is there. Grafana's own model of
a dashboard knows all that is in ours, and Prometheus has an answer to each of its queries.

pip install grafana-foundation-sdk; apt-get install prometheus
python -m pytest tests_slow/test_deploy.py
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from benchmarks.cluster import free_port
from ibidem.testing import Says, Upstream
from ibidem.testing.prompt_cache import PromptCache
from tests.support.proxied import PATIENCE, dumped, requests, stale, waited_for
from tests.test_deploy import DASHBOARD, PORT, container, expressions, kinds, panels, service

TOKEN = "made-up"


@pytest.mark.parametrize("where", ["compose", "kubernetes"])
def test_a_probe_passes_with_the_token_alone(where: str, tmp_path: Path) -> None:
    compose = where == "compose"
    given = service()["environment"] if compose else kinds()["ConfigMap"]["data"]
    words = service()["command"] if compose else container()["args"]
    probe = service()["healthcheck"]["test"][-1] if compose else container()["readinessProbe"]["exec"]["command"][-1]
    port = str(free_port())
    changed = {"IBIDEM_STORE": "memory:", "IBIDEM_TOKEN": TOKEN, "IBIDEM_PORT": port, "XDG_DATA_HOME": str(tmp_path)}
    variables = {**os.environ, **given, **changed, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "ibidem.cli", *words]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline().split()[-1].endswith(f":{port}")
            for token, passes in ((TOKEN, True), ("another", False)):
                code = probe.replace(str(PORT), port)
                done = subprocess.run([sys.executable, "-c", code], env={**variables, "IBIDEM_TOKEN": token})
                assert (done.returncode == 0) is passes
        finally:
            started.terminate()


# --- the dashboard --------------------------------------------------------------------------------


def test_grafanas_own_model_of_a_dashboard_knows_all_that_ours_says() -> None:
    """What it does not know it drops, so that nothing may be lost on the way there and back."""
    model, encoder, plugins = (
        pytest.importorskip(f"grafana_foundation_sdk.{name}", reason="pip install grafana-foundation-sdk")
        for name in ("models.dashboard", "cog.encoder", "cog.plugins")
    )
    plugins.register_default_plugins()

    def there_and_back() -> Any:
        return json.loads(encoder.JSONEncoder().encode(model.Dashboard.from_json(given)))

    given = json.loads(DASHBOARD.read_text())
    assert [*dropped(given, there_and_back())] == []
    given["panels"][1]["targets"][0]["exprr"] = "1"
    assert [*dropped(given, there_and_back())] == [".panels[1].targets[0].exprr"]


def dropped(given: Any, back: Any, where: str = "") -> Iterator[str]:
    if isinstance(given, dict) and isinstance(back, dict):
        for name, value in given.items():
            yield from dropped(value, back.get(name), f"{where}.{name}")
    elif isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        for number, (one, other) in enumerate(zip(given, back, strict=True)):
            yield from dropped(one, other, f"{where}[{number}]")
    elif given != back:
        yield where


PROMETHEUS = shutil.which("prometheus")
SCRAPES = """
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: ibidem
  metrics_path: /ibidem/metrics
  params: {{token: [{token}]}}
  static_configs: [{{targets: [{targets}]}}]
"""


@contextmanager
def started(command: list[str], folder: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    variables = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), **more}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=variables, cwd=folder, text=True, **quiet) as found:  # type: ignore[call-overload]
        try:
            yield found
        finally:
            found.terminate()


def asked(port: int, method: str, target: str, body: bytes | None = None, **headers: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, target, body, {"x-ibidem-token": TOKEN, "x-api-key": "k", **headers})
        return json.loads(connection.getresponse().read() or b"null")
    except (OSError, ValueError):  # it is not there yet, or not ready
        return None
    finally:
        connection.close()


def queried(port: int, expression: str) -> list[float]:
    """What Prometheus makes of an expression now, without what is no number."""
    found = asked(port, "GET", f"/api/v1/query?query={quote(expression)}")
    if found is None:
        return []
    assert found["status"] == "success", found
    values = [float(each["value"][1]) for each in found["data"]["result"]]
    return [value for value in values if not math.isnan(value)]


def talk_to(port: int) -> int:
    """All that the dashboard shows: files that become stale, a cache that is lost, an encoding that is not known."""
    whole, calls = stale(6, seed=port)
    bodies = [*requests("anthropic", whole, calls, marks=True)]
    bodies.append({**bodies[-1], "tools": [{"name": "another", "input_schema": {"type": "object"}}]})
    for body in bodies:
        asked(port, "POST", "/v1/messages", dumped(body))
    asked(port, "POST", "/v1/messages", b"{}", **{"content-encoding": "another"})
    return len(bodies) + 1


@pytest.mark.skipif(PROMETHEUS is None, reason="apt-get install prometheus")
def test_prometheus_answers_every_query_of_the_dashboard(tmp_path: Path) -> None:
    assert PROMETHEUS is not None
    rewriting, observing, port = free_port(), free_port(), free_port()
    config = tmp_path / "prometheus.yml"
    targets = f"'127.0.0.1:{rewriting}', '127.0.0.1:{observing}'"
    config.write_text(SCRAPES.format(token=TOKEN, targets=targets))
    proxy = [sys.executable, "-m", "ibidem.cli", "proxy", "--profile", "recoverable", "--store", "store.sqlite3"]
    reads = [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream(lambda _: Says("ok"), cache=PromptCache(), strict=False))
        proxy += ["--upstream", f"anthropic={upstream.url}"]
        for own, more in ((rewriting, []), (observing, ["--observe"])):
            stack.enter_context(started([*proxy, "--port", str(own), *more], tmp_path, IBIDEM_TOKEN=TOKEN))
        stack.enter_context(started([*reads, f"--web.listen-address=127.0.0.1:{port}"], tmp_path))
        waited_for(lambda: len(queried(port, "ibidem_requests_total")) == 4)  # before anything is counted
        sent = sum(map(talk_to, (rewriting, observing)))
        waited_for(lambda: sum(queried(port, "ibidem_requests_total")) == sent)
        time.sleep(4)  # two rounds at least: of what was not there before, one value is none to begin from
        silent = [
            (panel["title"], expression)
            for panel in panels()
            for expression in expressions(panel)
            if not queried(port, re.sub(r"\$__\w+", "5m", expression).replace("$instance", ".*"))
        ]
    assert silent == []
