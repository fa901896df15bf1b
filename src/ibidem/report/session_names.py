"""What sessions are called in the page: by what a person knows of them, and with a link where there is more to see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile

from ..errors import one_line
from ..render.charts import last_slash
from .aggregate import KnownSession, Report, local_time

SHOWN_ID = 8
"""Characters of an id that are enough to ask for it."""
LONGEST_TITLE = 200
"""Characters of a title that are shown."""

Links = Mapping[tuple[str, str], str]
"""A session's path and name → where its details are: a file beside the page, percent-encoded."""

_RELATIVE = re.compile(r"[A-Za-z0-9._~%#-][A-Za-z0-9._~%/#-]*")


class SessionLinks:
    """The titles of sessions, and what stands below them."""

    def __init__(self, report: Report, links: Links) -> None:
        self.known = report.known_sessions
        self.zone = report.asked.zone
        self.several_agents = len({each.agent for each in self.known.values()}) > 1
        self.folder = _folder({each.path for each in self.known.values()})
        for href in links.values():
            if not _RELATIVE.fullmatch(href):
                raise ValueError(f"{href!r} is no file beside the page: pass a relative, percent-encoded name")
        self.links = links

    def title(self, session: KnownSession) -> str:
        """What was asked first, or the file's name where nobody knows."""
        words = " ".join(session.title.split()) or session.path[last_slash(session.path) :]
        short = words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"
        return one_line(f"{short} ({session.name})" if session.name else short)

    def below(self, session: KnownSession) -> str:
        """Where it was, the front of its id, and whose it is where there are several agents."""
        where = session.project or ("" if session.title else session.path[: last_slash(session.path)])
        agent = session.agent if self.several_agents else ""
        facts = (where[last_slash(where) :].rstrip("/\\"), session.id[:SHOWN_ID], agent)
        return one_line(" · ".join(filter(None, facts)))

    def when(self, session: KnownSession) -> str:
        moment = local_time(session.started, self.zone)
        return f"{moment:%Y-%m-%d %H:%M}" if moment else ""

    def path(self, session: KnownSession) -> str:
        """Without the folder that all logs are in."""
        return one_line(session.path.removeprefix(self.folder))

    def tip(self, session: KnownSession) -> str:
        """All there is to know it by."""
        log = f"{session.path} ({session.name})" if session.name else session.path
        return one_line(" · ".join(filter(None, (session.id, session.project, log))))


def _folder(paths: set[str]) -> str:
    """That all of them are in."""
    if len(paths) < 2:
        return ""
    first, last = min(paths), max(paths)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return first[: last_slash("".join(char for char, _ in same) + ".")]
