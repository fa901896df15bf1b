"""Tables of the SQLite store.

The version of a file (`PRAGMA user_version`) is the number of applied migrations. Released migrations never change, and
new ones are appended. Names and states are blobs, because SQLite text cannot represent every Python string.

`loose` has the originals that no session references. `totals` has the sizes of originals, states and journals. Triggers
update both, so that deletion and statistics never read a whole table. Journal entries (`notes`) of a session are
numbered from 0. `log` is the id of the journal, and `noted` the number of its entries so far. `places` has a few
positions per original, which do not count towards the size.
"""

from __future__ import annotations

APPLICATION_ID = 0x49424944
"""`PRAGMA application_id`, "IBID", which identifies the file as ours."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE originals (
            id INTEGER PRIMARY KEY,
            ref TEXT NOT NULL UNIQUE,
            size INTEGER NOT NULL,
            added REAL NOT NULL,
            body BLOB NOT NULL
        )
        """,
        "CREATE INDEX originals_by_age ON originals (added)",
        """
        CREATE TABLE sessions (
            id INTEGER PRIMARY KEY,
            name BLOB NOT NULL UNIQUE,
            used REAL NOT NULL,
            state BLOB
        )
        """,
        "CREATE INDEX sessions_by_use ON sessions (used)",
        "CREATE TABLE links (session INTEGER NOT NULL, ref TEXT NOT NULL, UNIQUE (session, ref))",
        "CREATE INDEX links_by_ref ON links (ref)",
        "CREATE TABLE loose (ref TEXT NOT NULL UNIQUE, added REAL NOT NULL)",
        "CREATE INDEX loose_by_age ON loose (added)",
        "CREATE TABLE totals (originals INTEGER NOT NULL, stored INTEGER NOT NULL, size INTEGER NOT NULL)",
        "INSERT INTO totals VALUES (0, 0, 0)",
        """
        CREATE TRIGGER session_ended AFTER DELETE ON sessions BEGIN
            DELETE FROM links WHERE session = OLD.id;
        END
        """,
        """
        CREATE TRIGGER linked AFTER INSERT ON links BEGIN
            DELETE FROM loose WHERE ref = NEW.ref;
        END
        """,
        """
        CREATE TRIGGER unlinked AFTER DELETE ON links BEGIN
            INSERT INTO loose
            SELECT ref, added FROM originals
            WHERE ref = OLD.ref AND NOT EXISTS (SELECT 1 FROM links WHERE ref = OLD.ref);
        END
        """,
        """
        CREATE TRIGGER original_added AFTER INSERT ON originals BEGIN
            UPDATE totals SET originals = originals + 1, stored = stored + length(NEW.body), size = size + NEW.size;
        END
        """,
        """
        CREATE TRIGGER original_replaced AFTER UPDATE ON originals BEGIN
            UPDATE totals
            SET stored = stored + length(NEW.body) - length(OLD.body), size = size + NEW.size - OLD.size;
        END
        """,
        """
        CREATE TRIGGER original_removed AFTER DELETE ON originals BEGIN
            DELETE FROM loose WHERE ref = OLD.ref;
            UPDATE totals SET originals = originals - 1, stored = stored - length(OLD.body), size = size - OLD.size;
        END
        """,
    ),
    (
        "ALTER TABLE totals ADD COLUMN states INTEGER NOT NULL DEFAULT 0",
        "UPDATE totals SET states = (SELECT coalesce(sum(length(state)), 0) FROM sessions)",
        """
        CREATE TRIGGER state_saved AFTER UPDATE OF state ON sessions BEGIN
            UPDATE totals
            SET states = states + coalesce(length(NEW.state), 0) - coalesce(length(OLD.state), 0);
        END
        """,
        """
        CREATE TRIGGER state_dropped AFTER DELETE ON sessions WHEN OLD.state IS NOT NULL BEGIN
            UPDATE totals SET states = states - length(OLD.state);
        END
        """,
    ),
    (
        "ALTER TABLE sessions ADD COLUMN log TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE sessions ADD COLUMN noted INTEGER NOT NULL DEFAULT 0",
        """
        CREATE TABLE notes (
            session INTEGER NOT NULL,
            number INTEGER NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (session, number)
        ) WITHOUT ROWID
        """,
        """
        CREATE TRIGGER session_ended_with_notes AFTER DELETE ON sessions BEGIN
            DELETE FROM notes WHERE session = OLD.id;
        END
        """,
        """
        CREATE TRIGGER noted AFTER INSERT ON notes BEGIN
            UPDATE totals SET states = states + length(NEW.body);
        END
        """,
        """
        CREATE TRIGGER note_dropped AFTER DELETE ON notes BEGIN
            UPDATE totals SET states = states - length(OLD.body);
        END
        """,
    ),
    (
        "CREATE TABLE places (id INTEGER PRIMARY KEY, ref TEXT NOT NULL, place BLOB NOT NULL)",
        "CREATE INDEX places_by_ref ON places (ref)",
        """
        CREATE TRIGGER original_removed_with_places AFTER DELETE ON originals BEGIN
            DELETE FROM places WHERE ref = OLD.ref;
        END
        """,
    ),
)
