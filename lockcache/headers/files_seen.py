# SPDX-License-Identifier: Apache-2.0
"""Facts that a walk saw of the file system, and whether they still hold.

Keeps invariant 1 (a hit is whole) for the memo: a digest rests on facts, and while all of them hold, walking again
would see the same. That a name is missing is a fact like any other. Facts are about paths as they are spelled, so that
a link which is turned to another toolkit is seen.

A fact costs one ``stat`` (a file, a directory) or one ``access`` (a miss), about 2 us each in a deep directory. Nothing
is opened, but the directories that computed names made count are listed again.
"""

from __future__ import annotations

import json
import os
import stat
from typing import NamedTuple

from lockcache.headers.files import Signature, regular, signature

#: Device and inode of a directory.
Identity = tuple[int, int]


class Facts(NamedTuple):
    """All of them have to hold."""

    #: Each path under which a file was found.
    files: tuple[tuple[bytes, Signature], ...]
    #: Each directory through which a path went; None for one that is missing.
    directories: tuple[tuple[bytes, Identity | None], ...]
    #: Missing paths where a file would come before one that was found; below a missing directory, only that directory.
    absent: tuple[bytes, ...]
    #: Directories, devices and pipes in such places, and which of these each was.
    irregular: tuple[tuple[bytes, int], ...]
    #: Directories all of whose files count, and the names in them.
    listings: tuple[tuple[bytes, list[bytes]], ...]

    @property
    def weight(self) -> int:
        """The number of facts to remember."""
        return sum(map(len, self)) + sum(len(names) for _, names in self.listings)


def encode_facts(facts: Facts) -> bytes:
    """Returns the facts as text, for another process of the same host."""
    files = [(os.fsdecode(path), *found) for path, found in facts.files]
    directories = [(os.fsdecode(path), found) for path, found in facts.directories]
    absent = [os.fsdecode(path) for path in facts.absent]
    irregular = [(os.fsdecode(path), sort) for path, sort in facts.irregular]
    listings = [(os.fsdecode(path), list(map(os.fsdecode, names))) for path, names in facts.listings]
    return json.dumps([files, directories, absent, irregular, listings]).encode()


def decode_facts(text: bytes) -> Facts:
    """Returns the facts of :func:`encode_facts`. Raises :class:`ValueError` for anything else."""
    try:
        files, directories, absent, irregular, listings = json.loads(text)
        return Facts(
            tuple((os.fsencode(path), tuple(found)) for path, *found in files),
            tuple((os.fsencode(path), None if found is None else tuple(found)) for path, found in directories),
            tuple(map(os.fsencode, absent)),
            tuple((os.fsencode(path), sort) for path, sort in irregular),
            tuple((os.fsencode(path), list(map(os.fsencode, names))) for path, names in listings),
        )
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not the facts of headers: {error}") from None


def hold(facts: Facts) -> bool:
    """Returns whether all facts still hold."""
    return (
        _files_hold(facts)
        and not any(os.access(path, os.F_OK, effective_ids=True) for path in facts.absent)
        and all(_identity(directory) == expected for directory, expected in facts.directories)
        and all(_still_lists(directory, names) for directory, names in facts.listings)
        and all(_sort(path) == expected != stat.S_IFREG for path, expected in facts.irregular)
    )


def _files_hold(facts: Facts) -> bool:
    look = os.stat
    try:
        for path, expected in facts.files:
            # signature() written out: this runs hundreds of times for a kernel that uses CCCL, and calling it is a
            # fifth of the time.
            now = look(path)
            if expected != (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns):
                return False
    except OSError:
        return False  # gone or out of reach; the walk that follows finds out and says it
    return True


def _identity(directory: bytes) -> Identity | None:
    try:
        status = os.stat(directory or b".")
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sort(path: bytes) -> int | None:
    """Returns whether a path leads to a file, a directory or what else, as the kernel numbers these."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)
    except OSError:
        return None


def _still_lists(directory: bytes, names: list[bytes]) -> bool:
    try:
        return sorted(os.listdir(directory)) == names
    except OSError:
        return False


class Observer:
    """Looks at the file system once for each question, and remembers the answers as facts."""

    def __init__(self) -> None:
        self._files: dict[bytes, Signature] = {}
        self._directories: dict[bytes, Identity | None] = {}
        self._absent: set[bytes] = set()
        self._irregular: dict[bytes, int] = {}
        self._listings: dict[bytes, list[bytes]] = {}
        self._missing_root: dict[bytes, bytes] = {}

    def facts(self) -> Facts:
        """Returns all facts seen so far."""
        return Facts(
            tuple(self._files.items()),
            tuple(self._directories.items()),
            tuple(self._absent),
            tuple(self._irregular.items()),
            tuple(self._listings.items()),
        )

    def saw(self, path: bytes, found: Signature) -> None:
        """Note that the file at this path was read, and had this signature then."""
        self._files[path] = found

    def identity(self, directory: bytes) -> Identity | None:
        """Returns device and inode of a directory; None if there is none."""
        try:
            return self._directories[directory]
        except KeyError:
            found = self._directories[directory] = _identity(directory)
            return found

    def names(self, directory: bytes) -> list[bytes]:
        """Returns the names in a directory, sorted."""
        found = self._listings[directory] = sorted(os.listdir(directory))
        return found

    def is_file(self, path: bytes) -> bool:
        """Returns whether NVRTC would read this path as a header: a regular file, or a link to one."""
        if path in self._files:
            return True
        if path in self._absent or self._is_below_missing(path):
            return False
        status = regular(path)
        if status is not None:
            self._files[path] = signature(status)
            return True
        sort = _sort(path)
        if sort is None:
            self._absent.add(path)
        else:
            self._irregular[path] = sort
        return False

    def _is_below_missing(self, path: bytes) -> bool:
        """Returns whether the path's directory is missing. Then that is the fact, in place of one for each file in it.

        Four include directories mean three misses for each of a thousand headers; nearly all of those go away here.
        Refused: to trust the mtime of directories that do exist. Some network file systems leave it as it is when a
        file is added, and looking for the file itself costs little more.
        """
        parent = os.path.dirname(path)
        root = self._missing_root.get(parent)
        if root is None:
            missing = parent not in (b"", path) and not os.access(parent, os.F_OK, effective_ids=True)
            root = self._missing_root[parent] = _highest_missing(parent) if missing else b""
            if root:
                self._absent.add(root)
        return bool(root)


def _highest_missing(directory: bytes) -> bytes:
    while True:
        above = os.path.dirname(directory)
        if above in (b"", directory) or os.access(above, os.F_OK, effective_ids=True):
            return directory
        directory = above
