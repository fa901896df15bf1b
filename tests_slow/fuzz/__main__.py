"""Run one harness: `python -m tests_slow.fuzz NAME --seconds 600`. The corpus folder is kept if one is named."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from . import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests_slow.fuzz")
    parser.add_argument("name", choices=run.SOURCES)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--corpus", type=Path, help="folder of inputs to start from and to add to")
    parser.add_argument("--child", choices=("fuzz", "replay"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child == "fuzz":
        run.fuzz(options.name, options.corpus, options.seconds)
        return 0
    if options.child == "replay":
        print(run.replay(options.name, options.corpus))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        result = run.campaign(options.name, options.corpus or Path(folder) / "corpus", options.seconds)
        print(f"{options.name}: {result}")
        if result.failure:
            print(result.failure, file=sys.stderr)
        return 1 if result.failure else 0


if __name__ == "__main__":
    sys.exit(main())
