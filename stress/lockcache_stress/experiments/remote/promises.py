# SPDX-License-Identifier: Apache-2.0
"""Values with rising versions, the state of each key on a node, and which read of them breaks a promise.

What is promised of a directory with a server behind it, and no more: bytes that a process stored under that key; from a
directory nothing older than the last write there, until that entry was evicted or deleted; from a server nothing that
the reading process itself has replaced or removed. Anything else that was ever stored under the key is right, since
keys are digests of content.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

__all__ = ["KeyState", "Value", "as_bytes", "as_value", "fault_of", "held_state", "note_state", "read_state"]

_STATE: Final = struct.Struct("<3Q")


class Value(NamedTuple):
    """One value of a key."""

    key: str
    node: int
    #: The number of the write on that node, from 1.
    version: int
    #: The process that wrote it, by a name that no other process has.
    writer: str


class KeyState(NamedTuple):
    """The writes of one key in one directory."""

    #: The last version that was begun, and the last one that is stored; 0 for none, and after a deletion.
    begun: int = 0
    stored: int = 0
    #: Deletions and dropped writes that were begun.
    removals: int = 0


def as_bytes(value: Value, size_bytes: int) -> bytes:
    """Returns a value as it is stored: all of its bytes follow from its fields and the size."""
    head = f"{value.key}|{value.node}|{value.version}|{value.writer}|{size_bytes}|".encode()
    return (head + hashlib.shake_128(head).digest(size_bytes))[:size_bytes]


def as_value(code: bytes) -> Value | None:
    """Returns what was stored as these bytes; ``None`` if they are not those of any value."""
    try:
        key, node, version, writer, size, _ = code[:200].decode("ascii", "replace").split("|", 5)
        value = Value(key, int(node), int(version), writer)
        return value if int(size) == len(code) and as_bytes(value, len(code)) == code else None
    except ValueError:
        return None


@contextmanager
def held_state(path: str) -> Iterator[tuple[KeyState, int]]:
    """Hold the key's state, for one writer of the node. Yields it and its descriptor, for :func:`note_state`."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield _state_in(fd), fd
    finally:
        os.close(fd)


def note_state(fd: int, state: KeyState) -> None:
    """Write the state, before and after each change of the cache: a writer may be killed in between."""
    os.pwrite(fd, _STATE.pack(*state), 0)


def read_state(path: str) -> KeyState:
    """Returns the state of a key, without waiting for its writer."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return KeyState()
    try:
        return _state_in(fd)
    finally:
        os.close(fd)


def _state_in(fd: int) -> KeyState:
    page = os.pread(fd, _STATE.size, 0)
    return KeyState(*_STATE.unpack(page)) if len(page) == _STATE.size else KeyState()


def fault_of(
    code: bytes,
    key: str,
    node: int,
    before: KeyState,
    after: KeyState,
    *,
    evicts: bool,
    own: Value | None,
    writer: str,
    is_of_server: bool,
) -> str:
    """Returns which promise a read of ``code`` breaks; empty for none.

    ``before`` and ``after``: the state of the key on this node before the read, and after it. ``evicts``: entries may
    be evicted there. ``own``: what the reader wrote last; ``is_of_server``: the server answered.
    """
    value = as_value(code)
    if value is None or value.key != key:
        return "bytes that nobody stored under that key"
    if value.node == node and value.version > after.begun:
        return "a version that nobody wrote"
    if is_of_server and own is not None and value.writer == writer and value.version < own.version:
        return "the server's answer is older than the reader's own write"
    if evicts or after.removals != before.removals or not before.stored:
        return ""
    if value.node != node or value.version < before.stored:
        return "older than the last write in that directory"
    return ""
