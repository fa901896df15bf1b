"""Doors of peers that are called as libraries, each by the interface that its own documentation gives an agent loop.

A door has `begin` (another conversation), `send` (a request; what the peer sends instead), `seconds` (processor time so
far) and `undo` (a whole request as it was) or `recover` (texts that the peer gives back for what stands in a request;
None where there is no way to ask).
"""

from __future__ import annotations

import importlib
import json
import re
import resource
import time
from typing import Any

from .recovery import from_entroly, from_headroom

Json = dict[str, Any]

HANDLE = re.compile(r"\bccr:[0-9a-f]{24}\b")
"""Of something in entroly's store of compressed context."""
PROVIDERS = {"anthropic": "anthropic", "openai-chat": "openai", "openai-responses": "openai", "gemini": "gemini"}
LLMTRIM_PROVIDERS = {"anthropic": "ANTHROPIC", "openai": "OPEN_AI", "gemini": "GOOGLE"}


class Door:
    """Leaves every request as it came."""

    listens = False
    """It has a way to be told what the provider counted."""
    counted: Json = {}  # noqa: RUF012
    """For the request before, where it listens: `context`, input tokens, and `cached`, those read from the cache."""

    def begin(self, session: Json) -> None:
        self.session = session

    def send(self, body: Json, request: Json) -> Json:
        return body

    def seconds(self) -> float:
        """Of this process with all its threads, and of processes that it started and that ended."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    def undo(self, sent: Json) -> Json | None:
        return None

    def recover(self, text: str) -> list[str] | None:
        return None

    def close(self) -> None:
        pass


class Nothing(Door):
    """A request that is passed on: what going through here costs by itself."""


class Ibidem(Door):
    """`ibidem.Session`: one for a conversation, told when requests come and what the provider counted for the last."""

    listens = True

    def __init__(self, profile: str) -> None:
        self.profile = profile
        self.ibidem: Any = importlib.import_module("ibidem")
        self.store: Any = importlib.import_module("ibidem.store").MemoryStore()

    def begin(self, session: Json) -> None:
        self.session = session
        self.counted = {}
        self.growing = self.ibidem.Session(self.profile, store=self.store, format=session["format"])

    def send(self, body: Json, request: Json) -> Json:
        sent: Json = self.growing.compact(body, idle=request["idle"], **self.counted).request
        return sent

    def undo(self, sent: Json) -> Json | None:
        found: Json = self.ibidem.expand(sent, format=self.session["format"], store=self.store)
        return found


class Headroom(Door):
    """`headroom.compress(messages, model=…)`; with `mode="agent"` what `densify` is short for."""

    def __init__(self, **options: Any) -> None:
        self.headroom: Any = importlib.import_module("headroom")
        self.options = options
        self.headroom.compress([{"role": "user", "content": "hello"}], **options)  # what is loaded once

    def send(self, body: Json, request: Json) -> Json:
        model = {"model": request["model"]} if request["model"] else {}
        return {**body, "messages": self.headroom.compress(body["messages"], **model, **self.options).messages}

    def recover(self, text: str) -> list[str] | None:
        return from_headroom(text, self._kept)

    def _kept(self, key: str) -> str | None:
        store = importlib.import_module("headroom.cache.compression_store").get_compression_store()
        entry = store.retrieve(key)
        return None if entry is None else str(entry.original_content)


class Llmtrim(Door):
    """`llmtrim.compress(body as JSON, provider, preset)`."""

    def __init__(self, preset: str | None = None) -> None:
        self.llmtrim: Any = importlib.import_module("llmtrim")
        self.preset = preset

    def send(self, body: Json, request: Json) -> Json:
        provider = getattr(self.llmtrim.Provider, LLMTRIM_PROVIDERS[PROVIDERS[self.session["format"]]])
        found: Json = json.loads(self.llmtrim.compress(json.dumps(body), provider, self.preset).request_json)
        return found


class Entroly(Door):
    """`entroly.compress_messages(messages)`; with `keyed` it is told the model and which conversation it is."""

    def __init__(self, keyed: bool = False, **options: Any) -> None:
        self.entroly: Any = importlib.import_module("entroly")
        self.keyed, self.options, self.number = keyed, options, 0

    def begin(self, session: Json) -> None:
        self.session = session
        self.number += 1

    def send(self, body: Json, request: Json) -> Json:
        key = self.session["key"]
        known = {"client_key": f"conversation {self.number}", "model": request["model"] or None} if self.keyed else {}
        return {**body, key: self.entroly.compress_messages(body[key], **known, **self.options)}

    def recover(self, text: str) -> list[str] | None:
        """By handles in the text, from its store of compressed context."""
        store = importlib.import_module("entroly.ccr").get_ccr_store()
        found = [store.retrieve(handle) for handle in dict.fromkeys(HANDLE.findall(text))]
        return [str(entry["original"]) for entry in found if entry]


class EvidenceLocked(Door):
    """Entroly's `compress_proxy_payload(body, retrieval_store=…)`: any provider's body, originals kept in a store."""

    def __init__(self, **options: Any) -> None:
        self.module: Any = importlib.import_module("entroly.compression_proxy")
        self.options = options

    def begin(self, session: Json) -> None:
        self.session = session
        self.store = self.module.CompressionRetrievalStore(None)

    def send(self, body: Json, request: Json) -> Json:
        provider = PROVIDERS[self.session["format"]]
        found = self.module.compress_proxy_payload(body, provider=provider, retrieval_store=self.store, **self.options)
        sent: Json = found.body
        return sent

    def recover(self, text: str) -> list[str] | None:
        return from_entroly(text, [self.store])
