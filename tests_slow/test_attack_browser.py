"""Pages of other sites, in Chromium, send requests to the proxy, `ibidem hooks` and `ibidem mcp --url`."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Response, sync_playwright

from ibidem.cli.hooks import HookServer
from ibidem.proxy.settings import Settings
from tests.cli.test_netrc import IBIDEM, Recorder, while_serving
from tests.support.browser import ARGUMENTS, CHROMIUM
from tests.support.proxied import growing, talk

from .conftest import Tally

ATTACK = """async ([target, body]) => {
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  let tried = 0, readable = 0;
  const types = [null, "application/json", "text/plain", "application/x-www-form-urlencoded", "text/plain;json"];
  for (const mode of ["no-cors", "cors"])
    for (const method of ["POST", "GET", "PUT"])
      for (const type of method === "POST" ? types : [null]) {
        if (mode === "no-cors" && method === "PUT") continue;
        const headers = type ? {"content-type": type} : {};
        const sent = {mode, method, headers, credentials: "include", ...(method === "GET" ? {} : {body})};
        tried += 1;
        try {
          const answer = await fetch(target, sent);
          if (answer.type !== "opaque") readable += 1;
        } catch (error) {}
      }
  for (const type of ["application/json", "text/plain", "application/x-www-form-urlencoded"]) {
    tried += 1;
    try { navigator.sendBeacon(target, new Blob([body], {type})); } catch (error) {}
  }
  const frame = (name) => {
    const made = document.createElement("iframe");
    made.name = name;
    document.body.append(made);
    return made;
  };
  let number = 0;
  for (const encoding of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    const form = document.createElement("form"), field = document.createElement("input"), name = `form${number++}`;
    frame(name);
    // The body becomes {"all": true, "x": "="}: JSON, whatever its type says.
    [field.name, field.value] = [body.slice(0, -1) + ', "x": "', '"}'];
    Object.assign(form, {method: "POST", action: target, enctype: encoding, target: name});
    form.append(field);
    document.body.append(form);
    form.submit();
    tried += 1;
  }
  const sandboxed = frame("sandboxed");
  sandboxed.sandbox = "allow-scripts allow-forms";
  const sent = JSON.stringify([target, body]);
  sandboxed.srcdoc = `<script>const [target, body] = ${sent};
    fetch(target, {method: "POST", mode: "no-cors", body});
    fetch(target, {method: "POST", headers: {"content-type": "application/json"}, body}).catch(() => 0);</script>`;
  tried += 2;
  for (const tag of ["img", "script", "iframe", "embed"]) {
    const made = document.createElement(tag);
    made.src = target + "?all=true&conversation=c1";
    document.body.append(made);
    tried += 1;
  }
  for (const open of [() => new EventSource(target), () => new WebSocket(target.replace("http", "ws"))]) {
    tried += 1;
    const source = open();
    source.onopen = source.onmessage = () => { readable += 1; };
  }
  await pause(1500);
  return [tried, readable];
}"""


class _BlankPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>another site</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[ThreadingHTTPServer]:
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of a browser that resolves every name to this machine, and does not itself keep sites from it."""
    if not CHROMIUM.exists():
        pytest.skip(f"needs Chromium at {CHROMIUM}: apt-get install chromium")
    checks = "LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests,PrivateNetworkAccessRespectPreflightResults"
    more = ["--host-resolver-rules=MAP *.example 127.0.0.1", f"--disable-features={checks}"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=[*ARGUMENTS, *more])
        yield browser.new_page()
        browser.close()


def test_pages_of_other_sites_change_nothing(page: Page, tmp_path: Path, tally: Tally) -> None:
    responses: list[Response] = []
    page.on("response", lambda response: responses.append(response))
    off, event = json.dumps({"all": True}), json.dumps({"hook_event_name": "PostToolUse", "session_id": "s"})
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    tried = readable = 0
    with (
        talk() as found,
        HookServer(Settings(port=0)) as hooks,
        serving(Recorder()) as upstream,
        serving(ThreadingHTTPServer(("127.0.0.1", 0), _BlankPage)) as site,
    ):
        assert isinstance(upstream, Recorder)
        threading.Thread(target=hooks.serve_forever, daemon=True).start()
        found.send("anthropic", next(growing("anthropic", 1)))
        proxy = found.proxy.url
        own = f"http://127.0.0.1:{urlsplit(proxy).port}/ibidem/api"
        switch = """([url, body]) => fetch(url, {method: "POST", headers: {"content-type": "application/json"}, body})
            .then((answer) => answer.status)"""

        def attack(gateway: str) -> None:
            nonlocal tried, readable
            targets = [
                *((f"{proxy}/ibidem/api/{name}", off) for name in ("off", "on")),
                (f"{proxy}/ibidem/hooks", event),
                (f"{proxy}/ibidem/v1/compact", json.dumps(next(growing("anthropic", 1)))),
                (f"http://127.0.0.1:{hooks.server_address[1]}/ibidem/hooks", event),
                (f"{gateway}/mcp", message),
            ]
            for all_off in (False, True):
                page.goto(f"{proxy}/ibidem")
                assert page.evaluate(switch, [f"{own}/{'off' if all_off else 'on'}", off]) == 200
                assert found.state["all_off"] is all_off
                page.goto("about:blank")  # the page of the proxy asks for more on its own
                responses.clear()
                for host in ("127.0.0.1", "localhost", "evil.example"):
                    # The gateway serves pages of this machine, such as MCP Inspector.
                    for target, body in targets if host == "evil.example" else targets[:-1]:
                        page.goto(f"http://{host}:{site.server_address[1]}/")
                        tries, reads = page.evaluate(ATTACK, [target, body])
                        tried, readable = tried + tries, readable + reads
                for target, body in targets:  # a name of the attacker that leads here: DNS rebinding
                    rebound = target.replace("127.0.0.1", "evil.example")
                    page.goto(rebound)
                    tries, _ = page.evaluate(ATTACK, [rebound, body])
                    tried += tries
                assert found.state["all_off"] is all_off
                judged.extend(responses)

        judged: list[Response] = []
        command = (sys.executable, *IBIDEM[1:], "mcp", "--url", f"{upstream.url}/mcp", "--port", "0")
        while_serving(command, environment, attack, stream="stderr")
        ours = [each for each in judged if urlsplit(each.url).port != site.server_address[1] and "://" in each.url]
        statuses = Counter(each.status for each in ours if not each.url.startswith("data:"))
        outputs, requests = hooks._hooks.outputs, found.state["totals"]["requests"]
        hooks.shutdown()
    shown = {f"status_{status}": count for status, count in sorted(statuses.items())}
    tally("pages of other sites, in Chromium", tried=tried, readable=readable, **shown, upstream=len(upstream.requests))
    assert sum(statuses.values()) > tried / 2, "most reach what listens, and are refused there"
    assert min(statuses) >= 400
    assert not readable
    assert not [each.url for each in ours if "access-control-allow-origin" in each.headers]
    assert upstream.requests == []
    assert outputs == 0
    assert requests == 1
