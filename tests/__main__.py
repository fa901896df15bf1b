"""`python -m tests`: run every check, also after one of them failed.

Arguments are passed on to pytest: `python -m tests -m "not slow"`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECKS = ("ruff check .", "ruff format --check .", "mypy", "pytest")
CI_CHECKS = (*CHECKS[:-1], "pytest --cov --cov-report= -m 'not slow'", "tests.coverage_floor", "pytest -m slow")
"""The same on CI, with coverage. Slow tests run mostly in child processes and would only get slower with it."""


def main() -> int:
    given = sys.argv[1:]
    failed = []
    for check in CI_CHECKS if os.environ.get("CI") and not given else CHECKS:
        command = [*shlex.split(check), *(given if check == "pytest" else [])]
        print("$", shlex.join(command), flush=True)
        if subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode:
            failed.append(check)
    print("failed: " + ", ".join(failed) if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
