"""HTTP route of the compact endpoint: rewrite a request and return it to the client, which sends it itself.

The client does not report what it sends, so the proxy assumes that it sends the returned body. If a client closes its
connection before the response, it has run out of time. Then the proxy assumes that the original request is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from ...billing.collapse import Verdict
from ...errors import IbidemError
from ...live.fallback import bare
from ...live.types import LiveRequest, RewriteResult
from .. import compacting
from ..page import pages
from .client_side import CONTINUE, page_response
from .incoming import ClientProtocol

if TYPE_CHECKING:
    from .app import Proxy

BODY_SECONDS = 60.0
"""Time limit for the body. The client is on this machine."""


async def compacted(
    proxy: Proxy, request: web.BaseRequest, target: str, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Handle a request to the compact endpoint."""
    found = refusal(proxy, request, target, headers)
    if found is None:
        proxy.get_ready(rehearse=request.method != "POST")
    if found is None and request.method != "POST":
        found = compacting.OFFERED
    elif found is None:
        body = await _body(proxy, request, headers)
        found = body if isinstance(body, pages.Page) else await _Errand(proxy, request, headers, body).run()
    answer = page_response(found)
    if found.status != 200:
        answer.force_close()  # the rest of the body is not read
    return answer


def refusal(proxy: Proxy, request: web.BaseRequest, target: str, headers: Mapping[str, str]) -> pages.Page | None:
    """Return why a request is rejected, or None. Clients on other machines get 404, as if there were no endpoint."""
    if not compacting.is_near(request.remote or ""):
        return pages.text(404, f"not found: see {pages.PAGE_ROOT}\n")
    found = pages.page_refusal(proxy.settings, target, headers)
    if found is None and request.method not in ("POST", "GET", "HEAD"):
        found = compacting.failed(405, "use POST")
        found = found._replace(headers={**found.headers, "Allow": "POST, GET, HEAD"})
    return found


async def _body(proxy: Proxy, request: web.BaseRequest, headers: Mapping[str, str]) -> bytes | pages.Page:
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
        return compacting.failed(400, "the request is incomplete")
    if size > most:
        return compacting.failed(413, f"the request is larger than {most:,} bytes: allow more with --max-body")
    return b"".join(pieces)


class _Errand:
    def __init__(self, proxy: Proxy, request: web.BaseRequest, headers: Mapping[str, str], body: bytes) -> None:
        self.proxy = proxy
        self.request = request
        self.headers = headers
        self.body = body
        self.began = proxy.clock.monotonic()

    async def run(self) -> pages.Page:
        packed = self.headers.get("content-encoding", "")
        if not packed and not compacting.may_be_object(self.body):
            return compacting.failed(400, compacting.NO_OBJECT)
        job, outcome = await self._done()
        if outcome.theirs and not await self._is_object(job):
            return compacting.failed(400, compacting.NO_OBJECT)
        found = compacting.answer(self.body, packed, job, outcome)
        if job is not None:
            self._settle(job, outcome)
        self._note(job, outcome)
        return found

    async def _done(self) -> tuple[LiveRequest | None, RewriteResult]:
        try:
            job = compacting.asked(self.headers, self.body, self.proxy.clock.time(), self.proxy.settings)
        except IbidemError as error:
            return None, compacting.refused(error)
        try:
            if count := compacting.rejections(self.headers):
                return job, await self.proxy.write_again(job, count)
            return job, await self.proxy.rewrite(job)
        except asyncio.CancelledError:
            gone = RewriteResult(result="failed open", reason="the client went away")
            self._settle(job, gone, gone=True)
            self._note(job, gone, status=0)
            raise

    async def _is_object(self, job: LiveRequest | None) -> bool:
        """Return whether the body may be a JSON object. A body that cannot be decoded may be one."""
        body = self.body if job is None else job.decoded
        if body is None or (job is None and self.headers.get("content-encoding")):
            return True
        most = self.proxy.settings.max_rewrite
        return await asyncio.get_running_loop().run_in_executor(None, compacting.is_object, body, most)

    def _settle(self, job: LiveRequest, outcome: RewriteResult, gone: bool = False) -> None:
        """Continue the conversation from the body that the client probably sends."""
        protocol = self.request.protocol
        gone = gone or (isinstance(protocol, ClientProtocol) and protocol.sends_no_more)
        if not self.proxy.settings.observe and job.format and job.decoded is not None:
            self.proxy.accepted(bare(job, outcome) if gone else outcome)

    def _note(self, job: LiveRequest | None, outcome: RewriteResult, status: int = 200) -> None:
        with self.proxy.guarded("compact"):
            self._written(job, outcome, status)

    def _written(self, job: LiveRequest | None, outcome: RewriteResult, status: int) -> None:
        proxy, client = self.proxy, self.headers.get("user-agent", "").split(" ")[0]
        format, size = job.format if job is not None else "", len(self.body)
        path, now = compacting.COMPACT_PATH, proxy.clock.time()
        found = proxy.records.begin(path, outcome, now, client, format, size, compacting.KIND)
        found.total_ms = 1e3 * (proxy.clock.monotonic() - self.began)
        proxy.records.end(found, outcome, status, None, Verdict())
        proxy.write_log(found)
