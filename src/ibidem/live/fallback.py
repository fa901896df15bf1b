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
from ..billing.thinking_size import signs_thinking
from ..engine.incremental import SentPrefix
from ..engine.journal import previous_request_length
from ..errors import IbidemError
from ..model import Conversation, Thinking
from ..wire import JsonChange, ScannedRequest, open_document, scan
from ..wire.content_encoding import decode_body, encode_body
from ..wire.request_scan import scan_tolerantly
from .conversation import LiveConversation, SentRequest, UnreportedSend, continues_prefix, removed_tokens
from .recognition import MAX_CANDIDATES, Conversations, detect_format
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
    scanned: ScannedRequest
    shared: int

    @property
    def own_conversation(self) -> LiveConversation | None:
        """The conversation if the request continues it; None if the request is a branch."""
        return self.conversation if continues_prefix(self.conversation.last_prefix, self.scanned) else None


def is_oversized(body: bytes, start: int, max_bytes: int) -> bool:
    """Return True if parsing a request from `start` on would delay other requests too long."""
    if len(body) - start > max_bytes:
        return True
    strings = body.count(b'"', start) - body.count(b'\\"', start)
    return strings > MAX_NEW_STRINGS or body.count(b",", start) > MAX_NEW_VALUES


# ── as sent ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def fall_back(conversations: Conversations, job: LiveRequest, failure: RewriteResult) -> RewriteResult:
    """Return the result for a request that failed or must not be rewritten, with the body to send for it."""
    body = _decoded_body(job)
    match = _find_shared_prefix(conversations, job, body, closely=not failure.is_too_large)
    if match is None:
        return _unchanged_result(job, failure, body)
    if match.sent is None or _has_checksum(job, match.scanned.params):
        return _unchanged_result(
            job, replace(failure, conversation=failure.conversation or match.own_conversation), body
        )
    new_request = match.sent.prefix.apply_to(match.scanned, match.shared)
    sent_request = match.sent.cut_prefix(match.scanned, match.shared)
    return replace(
        failure,
        body=None if new_request is body else encode_body(new_request, job.encoding),
        conversation=None if job.is_count_only else failure.conversation or match.own_conversation,
        messages=len(match.scanned),
        first_new=match.shared,
        edits=sent_request.prefix.plan.edits,
        edit_tokens=sent_request.edit_tokens,
        model=failure.model or match.conversation.model,
        sent_request=None if job.is_count_only else sent_request,
        unreported_send=_unreported_send(job, failure, body, match.shared),
    )


def _find_shared_prefix(
    conversations: Conversations, job: LiveRequest, body: bytes, closely: bool
) -> _SharedPrefix | None:
    """Find the conversation that the request continues, or else the one with the longest shared prefix."""
    matches: list[_SharedPrefix] = []
    plain: ScannedRequest | None = None
    for number, each in enumerate(chain.from_iterable(conversations.iter_candidates(job.key, body, closely))):
        if number >= MAX_CANDIDATES and any(match.own_conversation is not None for match in matches):
            break
        history, last = each.history, each.last_prefix
        prefix = history.newest_request.prefix if history.newest_request is not None else last
        is_candidate = number < MAX_CANDIDATES  # parsing against each of many candidates takes too long
        scanned = prefix.rescan(body) if prefix is not None and is_candidate else None
        if scanned is None:
            scanned = plain = plain or scan(body) or (scan_tolerantly(body) if closely else None)
        if scanned is None or prefix is None:
            continue
        if (start := history.find_match(scanned)) is not None:
            matches.append(_SharedPrefix(each, start[0], scanned, start[1]))
        elif continues_prefix(last, scanned):
            matches.append(_SharedPrefix(each, None, scanned, 0))
    return max(matches, key=lambda one: (one.own_conversation is not None and one.shared > 0, one.shared), default=None)


# ── replayed ────────────────────────────────────────────────────────────────────────────────────────────────────────


def rebuild_sent_prefix(conversations: Conversations, job: LiveRequest, failure: RewriteResult) -> RewriteResult | None:
    """Return the result with the sent prefix rebuilt from the history; None if that adds no message."""
    conversation = failure.conversation or job.conversation
    body = job.decoded_body
    if conversation is None or body is None or failure.is_too_large or conversation.is_observed:
        return None
    is_known = conversation.history.requests or conversation.notebook or conversation.is_remote
    if not (
        failure.is_rejected or is_known or (not conversations.can_revise_in(conversation) and needs_known_start(job))
    ):
        return None  # it was possibly never sent through Ibidem
    scanned = scan(body) or scan_tolerantly(body)
    if scanned is not None and _has_checksum(job, scanned.params):
        return None
    first_unchanged = count_answered_messages(job.format, scanned) if scanned is not None else 0
    if scanned is None or first_unchanged <= failure.first_new:
        return None
    prefix = conversations.replay_prefix(conversation, body, first_unchanged)
    if prefix is None:
        return None
    sent_request = SentRequest(prefix, removed_tokens(prefix.plan.edits))
    new_request = prefix.apply_to(scanned, prefix.message_count)
    return replace(
        failure,
        body=None if new_request is body else encode_body(new_request, job.encoding),
        conversation=None if job.is_count_only else conversation,
        messages=len(scanned),
        first_new=first_unchanged,
        edits=prefix.plan.edits,
        edit_tokens=sent_request.edit_tokens,
        model=failure.model or conversation.model,
        sent_request=None if job.is_count_only else sent_request,
        unreported_send=_unreported_send(job, failure, body, first_unchanged),
    )


def count_answered_messages(format: str, scanned: ScannedRequest) -> int:
    """Return the length of the previous request: the messages before the model's last one."""
    read = formats.format_named(format).read_message
    return previous_request_length(len(scanned), lambda index: read(index, scanned.message_at(index)).role)


# ── unchanged ───────────────────────────────────────────────────────────────────────────────────────────────────────


def original_result(job: LiveRequest, failure: RewriteResult) -> RewriteResult:
    """Return the result for a request that is sent unchanged."""
    return _unchanged_result(job, failure, _decoded_body(job))


def _unchanged_result(job: LiveRequest, failure: RewriteResult, body: bytes) -> RewriteResult:
    conversation = None if job.is_count_only else failure.conversation or job.conversation
    result = replace(
        failure,
        body=None,
        conversation=conversation,
        edits=(),
        edit_tokens=(),
        sent_request=None,
        unreported_send=_unreported_send(job, failure, body, 0),
    )
    if job.is_count_only or failure.is_too_large:
        return result
    scanned = scan(body) or scan_tolerantly(body)
    if scanned is not None:
        result = replace(
            result, sent_request=SentRequest(SentPrefix.from_unchanged(formats.format_named(job.format), scanned), ())
        )
    if conversation is None:
        return result
    return replace(
        result, messages=failure.messages or conversation.messages, model=failure.model or conversation.model
    )


def _unreported_send(
    job: LiveRequest, failure: RewriteResult, body: bytes, first_unchanged: int
) -> UnreportedSend | None:
    """Return what the session must learn. None for an oversized request: it stays oversized, and always starts
    unchanged."""
    if job.is_count_only or failure.is_too_large:
        return None
    return UnreportedSend(job.key, body, first_unchanged, failure.is_rejected, job.at)


def _has_checksum(job: LiveRequest, head: Mapping[str, Any]) -> bool:
    """Return True if only the client's own body may be sent, even after a rejection."""
    return formats.format_named(job.format).has_checksum(head)


def _decoded_body(job: LiveRequest) -> bytes:
    return (
        job.decoded_body if job.decoded_body is not None else decode_body(job.body, job.encoding, job.max_decoded_bytes)
    )


# ── without thinking ────────────────────────────────────────────────────────────────────────────────────────────────

ENDS_BYTES = 2**16
"""Bytes at each end of a request in which its model is searched."""
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')


SIGNATURE_KEYS = (b'"signature"', b'"redacted_thinking"')


def has_signed_thinking(job: LiveRequest) -> bool:
    """Return True if a rejection of the unchanged request may be due to earlier rewriting. Searches without parsing."""
    body = job.decoded_body if job.decoded_body is not None else job.body
    return not job.is_count_only and any(each in body for each in SIGNATURE_KEYS)


def needs_known_start(job: LiveRequest) -> bool:
    """Return True if the provider is likely to reject a request that does not start with the sent prefix."""
    if not has_signed_thinking(job):
        return False
    body = job.decoded_body if job.decoded_body is not None else job.body
    model_names = [*_MODEL.findall(body[:ENDS_BYTES]), *_MODEL.findall(body[-ENDS_BYTES:])]
    return signs_thinking(job.model) or any(signs_thinking(each.decode("utf-8", "replace")) for each in {*model_names})


BINDING_BETA = "thinking-binding-controls-2026-08-01"
DROP_BLOCK = {"prefix_mismatch_behavior": "drop_block"}
"""Option that makes the provider drop thinking that does not fit, instead of rejecting the request."""


def drop_thinking(conversations: Conversations, job: LiveRequest, failure: RewriteResult) -> RewriteResult | None:
    """Return the result without thinking, for a request whose thinking is always rejected; None without thinking.

    The request is sent unchanged otherwise. In two cases an option lets the provider drop thinking that does not fit,
    instead: it demands the thinking of an active tool loop, and a message with only thinking may separate two user
    messages.
    """
    body = _decoded_body(job)
    document = open_document(body)
    wire_format = formats.format_named(job.format)
    conv = formats.parse_request(document.value, wire_format)
    changes = _thinking_removals(conv, len(conv.messages))
    if not changes or wire_format.has_checksum(conv.head):
        return None
    beta = ""
    loop = conv.messages[conv.running_loop() :]
    is_required = any(type(part) is Thinking for message in loop for part in message.parts)
    if is_required or any(len(change.path) == 2 for change in changes):
        changes, beta = _drop_block(document.value) or (changes, "")
    result = _unchanged_result(job, failure, body)
    length = len(conv.messages)
    return replace(
        result,
        body=encode_body(document.write(changes), job.encoding),
        messages=length,
        unreported_send=result.unreported_send and result.unreported_send._replace(thinking_dropped=length),
        thinking_dropped=length,
        beta=beta,
    )


def _drop_block(request: Any) -> tuple[list[JsonChange], str] | None:
    """Return changes that make the provider drop thinking that does not fit, and the beta for the `anthropic-beta`
    header.

    None if thinking is not enabled. Amazon Bedrock reads betas from the body.
    """
    thinking = request.get("thinking") if isinstance(request, dict) else None
    if not isinstance(thinking, dict) or thinking.get("type") == "disabled":
        return None
    binding = thinking.get("block_binding")
    option = {**binding, **DROP_BLOCK} if isinstance(binding, dict) else DROP_BLOCK
    changes = [JsonChange(("thinking", "block_binding"), "set", option)]
    if not str(request.get("anthropic_version", "")).startswith("bedrock"):
        return changes, BINDING_BETA
    betas = request.get("anthropic_beta")
    betas = [*betas, BINDING_BETA] if isinstance(betas, list) else [BINDING_BETA]
    return [*changes, JsonChange(("anthropic_beta",), "set", betas)], ""


def continue_without_thinking(
    conversations: Conversations, job: LiveRequest, result: RewriteResult
) -> RewriteResult | None:
    """Return the result without thinking in messages that were sent without it before; None without changes."""
    conversation = result.conversation or job.conversation
    if conversation is None or not conversation.thinking_dropped:
        return None
    body = result.body if result.body is not None else job.body
    document = open_document(decode_body(body, job.encoding, job.max_decoded_bytes))
    conv = formats.parse_request(document.value, formats.format_named(job.format))
    if _has_checksum(job, conv.head):
        return None
    changes = _thinking_removals(conv, conversation.thinking_dropped)
    return replace(result, body=encode_body(document.write(changes), job.encoding)) if changes else None


def _thinking_removals(conv: Conversation, length: int) -> list[JsonChange]:
    """Return changes that remove all thinking from the first `length` messages."""
    key, changes = conv.dialect.history_key, list[JsonChange]()
    for message in conv.messages[:length]:
        thoughts = [part.path for part in message.parts if type(part) is Thinking and part.removable]
        paths = [()] if thoughts and len(thoughts) == len(message.parts) else thoughts
        changes += [JsonChange((key, message.index, *path), "drop") for path in paths]
    return changes


# ── after a rejection ───────────────────────────────────────────────────────────────────────────────────────────────

BodyWriter = Callable[[Conversations, LiveRequest, RewriteResult], RewriteResult | None]


def next_body(
    conversations: Conversations,
    job: LiveRequest,
    result: RewriteResult,
    kind: str,
    rejected_bodies: Sequence[bytes],
    names_thinking: bool,
) -> RewriteResult | None:
    """Return the first result after a rejection whose body was not tried yet; None if all were.

    At most `MAX_BODIES` are sent. The last one is without thinking, if the rejection names thinking. A request that was
    sent unchanged is written in another way only if the rejection names thinking.
    """
    if result.body is None and not names_thinking:
        return None
    failure = RewriteResult(
        result="failed open",
        reason=f"refused by the provider: {kind}",
        is_rejected=True,
        seconds=result.seconds,
        conversation=result.conversation,
    )
    if len(rejected_bodies) < MAX_BODIES - names_thinking:
        if (late := job.late_plan()) is not None and is_untried(job, late, rejected_bodies):
            return late
        conversation = failure.conversation or job.conversation
        if names_thinking and conversation is not None:
            conversations.reread(conversation)
        candidate = _try_way(_sent_prefix_result, conversations, job, failure)
        if candidate is not None and is_untried(job, candidate, rejected_bodies):
            return candidate
        if job.body not in rejected_bodies:
            return original_result(job, failure)
    if not names_thinking or len(rejected_bodies) >= MAX_BODIES:
        return None
    last = _try_way(drop_thinking, conversations, job, failure)
    return last if last is not None and is_untried(job, last, rejected_bodies) else None


def after_rejections(conversations: Conversations, job: LiveRequest, count: int) -> RewriteResult:
    """Return the result for a client that sends the body itself, after `count` rejections: unchanged, then without
    thinking."""
    job.decoded_body = _decoded_body(job)
    job.format = job.format or detect_format(job.decoded_body, job.model)
    failure = RewriteResult(
        result="failed open", reason="refused by the provider, as the client says", is_rejected=True
    )
    match = conversations.find_conversation(job.key, job.decoded_body)
    if match is not None:
        job.conversation = match.conversation
    return (drop_thinking(conversations, job, failure) if count > 1 else None) or original_result(job, failure)


def is_untried(job: LiveRequest, result: RewriteResult, rejected_bodies: Sequence[bytes]) -> bool:
    return (job.body if result.body is None else result.body) not in rejected_bodies


def _sent_prefix_result(conversations: Conversations, job: LiveRequest, failure: RewriteResult) -> RewriteResult | None:
    """Return the result with the sent prefix, rebuilt if that covers more messages, and without thinking dropped
    before."""
    from_memory = fall_back(conversations, job, failure)
    result = _try_way(rebuild_sent_prefix, conversations, job, from_memory) or from_memory
    return continue_without_thinking(conversations, job, result) or result


def _try_way(
    writer: BodyWriter, conversations: Conversations, job: LiveRequest, failure: RewriteResult
) -> RewriteResult | None:
    try:
        return writer(conversations, job, failure)
    except IbidemError:
        return None
