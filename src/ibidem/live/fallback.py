"""Other bodies for a request that cannot be rewritten as planned, or must not be (invariant 12).

There are five ways to write a request, best first:

1. as planned, with new edits;
2. as sent: the sent prefix, and new messages unchanged (`fall_back`);
3. rebuilt: as 2, reconstructed from the history and the journal (`rebuild_sent_prefix`), after a restart or on another
   replica;
4. unchanged (`original_result`);
5. unchanged and without thinking (`drop_thinking`), only after the provider rejected thinking in other bodies.

The sent prefix lets the provider read its cache, and thinking that it signed stays valid. A request that carries a
checksum of its body is only written in way 4, also if the provider rejects it. A conversation that was rewritten before
then ends with the provider's response (docs/security.md). Ways 2 and 4 take no lock and call no store, so a hanging
store or another request cannot stop them. `next_body` chooses after a rejection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from .. import formats
from ..billing.thinking import signs_thinking
from ..engine.incremental import SentPrefix
from ..engine.journal import previous_length
from ..errors import IbidemError
from ..model import Conversation, Thinking
from ..wire import Change, Scanned, open_document, scan
from ..wire.content_encoding import decode_body, encode_body
from ..wire.scan import scan_tolerantly
from .conversation import Deviation, LiveConversation, SentRequest, goes_on, removed_tokens
from .recognition import MAX_CANDIDATES, Conversations, detected
from .types import LiveRequest, RewriteResult

MAX_NEW_STRINGS, MAX_NEW_VALUES = 100_000, 300_000
"""Quotes and commas in the new part of a request above which it is not parsed. Python creates every string and number
in calls that cannot be interrupted, so other requests would wait. Long texts cost far less."""
MAX_BODIES = 4
"""Maximum number of bodies sent for one request of a client."""


class _SharedPrefix(NamedTuple):
    """A request that starts as an earlier one did."""

    conversation: LiveConversation
    sent: SentRequest | None
    """None if all earlier requests were sent unchanged."""
    scanned: Scanned
    shared: int

    @property
    def own(self) -> LiveConversation | None:
        """The conversation if the request continues it; None if the request is a branch."""
        return self.conversation if goes_on(self.conversation.last, self.scanned) else None


def is_oversized(body: bytes, start: int, most: int) -> bool:
    """Return True if parsing a request from `start` on would delay other requests too long."""
    if len(body) - start > most:
        return True
    strings = body.count(b'"', start) - body.count(b'\\"', start)
    return strings > MAX_NEW_STRINGS or body.count(b",", start) > MAX_NEW_VALUES


# ── as sent ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def fall_back(conversations: Conversations, job: LiveRequest, failed: RewriteResult) -> RewriteResult:
    """Return the result for a request that failed or must not be rewritten, with the body to send for it."""
    body = _body(job)
    found = _shared_prefix(conversations, job, body, closely=not failed.unread)
    if found is None:
        return _unchanged(job, failed, body)
    if found.sent is None or _has_checksum(job, found.scanned.head):
        return _unchanged(job, replace(failed, conversation=failed.conversation or found.own), body)
    written = found.sent.prefix.over(found.scanned, found.shared)
    sent = found.sent.cut(found.scanned, found.shared)
    return replace(
        failed,
        body=None if written is body else encode_body(written, job.encoding),
        conversation=None if job.counts else failed.conversation or found.own,
        messages=len(found.scanned),
        first_new=found.shared,
        edits=sent.prefix.plan.edits,
        freed=sent.freed,
        model=failed.model or found.conversation.model,
        sent=None if job.counts else sent,
        deviation=_deviation(job, failed, body, found.shared),
    )


def _shared_prefix(conversations: Conversations, job: LiveRequest, body: bytes, closely: bool) -> _SharedPrefix | None:
    """Find the conversation that the request continues, or else the one with the longest shared prefix."""
    found: list[_SharedPrefix] = []
    plain: Scanned | None = None
    for number, each in enumerate(chain.from_iterable(conversations.alike(job.key, body, closely))):
        if number >= MAX_CANDIDATES and any(one.own is not None for one in found):
            break
        history, last = each.history, each.last
        prefix = history.newest.prefix if history.newest is not None else last
        near = number < MAX_CANDIDATES  # parsing against each of many candidates takes too long
        scanned = prefix.rescan(body) if prefix is not None and near else None
        if scanned is None:
            scanned = plain = plain or scan(body) or (scan_tolerantly(body) if closely else None)
        if scanned is None or prefix is None:
            continue
        if (start := history.for_request(scanned)) is not None:
            found.append(_SharedPrefix(each, start[0], scanned, start[1]))
        elif goes_on(last, scanned):
            found.append(_SharedPrefix(each, None, scanned, 0))
    return max(found, key=lambda one: (one.own is not None and one.shared > 0, one.shared), default=None)


# ── replayed ────────────────────────────────────────────────────────────────────────────────────────────────────────


def replayed(conversations: Conversations, job: LiveRequest, failed: RewriteResult) -> RewriteResult | None:
    """Return the result with the sent prefix rebuilt from the history; None if that adds no message."""
    conversation = failed.conversation or job.conversation
    body = job.decoded
    if conversation is None or body is None or failed.unread or conversation.measured:
        return None
    known = conversation.history.requests or conversation.notebook or conversation.elsewhere
    if not (failed.refused or known or (not conversations.revises_in(conversation) and needs_known_start(job))):
        return None  # it was possibly never sent through Ibidem
    scanned = scan(body) or scan_tolerantly(body)
    if scanned is not None and _has_checksum(job, scanned.head):
        return None
    since = answered(job.format, scanned) if scanned is not None else 0
    if scanned is None or since <= failed.first_new:
        return None
    prefix = conversations.replay(conversation, body, since)
    if prefix is None:
        return None
    sent = SentRequest(prefix, removed_tokens(prefix.plan.edits))
    written = prefix.over(scanned, prefix.messages)
    return replace(
        failed,
        body=None if written is body else encode_body(written, job.encoding),
        conversation=None if job.counts else conversation,
        messages=len(scanned),
        first_new=since,
        edits=prefix.plan.edits,
        freed=sent.freed,
        model=failed.model or conversation.model,
        sent=None if job.counts else sent,
        deviation=_deviation(job, failed, body, since),
    )


def answered(format: str, scanned: Scanned) -> int:
    """Return the length of the previous request: the messages before the model's last one."""
    read = formats.named(format).read
    return previous_length(len(scanned), lambda index: read(index, scanned.value(index)).role)


# ── unchanged ───────────────────────────────────────────────────────────────────────────────────────────────────────


def bare(job: LiveRequest, failed: RewriteResult) -> RewriteResult:
    """Return the result for a request that is sent unchanged."""
    return _unchanged(job, failed, _body(job))


def _unchanged(job: LiveRequest, failed: RewriteResult, body: bytes) -> RewriteResult:
    conversation = None if job.counts else failed.conversation or job.conversation
    found = replace(
        failed,
        body=None,
        conversation=conversation,
        edits=(),
        freed=(),
        sent=None,
        deviation=_deviation(job, failed, body, 0),
    )
    if job.counts or failed.unread:
        return found
    scanned = scan(body) or scan_tolerantly(body)
    if scanned is not None:
        found = replace(found, sent=SentRequest(SentPrefix.unwritten(formats.named(job.format), scanned), ()))
    if conversation is None:
        return found
    return replace(found, messages=failed.messages or conversation.messages, model=failed.model or conversation.model)


def _deviation(job: LiveRequest, failed: RewriteResult, body: bytes, since: int) -> Deviation | None:
    """Return what the session must learn. None for an oversized request: it stays oversized, and always starts
    unchanged."""
    if job.counts or failed.unread:
        return None
    return Deviation(job.key, body, since, failed.refused, job.at)


def _has_checksum(job: LiveRequest, head: Mapping[str, Any]) -> bool:
    """Return True if only the client's own body may be sent, even after a rejection."""
    return formats.named(job.format).has_checksum(head)


def _body(job: LiveRequest) -> bytes:
    return job.decoded if job.decoded is not None else decode_body(job.body, job.encoding, job.most)


# ── without thinking ────────────────────────────────────────────────────────────────────────────────────────────────

ENDS_BYTES = 2**16
"""Bytes at each end of a request in which its model is searched."""
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')


SIGNED = (b'"signature"', b'"redacted_thinking"')


def has_signed_thinking(job: LiveRequest) -> bool:
    """Return True if a rejection of the unchanged request may be due to earlier rewriting. Searches without parsing."""
    body = job.decoded if job.decoded is not None else job.body
    return not job.counts and any(each in body for each in SIGNED)


def needs_known_start(job: LiveRequest) -> bool:
    """Return True if the provider is likely to reject a request that does not start with the sent prefix."""
    if not has_signed_thinking(job):
        return False
    body = job.decoded if job.decoded is not None else job.body
    named = [*_MODEL.findall(body[:ENDS_BYTES]), *_MODEL.findall(body[-ENDS_BYTES:])]
    return signs_thinking(job.model) or any(signs_thinking(each.decode("utf-8", "replace")) for each in {*named})


BINDING_BETA = "thinking-binding-controls-2026-08-01"
DROP_BLOCK = {"prefix_mismatch_behavior": "drop_block"}
"""Option that makes the provider drop thinking that does not fit, instead of rejecting the request."""


def drop_thinking(conversations: Conversations, job: LiveRequest, failed: RewriteResult) -> RewriteResult | None:
    """Return the result without thinking, for a request whose thinking is always rejected; None without thinking.

    The request is sent unchanged otherwise. In two cases an option lets the provider drop thinking that does not fit,
    instead: it demands the thinking of an active tool loop, and a message with only thinking may separate two user
    messages.
    """
    body = _body(job)
    document = open_document(body)
    dialect = formats.named(job.format)
    conv = formats.parse(document.value, dialect)
    changes = _thinking_removed(conv, len(conv.messages))
    if not changes or dialect.has_checksum(conv.head):
        return None
    beta = ""
    loop = conv.messages[conv.running_loop() :]
    needed = any(type(part) is Thinking for message in loop for part in message.parts)
    if needed or any(len(change.path) == 2 for change in changes):
        changes, beta = _drop_block(document.value) or (changes, "")
    found = _unchanged(job, failed, body)
    length = len(conv.messages)
    return replace(
        found,
        body=encode_body(document.write(changes), job.encoding),
        messages=length,
        deviation=found.deviation and found.deviation._replace(thinking_dropped=length),
        thinking_dropped=length,
        beta=beta,
    )


def _drop_block(request: Any) -> tuple[list[Change], str] | None:
    """Return changes that make the provider drop thinking that does not fit, and the beta for the `anthropic-beta`
    header.

    None if thinking is not enabled. Amazon Bedrock reads betas from the body.
    """
    thinking = request.get("thinking") if isinstance(request, dict) else None
    if not isinstance(thinking, dict) or thinking.get("type") == "disabled":
        return None
    binding = thinking.get("block_binding")
    option = {**binding, **DROP_BLOCK} if isinstance(binding, dict) else DROP_BLOCK
    changes = [Change(("thinking", "block_binding"), "set", option)]
    if not str(request.get("anthropic_version", "")).startswith("bedrock"):
        return changes, BINDING_BETA
    betas = request.get("anthropic_beta")
    betas = [*betas, BINDING_BETA] if isinstance(betas, list) else [BINDING_BETA]
    return [*changes, Change(("anthropic_beta",), "set", betas)], ""


def continue_without_thinking(
    conversations: Conversations, job: LiveRequest, found: RewriteResult
) -> RewriteResult | None:
    """Return the result without thinking in messages that were sent without it before; None without changes."""
    conversation = found.conversation or job.conversation
    if conversation is None or not conversation.thinking_dropped:
        return None
    body = found.body if found.body is not None else job.body
    document = open_document(decode_body(body, job.encoding, job.most))
    conv = formats.parse(document.value, formats.named(job.format))
    if _has_checksum(job, conv.head):
        return None
    changes = _thinking_removed(conv, conversation.thinking_dropped)
    return replace(found, body=encode_body(document.write(changes), job.encoding)) if changes else None


def _thinking_removed(conv: Conversation, length: int) -> list[Change]:
    """Return changes that remove all thinking from the first `length` messages."""
    key, changes = conv.dialect.history_key, list[Change]()
    for message in conv.messages[:length]:
        thoughts = [part.path for part in message.parts if type(part) is Thinking and part.removable]
        paths = [()] if thoughts and len(thoughts) == len(message.parts) else thoughts
        changes += [Change((key, message.index, *path), "drop") for path in paths]
    return changes


# ── after a rejection ───────────────────────────────────────────────────────────────────────────────────────────────

Way = Callable[[Conversations, LiveRequest, RewriteResult], RewriteResult | None]


def next_body(
    conversations: Conversations,
    job: LiveRequest,
    rejected: RewriteResult,
    kind: str,
    tried: Sequence[bytes],
    names_thinking: bool,
) -> RewriteResult | None:
    """Return the first result after a rejection whose body was not tried yet; None if all were.

    At most `MAX_BODIES` are sent. The last one is without thinking, if the rejection names thinking. A request that was
    sent unchanged is written in another way only if the rejection names thinking.
    """
    if rejected.body is None and not names_thinking:
        return None
    failed = RewriteResult(
        result="failed open",
        reason=f"refused by the provider: {kind}",
        refused=True,
        took=rejected.took,
        conversation=rejected.conversation,
    )
    if len(tried) < MAX_BODIES - names_thinking:
        if (late := job.late_plan()) is not None and is_new(job, late, tried):
            return late
        conversation = failed.conversation or job.conversation
        if names_thinking and conversation is not None:
            conversations.reread(conversation)
        found = _tried_way(_as_sent, conversations, job, failed)
        if found is not None and is_new(job, found, tried):
            return found
        if job.body not in tried:
            return bare(job, failed)
    if not names_thinking or len(tried) >= MAX_BODIES:
        return None
    last = _tried_way(drop_thinking, conversations, job, failed)
    return last if last is not None and is_new(job, last, tried) else None


def after_rejections(conversations: Conversations, job: LiveRequest, count: int) -> RewriteResult:
    """Return the result for a client that sends the body itself, after `count` rejections: unchanged, then without
    thinking."""
    job.decoded = _body(job)
    job.format = job.format or detected(job.decoded, job.model)
    failed = RewriteResult(result="failed open", reason="refused by the provider, as the client says", refused=True)
    found = conversations.find(job.key, job.decoded)
    if found is not None:
        job.conversation = found.conversation
    return (drop_thinking(conversations, job, failed) if count > 1 else None) or bare(job, failed)


def is_new(job: LiveRequest, found: RewriteResult, tried: Sequence[bytes]) -> bool:
    return (job.body if found.body is None else found.body) not in tried


def _as_sent(conversations: Conversations, job: LiveRequest, failed: RewriteResult) -> RewriteResult | None:
    """Return the result with the sent prefix, rebuilt if that covers more messages, and without thinking dropped
    before."""
    known = fall_back(conversations, job, failed)
    found = _tried_way(replayed, conversations, job, known) or known
    return continue_without_thinking(conversations, job, found) or found


def _tried_way(way: Way, conversations: Conversations, job: LiveRequest, failed: RewriteResult) -> RewriteResult | None:
    try:
        return way(conversations, job, failed)
    except IbidemError:
        return None
