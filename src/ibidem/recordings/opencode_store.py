"""Read OpenCode's own storage in the format of its export: a database, or in older releases one file per message.

`opencode.db` has the tables session, message and part, with the message or part as JSON in `data`. The folder `storage`
has session/<project>/<session>.json, message/<session>/<message>.json and part/<message>/<part>.json. Ids are read
from columns and file names, because they can be missing or wrong in the JSON. Ids ascend with time, which gives the
order of parts. Invalid JSON becomes null, and the reader reports it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from .log_file import LogError
from .recording import Json

SQLITE_MAGIC = b"SQLite format 3\x00"
"""First bytes of a SQLite database."""
READ_ONLY = ("mode=ro", "mode=ro&immutable=1")
"""Open modes, tried in this order. SQLite cannot read a database in WAL mode in a read-only folder, except as
immutable."""


def is_store(path: Path) -> bool:
    """Return True for a SQLite database, or for the session folder of OpenCode's file storage."""
    if path.is_dir():
        return path.name == "session" and (path.parent / "message").is_dir()
    if not path.is_file():
        return False  # opening a FIFO or a device could hang
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        return False


def read_exports(path: Path) -> Iterator[Json]:
    """Yield every session in the format of an export. Raises LogError if the database is not from OpenCode."""
    return _read_folder(path.parent) if path.is_dir() else _read_database(path)


def _read_folder(storage: Path) -> Iterator[Json]:
    for session in _nested_json_files(storage / "session"):
        info = {**(_read_json(session) or {}), "id": session.stem}
        messages = [
            {
                "info": _with_id(_read_json(file), file.stem),
                "parts": [_read_json(part) for part in _json_files(storage / "part" / file.stem)],
            }
            for file in _json_files(storage / "message" / session.stem)
        ]
        yield {"info": info, "messages": sorted(messages, key=_creation_time)}


def _nested_json_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.json"))


def _json_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _creation_time(message: Json) -> float:
    """Sort key of a message. Sorting is stable, so messages with equal times stay in the order of their ids."""
    match message:
        case {"info": {"time": {"created": int() | float() as time}}}:
            return float(time)
    return 0.0


def _read_database(path: Path) -> Iterator[Json]:
    try:
        with closing(_open_database(path)) as database:
            has_titles = any(column[1] == "title" for column in database.execute("PRAGMA table_info(session)"))
            columns = f"id, directory, parent_id, {'title' if has_titles else 'NULL'}"
            sessions = database.execute(f"SELECT {columns} FROM session ORDER BY id").fetchall()
            for name, directory, parent, title in sessions:
                info = {"id": name, "directory": directory or "", "parentID": parent, "title": title}
                yield {"info": info, "messages": list(_read_messages(database, name))}
    except sqlite3.DatabaseError as error:
        raise LogError(f"{path}: not a database of OpenCode's, or a damaged one ({error})") from None


def _open_database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.resolve().as_uri()}?{READ_ONLY[0]}", uri=True)
    try:
        database.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        database.close()
        return sqlite3.connect(f"{path.resolve().as_uri()}?{READ_ONLY[1]}", uri=True)
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _read_messages(database: sqlite3.Connection, session: str) -> Iterator[Json]:
    parts: dict[str, list[Any]] = defaultdict(list)
    for message, data in database.execute(
        "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY id", [session]
    ):
        parts[message].append(_decode_json(data))
    query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for name, data in database.execute(query, [session]):
        yield {"info": _with_id(_decode_json(data), name), "parts": parts[name]}


def _with_id(info: Any, name: str) -> Json | None:
    return {**info, "id": name} if isinstance(info, dict) else None


def _read_json(path: Path) -> Any:
    try:
        return _decode_json(path.read_bytes())
    except OSError:
        return None


def _decode_json(data: Any) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return None
