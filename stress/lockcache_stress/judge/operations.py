"""Operations, of which a history is made, and the files in which it is kept.

An operation has a begin and an end on the clock that all processes of a machine share (``CLOCK_MONOTONIC``, ns). Each
process appends to a file of its own, two records per operation: one before it calls the cache and one after that has
returned. A single ``write`` each, unbuffered, so that SIGKILL loses nothing that has happened: an operation with a
begin and no end stays open, and may have taken effect at any time after its begin, or never.

Removals count: whatever takes an entry away (an evictor, a daemon, ``clear``, a delete) is an operation of the history.
Without them "a read may miss" would make every history legal.
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

#: The end of an operation that never returned: later than everything.
OPEN: Final = 2**63 - 1

# Phase (begin or end), kind, number of the key, the value's writer and serial (0 and 0: none), begin, now, entry's name
# (SHA-256 of the key). An evictor knows an entry's name and no number of its key: it writes the largest.
_RECORD: Final = struct.Struct("<BBxxIIIqq32s")
_NO_NUMBER: Final = 2**32 - 1
_BEGIN: Final = 0
_END: Final = 1

_PATTERN: Final = "history-*.bin"


class Kind(IntEnum):
    """What was done, and how it ended."""

    #: A value was stored.
    PUT = 1
    #: A write that the cache gave up: nothing was stored, and nothing older may be read from then on.
    DROPPED = 2
    #: A read that gave a value.
    HIT = 3
    #: A read that gave nothing.
    MISS = 4
    #: An entry was taken away: by a delete, ``clear``, an evictor, a daemon.
    REMOVED = 5
    #: A delete that found nothing.
    ABSENT = 6
    #: A read or a delete that has begun and has no outcome yet. It tells nothing.
    READ = 7
    #: A hit whose bytes do not say which write they come from.
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
    #: ``OPEN`` if it never returned.
    end_ns: int
    #: The value that was written or read; ``None`` where there is none.
    value: Value | None
    #: The name of the file of its process.
    process: str

    @property
    def is_open(self) -> bool:
        return self.end_ns == OPEN


class Recorder:
    """Appends what this process does: to keys by their number and bytes, to entries by their name. For any thread."""

    def __init__(self, folder: str, process: str) -> None:
        self._fd = os.open(
            os.path.join(folder, f"history-{process}.bin"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )

    def begin(self, kind: Kind, name: bytes, key: int = _NO_NUMBER, value: Value | None = None) -> int:
        """Record that the cache is about to be called. Returns the number to give to :meth:`end`.

        ``name``: 32 bytes, the entry's.
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
        """Record the outcome after the call has returned; ``ended_ns``: when, if that was a while ago."""
        now = time.monotonic_ns() if ended_ns is None else ended_ns
        self._append(_END, kind, name, key, value or _NO_VALUE, begun_ns, now)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _append(self, phase: int, kind: Kind, name: bytes, key: int, value: Value, begun: int, now: int) -> None:
        os.write(self._fd, _RECORD.pack(phase, kind, key, value.writer, value.serial, begun, now, name))


def load_histories(folder: str) -> dict[int, list[Operation]]:
    """Returns all operations that were recorded in ``folder``, by key, in the order of their begins.

    Reads of no outcome are left out, and so are removals of entries that no worker ever asked for.
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
    # A last record may be cut: the disk was full, or the kernel died.
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
