"""One request body on its way out: what is sent instead, or why it goes as it came (law 12).

`Rewriter.rewrite` runs in a thread of its own and may be given up on; whoever waits for it then sends the original, and
the conversation is told that it went out that way.
"""

from __future__ import annotations

import gzip
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from ..engine import Compacted
from ..model import IbidemError, one_line
from ..plan import Edit
from ..store import StoreError
from ..tokens import SAMPLED, SAMPLES, estimate
from ..trail import Place
from ..wire import Scanned
from .bill import freed
from .conversations import Conversation, Conversations, Found, Single, Unreadable
from .encodings import decoder

log = logging.getLogger("ibidem")

PIECE = 2**14
"""Bytes that are unpacked at once: what is made to be huge is found out early."""

TRIES = 3
"""How often a conversation is looked up that others work on at the same time."""

REASON = 200
"""Characters of a reason that are told."""

Result = Literal["rewritten", "unchanged", "observed", "failed open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a request."""

    result: Result
    body: bytes | None = None
    """What is sent; None for the request as it came."""
    reason: str = ""
    """Why it failed open."""
    theirs: bool = False
    """That was the client's doing: nothing is wrong here."""
    conversation: Conversation | None = None
    messages: int = 0
    first_new: int = 0
    """Of these, those that were sent before."""
    new: float = 0.0
    """Tokens of the others as they came, by our count, about."""
    ends: tuple[float, ...] = ()
    """Where each message ends, as a share of what is sent, about; only where none is known to have been sent before."""
    edits: tuple[Edit, ...] = ()
    freed: tuple[float, ...] = ()
    """Tokens that each of them takes out, by our count."""
    revision: str = ""
    """Why something that was sent before was changed in this request."""
    rewritten: float = 0.0
    """Tokens that the provider has to write again because of that, at worst."""
    took: float = 0.0
    """Seconds."""
    model: str = ""
    place: Place | None = None
    """By which the session knows this very request later."""


@dataclass(eq=False)
class Job:
    """A request that is being worked on. Either it is done in time or it is given up, never both."""

    format: str
    named: str
    """What the client calls the conversation."""
    encoding: str
    body: bytes
    at: float
    """Seconds since 1970."""
    counts: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    @property
    def ended(self) -> bool:
        return self._ended

    def end(self) -> bool:
        """True for the first who ends it."""
        with self._lock:
            first, self._ended = not self._ended, True
            return first


class Failed(IbidemError):
    """A request that can be read and was not rewritten."""


class Rewriter:
    def __init__(self, conversations: Conversations, observe: bool, max_body: int) -> None:
        self.conversations = conversations
        self._observe = observe
        self._max_body = max_body

    def rewrite(self, job: Job) -> Outcome:
        """Never raises."""
        start = time.perf_counter()
        try:
            return self._rewrite(job, start)
        except Single:
            return Outcome(result="unchanged", took=time.perf_counter() - start)
        except Unreadable as error:
            told, theirs = str(error), True
        except (StoreError, Failed) as error:
            told, theirs = one_line(str(error))[:REASON], False
        except IbidemError:  # it says where: each would be a reason of its own
            told, theirs = "its messages cannot be read", True
        except Exception as error:
            log.debug("a request cannot be rewritten", exc_info=True)
            told, theirs = whereabouts(error), False
        return Outcome(result="failed open", reason=told, theirs=theirs, took=time.perf_counter() - start)

    def _rewrite(self, job: Job, start: float) -> Outcome:
        body = _decoded(job.body, job.encoding, self._max_body)
        find, begin = self.conversations.find, self.conversations.begin
        if job.counts:
            return self._counted(job, body, start)
        for _ in range(TRIES):
            found = find(job.format, job.named, body) or begin(job.format, job.named, body)
            with found.conversation.lock:
                if job.ended:
                    break
                if found.conversation.turns == found.turn:
                    return self._work(job, body, found, start)
        raise Failed("busy: other requests of the same conversation were faster")

    def _work(self, job: Job, body: bytes, found: Found, start: float) -> Outcome:
        """Under the conversation's lock."""
        conversation = found.conversation
        compacted = self.conversations.rewrite(found, job.at)
        changed = compacted.request is not body
        try:
            _refuse(compacted)
            new = _encoded(compacted.request, job.encoding) if changed and not self._observe else None
            result: Result = "observed" if self._observe else "rewritten" if changed else "unchanged"
            outcome = _outcome(found, compacted, result, new, start)
            self._save(conversation)
        except Exception:
            job.end()
            self._as_is(conversation, changed)
            raise
        if not job.end():  # the original is on its way already
            self._as_is(conversation, changed)
            self._save(conversation)
        return outcome

    def _save(self, conversation: Conversation) -> None:
        if self.conversations.looks_back:
            self.conversations.save(conversation)

    def _as_is(self, conversation: Conversation, changed: bool) -> None:
        if changed and not self._observe:
            conversation.session.sent_as_is()

    def _counted(self, job: Job, body: bytes, start: float) -> Outcome:
        """The size is asked of what would be sent, and nothing is: so nothing is remembered of it."""
        found = self.conversations.find(job.format, job.named, body)
        compacted = self.conversations.preview(job.format, found, body, job.at)
        _refuse(compacted)
        new = None if self._observe or not compacted.plan else _encoded(compacted.request, job.encoding)
        job.end()
        return Outcome(result="unchanged" if new is None else "rewritten", body=new, took=time.perf_counter() - start)


def _outcome(found: Found, compacted: Compacted, result: Result, body: bytes | None, start: float) -> Outcome:
    """With what the books need to know of it, counted here, where nobody else waits."""
    conversation, plan = found.conversation, compacted.plan
    point = plan.points[-1] if len(plan.points) > conversation.points else None
    conversation.points = len(plan.points)
    conversation.freed = freed(plan.edits, conversation.edits, conversation.freed)
    conversation.edits = plan.edits
    return Outcome(
        result=result,
        body=body,
        conversation=conversation,
        messages=conversation.messages,
        first_new=conversation.first_new,
        new=_tokens(found.scanned, conversation.first_new),
        ends=() if conversation.first_new else _ends(found.scanned, plan.edits),
        edits=plan.edits,
        freed=conversation.freed,
        revision=point.reason if point else "",
        rewritten=point.rewritten if point else 0.0,
        took=time.perf_counter() - start,
        model=conversation.model,
        place=conversation.session.place,
    )


def _refuse(compacted: Compacted) -> None:
    """Raises if something stood against it. The particulars may quote what the client sent, and are not told."""
    if compacted.reason:
        raise Failed(compacted.reason.partition(":")[0])


def whereabouts(error: BaseException) -> str:
    """What went wrong and where. Its message may quote what the client sent."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {place}"


def _tokens(scanned: Scanned, first: int) -> float:
    """Of the messages from this one on, about: read as text, with the commonest escapes of JSON undone."""
    known = scanned.known
    if known is None or first >= len(known.spans):
        return 0.0
    data = scanned.given[known.spans[first][0] : known.spans[-1][1]]
    step = max(1, len(data) // SAMPLES)
    pieces = [data[at : at + SAMPLED] for at in range(0, len(data), step)] if len(data) > SAMPLES * SAMPLED else [data]
    plain = b"".join(pieces).replace(b"\\n", b"\n").replace(b'\\"', b'"').replace(b"\\t", b"\t")
    return estimate(plain.decode("utf-8", "replace")) * len(data) / max(1, sum(map(len, pieces)))


def _ends(scanned: Scanned, edits: tuple[Edit, ...]) -> tuple[float, ...]:
    """What stands beside the messages comes first: that is how providers see it."""
    known = scanned.known
    if known is None:
        return ()
    sizes = [end - start for start, end in known.spans]
    head = len(scanned.given) - sum(sizes)
    for edit in edits:
        sizes[edit.message] -= edit.bytes_saved
    sums = list(accumulate(sizes, initial=head))
    return tuple(each / sums[-1] for each in sums[1:])


def _decoded(body: bytes, encoding: str, most: int) -> bytes:
    """A request that came compressed, as it was before."""
    if not encoding or encoding == "identity":
        return body
    found = decoder(encoding)
    if found is None:
        raise Unreadable("its encoding is not known here")
    whole = bytearray()
    for start in range(0, len(body), PIECE):
        try:
            whole += found.decompress(body[start : start + PIECE])
        except Exception as error:  # each package has its own
            raise Unreadable("it is not in the encoding that it says") from error
        if len(whole) > most:
            raise Unreadable(f"it is larger than {most:,} bytes when it is unpacked")
    if not found.done:
        raise Unreadable("it is not in the encoding that it says")
    return bytes(whole)


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def _brotli(data: bytes) -> bytes:
    import brotli  # type: ignore[import-not-found,import-untyped,unused-ignore]  # it was read with it

    packed: bytes = brotli.compress(data, quality=4)
    return packed


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "x-gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "deflate": zlib.compress,
    "zstd": _zstd,
    "br": _brotli,
}


def _encoded(body: bytes, encoding: str) -> bytes:
    return ENCODERS[encoding](body) if encoding in ENCODERS else body
