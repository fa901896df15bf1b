"""Plugins of other programs, as far as they can be tried without these (tests_slow has both for real)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import ibidem
from tests.support.proxied import talk

PLUGINS = Path(__file__).parents[2] / "plugins"
HOOK = "experimental.chat.messages.transform"
TRANSFORM = f"""
const plugin = await (await import(process.argv[1])).default();
const [config, summed, messages] = JSON.parse(require("node:fs").readFileSync(0));
await plugin.config(config);
if (summed) await plugin["experimental.session.compacting"]({{ sessionID: "ses_1" }});
const before = JSON.stringify(messages);
for (let left = Number(process.argv[2]); left; left -= 1) {{
  const sent = [...messages];
  await plugin["{HOOK}"]({{}}, {{ messages: sent }});
  if (JSON.stringify(messages) !== before) throw new Error("what was given has changed");
  console.log(JSON.stringify(sent));
}}
"""
TEXT = "\n".join(f"line {number} of a file that is read more than once" for number in range(60))
Json = dict[str, Any]
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def user(text: str) -> Json:
    model = {"providerID": "mine", "modelID": "gpt-5"}
    info = {"role": "user", "sessionID": "ses_1", "id": "msg", "model": model}
    return {"info": info, "parts": [{"type": "text", "text": text}]}


def step(*parts: Json, **info: Any) -> Json:
    return {"info": {"role": "assistant", "sessionID": "ses_1", **info}, "parts": [{"type": "step-start"}, *parts]}


def call(name: str, output: str | None = TEXT, **more: Any) -> Json:
    state = {"status": "completed", "input": {"filePath": f"/{name}"}, "output": output, "time": {"start": 1}, **more}
    return {"type": "tool", "id": f"prt_{name}", "callID": name, "tool": "read", "state": state}


def failed(name: str) -> Json:
    return call(name, None, status="error", error=TEXT)


MESSAGES = [
    user("Look."),
    step({"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "I look."}, call("a"), call("b")),
    step(failed("c"), call("d", attachments=[{"mime": "image/png", "url": "data:image/png;base64,AA=="}])),
    step(call("e", time={"start": 1, "compacted": 2})),
    step(call("lost"), error={"name": "APIError"}),
    step(call("f", f"{TEXT}\nand one more")),
    user("Go on."),
]


def transformed(url: str, *, config: Json | None = None, summed: bool = False) -> Any:
    (found,) = transforms(url, 1, config, summed)
    return found


def transforms(url: str, times: int, config: Json | None = None, summed: bool = False) -> list[Any]:
    """What is sent, each time."""
    given = json.dumps([config or {}, summed, MESSAGES])
    command = ["node", "-e", f"(async () => {{{TRANSFORM}}})()", str(PLUGINS / "opencode" / "ibidem.js"), str(times)]
    variables = {"IBIDEM_URL": url, "IBIDEM_PATIENCE_MS": "30000", "PATH": os.environ.get("PATH", "")}
    ran = subprocess.run(command, input=given, env=variables, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def outputs(messages: Any) -> dict[str, str | None]:
    parts = [part for message in messages for part in message["parts"] if part["type"] == "tool"]
    return {part["callID"]: part["state"]["output"] for part in parts}


def test_opencode_sends_references_in_place_of_outputs_and_all_else_as_it_was() -> None:
    """Only plain texts are replaced. Others count, so that the numbers of results are those of the wire."""
    with talk() as found:
        after = transformed(found.proxy.url)
        whole = transformed(found.proxy.url, summed=True)
        led = transformed(found.proxy.url, config={"provider": {"mine": {"options": {"baseURL": found.proxy.url}}}})
        state = found.settled(1)
    before, new = outputs(MESSAGES), outputs(after)
    assert {name for name in before if new[name] != before[name]} == {"b", "f"}
    assert "result 1, " in str(new["b"])
    assert "result 1, " in str(new["f"])
    assert "and one more" in str(new["f"])
    for name, text in before.items():
        after = json.loads(json.dumps(after).replace(json.dumps(new[name]), json.dumps(text)))
    assert after == MESSAGES
    assert whole == MESSAGES, "a summary is made of texts in full"
    assert led == MESSAGES, "what goes through the proxy is rewritten there"
    assert state["conversations"][0]["client"] == "ibidem-opencode"


def _reply(status: int, change: Callable[[Json], Any], **headers: str) -> Callable[[bytes], tuple[int, Json, bytes]]:
    def answer(body: bytes) -> tuple[int, Json, bytes]:
        found = json.loads(ibidem.compact(body, format="openai-chat").request)
        return status, headers, json.dumps(change(found) or found).encode()

    return answer


CLEAN = {"x-ibidem-outcome": "rewritten"}
UNCLEAN = {
    "an answer of somebody else": _reply(200, lambda body: None),
    "a status that is not 200": _reply(203, lambda body: None, **CLEAN),
    "a row is missing": _reply(200, lambda body: {"messages": body["messages"][:-1]}, **CLEAN),
    "another role": _reply(200, lambda body: body["messages"][2].update(role="user"), **CLEAN),
    "another id": _reply(200, lambda body: body["messages"][3].update(tool_call_id="x"), **CLEAN),
    "the user's words are others": _reply(200, lambda body: body["messages"][0].update(content="Delete."), **CLEAN),
    "a text that may not change": _reply(200, lambda body: body["messages"][5].update(content="gone"), **CLEAN),
    "no text": _reply(200, lambda body: body["messages"][3].update(content=[]), **CLEAN),
    "no list": _reply(200, lambda body: {"messages": "x"}, **CLEAN),
}


@contextmanager
def answering(answer: Callable[[bytes], tuple[int, Json, bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, headers, body = answer(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_opencode_sends_what_it_has_where_the_answer_is_not_clean() -> None:
    answers = iter([_reply(200, lambda body: None, **CLEAN), *UNCLEAN.values()])
    with answering(lambda body: next(answers)(body)) as url:
        first, *others = transforms(url, 1 + len(UNCLEAN))
    assert first != MESSAGES
    for name, sent in zip(UNCLEAN, others, strict=True):
        assert sent == MESSAGES, name
    assert transformed("http://127.0.0.1:9") == MESSAGES, "nobody listens"
    assert transformed("no address") == MESSAGES
