# SPDX-License-Identifier: Apache-2.0
"""Closures saved for other processes, so that the first hit of a process reads no header.

Keeps invariant 1 (a hit is whole): a saved closure is taken only if every file, every miss and every directory is here
what it was where it was saved; else the headers are read again. As in one process (:mod:`.files`), a file that had just
been changed when it was read vouches for nothing. Between processes more can change unseen, so this is stricter:

- A ctime without a fraction of a second proves nothing: the images of containers (squashfs) and many network
  file systems have none of their own, and two images agree in all that ``stat`` says where a header's length is the
  same.
- Not every file system lets ``stat`` tell each change at once (:class:`Evidence`), and reading a header does.
- A header that not everybody may read has to be readable here: the compiler would not get further either.

Devices need not have the numbers that they had, which change when a file system is mounted again, on every node that
mounts a toolkit over the network, and in every container; only two devices must stay two.

Who may write what :class:`ClosureStore` gives may write the programs too; still nothing of it is trusted to be well
formed, or small. Not promised: that a closure is found.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from lockcache.explain import decode_parts
from lockcache.headers.closure import Closure, Request
from lockcache.headers.files_seen import Facts, Identity, hold
from lockcache.headers.paths import PathUse

# Changed with what is written. What a version finds in a text goes by the version.
_SCHEME: Final = "lockcache closures 1"
#: As text. CUB with all that it includes takes 0.1 MB; what needs more is read by each process.
_LARGEST_BYTES: Final = 4 << 20
_SECOND_NS: Final = 1_000_000_000
_READABLE: Final = 0o444


class Evidence(enum.Enum):
    """The least that notices each change of a file on a file system."""

    #: A ``stat``.
    STAT = enum.auto()
    #: A ``stat`` after it was opened: NFS and its like answer a mere one from memory, for up to a minute.
    OPEN = enum.auto()
    #: Its content: a ``stat`` may be answered from memory after an open too, or the ctime be only the mtime.
    CONTENT = enum.auto()


class ClosureStore(Protocol):
    """Keeps bytes by name for other processes. May lose them at any time; raises nothing."""

    def evidence(self, path: bytes) -> Evidence:
        """Returns what it takes on the file system that a file is on."""

    def load(self, name: bytes) -> bytes | None:
        """Returns what somebody stored under a name of 32 bytes, whole."""

    def store(self, name: bytes, content: bytes) -> None:
        """Keep it if possible."""

    def turn(self, name: bytes, stale: bytes | None) -> AbstractContextManager[bytes | None]:
        """Enter the caller's turn to find out what is to be stored under a name, after those who have it before.

        Yields what one of these stored, and ends the turn at once then. ``stale``: what is stored and holds no longer.
        """


def load_or_save(request: Request, store: ClosureStore, find: Callable[[], Closure]) -> Closure:
    """Returns the closure that a process saved for this request, or saves what ``find`` returns.

    Of processes that want one at once, one reads the headers, and the others wait for it: they would all take as long.
    """
    content = store.load(_name(request))
    closure = _decoded(content, store)
    if closure is None:
        with store.turn(_name(request), content) as found:
            closure = _decoded(found, store)
            if closure is None:
                closure = find()
                save(request, closure, store)
    return closure


def load(request: Request, store: ClosureStore) -> Closure | None:
    """Returns the closure that a process saved for this request, if it is the closure as it is now."""
    return _decoded(store.load(_name(request)), store)


def _decoded(saved: bytes | None, store: ClosureStore) -> Closure | None:
    try:
        return None if saved is None else _decode(saved, store)
    except (LookupError, TypeError, ValueError, OSError, OverflowError, RecursionError, zlib.error):
        return None  # made by nobody's lockcache


def save(request: Request, closure: Closure, store: ClosureStore) -> None:
    """Save a closure for other processes, if its facts can vouch for it there."""
    if closure.looked_around and not request.looks_around:
        return  # its name would not say where
    files = closure.facts.files
    if closure.settled and all(found[4] % _SECOND_NS for _, found in files):
        one_of_each_device = {found[0]: path for path, found in files}.values()
        if all(store.evidence(path) is not Evidence.CONTENT for path in one_of_each_device):
            store.store(_name(request), _encode(closure))


def _name(request: Request) -> bytes:
    if not request.looks_around:  # then it is the same in each working directory, and whatever the source is called
        request = request._replace(name="", directory=b"", working_directory=b"")
    # With the inodes of the directories, of which each node may have its own under one path.
    version = getattr(sys.modules.get("lockcache"), "__version__", "")
    inodes = [_inode(directory) for directory in request.include_path]
    return hashlib.sha256(repr((_SCHEME, version, request, inodes)).encode(), usedforsecurity=False).digest()


def _inode(directory: bytes) -> int | None:
    try:
        return os.stat(directory).st_ino
    except OSError:
        return None


def _encode(closure: Closure) -> bytes:
    facts, devices = closure.facts, _Numbered()
    saved = [
        closure.digest.hex(),
        closure.placed.hex(),
        closure.paths.value,
        closure.looked_around,
        closure.parts,
        [(_text(path), devices[found[0]], *found[1:]) for path, found in facts.files],
        [(_text(path), found and (devices[found[0]], found[1])) for path, found in facts.directories],
        [*map(_text, facts.absent)],
        [(_text(path), sort) for path, sort in facts.irregular],
        [(_text(directory), [*map(_text, names)]) for directory, names in facts.listings],
    ]
    return zlib.compress(json.dumps(saved, separators=(",", ":")).encode())


def _decode(saved: bytes, store: ClosureStore) -> Closure | None:
    """Returns the closure if all of its facts hold. Raises many things for what :func:`_encode` did not make."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(saved, _LARGEST_BYTES)
    if not unpacking.eof:
        return None
    digest, placed, paths, looked_around, parts, files, directories, absent, irregular, listings = json.loads(text)
    devices = _Devices(store)
    facts = Facts(
        tuple((path, devices.file(path, *row)) for path, row in _rows(files)),
        tuple((path, devices.directory(path, *row)) for path, row in _rows(directories)),
        tuple(map(_path, absent)),
        tuple((path, sort) for path, (sort,) in _rows(irregular)),
        tuple((path, [*map(_path, names)]) for path, (names,) in _rows(listings)),
    )
    # The first two were looked at on the way.
    if not devices.hold() or not hold(facts._replace(files=(), directories=())):
        return None
    both = bytes.fromhex(digest), bytes.fromhex(placed)
    return Closure(*both, facts, True, tuple(decode_parts(parts)), PathUse(paths), looked_around)


def _rows(saved: list[list[Any]]) -> list[tuple[bytes, list[Any]]]:
    return [(_path(path), row) for path, *row in saved]


# Not os.fsdecode: two processes may have two locales, and would look at two paths.
def _text(path: bytes) -> str:
    return path.decode(errors="surrogateescape")


def _path(text: str) -> bytes:
    return str.encode(text, errors="surrogateescape")  # a TypeError for what is not a text


class _Numbered(dict[int, int]):
    """Numbers things in the order in which they are asked for."""

    def __missing__(self, device: int) -> int:
        number = self[device] = len(self)
        return number


class _Devices:
    """Looks at files and directories again, and finds out which device now is the one of each number."""

    def __init__(self, store: ClosureStore) -> None:
        self._store = store
        self._now: dict[int, int] = {}
        self._evidence: dict[int, Evidence] = {}

    def hold(self) -> bool:
        """Returns whether two devices are still two."""
        return len(set(self._now.values())) == len(self._now)

    def file(self, path: bytes, device: int, *saved: int) -> tuple[int, int, int, int, int]:
        """Returns the signature of a file that is unchanged; raises for any other."""
        now = self._look(path)
        found = (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
        if found != saved or self._now.setdefault(device, now.st_dev) != now.st_dev:
            raise LookupError("another file")
        if now.st_mode & _READABLE != _READABLE and not os.access(path, os.R_OK, effective_ids=True):
            raise LookupError("not a file for this user")
        return (now.st_dev, *found)

    def _look(self, path: bytes) -> os.stat_result:
        now = os.stat(path)
        evidence = self._evidence.get(now.st_dev)
        if evidence is None:  # on a block device: nobody else writes there, and the kind, 0.1 ms, need not be known
            evidence = Evidence.STAT if os.major(now.st_dev) else self._store.evidence(path)
            self._evidence[now.st_dev] = evidence
        if evidence is Evidence.CONTENT:
            raise LookupError("a file that has to be read")
        return now if evidence is Evidence.STAT else _stat_opened(path)

    def directory(self, path: bytes, saved: list[int] | None) -> Identity | None:
        """Returns the identity of a directory that is the same; raises for any other."""
        try:
            now = os.stat(path or b".")
        except OSError:
            if saved is None:
                return None
            raise
        if saved is None or saved[1] != now.st_ino or self._now.setdefault(saved[0], now.st_dev) != now.st_dev:
            raise LookupError("another directory")
        return now.st_dev, now.st_ino


def _stat_opened(path: bytes) -> os.stat_result:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.fstat(descriptor)
    finally:
        os.closerange(descriptor, descriptor + 1)  # whatever close returns
