"""`ibidem hooks`: handle the hooks of Claude Code without a proxy. It needs only the standard library and ibidem."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..proxy.settings import Settings

HOST = "127.0.0.1"
BODY_SECONDS = 10.0
BODY_BLOCK = 2**16
MAX_CONNECTIONS = 64
"""Concurrent connections, more than an agent runs tools at once. Further ones are closed; clients then continue
without hooks."""
LARGE_EVENT, MAX_LARGE_EVENTS = 2**18, 2
"""Size in bytes of a large event, and how many are read at once. Each is in memory until its response is sent."""


@click.command(short_help="Handle Claude Code hooks without a proxy.")
@click.option("--port", type=int, help="Port to listen on; 0 selects a free port (default: 8123).")
@click.option("--token", help="Token that hooks must send as x-ibidem-token. Setting IBIDEM_TOKEN is safer.")
def hooks(port: int | None, token: str | None) -> int:
    """Handle the hooks of the Claude Code plugin on this machine, until stopped.

    A tool output that the model just got is replaced by a line that refers to it. A running `ibidem proxy` handles
    hooks itself, so use this command only without a proxy.
    """
    from msgspec import structs

    from .. import environment
    from .proxy.serve import listen_error, load_settings

    settings = structs.replace(
        load_settings({"port": port, "token": token}, environment.environment_variables()).settings, host=HOST
    )
    try:
        server = HookServer(settings)
    except OSError as error:
        raise listen_error(error, settings) from None
    with server:
        click.echo(f"Handling hooks on http://{HOST}:{server.server_address[1]}")
        click.echo("Stop with Ctrl-C.")
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    click.echo(server.summary_line())
    return 0


class HookServer(ThreadingHTTPServer):
    """HTTP server for hooks with one thread per connection. A lock lets one thread at a time use the tool outputs."""

    daemon_threads = True

    def __init__(self, settings: Settings) -> None:
        from ..proxy.claude_hooks import ToolHooks

        self.settings = settings
        self._hooks = ToolHooks()
        self._deciding = threading.Lock()
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._large_events = threading.BoundedSemaphore(MAX_LARGE_EVENTS)
        super().__init__((HOST, settings.port), _Handler)

    def hook_response(self, event: Any) -> dict[str, Any]:
        """Return the response to a hook event; empty to leave the output unchanged."""
        try:
            with self._deciding:
                return self._hooks.handle_event(event, time.monotonic())
        except Exception:  # fail open: the client then uses the unchanged output
            return {}

    def clear_outputs(self) -> None:
        """Clear the tool outputs. An event was lost, and it may have reported that a context was compacted."""
        with self._deciding:
            self._hooks.clear_memory()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.acquire(blocking=False):
            self.clear_outputs()
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    @contextmanager
    def reserve_memory(self, size: int) -> Iterator[bool]:
        """Reserve memory for an event. Yields False if too many large events are read for `BODY_SECONDS`."""
        large = size > LARGE_EVENT
        is_free = not large or self._large_events.acquire(timeout=BODY_SECONDS)
        if not is_free:
            self.clear_outputs()
        try:
            yield is_free
        finally:
            if large and is_free:
                self._large_events.release()

    def summary_line(self) -> str:
        """Return the summary line."""
        tool_hooks = self._hooks
        return (
            f"{tool_hooks.outputs:,} outputs, {tool_hooks.repeats:,} repeated: {tool_hooks.bytes_saved:,} bytes saved"
        )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: the client disconnected, or it gets no response and continues without us."""


class _Handler(BaseHTTPRequestHandler):
    server: HookServer
    timeout = BODY_SECONDS
    server_version, sys_version = "ibidem", ""

    def do_POST(self) -> None:
        from ..proxy.claude_hooks import HOOKS_PATH
        from ..proxy.page.admin_pages import deny_page

        headers = {name.lower(): text for name, text in self.headers.items()}
        refusal = deny_page(self.server.settings, self.path, headers)
        if refusal is not None:
            self._send_response(refusal.status, refusal.headers["Content-Type"], refusal.body)
        elif self.path.partition("?")[0] != HOOKS_PATH:
            self._send_response(404, "text/plain", b"this server only handles hooks\n")
        else:
            self._send_response(200, "application/json", json.dumps(self._hook_response(self._body_size())).encode())

    def _body_size(self) -> int:
        """Return the body's size in bytes; 0 if it is unknown, too large, or not JSON.

        A form on another web site cannot send JSON, so the content type protects against such requests.
        """
        from ..proxy.claude_hooks import MAX_EVENT_BYTES

        length = self.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdecimal() and len(length) < 12 else 0
        return size if size <= MAX_EVENT_BYTES and self.headers.get_content_type() == "application/json" else 0

    def _hook_response(self, size: int) -> dict[str, Any]:
        from ..proxy.claude_hooks import parse_event

        with self.server.reserve_memory(size) as is_free:
            return self.server.hook_response(parse_event(self._read_body(size))) if is_free else {}

    def _read_body(self, size: int) -> bytes:
        """Read the body, or the part that arrives within `BODY_SECONDS`."""
        body, end = bytearray(), time.monotonic() + BODY_SECONDS
        while size > len(body) and time.monotonic() < end:
            data = self.rfile.read1(min(size - len(body), BODY_BLOCK))
            if not data:
                break
            body += data
        return bytes(body)

    def _send_response(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, text in (("Content-Type", kind), ("Content-Length", str(len(body))), ("Connection", "close")):
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests: their content must not reach the terminal."""
