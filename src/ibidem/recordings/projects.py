"""Find the project of a session by the path of its folder. A Git worktree belongs to the project of its repository.

Agents and users create worktrees at a few common locations, so the path shows the repository:

- `<repo>/.worktrees/<name>`, `<repo>/worktrees/<name>`
- `<repo>/.claude/worktrees/<name>`, and the same in the folder of any other agent
- `<repo>.worktrees/<name>` and `<repo>__worktrees/<name>`, next to the repository
- `~/.codex/worktrees/<id>/<repo>`: the path of the repository is unknown, so the result is its name

The disk is not read, because the log may be from another machine and the worktree may be deleted.
"""

from __future__ import annotations

import re

WORKTREES = frozenset({"worktrees", ".worktrees"})
"""Names of worktree folders in a repository."""
SIBLING_FOLDER = re.compile(r"(.*[^._-])(?:\.|__)worktrees", re.DOTALL)
"""Name of a worktree folder next to a repository, starting with the repository's name."""
SHARED_FOLDER = ".codex"
"""Folder of an agent that stores the worktrees of all repositories there, in subfolders named by id."""
NO_REPOSITORY = re.compile(
    r"(?:[A-Za-z]:|/mnt/[a-z])?(?:[\\/](?:home|Users)(?:[\\/][^\\/]+)?)?[\\/]?|~|/(?:root|tmp|opt|srv|var|workspaces?)"
)
"""Folders that contain repositories but are not repositories: a root, a home folder and similar ones."""
MAX_COMPONENTS = 5
"""Maximum number of path components of such a folder."""


def project_of(cwd: str) -> str:
    """Return the project folder of a session in `cwd`: the repository of a worktree, otherwise `cwd` itself."""
    if "worktrees" not in cwd:
        return cwd
    pieces = re.split(r"([\\/])", cwd.rstrip("\\/"))
    names, breaks = pieces[::2], ["", *pieces[1::2]]
    project_parts: list[str] = []
    """Each name with the separator before it."""
    at = 0
    while at < len(names):
        used_count = 0
        if at + 1 < len(names) and names[at] in WORKTREES:
            used_count = _worktree_length(project_parts, names, at)
        elif at + 1 < len(names) and (sibling := SIBLING_FOLDER.fullmatch(names[at])):
            project_parts.append(breaks[at] + sibling[1])
            used_count = 2
        if not used_count:
            project_parts.append((breaks[at] if project_parts or not at else "") + names[at])
        at += used_count or 1
    if len(project_parts) == len(names):
        return cwd
    return "".join(project_parts)


def _worktree_length(project_parts: list[str], names: list[str], at: int) -> int:
    """Return how many path components at `at` belong to the worktree; 0 if the path before is not a repository.

    Also removes the agent's folder from `project_parts`, the components of the project so far.
    """
    owner = project_parts[-1].lstrip("\\/") if project_parts else ""
    if owner == SHARED_FOLDER and at + 2 < len(names):
        project_parts.clear()
        return 2
    is_agent_folder = len(owner) > 1 and owner.startswith(".") and names[at] == "worktrees"
    before = len(project_parts) - is_agent_folder
    if before <= MAX_COMPONENTS and NO_REPOSITORY.fullmatch("".join(project_parts[:before])):
        return 0
    del project_parts[before:]
    return 2
