"""HTTP route of the compact endpoint: rewrite a request and return it to the client, which sends it itself.

The client does not report what it sends, so the proxy assumes that it sends the returned body. If a client closes its
connection before the response, it has run out of time. Then the proxy assumes that the original request is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from ...billing.cache_loss import CacheVerdict
from ...errors import IbidemError
from ...live.fallback import original_result
from ...live.types import LiveRequest, RewriteResult
from .. import compact_endpoint
from ..page import admin_pages
from .response_writer import CONTINUE, page_response
from .server_protocol import ClientProtocol

if TYPE_CHECKING:
    from .app import Proxy

BODY_SECONDS = 60.0
"""Time limit for the body. The client is on this machine."""


async def handle_compact(
    proxy: Proxy, request: web.BaseRequest, target: str, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Handle a request to the compact endpoint."""
    page = deny_compact(proxy, request, target, headers)
    if page is None:
        proxy.get_ready(rehearse=request.method != "POST")
    if page is None and request.method != "POST":
        page = compact_endpoint.CAPABILITIES
    elif page is None:
        body = await _read_body(proxy, request, headers)
        page = (
            body if isinstance(body, admin_pages.AdminPage) else await _CompactTask(proxy, request, headers, body).run()
        )
    answer = page_response(page)
    if page.status != 200:
        answer.force_close()  # the rest of the body is not read
    return answer


def deny_compact(
    proxy: Proxy, request: web.BaseRequest, target: str, headers: Mapping[str, str]
) -> admin_pages.AdminPage | None:
    """Return why a request is rejected, or None. Clients on other machines get 404, as if there were no endpoint."""
    if not compact_endpoint.is_local_client(request.remote or ""):
        return admin_pages.text_page(404, f"not found: see {admin_pages.PAGE_ROOT}\n")
    denial = admin_pages.deny_page(proxy.settings, target, headers)
    if denial is None and request.method not in ("POST", "GET", "HEAD"):
        denial = compact_endpoint.json_error(405, "use POST")
        denial = denial._replace(headers={**denial.headers, "Allow": "POST, GET, HEAD"})
    return denial


async def _read_body(
    proxy: Proxy, request: web.BaseRequest, headers: Mapping[str, str]
) -> bytes | admin_pages.AdminPage:
    most = proxy.settings.max_body
    if headers.get("expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(CONTINUE)
    pieces, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while size <= most and (data := await request.content.readany()):
                pieces.append(data)
                size += len(data)
    except (TimeoutError, web.RequestPayloadError):
        return compact_endpoint.json_error(400, "the request is incomplete")
    if size > most:
        return compact_endpoint.json_error(
            413, f"the request is larger than {most:,} bytes: allow more with --max-body"
        )
    return b"".join(pieces)


class _CompactTask:
    def __init__(self, proxy: Proxy, request: web.BaseRequest, headers: Mapping[str, str], body: bytes) -> None:
        self.proxy = proxy
        self.request = request
        self.headers = headers
        self.body = body
        self.started = proxy.clock.monotonic()

    async def run(self) -> admin_pages.AdminPage:
        encoding = self.headers.get("content-encoding", "")
        if not encoding and not compact_endpoint.may_be_object(self.body):
            return compact_endpoint.json_error(400, compact_endpoint.NO_OBJECT)
        job, outcome = await self._rewrite_request()
        if outcome.is_client_fault and not await self._is_object(job):
            return compact_endpoint.json_error(400, compact_endpoint.NO_OBJECT)
        page = compact_endpoint.compact_response(self.body, encoding, job, outcome)
        if job is not None:
            self._settle_conversation(job, outcome)
        self._record_safely(job, outcome)
        return page

    async def _rewrite_request(self) -> tuple[LiveRequest | None, RewriteResult]:
        try:
            job = compact_endpoint.parse_compact_request(
                self.headers, self.body, self.proxy.clock.time(), self.proxy.settings
            )
        except IbidemError as error:
            return None, compact_endpoint.rejected_result(error)
        try:
            if count := compact_endpoint.count_rejections(self.headers):
                return job, await self.proxy.next_client_body(job, count)
            return job, await self.proxy.rewrite_request(job)
        except asyncio.CancelledError:
            aborted = RewriteResult(result="failed open", reason="the client went away")
            self._settle_conversation(job, aborted, is_gone=True)
            self._record_safely(job, aborted, status=0)
            raise

    async def _is_object(self, job: LiveRequest | None) -> bool:
        """Return whether the body may be a JSON object. A body that cannot be decoded may be one."""
        body = self.body if job is None else job.decoded_body
        if body is None or (job is None and self.headers.get("content-encoding")):
            return True
        most = self.proxy.settings.max_rewrite
        return await asyncio.get_running_loop().run_in_executor(None, compact_endpoint.is_object, body, most)

    def _settle_conversation(self, job: LiveRequest, outcome: RewriteResult, is_gone: bool = False) -> None:
        """Continue the conversation from the body that the client probably sends."""
        protocol = self.request.protocol
        is_gone = is_gone or (isinstance(protocol, ClientProtocol) and protocol.is_half_closed)
        if not self.proxy.settings.observe and job.format and job.decoded_body is not None:
            self.proxy.accept_request(original_result(job, outcome) if is_gone else outcome)

    def _record_safely(self, job: LiveRequest | None, outcome: RewriteResult, status: int = 200) -> None:
        with self.proxy.guarded("compact"):
            self._record_exchange(job, outcome, status)

    def _record_exchange(self, job: LiveRequest | None, outcome: RewriteResult, status: int) -> None:
        proxy, client = self.proxy, self.headers.get("user-agent", "").split(" ")[0]
        format, size = job.format if job is not None else "", len(self.body)
        path, now = compact_endpoint.COMPACT_PATH, proxy.clock.time()
        row = proxy.stats.begin_exchange(path, outcome, now, client, format, size, compact_endpoint.KIND)
        row.total_ms = 1e3 * (proxy.clock.monotonic() - self.started)
        proxy.stats.end_exchange(row, outcome, status, None, CacheVerdict())
        proxy.write_log(row)
