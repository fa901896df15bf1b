"""Servers that are programs of a few lines, run as they are or through `ibidem mcp`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

GATEWAY = (sys.executable, "-m", "ibidem.cli", "mcp")
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"an-agent","version":"1"}}}\n'
)

SCRIPTED = """
import os, sys
data, asked = open(sys.argv[1], "rb").read(), open(sys.argv[2], "wb")
answers = data.split(b"<next>")
for line in sys.stdin.buffer:
    asked.write(line)
    asked.flush()
    if answers:
        sys.stdout.buffer.write(answers.pop(0))
        sys.stdout.buffer.flush()
sys.exit(7)
"""
"""Answers each line with the next of its answers, takes down what it was asked, and exits with 7."""


def program(folder: Path, source: str, *arguments: str) -> list[str]:
    path = folder / "server.py"
    path.write_text(source)
    return [sys.executable, str(path), *arguments]


def through(server: Sequence[str], *options: str) -> list[str]:
    """With hints, which is to be asked for."""
    return [*GATEWAY, "--no-subagents", *options, "--", *server]


def ran(command: Sequence[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=given, capture_output=True, timeout=120, env={**os.environ}, check=False)
