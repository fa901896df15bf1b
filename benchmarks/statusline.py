"""What `ibidem statusline` costs beside the start of Python itself: `python -m benchmarks.statusline`.

Processor time of whole processes, the smallest of 15 runs that are taken in turns, as multiples of `python -c pass`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

RUNS = 15
STATUS = {
    "session_id": "none",
    "cost": {"total_cost_usd": 0.42},
    "context_window": {"context_window_size": 200_000, "current_usage": {"cache_read_input_tokens": 45_000}},
    "prompt_cache": {"hit_ratio": 0.93, "misses": 2},
}
LAUNCH = "import sys; sys.argv[1:] = {!r}; from ibidem.cli import launch; launch()"
"""What the console script does."""

CODES = {
    "python -c pass": "pass",
    "python -c 'import json'": "import json",
    "ibidem statusline": LAUNCH.format(["statusline"]),
    "ibidem --version": LAUNCH.format(["--version"]),
}


def seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], input=json.dumps(STATUS).encode(), capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def main() -> None:
    turns = [{name: seconds(code) for name, code in CODES.items()} for _ in range(RUNS)]
    best = {name: min(turn[name] for turn in turns) for name in CODES}
    floor = best["python -c pass"]
    for name, took in best.items():
        print(f"{name:{max(map(len, best))}}  {took / floor:4.1f}")


if __name__ == "__main__":
    main()
