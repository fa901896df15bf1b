"""The picture of the page in the README: `python -m benchmarks.dashboard docs/dashboard.png`.

The bundled sample and some made-up conversations go through a proxy to a scripted provider that keeps a prompt cache,
all on loopback; then a browser takes the picture. `--serve` keeps the proxy running, to look around.
"""

from __future__ import annotations

import argparse
import json
import shutil
import urllib.request
from importlib import resources
from typing import Any

from ibidem.proxy.edge.server import BackgroundServer
from ibidem.proxy.settings import Settings
from ibidem.store import MemoryStore
from ibidem.testing import Says, Upstream

from .history import history

ASKED = (
    ("claude-cli/2.1.38", "claude-sonnet-4-5", "Make the shopping list add up amounts in different units"),
    ("claude-cli/2.1.38", "claude-opus-4-6", "Why does the nightly build fail on the second shard?"),
    ("my-agent/0.3", "claude-haiku-4-5", "Move the settings of the importer into one file"),
)
MARK = {"cache_control": {"type": "ephemeral"}}


def conversations() -> list[tuple[str, dict[str, Any]]]:
    """Clients, and the last request of each."""
    sample = json.loads((resources.files("ibidem") / "samples" / "conversation.json").read_bytes())
    found = []
    for number, (client, model, asked) in enumerate(ASKED):
        request = sample if not number else history(60 + 20 * number, 200_000 * number)
        first = {"role": "user", "content": asked}
        found.append(
            (client, {**request, "model": model, "max_tokens": 1000, "messages": [first, *request["messages"][1:]]})
        )
    return found


def send(url: str, client: str, request: dict[str, Any]) -> None:
    """Every request that led to this one, with a cache mark at its end as clients set it."""
    messages = request["messages"]
    for length in (place for place in range(1, len(messages) + 1) if messages[place - 1]["role"] == "user"):
        *rest, last = messages[:length]
        content = last["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        marked = {**last, "content": [*blocks[:-1], {**blocks[-1], **MARK}]}
        body = json.dumps({**request, "messages": [*rest, marked]}).encode()
        headers = {"user-agent": client, "x-api-key": "none", "content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/messages", body, headers)) as answer:
            answer.read()


def picture(url: str, path: str) -> None:
    from playwright.sync_api import sync_playwright

    quiet = ("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-component-update", *quiet]
        )
        page = browser.new_page(viewport={"width": 1180, "height": 820}, device_scale_factor=1.5)
        page.goto(f"{url}/ibidem")
        page.get_by_text(ASKED[0][2]).first.wait_for()
        page.screenshot(path=path)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?")
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    with Upstream(lambda seen: Says("Done.")) as provider:
        upstreams = dict.fromkeys(("anthropic", "openai", "gemini"), provider.url)
        with BackgroundServer(Settings(port=0, upstreams=upstreams), store=MemoryStore()) as proxy:
            for client, request in conversations():
                send(proxy.url, client, request)
            if args.path:
                picture(proxy.url, args.path)
            if args.serve:
                input(f"{proxy.url}/ibidem (Enter ends it)")


if __name__ == "__main__":
    main()
