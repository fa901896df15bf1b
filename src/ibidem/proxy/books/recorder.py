"""Record exchanges for `--record`: request bodies as received and as sent, and response bodies. No headers.

At its end, an exchange passes its data to `Recorder.take`, which only queues it; a thread writes it. The queue is
bounded: if it is full, the conversation is no longer recorded. After an error, recording stops, which is reported once,
and exchanges continue.
"""

from __future__ import annotations

import logging
import threading
from base64 import b64encode
from contextlib import suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

from ... import formats
from ...errors import IbidemError, one_line
from ...live.types import Clock, LiveRequest
from ...recordings.bodies import RequestBodies
from ...recordings.recorded import VERSION, VERSION_FIELD
from ...recordings.recording import Json
from ...wire import parse
from ...wire.content_encoding import decode_body, decoder
from ..settings import Settings
from .taken import NoRecorder, Say, Taken
from .tapes import TapeLimits, Tapes

log = logging.getLogger("ibidem")

WAITING_BYTES = 64 * 2**20
"""Maximum bytes of exchanges in the queue. A single exchange may be larger."""
SWEEP_SECONDS = 3600.0
"""Time between two searches for files that are too old."""
CLOSING_SECONDS = 2.0
"""Maximum wait for the queue at exit."""


class Recorder(NoRecorder):
    """Recorder that writes capture files in its own thread."""

    def __init__(self, folder: str, settings: Settings, clock: Clock) -> None:
        """Raises IbidemError if the folder cannot be used."""
        limits = TapeLimits(settings.record_days, settings.record_bytes)
        self._tapes = Tapes(folder, limits, settings.conversations)
        self._clock = clock
        self._queue: SimpleQueue[Taken | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._left_out: set[str] = set()
        """Conversations that are no longer recorded, because the queue was full."""
        self._said: set[str] = set()
        self._over = False
        self._thread = threading.Thread(target=self._run, args=(self._tapes,), name="ibidem-record", daemon=True)
        self._say: Say = lambda _: None

    def start(self, say: Say) -> None:
        self._say = say
        self._thread.start()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(CLOSING_SECONDS)

    def begin(self, job: LiveRequest, client: str, path: str, upstream: str) -> Taken | None:
        """Start to capture an exchange. None for token counts, and after an error."""
        return None if self._over or job.counts else Taken(job, client, path, urlsplit(upstream).hostname or "")

    def take(self, taken: Taken) -> None:
        if self._over or taken.conversation in self._left_out:
            return
        with self._lock:
            room = not self._waiting or self._waiting + taken.held <= WAITING_BYTES
            self._waiting += taken.held if room else 0
        if room:
            self._queue.put(taken)
            return
        if taken.conversation:
            self._left_out.add(taken.conversation)
        self._say_once("slow", "recording is slower than the requests: some conversations are no longer recorded")

    # ── in the thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, tapes: Tapes) -> None:
        try:
            self._sweep(tapes)
            while True:
                try:
                    taken = self._queue.get(timeout=SWEEP_SECONDS)
                except Empty:
                    self._sweep(tapes)
                    continue
                if taken is None:
                    return
                size = taken.held
                self._write(tapes, taken)
                with self._lock:
                    self._waiting -= size
        except OSError as error:
            self._end(one_line(f"{tapes.folder}: {error.strerror or error}"))
        except Exception as error:  # its message may quote what a client sent
            self._end(f"{type(error).__name__} in the proxy")
            log.debug("an exchange cannot be recorded", exc_info=True)

    def _end(self, why: str) -> None:
        self._over = True
        self._say_once("end", f"{why}: recording has stopped, requests continue")

    def _write(self, tapes: Tapes, taken: Taken) -> None:
        bodies = _bodies(taken)
        if bodies is None:
            return
        row = {**_row(taken), "conversation": tapes.named(taken.conversation)}
        tapes.write(taken.conversation, bodies, row, self._clock.time())
        if tapes.full:
            self._sweep(tapes)

    def _sweep(self, tapes: Tapes) -> None:
        if tapes.sweep(self._clock.time()):
            told = f"recordings {tapes.limits} are deleted"
            self._say_once("sweep", f"{told}: allow more with --record-days and --record-bytes")

    def _say_once(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("%s", text)
            with suppress(RuntimeError):  # the event loop is closed
                self._say(text)


def _bodies(taken: Taken) -> RequestBodies | None:
    """Return the decoded bodies. None if the request contains no conversation."""
    job = taken.job
    try:
        came = job.decoded if job.decoded is not None else decode_body(job.body, job.encoding, job.most)
        if not taken.conversation and formats.named(job.format).history_key not in _fields(came):
            return None
        went = came if taken.went is None else decode_body(taken.went, job.encoding, job.most)
        refused = tuple(decode_body(body, job.encoding, job.most) for body in taken.refused)
    except IbidemError:
        return None
    return RequestBodies(came, came if went == came else went, refused)


def _fields(body: bytes) -> Json:
    found = parse(body)
    return found if isinstance(found, dict) else {}


def _row(taken: Taken) -> Json:
    job = taken.job
    return {
        VERSION_FIELD: VERSION,
        "at": job.at,
        "answered": taken.answered,
        "client": taken.client,
        "session": job.named,
        "path": taken.path,
        "host": taken.host,
        "format": job.format,
        "model": taken.model or job.model,
        "status": taken.status,
        "usage": None if taken.usage is None else asdict(taken.usage),
        "would_have_paid": taken.would_have_paid,
        "answer": answer_of(taken),
    }


def answer_of(taken: Taken) -> Json:
    """Return the response body as JSON: a text, or Base64 if it is binary (Amazon's streams) or cannot be decoded."""
    cut = {"cut": True} if taken.cut else {}
    packed, data = {}, taken.answer
    try:
        reader = decoder(taken.packed)
        data = reader.decompress(data) if reader is not None else data
        packed = {} if reader is not None else {"packed": taken.packed}
    except Exception:  # each package has its own
        packed = {"packed": taken.packed}
    try:
        return {"text": data.decode(), **packed, **cut}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode(), **packed, **cut}
