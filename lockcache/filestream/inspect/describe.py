# SPDX-License-Identifier: Apache-2.0
"""Descriptions of entries: sizes and times, what the record says, and what the first bytes tell where it is silent.

For programs that inspect a directory: ``lockcache ls``, ``evict``, ``inspect``, ``top``, a status page. Keeps one
promise: inspecting an entry does not count as using it. Attributes are read by path, which states no use; bytes only
through O_NOATIME, and where that is refused (an entry of somebody else's) they are not read.

:func:`describe_entry` reads no payload, so it verifies no digest: it says what :func:`read_statement` takes from the
record. Nothing is trusted: a record that is cut short, that states another length than its payload's, or whose metadata
cannot be decoded, is ``damaged`` and says nothing; a record that the system refuses to return is ``unreadable``, which
is not damage. Only the digest tells whether the payload is what was stored, see :func:`read_entry`. A kind,
architecture or compiler that is not a short text is left out. Not promised: that the entry still exists when the caller
opens it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from xxhash import xxh3_128_digest

from lockcache import metadata
from lockcache.artifact import HEAD_BYTES as ARTIFACT_BYTES, Artifact, identify
from lockcache.explain import Part, decode_label, decode_parts
from lockcache.filestream.accounting import Found, Slot, scan_shard, space_of
from lockcache.filestream.disk import FOLDER, NOATIME, READ, Layout, is_entry_file, is_hole, last_use_ns
from lockcache.filestream.entry import (
    LARGEST_NOTE_BYTES,
    NOTE_XATTR,
    EntryState,
    KeyRing,
    digest_of,
    find_records,
    has_whole_tail,
    is_known,
    is_of_another_version,
    is_record,
    is_signed,
    judge_entry,
    may_have,
    unpack,
)

#: What tables, filters and namespaces call that which a record does not say.
UNKNOWN: Final = "unknown"

_LONGEST_NAME: Final = 80
_MOST_SYMBOLS: Final = 3
# Errors for something other than a file in a record file's place: a symlink, a socket.
_NOT_THERE: Final = (errno.ELOOP, errno.ENXIO)

# An entry can be replaced between the listing and the look at its record.
_ATTEMPTS: Final = 3


class Described(NamedTuple):
    """One entry, as far as it is known without reading it."""

    name: str
    #: The lengths of payload and record file.
    size_bytes: int
    last_use_ns: int
    inode: int
    #: ``whole`` (not verified), ``none`` (cuda.core's own cache leaves none), ``damaged``, ``unreadable`` (the system
    #: does not let us), or ``newer`` than we know.
    record: EntryState
    created_ns: int | None = None
    #: What compiling took.
    cost_ns: int | None = None
    kind: str | None = None
    arch: str | None = None
    compiler: str | None = None
    #: All of the metadata, if it was asked for and could be decoded.
    metadata: dict[str, Any] | None = None
    #: What the program is called: as it was labelled, else the names in its symbol mapping.
    label: str | None = None
    #: Whose it is among programs that share a directory: ``triton``, ``jax``.
    namespace: str | None = None


def find_entry(layout: Layout, name: str) -> Found | None:
    """Returns the entry of this name in the form that evictors use; ``None`` if there is none."""
    try:
        status = os.lstat(layout.entry(name))
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    space, stored = space_of(layout), status.st_size
    taken, record = space.of_file(status), _record_status(layout, name)
    if record is not None:
        stored, taken = stored + record.st_size, taken + space.of_file(record)
    return Found(last_use_ns(status), name, taken, status.st_ino, stored)


def describe_entry(layout: Layout, found: Found, *, keep_metadata: bool = False) -> Described | None:
    """Returns the description of an entry as it is now, also if it was replaced; ``None`` if it is gone."""
    seen: Found | None = found  # may become None: gone
    described: Described | None = None
    for _ in range(_ATTEMPTS):
        if seen is None:
            return None
        described = _as_described(
            seen, read_statement(layout, seen), partial(_look_at, layout, layout.entry(seen.name))
        )
        if described.record not in ("damaged", "unreadable"):
            break
        now = find_entry(layout, found.name)
        if now is not None and now.inode == seen.inode and now.stored_bytes == seen.stored_bytes:
            break
        seen = now
    return described if described is None or keep_metadata else described._replace(metadata=None)


class Read(NamedTuple):
    """An entry's bytes, read without using it."""

    payload: bytes
    #: Whether its record's digest is that of the payload, or signs it; ``None`` where that cannot be said.
    is_verified: bool | None
    digest: bytes | None
    owner_uid: int
    #: Why it cannot be said whether it is verified; empty where it can.
    why_unverified: str = ""


def read_entry(layout: Layout, name: str, keys: KeyRing | None = None) -> Read | None:
    """Read and verify one entry, with ``keys`` if it is signed. Returns ``None`` if it is gone.

    Raises :class:`PermissionError` for an entry of somebody else's, which could not be read without using it, and other
    :class:`OSError` as they come.
    """
    verdict: Read | None = None
    for _ in range(_ATTEMPTS):
        try:
            verdict = _read_once(layout, name, keys)
        except FileNotFoundError:
            return None
        if verdict.is_verified is not False:
            break
    return verdict


def _read_once(layout: Layout, name: str, keys: KeyRing | None) -> Read:
    entry = layout.reach.open(layout.entry(name), READ | NOATIME)
    with entry as fd, open(fd, "rb", closefd=False) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", layout.entry(name))
        records = find_records(layout, file.fileno(), name)
        payload = b"" if is_hole(status) else file.read()
    is_verified, why = _verify(records, name, payload, keys)
    digests = [digest_of(blob) for blob in records if is_known(blob)]
    return Read(payload, is_verified, digests[0] if digests else None, status.st_uid, why)


def _verify(records: list[bytes], name: str, payload: bytes, keys: KeyRing | None) -> tuple[bool | None, str]:
    """Returns whether the entry is verified, and why if that is not known."""
    if not records:
        return None, "no record to verify"
    payload_digest = xxh3_128_digest(payload)
    if keys is not None and any(map(is_signed, records)):
        is_signed_here = any(keys.is_whole(blob, name, payload) for blob in records)
        if is_signed_here or any(map(keys.knows, records)):
            return is_signed_here, ""
        return None, "signed with a key that is not here"
    if is_of_another_version(records, name, payload_digest):
        is_any_signed = any(map(is_signed, records))
        return None, "signed: it takes the key to tell" if is_any_signed else "of a newer version"
    if judge_entry(records, name, len(payload), payload_digest):
        return False, ""
    return (True, "") if keys is None else (None, "not signed, so not served where keys are")


_LOST: Final = "no record"


#: Why an entry that was there was not served, by the flaw that :func:`flaw_of` returns; and one that was renewed.
FLAWS: Final = {
    "no record": "its entry was there without its record and metadata, which a copy without extended attributes loses",
    "damaged": "its entry was there and damaged",
    "newer": "its entry was there, stored by a newer lockcache",
    "unreadable": "its entry was there and could not be read",
    "renewed": "its entry was there, and LOCKCACHE_RECACHE had it compiled again",
    "refused": "its entry was there, and its signature could not be verified or was missing",
}


def flaw_of(layout: Layout, name: str, keys: KeyRing | None = None) -> str:
    """Returns why the entry that is there now is not served as it was stored; empty for a whole one and for none.

    ``no record``, or its record is ``damaged``, ``newer`` or ``unreadable``, or ``refused``: its signature cannot be
    verified with ``keys``, or is missing. Raises nothing.
    """
    try:
        found = find_entry(layout, name)
        state = "whole" if found is None else read_statement(layout, found, is_brief=True).state
        if found is None or state != "whole":
            return "" if found is None else _LOST if state == "none" else state
        read = read_entry(layout, name, keys)
    except PermissionError:
        return ""  # somebody else's: as far as its record tells, it is whole
    except (OSError, MemoryError):
        return "unreadable"
    if read is None or read.is_verified:
        return ""
    return "refused" if read.is_verified is None else "damaged"


def find_names(layout: Layout, prefix: str, at_most: int) -> list[str]:
    """Returns up to ``at_most`` names that begin with ``prefix``, hex digits, at least two."""
    try:
        opened = layout.reach.open(layout.entry_shard(int(prefix[:2], 16)), FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return []
    with opened as fd:
        files = os.listdir(fd)
    rest = prefix[2:]
    return sorted(prefix[:2] + file for file in files if file.startswith(rest) and is_entry_file(file))[:at_most]


def describe_bytes(name: str, payload: bytes | memoryview, blob: bytes) -> Described:
    """Returns the description of an entry, given its payload and whole record. Its last use is not known."""
    found = Found(0, name, len(payload), 0, len(payload))
    return _as_described(found, decode_statement(blob, len(payload)), lambda: identify(bytes(payload[:ARTIFACT_BYTES])))


def _as_described(found: Found, record: Statement, look: Callable[[], Artifact]) -> Described:
    """Describe an entry by its record, and what the record does not state by ``look``, which reads the first bytes."""
    known = record.metadata or {}
    kind, arch, compiler = (_short(known.get(name)) for name in ("kind", "arch", "compiler"))
    kernels: object = known.get("kernels")
    if kind is None or (compiler is None and kind != "ltoir") or (arch is None and kind != "ltoir"):
        identified = look()
        kind, arch, compiler = kind or identified.kind, arch or identified.arch, compiler or identified.compiler
        kernels = kernels or identified.kernels
    return Described(
        found.name,
        found.stored_bytes,
        found.last_use_ns,
        found.inode,
        record.state,
        record.created_ns,
        record.cost_ns,
        kind,
        arch,
        compiler,
        record.metadata,
        record.label or _listed(known.get("symbol_mapping")) or _listed(kernels),
        namespace_of(record),
    )


def name_namespace(layout: Layout, found: Found) -> str:
    """Returns the namespace of an entry: in 20 us, and without counting as a use."""
    return namespace_of(read_statement(layout, found, is_brief=True)) or UNKNOWN


class Sums(NamedTuple):
    """Bytes and entries of one shard, as its records state them; :data:`UNKNOWN` where they state nothing."""

    namespaces: dict[str, Slot]
    architectures: dict[str, Slot]


def sum_up(layout: Layout, shard: int) -> Sums:
    """Returns the size of each namespace, and of the code for each architecture, in one shard: 20 us an entry."""
    sums = Sums({}, {})
    for found in scan_shard(layout, shard):
        statement, slot = read_statement(layout, found, is_brief=True), Slot(found.size_bytes, 1)
        add_sums(sums.namespaces, {namespace_of(statement) or UNKNOWN: slot})
        add_sums(sums.architectures, {_stated(statement, "arch") or UNKNOWN: slot})
    return sums


def add_sums(held: dict[str, Slot], more: dict[str, Slot]) -> None:
    """Add what each name holds elsewhere."""
    for name, slot in more.items():
        before = held.get(name, Slot(0, 0))
        held[name] = Slot(before.bytes + slot.bytes, before.entries + slot.entries)


def namespace_of(statement: Statement) -> str | None:
    """Returns the namespace that a record states, unverified; ``None`` for one that cannot be shown."""
    return _stated(statement, "namespace")


def _stated(statement: Statement, field: str) -> str | None:
    name = _short((statement.metadata or {}).get(field))
    return name if name is not None and name.isprintable() else None


def _listed(names: object) -> str | None:
    listed = [str(name) for name in names] if isinstance(names, (dict, list, tuple)) else []
    return decode_label(", ".join(listed[:_MOST_SYMBOLS])) or None


def _short(value: object) -> str | None:
    """Returns a value of metadata as a short text to show and to filter by; ``None`` for anything else."""
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME else None


def _look_at(layout: Layout, path: str) -> Artifact:
    try:
        with layout.reach.open(path, READ | NOATIME) as fd:
            return identify(os.read(fd, ARTIFACT_BYTES))
    except OSError:
        return Artifact()


class Statement(NamedTuple):
    """The content of a record. ``state`` is ``whole`` (as far as it is known), ``none``, ``damaged``, ``newer`` than
    this version knows, or ``unreadable`` (EACCES, EIO; also one that is gone: the caller looks)."""

    state: EntryState
    created_ns: int | None = None
    cost_ns: int | None = None
    metadata: dict[str, Any] | None = None
    label: str | None = None
    #: What the key was made of, where the program stated that.
    parts: tuple[Part, ...] = ()


def read_statement(layout: Layout, found: Found, *, is_brief: bool = False) -> Statement:
    """Returns what the record of an entry states; if ``is_brief``, without label and parts, which may be in a note."""
    try:
        records = find_records(layout, layout.entry(found.name), found.name)
    except OSError as error:
        return Statement("none" if error.errno in _NOT_THERE else "unreadable")
    # A record file may be there and not be this entry's record (left from before it was written again), or be newer
    # than what ``found`` counts.
    for record in records:
        for file_bytes in (record_file_bytes(layout, found.name), 0):
            read = decode_statement(record, found.stored_bytes - file_bytes, is_brief=is_brief)
            if read.state != "damaged":
                has_all = is_brief or read.label or read.parts
                return read if has_all else _with_note(read, read_note(layout, found.name))
    return Statement("damaged" if records else "none")


def read_note(layout: Layout, name: str) -> bytes:
    """Returns the note next to an entry's record, unverified; empty if there is none."""
    try:
        return os.getxattr(layout.entry(name), NOTE_XATTR, follow_symlinks=False)[:LARGEST_NOTE_BYTES]
    except OSError:
        return b""


def _with_note(statement: Statement, note: bytes) -> Statement:
    try:
        fields = metadata.decode_fields(note)[1]
    except ValueError:
        return statement
    return _with_fields(statement, fields)


def _with_fields(statement: Statement, fields: dict[str, Any]) -> Statement:
    label = decode_label(fields.get("label")) or None
    return statement._replace(label=label, parts=decode_parts(fields.get("parts")))


def decode_statement(blob: bytes, size_bytes: int, *, is_brief: bool = False) -> Statement:
    """Returns what a record states of a payload of this length; if ``is_brief``, without label and parts."""
    if not is_record(blob):
        return Statement("damaged")
    if not is_known(blob):
        return Statement("newer")
    if not has_whole_tail(blob) or not may_have(blob, size_bytes):
        return Statement("damaged")
    record = unpack(blob)
    try:
        known, fields = metadata.decode_fields(record.tail)
    except ValueError:
        return Statement("damaged")
    created_ns = record.created_ns if record.created_ns > 0 else None
    statement = Statement("whole", created_ns, max(0, record.cost_ns) or None, known)
    return statement if is_brief else _with_fields(statement, fields)


def record_file_bytes(layout: Layout, name: str) -> int:
    """Returns the size of an entry's record file; 0 without one."""
    status = _record_status(layout, name)
    return 0 if status is None else status.st_size


def _record_status(layout: Layout, name: str) -> os.stat_result | None:
    try:
        status = os.lstat(layout.record(name))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None
