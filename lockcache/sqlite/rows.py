# SPDX-License-Identifier: Apache-2.0
"""The tables, every statement on them, and the digest of a row.

Keeps invariant 1 (a hit is whole): a program is returned only if its digest, over key, metadata, cost and code, is what
the row's bytes give. Keeps invariant 3 (hard cap) inside each transaction: what is evicted goes before what is stored
comes, and triggers keep the totals equal to the rows, whichever process removes one. Requires: all but :func:`load` and
:func:`totals` run in a write transaction. Not promised: protection against somebody who may write to the file (xxh3 is
not a signature).

Two tables, because the order of use changes at every read: it is a narrow row next to the program, not a part of it, so
that a use rewrites 50 bytes and not 300 KB.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from xxhash import xxh3_128_digest

from lockcache.errors import FormatError

# "lckc": tells our databases from everybody else's; file(1) shows it.
_APPLICATION_ID: Final = 0x6C636B63
_VERSION: Final = 1
# Beyond it a number is damage, and no newer format.
_HIGHEST_VERSION: Final = 1000

_TABLES: Final = f"""
CREATE TABLE entries (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, size INTEGER NOT NULL);
CREATE INDEX entries_by_use ON entries (used);
CREATE TABLE programs (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL, cost_ns INTEGER NOT NULL, tail BLOB NOT NULL, code BLOB NOT NULL
);
CREATE TABLE totals (bytes INTEGER NOT NULL, entries INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
CREATE TRIGGER entry_stored AFTER INSERT ON entries BEGIN
    UPDATE totals SET bytes = bytes + new.size, entries = entries + 1;
END;
CREATE TRIGGER entry_removed AFTER DELETE ON entries BEGIN
    DELETE FROM programs WHERE id = old.id;
    UPDATE totals SET bytes = bytes - old.size, entries = entries - 1;
END;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
"""

_LOAD: Final = "SELECT id, digest, cost_ns, tail, code FROM programs WHERE id = (SELECT id FROM entries WHERE key = ?)"

# Key length, tail length, cost.
_HEAD: Final = struct.Struct("<IIq")


class Program(NamedTuple):
    """A program as it is stored under one key."""

    code: bytes
    #: Encoded metadata (:mod:`lockcache.metadata`).
    tail: bytes
    cost_ns: int

    @property
    def size_bytes(self) -> int:
        """The bytes that the program counts for against a cap."""
        return len(self.code) + len(self.tail)


class CorruptRow(NamedTuple):
    """A row that fails its digest: its key and digest, so that pruning keeps a sound row that replaced it."""

    id: int
    digest: object


def is_ours(connection: sqlite3.Connection, path: str) -> bool:
    """Returns whether the tables exist; ``False`` for an empty database. Raises :class:`FormatError` for any other."""
    [[application]] = connection.execute("PRAGMA application_id").fetchall()
    [[version]] = connection.execute("PRAGMA user_version").fetchall()
    if application == _APPLICATION_ID and version == _VERSION:
        return True
    if application == _APPLICATION_ID and _VERSION < version <= _HIGHEST_VERSION:
        raise FormatError(f"{path} has format {version}, this lockcache knows {_VERSION}: upgrade lockcache", path)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master").fetchall()}
    if application == _APPLICATION_ID or {b"entries", b"programs", b"totals"} <= tables:
        raise sqlite3.DatabaseError("the format number is damaged")
    if tables or application or version:
        raise FormatError(f"{path} is a SQLite database of another program; name another path", path)
    return False


def create_tables(connection: sqlite3.Connection, path: str) -> None:
    """Make the tables, unless somebody else just did."""
    if not is_ours(connection, path):
        for statement in _split(_TABLES):
            connection.execute(statement)


def load(connection: sqlite3.Connection, key: bytes) -> Program | CorruptRow | None:
    """Returns the program under ``key``, verified."""
    # fetchall, not fetchone: a statement that was not run to its end keeps its snapshot, and the log from being reset.
    rows = connection.execute(_LOAD, (key,)).fetchall()
    if not rows:
        return None
    [(row, digest, cost_ns, tail, code)] = rows
    if type(code) is bytes and type(tail) is bytes and type(cost_ns) is int:
        program = Program(code, tail, cost_ns)
        if digest == _digest(key, program):
            return program
    return CorruptRow(row, digest)


def totals(connection: sqlite3.Connection) -> tuple[int, int]:
    """Returns the sums of bytes and entries."""
    rows = connection.execute("SELECT bytes, entries FROM totals").fetchall()
    size_bytes, entries = rows[0] if len(rows) == 1 else (None, None)
    return _integer(size_bytes), _integer(entries)


def store(connection: sqlite3.Connection, key: bytes, program: Program, limit_bytes: int | None) -> int:
    """Store ``program`` as the most recently used; returns how many entries were evicted for it.

    Requires: it fits under the limit by itself.
    """
    digest = _digest(key, program)
    remove(connection, (key,))
    evicted = 0 if limit_bytes is None else evict(connection, limit_bytes - program.size_bytes)
    sql = "INSERT INTO entries (key, used, size) VALUES (?, ?, ?)"
    row = connection.execute(sql, (key, _next_use(connection), program.size_bytes)).lastrowid
    connection.execute(
        "INSERT OR REPLACE INTO programs VALUES (?, ?, ?, ?, ?)",
        (row, digest, program.cost_ns, program.tail, program.code),
    )
    return evicted


def evict(connection: sqlite3.Connection, limit_bytes: int) -> int:
    """Remove the least recently used until the rest is within the limit; returns how many."""
    surplus_bytes = totals(connection)[0] - limit_bytes
    if surplus_bytes <= 0:
        return 0
    victims: list[tuple[int]] = []
    oldest = connection.execute("SELECT id, size FROM entries ORDER BY used")
    for row, size_bytes in oldest:
        victims.append((row,))
        surplus_bytes -= _integer(size_bytes)
        if surplus_bytes <= 0:
            break
    oldest.close()
    connection.executemany("DELETE FROM entries WHERE id = ?", victims)
    return len(victims)


def touch(connection: sqlite3.Connection, keys: Iterable[bytes]) -> None:
    """Make ``keys`` the most recently used, the last of them the most recent."""
    uses = enumerate(keys, _next_use(connection))
    connection.executemany("UPDATE entries SET used = ? WHERE key = ?", uses)


def remove(connection: sqlite3.Connection, keys: Iterable[bytes]) -> int:
    """Remove what is under ``keys``; returns how many entries there were."""
    return connection.executemany("DELETE FROM entries WHERE key = ?", ((key,) for key in keys)).rowcount


def prune(connection: sqlite3.Connection, found: CorruptRow) -> None:
    """Remove a corrupt row, unless another program is in its place by now."""
    sql = "DELETE FROM entries WHERE id = (SELECT id FROM programs WHERE id = ? AND CAST(digest AS BLOB) IS ?)"
    connection.execute(sql, found)


def clear(connection: sqlite3.Connection) -> None:
    """Remove every row, and make the totals right even if they were not."""
    for statement in ("DELETE FROM entries", "DELETE FROM programs", "UPDATE totals SET bytes = 0, entries = 0"):
        connection.execute(statement)


def _next_use(connection: sqlite3.Connection) -> int:
    [[newest]] = connection.execute("SELECT coalesce(max(used), 0) FROM entries").fetchall()
    return _integer(newest) + 1


def _integer(value: object) -> int:
    # SQLite's columns hold what damage left there, whatever they were declared as.
    if type(value) is not int:
        raise sqlite3.DatabaseError(f"a number is wanted where {value!r} is")
    return value


def _digest(key: bytes, program: Program) -> bytes:
    # The head holds the lengths, so no two splits of the same bytes give one digest.
    head = _HEAD.pack(len(key), len(program.tail), program.cost_ns)
    return xxh3_128_digest(b"%b%b%b%b" % (head, key, program.tail, xxh3_128_digest(program.code)))


def _split(script: str) -> list[str]:
    # Not executescript: that commits first, and the tables must appear as one.
    statements: list[str] = []
    pending = ""
    for part in script.split(";"):
        pending += part + ";"
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements
