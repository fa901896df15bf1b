"""Programs that are run for somebody: found as a shell finds them, and ended as they ended."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from contextlib import suppress

NOT_FOUND = 127
NOT_EXECUTABLE = 126
EXIT_SIGNALLED = 128
"""What a shell reports for these."""


def found_program(name: str) -> str:
    """The file that a shell would run. OSError says why there is none."""
    if found := shutil.which(name):
        return found
    beside = os.path.dirname(name) != ""
    if not beside or not os.path.exists(name):
        raise FileNotFoundError(errno.ENOENT, "")
    raise IsADirectoryError(errno.EISDIR, "") if os.path.isdir(name) else PermissionError(errno.EACCES, "")


def why_not_run(error: OSError) -> str:
    reasons = {
        errno.ENOENT: "command not found: check its name and PATH",
        errno.EISDIR: "this is a folder: name a program",
        errno.EACCES: "not executable: change the file's mode",
    }
    return reasons.get(error.errno or 0) or f"{error.strerror}: name another program"


def exit_code_of(error: OSError) -> int:
    return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE


def end_as(code: int) -> int:
    """End as the program did, so that whoever waits for us sees what happened to it."""
    if code >= 0 or os.name != "posix":
        return code
    import resource  # not everywhere, and nor are signals

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core of the program is of interest, not ours
    with suppress(OSError):
        signal.signal(-code, signal.SIG_DFL)  # none can be set for SIGKILL
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
    os.kill(os.getpid(), -code)
    return EXIT_SIGNALLED - code
