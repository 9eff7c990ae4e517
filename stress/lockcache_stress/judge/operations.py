# SPDX-License-Identifier: Apache-2.0
"""Operations, which make up a history, and the files that keep them.

An operation has a begin and an end on the clock that all processes of a machine share (``CLOCK_MONOTONIC``, ns). Each
process appends to a file of its own two records per operation: one before it calls the cache, and one after the cache
has returned. Each record is a single ``write``, unbuffered, so that SIGKILL loses no record of what has happened: an
operation with a begin and no end stays open, and may have taken effect at any time after its begin, or never.

Removals are operations too, whether by an evictor, a daemon, ``clear`` or a delete. Without them, every history would
be legal, because a read may always miss.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

#: The end of an operation that never returned: later than all other times.
OPEN: Final = 2**63 - 1

# Phase (begin or end), kind, number of the key, the value's writer and serial (0 and 0: none), begin, now, entry's name
# (SHA-256 of the key). An evictor knows only the name of an entry, and writes the largest number in place of its key's.
_RECORD: Final = struct.Struct("<BBxxIIIqq32s")
_NO_NUMBER: Final = 2**32 - 1
_BEGIN: Final = 0
_END: Final = 1

_PATTERN: Final = "history-*.bin"


class Kind(IntEnum):
    """The kind and the outcome of an operation."""

    #: A value was stored.
    PUT = 1
    #: A write that the cache gave up: it stored nothing, and no older value may be read from then on.
    DROPPED = 2
    #: A read that gave a value.
    HIT = 3
    #: A read that found no entry.
    MISS = 4
    #: A removal of an entry, by a delete, ``clear``, an evictor or a daemon.
    REMOVED = 5
    #: A delete that found no entry.
    ABSENT = 6
    #: A read or a delete that has begun and has no outcome yet. It proves nothing.
    READ = 7
    #: A hit whose bytes do not prove which write they come from.
    HIT_UNKNOWN = 8
    #: An operation that had no effect: a removal that did not happen, a delete whose removal was recorded as such.
    NOTHING = 9


class Value(NamedTuple):
    """The write that a value comes from. Unique within a key."""

    writer: int
    serial: int


_NO_VALUE: Final = Value(0, 0)


@dataclass(frozen=True)
class Operation:
    """One operation on one key."""

    kind: Kind
    key: int
    begin_ns: int
    #: The time of the end; ``OPEN`` if it never returned.
    end_ns: int
    #: The value that was written or read; ``None`` where there is none.
    value: Value | None
    #: The name of the file of its process.
    process: str

    @property
    def is_open(self) -> bool:
        return self.end_ns == OPEN


class Recorder:
    """Appends this process's operations, on keys by their number and on entries by their name. For any thread."""

    def __init__(self, folder: str, process: str) -> None:
        self._fd = os.open(
            os.path.join(folder, f"history-{process}.bin"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )

    def begin(self, kind: Kind, name: bytes, key: int = _NO_NUMBER, value: Value | None = None) -> int:
        """Record that the cache is about to be called. Returns the number to give to :meth:`end`.

        ``name``: the entry's, of 32 bytes.
        """
        now = time.monotonic_ns()
        self._append(_BEGIN, kind, name, key, value or _NO_VALUE, now, now)
        return now

    def end(
        self,
        begun_ns: int,
        kind: Kind,
        name: bytes,
        key: int = _NO_NUMBER,
        value: Value | None = None,
        ended_ns: int | None = None,
    ) -> None:
        """Record the outcome after the call has returned. ``ended_ns``: the time of the return, by default now."""
        now = time.monotonic_ns() if ended_ns is None else ended_ns
        self._append(_END, kind, name, key, value or _NO_VALUE, begun_ns, now)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _append(self, phase: int, kind: Kind, name: bytes, key: int, value: Value, begun: int, now: int) -> None:
        os.write(self._fd, _RECORD.pack(phase, kind, key, value.writer, value.serial, begun, now, name))


def load_histories(folder: str) -> dict[int, list[Operation]]:
    """Returns all operations that were recorded in ``folder``, by key, in the order of their begins.

    Reads without an outcome are left out, and so are removals of entries that no worker ever asked for.
    """
    numbers: dict[bytes, int] = {}
    by_name: dict[bytes, list[Operation]] = {}
    for path in sorted(Path(folder).glob(_PATTERN)):
        for name, operation in _operations(path):
            by_name.setdefault(name, []).append(operation)
            if operation.key != _NO_NUMBER:
                numbers[name] = operation.key
    found = {}
    for name, key in numbers.items():
        operations = [replace(each, key=key) for each in by_name[name]]
        found[key] = sorted(operations, key=lambda each: (each.begin_ns, each.end_ns))
    return found


def _operations(path: Path) -> Iterator[tuple[bytes, Operation]]:
    process = path.stem.removeprefix("history-")
    open_now: dict[tuple[int, bytes], Operation] = {}
    blob = path.read_bytes()
    # The last record may be incomplete, after a full disk or a crash of the kernel.
    whole = blob[: len(blob) - len(blob) % _RECORD.size]
    for phase, kind, key, writer, serial, begun, now, name in _RECORD.iter_unpack(whole):
        value = None if (writer, serial) == _NO_VALUE else Value(writer, serial)
        if phase == _BEGIN:
            open_now[begun, name] = Operation(Kind(kind), key, begun, OPEN, value, process)
            continue
        open_now.pop((begun, name), None)
        if kind != Kind.NOTHING:
            yield name, Operation(Kind(kind), key, begun, now, value, process)
    # The result of an open read is unknown; the effect of an open write or removal may have been seen by others.
    for (_, name), operation in open_now.items():
        if operation.kind in (Kind.PUT, Kind.REMOVED):
            yield name, operation
