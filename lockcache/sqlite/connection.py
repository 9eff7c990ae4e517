# SPDX-License-Identifier: Apache-2.0
"""One connection to the database: opened when it is first needed, and again when its path leads to another file.

Decides how SQLite is set up, and what its errors mean. Keeps invariant 7 (never take the job down): :func:`as_os_error`
turns whatever SQLite says into the error that a plain file would have given. Relied on by :mod:`.store`, which holds a
lock for each connection; nothing here takes one.

WAL mode, so that a read never waits for a write. ``synchronous=NORMAL``: a power cut may undo the last writes but
leaves a sound database (OFF writes twice as fast and may leave a ruined one).
"""

from __future__ import annotations

import errno
import os
import sqlite3
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.sqlite.location import WAL_SUFFIX, Identity, denied, identify, is_writable, prepare
from lockcache.sqlite.rows import create_tables, is_ours

# The log is folded into the database every 1,000 pages (SQLite's default, 4 MB); what one larger transaction adds is
# given back.
_LOG_BYTES: Final = 4 << 20


#: The exceptions that SQLite's errors become in Python: names from a damaged file can be in a message, and need not be
#: UTF-8.
FAILURES: Final = (sqlite3.Error, UnicodeDecodeError, OverflowError)


# On a sound database, none of our statements names a missing table or has a syntax error.
_DAMAGE: Final = ("no such ", "unsupported file format", "table ")


class Link:
    """A connection that is there when it is asked for. Requires: its owner's lock, for every method."""

    __slots__ = ("_connection", "_path", "_seen", "_wait_seconds", "identity", "is_writable")

    def __init__(self, path: str, wait_seconds: float) -> None:
        self._path = path
        self._wait_seconds = wait_seconds
        self._connection: sqlite3.Connection | None = None
        self._seen: object = None
        #: The file that this is, or was last, connected to.
        self.identity: Identity | None = None
        self.is_writable = True

    def connection(self) -> sqlite3.Connection:
        """Returns the connection. Raises :class:`sqlite3.Error`, or what :func:`.location.prepare` does."""
        if self._connection is not None:
            # 1 us, for not serving a file that was deleted or set aside since: that may be older than a later write.
            if self._look() == self._seen:
                return self._connection
            self.close()
        self._connection = self._open()
        return self._connection

    def close(self) -> None:
        """Close the connection. The next use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> sqlite3.Connection | None:
        """Give the connection up without closing it: to a forked child, closing is use too."""
        connection, self._connection = self._connection, None
        return connection

    def _look(self) -> object:
        if self.is_writable:
            return identify(self._path)
        # A file opened as immutable is read without locks, so any change to it ends that.
        return _state(self._path), _state(self._path + WAL_SUFFIX)

    def _open(self) -> sqlite3.Connection:
        prepare(self._path)
        self.is_writable = is_writable(self._path)
        self.identity = identify(self._path)
        self._seen = self._look()
        connection = sqlite3.connect(
            f"file:{urllib.parse.quote(os.fsencode(self._path))}?{self._mode()}",
            uri=True,
            timeout=_milliseconds(self._wait_seconds) / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        # A text that damage made of a blob must not be decoded: it suffices that it is not a blob.
        connection.text_factory = bytes
        try:
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _mode(self) -> str:
        if self.is_writable:
            return "mode=rw"
        # SQLite needs its side files even for reading; without permission to make them, it reads only files that are
        # declared immutable. That would skip a log with content, which is newer than the database.
        log = _state(self._path + WAL_SUFFIX)
        return "mode=ro" if log is not None and log[2] else "mode=ro&immutable=1"

    def _set_up(self, connection: sqlite3.Connection) -> None:
        # Looked at before anything is set, so that another program's database is left as it is; and before a
        # transaction is begun, so that opening our own waits for no writer.
        is_empty = not is_ours(connection, self._path)
        if not self.is_writable:
            return
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only of effect in a new file, so that it can shrink
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}").fetchall()
        if is_empty:
            with transaction(connection, self._wait_seconds):
                create_tables(connection, self._path)


@contextmanager
def transaction(connection: sqlite3.Connection, wait_seconds: float) -> Iterator[None]:
    """Run the block as one write transaction. Waits up to ``wait_seconds`` for other writers."""
    if connection.in_transaction:  # an interrupt came between BEGIN and the block
        connection.execute("ROLLBACK")
    connection.execute(f"PRAGMA busy_timeout = {_milliseconds(wait_seconds)}").fetchall()
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # of some errors (a full disk) SQLite rolls back by itself
            connection.execute("ROLLBACK")
        raise


def is_corruption(error: Exception, path: str) -> bool:
    """Returns whether SQLite's error means that the file is damaged, or not a database at all."""
    # Exactly DatabaseError is what Python makes of SQLITE_CORRUPT and SQLITE_NOTADB; error codes came with Python 3.11.
    # On a sound database none of our statements breaks a constraint.
    return (
        type(error) is sqlite3.DatabaseError
        or isinstance(error, (sqlite3.IntegrityError, UnicodeDecodeError))
        or (isinstance(error, sqlite3.OperationalError) and str(error).startswith(_DAMAGE))
        # A byte of the header says so, not the file system.
        or ("readonly" in str(error) and is_writable(path))
    )


def as_os_error(error: Exception, path: str) -> OSError:
    """Returns the error that a plain file would have raised."""
    text = str(error)
    if "locked" in text:
        return LockTimeoutError(f"{path}: another process has the database locked", path)
    if "full" in text:
        return OSError(errno.ENOSPC, text, path)
    if "readonly" in text and identify(path) is not None:
        return denied(path)
    return OSError(errno.EIO, text, path)


def _milliseconds(seconds: float) -> int:
    return min(int(seconds * 1000), 2**31 - 1)  # SQLite takes an int


def _state(path: str) -> tuple[int, int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
