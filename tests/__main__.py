"""`python -m tests`: every check there is, one after the other, whatever the ones before it found.

What is given goes on to pytest: `python -m tests -m "not slow"`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECKS = ("ruff check .", "ruff format --check .", "mypy", "pytest")


def main() -> int:
    failed = []
    for check in CHECKS:
        given = sys.argv[1:] if check == "pytest" else []
        print(f"$ {check}", *given, flush=True)
        if subprocess.run([sys.executable, "-m", *check.split(), *given], cwd=ROOT).returncode:
            failed.append(check)
    print("failed: " + ", ".join(failed) if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
