"""`POST /ibidem/v1/compact`: return a rewritten request body, which the client sends to its provider itself.

A program in any language can use this. Request headers give the format (default: detected from the body), the client's
name for its conversation, and the profile. The response is the body, as bytes; its headers report the result. If the
body cannot be rewritten, it is returned without new edits, and a header gives the reason. Only a body that is not a
JSON object is rejected.

The proxy never sees the provider's response, so the cost of these requests is unknown and not reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from .. import formats
from ..billing.input_estimate import SampledText
from ..errors import IbidemError, one_line
from ..live.fallback import is_oversized
from ..live.policy import PAUSE_HEADER, parse_pause_header
from ..live.types import LiveRequest, RewriteResult
from ..strategies.profiles import PROFILES
from ..wire.json_text import parse
from .page.admin_pages import PAGE_ROOT, PLAIN_HEADERS, AdminPage, json_page
from .settings import Settings

COMPACT_PATH = f"{PAGE_ROOT}/v1/compact"
KIND = "compact"
"""Kind of these exchanges in the accounting; model calls have `model`."""

CONVERSATION_HEADER, PROFILE_HEADER, FORMAT_HEADER, MODEL_HEADER = (
    f"x-ibidem-{name}" for name in ("conversation", "profile", "format", "model")
)
"""Request headers: the client's name for its conversation, the profile, the format, and the model."""

REJECTED_HEADER = "x-ibidem-rejected"
"""Number of bodies for this request that its provider rejected (400 or 422) because of how they are written."""

MAX_NAME = 256
"""Maximum characters of a conversation's name."""

CAPABILITIES = json_page({"formats": [*formats.ALL_FORMATS], "profiles": [*PROFILES]})
"""Response to a GET. A client that is about to post sends it, which also loads everything that a POST needs."""

NO_OBJECT = "not a JSON object: post the body of a request to a provider"


def is_compact_request(target: str) -> bool:
    """Return whether a request is for this endpoint. Extra slashes at both ends are ignored."""
    return f"/{target.partition('?')[0].strip('/')}" == COMPACT_PATH


def is_local_client(peer: str) -> bool:
    """Return whether the client is on this machine."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool(mapped.is_loopback if mapped is not None else address.is_loopback)


def parse_compact_request(headers: Mapping[str, str], body: bytes, at: float, settings: Settings) -> LiveRequest:
    """Return the request to rewrite. Raises IbidemError for invalid headers. Header names are in lower case."""
    format, profile = (headers.get(name, "").strip() for name in (FORMAT_HEADER, PROFILE_HEADER))
    if format and format not in formats.ALL_FORMATS:
        raise IbidemError(f"unknown format: {FORMAT_HEADER} is one of {', '.join(formats.ALL_FORMATS)}")
    # Custom profiles only from the settings: a name from a request would import its module.
    if profile and profile not in PROFILES and profile != settings.profile:
        raise IbidemError(f"unknown profile: {PROFILE_HEADER} is one of {', '.join(PROFILES)}")
    return LiveRequest(
        format,
        headers.get(CONVERSATION_HEADER, "")[:MAX_NAME],
        headers.get("content-encoding", "").strip().lower(),
        body,
        at,
        max_decoded_bytes=settings.max_body,
        model=headers.get(MODEL_HEADER, "")[:MAX_NAME],
        pause_mode=parse_pause_header(headers.get(PAUSE_HEADER, "")),
        profile=profile or settings.profile,
    )


def count_rejections(headers: Mapping[str, str]) -> int:
    """Number of rejected bodies that a request names; 0 if it names none."""
    count_text = headers.get(REJECTED_HEADER, "").strip()
    return int(count_text) if count_text.isascii() and count_text.isdecimal() and len(count_text) == 1 else 0


def rejected_result(error: IbidemError) -> RewriteResult:
    """Return the result for invalid headers: the body unchanged, with the reason."""
    return RewriteResult(result="unchanged", reason=str(error), is_client_fault=True)


def may_be_object(body: bytes) -> bool:
    """Return whether the start of a body looks like a JSON object."""
    return body[:MAX_NAME].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def is_object(body: bytes, max_rewrite: int) -> bool:
    """Return whether a body is a JSON object. Bodies that are too large to parse only need to look like one."""
    if not may_be_object(body):
        return False
    if is_oversized(body, 0, max_rewrite):
        return True
    try:
        return isinstance(parse(body), dict)
    except IbidemError as error:
        return "nested too deeply" in str(error) or "more digits" in str(error)


def compact_response(body: bytes, encoding: str, job: LiveRequest | None, outcome: RewriteResult) -> AdminPage:
    """Return the response: the body to send, and the result in headers."""
    sent_body = body if outcome.body is None else outcome.body
    before = SampledText(job.decoded_body).count_tokens() if job is not None and job.decoded_body is not None else None
    removed = 0.0 if outcome.body is None else sum(outcome.edit_tokens)
    fields: dict[str, object] = {
        "outcome": outcome.result,
        "reason": _header_text(outcome.reason),
        "format": job.format if job is not None else "",
        "bytes-before": len(body),
        "bytes-after": len(sent_body),
        "tokens-before": "" if before is None else round(before),
        "tokens-after": "" if before is None else max(0, round(before - removed)),
    }
    headers = {f"x-ibidem-{name}": str(value) for name, value in fields.items() if value != ""}
    if outcome.beta:
        headers["x-ibidem-anthropic-beta"] = outcome.beta
    if encoding:
        headers["Content-Encoding"] = encoding
    return AdminPage(200, {**PLAIN_HEADERS, "Content-Type": "application/json", **headers}, sent_body)


def _header_text(reason: str) -> str:
    return one_line(reason).encode("ascii", "replace").decode()


def json_error(status: int, why: str) -> AdminPage:
    """Return an error response in JSON."""
    return json_page({"error": why}, status)
