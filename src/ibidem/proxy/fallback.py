"""The way out (law 12): what is sent for a request that cannot be rewritten as planned, or is not to be.

It begins as the last request of the conversation did that its provider took, to the byte, and goes on as it came. So
the provider finds in its cache what it has there, and thinking that it signed against what was sent stays valid. Where
nothing is known of the conversation, the request goes as it came.

For this nothing new is read: the messages that were sent are told by their hashes, and what was written for them is
known. No lock is taken and no store is asked, so whoever is stuck there does not stop it.

If the provider rejects thinking in all of these bodies, the last one has none (`drop_thinking`).

What another replica sent is not known here, nor what was sent before a restart. It follows from the history and the
notes, if there is time to work through them once more (`replayed`).
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from .. import formats
from ..engine.journal import previous_length
from ..model import Conversation, Thinking
from ..wire import Change, Scanned, open_document, scan
from ..wire.scan import scan_tolerantly
from .books.bill import freed
from .conversation import Deviation, LiveConversation, SentRequest, goes_on
from .conversations import MAX_CANDIDATES, Conversations
from .outcome import Job, Outcome
from .packing import decoded, encoded

MAX_NEW_STRINGS, MAX_NEW_VALUES = 100_000, 300_000
"""Quotes and commas in what is new, from which on reading it would hold others up: every string and number that it is
made of has to be made, by calls that nobody can interrupt. Text costs far less, whatever its length."""


class _SharedPrefix(NamedTuple):
    """A request that begins as an earlier one did."""

    conversation: LiveConversation
    sent: SentRequest | None
    """None if nothing was sent otherwise than it came."""
    scanned: Scanned
    shared: int

    @property
    def own(self) -> LiveConversation | None:
        """The conversation, unless this is a branch that leaves it."""
        return self.conversation if goes_on(self.conversation.last, self.scanned) else None


def is_oversized(body: bytes, start: int, most: int) -> bool:
    """Whether what stands behind `start` is more than may be read here while others wait."""
    if len(body) - start > most:
        return True
    strings = body.count(b'"', start) - body.count(b'\\"', start)
    return strings > MAX_NEW_STRINGS or body.count(b",", start) > MAX_NEW_VALUES


def fall_back(conversations: Conversations, job: Job, failed: Outcome) -> Outcome:
    """The outcome of a request that failed, or is not to be rewritten, with what is sent for it after all."""
    body = job.decoded if job.decoded is not None else decoded(job.body, job.encoding, job.most)
    found = _shared_prefix(conversations, job, body, closely=not failed.unread)
    if found is None:
        return _as_it_came(job, failed, body)
    if found.sent is None:
        return _as_it_came(job, replace(failed, conversation=failed.conversation or found.conversation), body)
    written = found.sent.prefix.over(found.scanned, found.shared)
    each = zip(found.sent.prefix.plan.edits, found.sent.freed, strict=True)
    edits = [(edit, tokens) for edit, tokens in each if edit.message < found.shared]
    return replace(
        failed,
        body=None if written is body else encoded(written, job.encoding),
        conversation=None if job.counts else failed.conversation or found.own,
        messages=len(found.scanned),
        first_new=found.shared,
        edits=tuple(edit for edit, _ in edits),
        freed=tuple(tokens for _, tokens in edits),
        model=failed.model or found.conversation.model,
        deviation=_deviation(job, failed, body, found.shared),
    )


def _deviation(job: Job, failed: Outcome, body: bytes, since: int) -> Deviation | None:
    """What is too large to be read now is so later, and begins in the same way each time."""
    if job.counts or failed.unread:
        return None
    return Deviation(job.key, body, since, failed.refused, job.at)


def replayed(conversations: Conversations, job: Job, failed: Outcome) -> Outcome | None:
    """The outcome with what earlier requests sent, worked out from the history; None where that says no more."""
    conversation = failed.conversation or job.conversation
    body = job.decoded
    if conversation is None or body is None or failed.unread or conversation.measured:
        return None
    known = conversation.sent is not None or conversation.notebook or conversation.elsewhere
    if not failed.refused and not known:
        return None  # it may never have come through here before
    scanned = scan(body) or scan_tolerantly(body)
    since = answered(job.format, scanned) if scanned is not None else 0
    if scanned is None or since <= failed.first_new:
        return None
    prefix = conversations.replay(conversation, body, since)
    if prefix is None:
        return None
    sent = SentRequest(prefix, freed(prefix.plan.edits))
    written = prefix.over(scanned, prefix.messages)
    return replace(
        failed,
        body=None if written is body else encoded(written, job.encoding),
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
    """Messages of the request before this one: those before the model was heard last."""
    read = formats.named(format).read
    return previous_length(len(scanned), lambda index: read(index, scanned.value(index)).role)


def bare(job: Job, failed: Outcome) -> Outcome:
    """The outcome of a request that is refused that way too: it goes as it came."""
    return _as_it_came(job, failed, job.decoded if job.decoded is not None else job.body)


def has_signed_thinking(job: Job) -> bool:
    """Return True if a rejection of the request as it came may be due to earlier rewriting. A search, no parsing."""
    body = job.decoded if job.decoded is not None else job.body
    return not job.counts and b'"signature"' in body


BINDING_BETA = "thinking-binding-controls-2026-08-01"
DROP_BLOCK = {"prefix_mismatch_behavior": "drop_block"}
"""Option that makes the provider drop thinking that does not fit, instead of rejecting the request."""


def drop_thinking(conversations: Conversations, job: Job, failed: Outcome) -> Outcome | None:
    """The outcome of a request whose thinking the provider rejects however it is sent; None if it has none.

    It is sent as it came, without any thinking. The provider wants the thinking of an active tool loop, and a message
    of thinking alone may separate two user messages: there the provider is asked to drop what does not fit.
    """
    body = job.decoded if job.decoded is not None else decoded(job.body, job.encoding, job.most)
    document = open_document(body)
    dialect = formats.named(job.format)
    conv = formats.parse(document.value, dialect)
    changes = _thinking_removed(conv, len(conv.messages))
    if not changes:
        return None
    beta = ""
    loop = conv.messages[conv.running_loop() :]
    needed = any(type(part) is Thinking for message in loop for part in message.parts)
    thinking = document.value.get("thinking") if isinstance(document.value, dict) else None
    if isinstance(thinking, dict) and (needed or any(len(change.path) == 2 for change in changes)):
        binding = thinking.get("block_binding")
        option = {**binding, **DROP_BLOCK} if isinstance(binding, dict) else DROP_BLOCK
        changes, beta = [Change(("thinking", "block_binding"), "set", option)], BINDING_BETA
    return replace(
        _as_it_came(job, failed, body),
        body=encoded(document.write(changes), job.encoding),
        messages=len(conv.messages),
        thinking_dropped=len(conv.messages),
        beta=beta,
    )


def continue_without_thinking(conversations: Conversations, job: Job, found: Outcome) -> Outcome | None:
    """The outcome without thinking in the messages that were sent without it before; None if nothing changes."""
    conversation = found.conversation or job.conversation
    if conversation is None or not conversation.thinking_dropped:
        return None
    body = found.body if found.body is not None else job.body
    document = open_document(decoded(body, job.encoding, job.most))
    conv = formats.parse(document.value, formats.named(job.format))
    changes = _thinking_removed(conv, conversation.thinking_dropped)
    return replace(found, body=encoded(document.write(changes), job.encoding)) if changes else None


def _thinking_removed(conv: Conversation, length: int) -> list[Change]:
    """Changes that take all thinking out of the first messages, this many."""
    key, changes = conv.dialect.history_key, list[Change]()
    for message in conv.messages[:length]:
        thoughts = [part.path for part in message.parts if type(part) is Thinking and part.removable]
        paths = [()] if thoughts and len(thoughts) == len(message.parts) else thoughts
        changes += [Change((key, message.index, *path), "drop") for path in paths]
    return changes


def _as_it_came(job: Job, failed: Outcome, body: bytes) -> Outcome:
    conversation = None if job.counts else failed.conversation or job.conversation
    found = replace(
        failed, body=None, conversation=conversation, edits=(), freed=(), deviation=_deviation(job, failed, body, 0)
    )
    if conversation is None:
        return found
    return replace(found, messages=failed.messages or conversation.messages, model=failed.model or conversation.model)


def _shared_prefix(conversations: Conversations, job: Job, body: bytes, closely: bool) -> _SharedPrefix | None:
    """With the most of what was sent before."""
    found: list[_SharedPrefix] = []
    plain: Scanned | None = None
    for number, each in enumerate(chain.from_iterable(conversations.alike(job.key, body, closely))):
        if number >= MAX_CANDIDATES and any(one.own is not None for one in found):
            break
        sent, last = each.sent, each.last
        prefix = sent.prefix if sent is not None else last
        near = number < MAX_CANDIDATES  # of many, each would be read
        scanned = prefix.rescan(body) if prefix is not None and near else None
        if scanned is None:
            scanned = plain = plain or scan(body) or (scan_tolerantly(body) if closely else None)
        if scanned is None or prefix is None:
            continue
        if sent is not None and (shared := prefix.shared(scanned)):
            found.append(_SharedPrefix(each, sent, scanned, shared))
        elif goes_on(last, scanned):
            found.append(_SharedPrefix(each, None, scanned, 0))
    return max(found, key=lambda one: one.shared, default=None)
