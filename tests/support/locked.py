"""A process that keeps a store locked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXCLUSIVE = ("PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "UPDATE totals SET size = size")
"""Keeps out even those who only want to read."""


@contextmanager
def held(path: Path, *statements: str) -> Iterator[None]:
    """A process that keeps the file locked meanwhile."""
    script = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for statement in sys.argv[2:]:\n"
        "    connection.execute(statement)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(path), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield
        finally:
            process.stdin.close()
