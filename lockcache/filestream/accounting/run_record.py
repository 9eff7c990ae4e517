# SPDX-License-Identifier: Apache-2.0
"""The record of one ``lockcache run``: a file with what each process of its command found, compiled and waited for.

``lockcache run`` makes the file and names it in ``$LOCKCACHE_RUN``. A process appends what it counts once, and from
then on writes over its own part, so that the file has one part of 1 KiB for each process, however often it writes.

Keeps invariant 7 (never take the job down) for its readers: of a file that somebody else wrote, what cannot be
understood is left out. Parts that a full disk did not take are missed: the head says so, where there is room. Nothing
but people and ``--most-compiles`` relies on the numbers.

The file, little-endian: a head of 1 KiB, which is seven bytes of its kind, a version byte, a byte that is not zero if
parts are missing, and zeros. Then the parts,
each of the same size: seven bytes of its kind, a version byte, an int64 for each number of :class:`RunPart` in order,
and the texts, as lines of UTF-8: labels, an empty line, refusals.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lockcache.filestream.disk import BY_PATH, READ, UPDATE, Descriptor, Layout, is_alone

__all__ = ["RUN_HEAD", "RUN_VARIABLE", "RunPart", "append_parts", "note_missing_parts", "read_run", "write_part"]

#: The variable that leads processes to the record of their run.
RUN_VARIABLE: Final = "LOCKCACHE_RUN"

_PART_BYTES: Final = 1024
_VERSION: Final = 1
_KIND: Final = b"LCrunpt" + bytes([_VERSION])
_HEAD_KIND: Final = b"LCrunhd" + bytes([_VERSION])
_NUMBERS: Final = struct.Struct("<8q")
_TEXTS_AT: Final = len(_KIND) + _NUMBERS.size
_LARGEST: Final = 2**63 - 1

#: The first bytes of a record: a file without them is not written to.
RUN_HEAD: Final = _HEAD_KIND.ljust(_PART_BYTES, b"\0")

# Of each process: the labels and refusals that are kept, and their bytes.
MOST_LABELS: Final = 3
_LABEL_BYTES: Final = 120
_REFUSAL_BYTES: Final = 250
# A gigabyte: more processes than a job has, and what is read of a file that somebody else made.
_MOST_PARTS: Final = 2**20
_PARTS_AT_ONCE: Final = 256


class RunPart(NamedTuple):
    """What one process counted. All times are in nanoseconds."""

    #: Programs that this process did not have to compile, each once: an earlier run, or another process, stored them.
    found: int = 0
    #: Among ``found``: those whose entries do not state what compiling took.
    costless: int = 0
    #: Programs that it compiled.
    compiled: int = 0
    #: Among ``compiled``: those that were not stored.
    not_stored: int = 0
    #: Hits for which this process waited until another caller had compiled, and how long it waited for them.
    waits: int = 0
    waited_ns: int = 0
    #: What compiling ``found`` took, less the time that was waited for it.
    not_spent_ns: int = 0
    #: Whether it reported at its end, so that nothing is missing.
    has_ended: int = 0
    #: Names of the first programs that it compiled, for people.
    labels: tuple[str, ...] = ()
    #: Frameworks that went on with their own cache, each with the reason.
    refusals: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        return self[:8]


def write_part(path: str, part: RunPart, offset: int | None) -> int:
    """Write a process's part at ``offset``, or append it. Returns where it is.

    Raises :class:`OSError`, also for a file that is not the record of a run.
    """
    blob = _encode(part)
    # pwrite appends to a file that is open for appending, whatever its offset.
    with _open(path, UPDATE | (os.O_APPEND if offset is None else 0)) as fd:
        try:
            if offset is not None:
                os.pwrite(fd, blob, offset)
                return offset
            if os.write(fd, blob) < _PART_BYTES:
                raise OSError(f"{path} has no room")
            return os.lseek(fd, 0, os.SEEK_CUR) - _PART_BYTES
        except OSError:
            note_missing_parts(path)
            raise


def note_missing_parts(path: str) -> None:
    """Note in a record that not all was written to it. Raises :class:`OSError`."""
    with _open(path, UPDATE) as fd:
        os.pwrite(fd, b"\1", len(_HEAD_KIND))  # over a byte of the file, which needs no room


def _open(path: str, flags: int) -> Descriptor:
    fd = BY_PATH.open(path, flags)
    if not is_alone(fd.number) or os.pread(fd.number, len(_HEAD_KIND), 0) != _HEAD_KIND:
        fd.close()
        raise OSError(f"{path} is not the record of a run")
    return fd


def append_parts(path: str, parts: Iterable[RunPart]) -> None:
    """Append parts of another record: of a run within a run. Raises :class:`OSError`."""
    for part in parts:
        write_part(path, part, None)


def read_run(layout: Layout | None, path: str) -> list[RunPart]:
    """Returns the parts of a record that can be understood. ``layout``: ``None`` for one outside of a cache.

    Raises :class:`OSError`, also for a file that is not the record of a run, and for one whose parts are not all there.
    """
    with (BY_PATH if layout is None else layout.reach).open(path, READ) as fd:
        head = os.pread(fd, len(_HEAD_KIND) + 1, 0)
        if not head.startswith(_HEAD_KIND):
            raise OSError(f"{path} is not the record of a run")
        if head.endswith(b"\1"):
            raise OSError("there was no room for all that they counted")
        return [part for blob in _blobs(fd) if (part := _decode(blob)) is not None]


def _blobs(fd: int) -> Iterator[bytes]:
    for first in range(1, _MOST_PARTS, _PARTS_AT_ONCE):
        read = os.pread(fd, _PARTS_AT_ONCE * _PART_BYTES, first * _PART_BYTES)
        for start in range(0, len(read) - _PART_BYTES + 1, _PART_BYTES):
            yield read[start : start + _PART_BYTES]
        if len(read) < _PARTS_AT_ONCE * _PART_BYTES:
            return


def _encode(part: RunPart) -> bytes:
    labels = [_line(label, _LABEL_BYTES) for label in part.labels[:MOST_LABELS]]
    texts = b"\n".join([*labels, b"", *(_line(refusal, _REFUSAL_BYTES) for refusal in part.refusals)])
    numbers = (min(max(0, number), _LARGEST) for number in part.numbers)
    return (_KIND + _NUMBERS.pack(*numbers) + texts).ljust(_PART_BYTES, b"\0")[:_PART_BYTES]


def _line(text: str, most_bytes: int) -> bytes:
    return b" ".join(text.encode(errors="replace").split())[:most_bytes] or b"?"


def _decode(blob: bytes) -> RunPart | None:
    if not blob.startswith(_KIND):
        return None
    numbers = [max(0, number) for number in _NUMBERS.unpack_from(blob, len(_KIND))]
    lines = blob[_TEXTS_AT:].rstrip(b"\0").decode(errors="replace").split("\n")
    end = lines.index("") if "" in lines else len(lines)
    return RunPart._make([*numbers, tuple(lines[:end]), tuple(lines[end + 1 :])])
