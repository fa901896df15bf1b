"""Find a program as a shell does, and end this process with the program's exit code or signal."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from contextlib import suppress

NOT_FOUND = 127
NOT_EXECUTABLE = 126
EXIT_SIGNALLED = 128
"""Exit codes that a shell uses: not found, not executable, and the base for signals."""


def find_program(name: str) -> str:
    """Return the file that a shell would run. Raises OSError with the reason if there is none."""
    if path := shutil.which(name):
        return path
    has_folder = os.path.dirname(name) != ""
    if not has_folder or not os.path.exists(name):
        raise FileNotFoundError(errno.ENOENT, "")
    raise IsADirectoryError(errno.EISDIR, "") if os.path.isdir(name) else PermissionError(errno.EACCES, "")


def describe_start_error(error: OSError) -> str:
    """Describe why a program cannot be started, and what to do."""
    reasons = {
        errno.ENOENT: "command not found: check its name and PATH",
        errno.EISDIR: "this is a folder: pass a program",
        errno.EACCES: "not executable: change the file's mode",
    }
    return reasons.get(error.errno or 0) or f"{error.strerror}: use another program"


def exit_code_of(error: OSError) -> int:
    """Return the exit code that a shell uses if a program cannot be started."""
    return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE


def exit_like_program(code: int) -> int:
    """Return the program's exit code, or end this process by the signal that ended the program.

    Our parent process then sees the same result as without us.
    """
    if code >= 0 or os.name != "posix":
        return code
    import resource  # only on POSIX

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's core dump is useful, ours is not
    with suppress(OSError):
        signal.signal(-code, signal.SIG_DFL)  # not allowed for SIGKILL
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
    os.kill(os.getpid(), -code)
    return EXIT_SIGNALLED - code
