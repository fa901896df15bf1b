"""Record exchanges for `--record`: request bodies as received and as sent, and response bodies. No headers.

At its end, an exchange passes its data to `Recorder.queue_capture`, which only queues it; a thread writes it. The queue
is bounded: if it is full, the conversation is no longer recorded. After an error, recording stops, which is reported
once, and exchanges continue.
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
from ...recordings.body_store import RequestBodies
from ...recordings.proxy_recordings import VERSION, VERSION_FIELD
from ...recordings.recording import Json
from ...wire import parse
from ...wire.content_encoding import decode_body, make_decoder
from ..settings import Settings
from .capture import CapturedExchange, NoRecorder, Say
from .capture_files import CaptureFiles, CaptureLimits

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
        limits = CaptureLimits(settings.record_days, settings.record_bytes)
        self._tapes = CaptureFiles(folder, limits, settings.conversations)
        self._clock = clock
        self._queue: SimpleQueue[CapturedExchange | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._omitted: set[str] = set()
        """Conversations that are no longer recorded, because the queue was full."""
        self._reported: set[str] = set()
        self._has_stopped = False
        self._thread = threading.Thread(target=self._run_writer, args=(self._tapes,), name="ibidem-record", daemon=True)
        self._say: Say = lambda _: None

    def start(self, say: Say) -> None:
        self._say = say
        self._thread.start()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(CLOSING_SECONDS)

    def begin_capture(self, job: LiveRequest, client: str, path: str, upstream: str) -> CapturedExchange | None:
        """Start to capture an exchange. None for token counts, and after an error."""
        return (
            None
            if self._has_stopped or job.is_count_only
            else CapturedExchange(job, client, path, urlsplit(upstream).hostname or "")
        )

    def queue_capture(self, capture: CapturedExchange) -> None:
        if self._has_stopped or capture.conversation in self._omitted:
            return
        with self._lock:
            room = not self._queued_bytes or self._queued_bytes + capture.held_bytes <= WAITING_BYTES
            self._queued_bytes += capture.held_bytes if room else 0
        if room:
            self._queue.put(capture)
            return
        if capture.conversation:
            self._omitted.add(capture.conversation)
        self._say_once("slow", "recording is slower than the requests: some conversations are no longer recorded")

    # ── in the thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def _run_writer(self, tapes: CaptureFiles) -> None:
        try:
            self._delete_expired(tapes)
            while True:
                try:
                    capture = self._queue.get(timeout=SWEEP_SECONDS)
                except Empty:
                    self._delete_expired(tapes)
                    continue
                if capture is None:
                    return
                size = capture.held_bytes
                self._write_capture(tapes, capture)
                with self._lock:
                    self._queued_bytes -= size
        except OSError as error:
            self._stop_recording(one_line(f"{tapes.folder}: {error.strerror or error}"))
        except Exception as error:  # its message may quote what a client sent
            self._stop_recording(f"{type(error).__name__} in the proxy")
            log.debug("an exchange cannot be recorded", exc_info=True)

    def _stop_recording(self, why: str) -> None:
        self._has_stopped = True
        self._say_once("end", f"{why}: recording has stopped, requests continue")

    def _write_capture(self, tapes: CaptureFiles, capture: CapturedExchange) -> None:
        bodies = _decode_bodies(capture)
        if bodies is None:
            return
        row = {**_capture_row(capture), "conversation": tapes.recorded_name(capture.conversation)}
        tapes.write_exchange(capture.conversation, bodies, row, self._clock.time())
        if tapes.is_full:
            self._delete_expired(tapes)

    def _delete_expired(self, tapes: CaptureFiles) -> None:
        if tapes.delete_expired(self._clock.time()):
            message = f"recordings {tapes.limits} are deleted"
            self._say_once("sweep", f"{message}: allow more with --record-days and --record-bytes")

    def _say_once(self, what: str, text: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            log.warning("%s", text)
            with suppress(RuntimeError):  # the event loop is closed
                self._say(text)


def _decode_bodies(capture: CapturedExchange) -> RequestBodies | None:
    """Return the decoded bodies. None if the request contains no conversation."""
    job = capture.job
    try:
        received = (
            job.decoded_body
            if job.decoded_body is not None
            else decode_body(job.body, job.encoding, job.max_decoded_bytes)
        )
        if not capture.conversation and formats.format_named(job.format).history_key not in _json_fields(received):
            return None
        sent_body = (
            received
            if capture.sent_body is None
            else decode_body(capture.sent_body, job.encoding, job.max_decoded_bytes)
        )
        rejected = tuple(decode_body(body, job.encoding, job.max_decoded_bytes) for body in capture.rejected_bodies)
    except IbidemError:
        return None
    return RequestBodies(received, received if sent_body == received else sent_body, rejected)


def _json_fields(body: bytes) -> Json:
    value = parse(body)
    return value if isinstance(value, dict) else {}


def _capture_row(capture: CapturedExchange) -> Json:
    job = capture.job
    return {
        VERSION_FIELD: VERSION,
        "at": job.at,
        "answered": capture.response_time,
        "client": capture.client,
        "session": job.client_name,
        "path": capture.path,
        "host": capture.host,
        "format": job.format,
        "model": capture.model or job.model,
        "status": capture.status,
        "usage": None if capture.usage is None else asdict(capture.usage),
        "would_have_paid": capture.would_have_paid,
        "answer": response_json(capture),
    }


def response_json(capture: CapturedExchange) -> Json:
    """Return the response body as JSON: a text, or Base64 if it is binary (Amazon's streams) or cannot be decoded."""
    cut = {"cut": True} if capture.is_truncated else {}
    encoding, data = {}, capture.response_body
    try:
        reader = make_decoder(capture.content_encoding)
        data = reader.decompress(data) if reader is not None else data
        encoding = {} if reader is not None else {"packed": capture.content_encoding}
    except Exception:  # each package has its own
        encoding = {"packed": capture.content_encoding}
    try:
        return {"text": data.decode(), **encoding, **cut}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode(), **encoding, **cut}
