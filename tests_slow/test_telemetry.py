"""`opentelemetry-instrument ibidem … --otel`, as docs/proxy.md has it: the SDK is there in each process that serves.

pip install opentelemetry-distro
python -m pytest tests_slow/test_telemetry.py
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from ibidem.testing import Says, Upstream
from tests.support.proxied import PATIENCE, dumped, growing

pytest.importorskip("opentelemetry.distro", reason="pip install opentelemetry-distro")

INSTRUMENTED = [sys.executable, "-c", "from opentelemetry.instrumentation.auto_instrumentation import run; run()"]
TRACE = "0af7651916cd43dd8448eb211c80319c"
ASKS = """
import os, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
urllib.request.urlopen(urllib.request.Request(url, sys.argv[1].encode(), {"x-api-key": "k"})).read()
"""


def variables(folder: Path) -> dict[str, str]:
    """All spans go to standard output, and nothing else does."""
    said = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    return {**os.environ, **said, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}


def exported(output: str) -> Counter[tuple[str, str, str]]:
    """Names, kinds and traces of spans, out of what else is printed there."""
    found, decoder, at = Counter[tuple[str, str, str]](), json.JSONDecoder(), 0
    while (at := output.find("{\n", at)) >= 0:
        span, at = decoder.raw_decode(output, at)
        found[span["name"], span["kind"], span["context"]["trace_id"]] += 1
    return found


def test_a_proxy_exports_what_it_saw(tmp_path: Path) -> None:
    with Upstream(lambda _: Says("ok")) as upstream:
        command = ["ibidem", "proxy", "--port", "0", "--otel", "genai"]
        command += ["--upstream", f"anthropic={upstream.url}"]
        pipe = subprocess.PIPE
        with subprocess.Popen([*INSTRUMENTED, *command], env=variables(tmp_path), stdout=pipe, text=True) as started:
            assert started.stdout is not None
            port = int(re.findall(r":(\d+)$", started.stdout.readline())[0])
            printed: list[str] = []
            reading = threading.Thread(target=lambda: printed.append(started.stdout.read()))  # type: ignore[union-attr]
            reading.start()
            for body in growing("anthropic", 9):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                headers = {"x-api-key": "k", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
                connection.request("POST", "/v1/messages", dumped(body), headers)
                assert connection.getresponse().read()
                connection.close()
            started.send_signal(signal.SIGTERM)
            reading.join(PATIENCE)
    assert exported(printed[0]) == {
        ("ibidem rewrite", "SpanKind.INTERNAL", f"0x{TRACE}"): 10,
        ("chat claude-sonnet-4-5", "SpanKind.CLIENT", f"0x{TRACE}"): 10,
    }


def test_what_a_wrapped_command_sent_is_exported_at_the_end(tmp_path: Path) -> None:
    body = dumped([*growing("anthropic", 3)][-1]).decode()
    with Upstream(lambda _: Says("ok")) as upstream:
        command = ["ibidem", "wrap", "--otel", "spans", "--upstream", f"anthropic={upstream.url}"]
        command += ["--", sys.executable, "-I", "-c", ASKS, body]
        done = subprocess.run([*INSTRUMENTED, *command], env=variables(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    assert [name for name, _, _ in exported(done.stdout)] == ["ibidem rewrite"]
