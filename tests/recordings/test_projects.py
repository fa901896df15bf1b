"""Which project a folder belongs to."""

from __future__ import annotations

import time

import pytest

from ibidem.recordings.projects import project_of

PROJECTS = {
    "/home/me/shop/.claude/worktrees/fix": "/home/me/shop",
    "/home/me/shop/.claude/worktrees/fix/api/src": "/home/me/shop/api/src",
    "/home/me/shop/.gemini/worktrees/fix": "/home/me/shop",
    "/home/me/shop/.worktrees/fix": "/home/me/shop",
    "/home/me/shop/worktrees/fix/": "/home/me/shop",
    "/home/me/shop.worktrees/fix": "/home/me/shop",
    "/home/me/shop__worktrees/fix/api": "/home/me/shop/api",
    "/home/me/shop/.worktrees/one/.claude/worktrees/two": "/home/me/shop",
    "/home/me/.codex/worktrees/70c6/shop": "shop",
    "/home/me/.codex/worktrees/70c6/shop/api": "shop/api",
    "~/shop/.worktrees/fix": "~/shop",
    r"C:\git\shop\.claude\worktrees\fix": r"C:\git\shop",
    r"C:\git\shop\.worktrees\fix\api": r"C:\git\shop\api",
    r"C:\Users\me\.codex\worktrees\70c6\shop": "shop",
    "C:/git/shop/worktrees/fix": "C:/git/shop",
}
THEMSELVES = [
    *("", "/", "shop", "/home/me/shop", "/home/me/shop/api", r"D:\shop", "/home/me/shop/", "two\nlines"),
    *("/home/me/shop/.worktrees", "/home/me/shop/worktrees/", "worktrees/fix", "/home/me/my-worktrees/fix"),
    # A folder for the worktrees of many repositories says nothing of which one.
    *("/home/me/worktrees/shop-fix", "/root/worktrees/shop", "/worktrees/shop", r"C:\worktrees\shop"),
    *(r"C:\Users\me\worktrees\shop", "/mnt/c/Users/me/worktrees/shop", "/home/me/.claude/worktrees/fix"),
    *("/home/me/.codex/worktrees/70c6", "/home/me/.worktrees/fix"),
]


@pytest.mark.parametrize("folder", PROJECTS)
def test_a_worktree_belongs_to_its_project(folder: str) -> None:
    assert project_of(folder) == PROJECTS[folder]
    assert project_of(PROJECTS[folder]) == PROJECTS[folder]


@pytest.mark.parametrize("folder", THEMSELVES)
def test_any_other_folder_stands_for_itself(folder: str) -> None:
    assert project_of(folder) == folder


@pytest.mark.parametrize("piece", ["/.worktrees/a", "/.claude/worktrees", "/a.worktrees", "\\worktrees", "/"])
def test_a_long_name_takes_as_long_as_it_is(piece: str) -> None:
    begun = time.process_time()
    project_of("/r" + "/.worktrees/a" + piece * 50_000)
    assert time.process_time() - begun < 2
