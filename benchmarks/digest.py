"""What is sent for recorded sessions, as one digest per profile: `python -m benchmarks.digest CORPUS`.

Every request of every session, turn by turn, once through `compact` and once through a `Session` that grows with it;
once more as it is sent live, with rejections, time-outs, restarts and pauses (`live:`, see `live_script`); and the
figures of `ibidem report` over the same folder. A refactoring or a speed-up changes none of these lines; run it before
and after.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import ibidem
from ibidem.formats import FORMATS
from ibidem.model import to_json
from ibidem.store import MemoryStore

from .corpus import Recorded, sessions
from .live_script import live_digest

PAUSE = 4000.0
"""Seconds after which every cache has forgotten."""


def sent(session: Recorded, profile: str, stride: int) -> Iterator[Any]:
    """All that goes out, in order: of every so many-th request, and of the last, also what `compact` gives for it."""
    key = FORMATS[session.format].history_key
    growing = ibidem.Session(profile, format=session.format, store=MemoryStore())
    for number, cut in enumerate(session.cuts):
        request = {key: session.history[:cut]}
        yield growing.compact(request, idle=PAUSE if number % 9 == 8 else 3).request
        if number % stride == 0 or cut == session.cuts[-1]:
            yield ibidem.compact(request, profile=profile, format=session.format, store=MemoryStore()).request


def digest(session: Recorded, profile: str, stride: int) -> tuple[int, bytes]:
    """How many requests were sent, and the digest of all of them."""
    found, count = hashlib.sha256(), 0
    for request in sent(session, profile, stride):
        found.update(to_json(request).encode("utf-8", "surrogatepass"))
        count += 1
    return count, found.digest()


def figures(folders: list[Path], profiles: list[str]) -> str:
    """The digest of what a report says, the version aside."""
    chosen = [option for profile in profiles for option in ("--profile", profile)]
    command = [sys.executable, "-m", "benchmarks.cli", "report", "--json", "--no-cache", *chosen, *map(str, folders)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    del found["ibidem"]
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def print_line(
    pool: ProcessPoolExecutor,
    recorded: list[Recorded],
    name: str,
    work: Callable[[Recorded], tuple[int, bytes]],
    each: bool,
) -> None:
    """The digest of all sessions, and with `each` a line before it for every session, to find what differs."""
    whole, count = hashlib.sha256(), 0
    for session, (number, part) in zip(recorded, pool.map(work, recorded, chunksize=2), strict=True):
        whole.update(part)
        count += number
        if each:
            print(f"  {part.hex()[:16]}  {session.name}")
    print(f"{name}: {whole.hexdigest()}  {count} requests of {len(recorded)} histories", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--profile", action="append", choices=ibidem.PROFILES)
    parser.add_argument("--folder", action="append", help="only this folder of the corpus")
    parser.add_argument("--stride", type=int, default=1, help="`compact` every so many-th request, send live no other")
    parser.add_argument("--each", action="store_true", help="a line for every session, to find what differs")
    parser.add_argument("--only", choices=("compact", "live", "report"), help="lines of this kind")
    args = parser.parse_args()
    recorded = list(sessions(args.corpus, args.folder))
    profiles = args.profile or list(ibidem.PROFILES)
    kinds = {"compact": ("", digest), "live": ("live: ", live_digest)}
    with ProcessPoolExecutor() as pool:
        for prefix, function in [kinds[name] for name in kinds if args.only in (None, name)]:
            for profile in profiles:
                work = partial(function, profile=profile, stride=args.stride)
                print_line(pool, recorded, prefix + profile, work, args.each)
    if args.only in (None, "report"):
        folders = [args.corpus / name for name in args.folder] if args.folder else [args.corpus]
        print(f"report: {figures(folders, profiles)}")


if __name__ == "__main__":
    main()
