"""Which project a folder belongs to, by its name alone: a worktree is its project.

Agents and their users keep worktrees in a few known places, so the name of a folder tells what it is a copy of:

- `<repo>/.worktrees/<name>`, `<repo>/worktrees/<name>`
- `<repo>/.claude/worktrees/<name>`, and so for the folder of any other agent in a repository
- `<repo>.worktrees/<name>` and `<repo>__worktrees/<name>`, beside the repository
- `~/.codex/worktrees/<id>/<repo>`: where the repository itself lies is not told, so its name stands for it

Nothing on disk is looked at: a log may come from another machine, and its worktrees are gone by now.
"""

from __future__ import annotations

import re

WORKTREES = frozenset({"worktrees", ".worktrees"})
"""Folders of worktrees within a repository."""
BESIDE = re.compile(r"(.*[^._-])(?:\.|__)worktrees", re.DOTALL)
"""A folder of worktrees beside the repository that it is named after."""
FOREIGN = ".codex"
"""An agent that keeps worktrees of all repositories in its own folder, below ids."""
NO_REPOSITORY = re.compile(
    r"(?:[A-Za-z]:|/mnt/[a-z])?(?:[\\/](?:home|Users)(?:[\\/][^\\/]+)?)?[\\/]?|~|/(?:root|tmp|opt|srv|var|workspaces?)"
)
"""Folders that hold repositories and are none: a root, a home, and the like."""
DEEPEST = 5
"""Names that such a folder has at most."""


def project_of(cwd: str) -> str:
    """The folder that stands for the project of a session in `cwd`; what is in no worktree stands for itself."""
    if "worktrees" not in cwd:
        return cwd
    pieces = re.split(r"([\\/])", cwd.rstrip("\\/"))
    names, breaks = pieces[::2], ["", *pieces[1::2]]
    kept: list[str] = []
    """Each name with the separator before it."""
    at = 0
    while at < len(names):
        used = 0
        if at + 1 < len(names) and names[at] in WORKTREES:
            used = _within(kept, names, at)
        elif at + 1 < len(names) and (beside := BESIDE.fullmatch(names[at])):
            kept.append(breaks[at] + beside[1])
            used = 2
        if not used:
            kept.append((breaks[at] if kept or not at else "") + names[at])
        at += used or 1
    if len(kept) == len(names):
        return cwd
    return "".join(kept)


def _within(kept: list[str], names: list[str], at: int) -> int:
    """How many names from here on are the worktree's and not the project's; `kept` loses the folder of the agent.

    None where what comes before is no repository.
    """
    owner = kept[-1].lstrip("\\/") if kept else ""
    if owner == FOREIGN and at + 2 < len(names):
        kept.clear()
        return 2
    agents = len(owner) > 1 and owner.startswith(".") and names[at] == "worktrees"
    before = len(kept) - agents
    if before <= DEEPEST and NO_REPOSITORY.fullmatch("".join(kept[:before])):
        return 0
    del kept[before:]
    return 2
