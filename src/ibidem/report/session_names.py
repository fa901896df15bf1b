"""Names of sessions in the page: titles that a user recognizes, with a link if there is a page with details."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile

from ..errors import one_line
from ..render.charts import last_slash
from .aggregate import KnownSession, Report, local_time

SHOWN_ID = 8
"""Characters of an id that are shown. They are enough to select the session."""
LONGEST_TITLE = 200
"""Characters of a title that are shown."""

Links = Mapping[tuple[str, str], str]
"""A session's path and name → the file with its details, relative to the page, percent-encoded."""

_RELATIVE = re.compile(r"[A-Za-z0-9._~%#-][A-Za-z0-9._~%/#-]*")


class SessionLinks:
    """Titles, subtitles, tooltips and links of sessions."""

    def __init__(self, report: Report, links: Links) -> None:
        self.known = report.known_sessions
        self.zone = report.asked.zone
        self.several_agents = len({each.agent for each in self.known.values()}) > 1
        self.folder = _common_folder({each.path for each in self.known.values()})
        for href in links.values():
            if not _RELATIVE.fullmatch(href):
                raise ValueError(f"{href!r}: not a file next to the page. Pass a relative, percent-encoded name")
        self.links = links

    def title(self, session: KnownSession) -> str:
        """The first prompt, or the file name if the log has no prompt."""
        words = " ".join(session.title.split()) or session.path[last_slash(session.path) :]
        short = words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"
        return one_line(f"{short} ({session.name})" if session.name else short)

    def below(self, session: KnownSession) -> str:
        """The line below a title: project or folder, start of the id, and the agent if there are several."""
        where = session.project or ("" if session.title else session.path[: last_slash(session.path)])
        agent = session.agent if self.several_agents else ""
        facts = (where[last_slash(where) :].rstrip("/\\"), session.id[:SHOWN_ID], agent)
        return one_line(" · ".join(filter(None, facts)))

    def when(self, session: KnownSession) -> str:
        start = local_time(session.started, self.zone)
        return f"{start:%Y-%m-%d %H:%M}" if start else ""

    def short_path(self, session: KnownSession) -> str:
        """The path without the common folder of all logs."""
        return one_line(session.path.removeprefix(self.folder))

    def tip(self, session: KnownSession) -> str:
        """The tooltip: id, project, and path of the log."""
        log = f"{session.path} ({session.name})" if session.name else session.path
        return one_line(" · ".join(filter(None, (session.id, session.project, log))))


def _common_folder(paths: set[str]) -> str:
    """Find the common folder of all paths."""
    if len(paths) < 2:
        return ""
    first, last = min(paths), max(paths)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return first[: last_slash("".join(char for char, _ in same) + ".")]
