"""A request of a recorded session as one HTML page, and the head that pages about sessions share."""

from __future__ import annotations

from .figures import BeforeAfter
from .logged import LoggedRequest, SessionNames
from .page import as_html, bar, document, rewritten


def logged_page(shown: LoggedRequest) -> str:
    found = shown.found
    size = bar("tokens", BeforeAfter(round(found.before), round(found.after)))
    body = f"""<header>
{session_head(shown.names, " · ".join(filter(None, (shown.title, shown.when))))}
<div class="totals">
<div>{size}{"".join(f"<p>{as_html(note)}</p>" for note in shown.notes)}</div>
{_table(shown)}
</div>
{_neighbours(shown)}
</header>
<main>
{rewritten(shown.texts, "<p>Nothing to show.</p>")}
</main>"""
    return document(f"{as_html(shown.names.title)}, {shown.title}", body)


def session_head(names: SessionNames, more: str) -> str:
    return f"""<h1>{as_html(names.title)}</h1>
<p class="soft">{as_html(names.facts)}</p>
<p><b>{as_html(more)}</b></p>"""


def _table(shown: LoggedRequest) -> str:
    head, *rows = shown.rows
    cells = "".join(f"<th>{as_html(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{as_html(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"


def _neighbours(shown: LoggedRequest) -> str:
    rows = "".join(
        f"<li>{words}: <code>{as_html(shown.command)} --request {number}</code></li>"
        for words, number in shown.neighbours
    )
    return f'<ul class="soft commands">{rows}</ul>' if rows else ""
