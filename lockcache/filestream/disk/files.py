# SPDX-License-Identifier: Apache-2.0
"""Small files: replaced as one unit, and read with a bound. Policy, accounting page, format, daemon status.

Keeps invariant 1 (a hit is whole) for files that are not entries: a reader finds the old bytes or the new, never a
part. Staged in ``tmp/`` like entries, so that what a killed writer leaves there is found and removed by the same rule.

Keeps invariant 7 (never take the job down) for readers: what others could write is read up to a stated length, never
through a symlink, never waiting on a FIFO, and JSON that is nested until the parser gives up is a :class:`ValueError`
like any other mistake.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lockcache.filestream.disk.descriptors import DISK_FULL, FOLDER, READ, Descriptor, opened
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.disk.mounts import is_network
from lockcache.filestream.disk.owners import YOUNG_SECONDS, give_up, staged_path
from lockcache.filestream.disk.reach import BY_PATH

_log = logging.getLogger("lockcache")

#: By this file backups recognize a directory that they may skip: https://bford.info/cachedir/.
TAG_NAME: Final = "CACHEDIR.TAG"
_TAG: Final = b"""Signature: 8a477f597d28d172789f06886806bc55
# lockcache made this directory; the compiled programs in it can be compiled again.
"""

# With its sign. A longer number would be an OverflowError at the first division by it.
_MOST_DIGITS: Final = 20

#: The length up to which a file is read without a look at its blocks.
READ_ANYHOW_BYTES: Final = 256 << 20
# Of st_blocks, and how much a file system may put into one: btrfs 32 times as much.
_BLOCK_BYTES: Final = 512
_MOST_COMPRESSED: Final = 64

# For writing into what is there, without waiting for a FIFO in its place.
_CHANGE: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK

_NEW: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


def read_small(layout: Layout | None, path: str, largest_bytes: int) -> bytes:
    """Returns the first ``largest_bytes`` bytes of a file. Raises :class:`OSError`, also for a symlink.

    ``layout``: ``None`` for a path that is not below the root of a cache.
    """
    with (BY_PATH if layout is None else layout.reach).open(path, READ) as fd:
        return os.read(fd, largest_bytes)


def read_json(layout: Layout | None, path: str, largest_bytes: int) -> dict[str, Any]:
    """Returns the JSON object in a file. Raises :class:`OSError`, and :class:`ValueError` as :func:`parse_json`."""
    return parse_json(read_small(layout, path, largest_bytes))


def parse_json(text: bytes) -> dict[str, Any]:
    """Returns a JSON object. Raises :class:`ValueError` for anything else, however it is nested.

    Raises it also for numbers that no caller can use: with more digits than 64 bits have, and those that are not
    finite.
    """
    try:
        body = json.loads(text, parse_int=_bounded, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(body, dict):
        raise ValueError("line 1, column 1: this is not a JSON object")
    return body


def _bounded(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(number: str) -> float:
    if not math.isfinite(float(number)):
        raise ValueError(f"{number[:20]} is not a number")
    return float(number)


def replace_file(layout: Layout, path: str, content: bytes, *, fsync: bool = True) -> None:
    """Put ``content`` under ``path``, whole. Raises :class:`OSError`; then the old file stands.

    With ``fsync`` that holds also after a power cut, which would otherwise leave an empty file in place of the old one:
    a cache that synced every entry would lose all of them if it cannot be opened because of an empty ``format``.
    """
    with replacing(layout, path, fsync=fsync) as fd:
        write_all(fd, content)


@contextlib.contextmanager
def replacing(layout: Layout, path: str, *, fsync: bool = True) -> Iterator[int]:
    """Yields an open, new file for the block to fill, then puts it under ``path`` like :func:`replace_file`."""
    # Named like a staged write that reserves nothing, so that every recount can tell its owner and whether that lives.
    staged = staged_path(layout, 0, 0)
    reach, (parent, _, name), staged_name = layout.reach, path.rpartition("/"), os.path.basename(staged)
    reach.refuse_symlinks(layout.tmp, parent)
    with naming(path), reach.at(layout.tmp) as tmp, reach.at(parent) as folder:
        try:
            file = Descriptor()
            reach.create_in(tmp, staged_name, _NEW, file)
            with file as fd:
                yield fd
                if fsync:
                    os.fsync(fd)
                file.end_writing()
            tmp.rename(staged_name, folder, name)
        except BaseException:
            try:
                tmp.unlink(staged_name)
            except OSError:  # the error that brought us here says more
                give_up(staged_name)
            raise


def remove_files(folder_fd: int) -> None:
    """Remove every file in an open folder, and each folder in it with all that it holds, however deep.

    A folder within a folder is moved up before it is emptied: so no depth needs more descriptors, or a deeper stack,
    than these two. Raises :class:`OSError` where something cannot be removed.
    """
    left = os.listdir(folder_fd)
    while left:
        name = left.pop()
        if _is_unlinked(folder_fd, name):
            continue
        with opened(name, FOLDER, dir_fd=folder_fd) as inner_fd:
            for inner in os.listdir(inner_fd):
                if not _is_unlinked(inner_fd, inner):
                    left.append(secrets.token_hex(8))
                    os.rename(inner, left[-1], src_dir_fd=inner_fd, dst_dir_fd=folder_fd)
        os.rmdir(name, dir_fd=folder_fd)


def _is_unlinked(folder_fd: int, name: str) -> bool:
    """Unlink a file. Returns False for a folder."""
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder_fd)
    except IsADirectoryError:
        return False
    return True


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Let errors of writing name ``path``: calls on a descriptor name nothing, and an operator who must make room on a
    full disk needs to know which one, not the name of our staged file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or (error.filename is not None and error.errno not in DISK_FULL):
            raise
        raise OSError(error.errno, error.strerror, path) from error


def is_alone(fd: int) -> bool:
    """Returns whether an open file is plain and has no other name: a planted file must not be written to."""
    status = os.fstat(fd)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def is_at(status: os.stat_result, path: str) -> bool:
    """Returns whether ``path`` leads to an open file. By inode: NFS keeps a link to what is unlinked while open.

    Of a file that has one name by its status, which is older than this look, that name is ``path``.
    """
    try:
        return os.path.samestat(os.lstat(path), status)
    except FileNotFoundError:
        return False


def is_hole(status: os.stat_result) -> bool:
    """Returns whether a file is longer than what its blocks can hold, however well it is compressed: nobody stored it.

    To read it would take time and memory for bytes that are not there. A file of at most 256 MiB is read anyhow.
    """
    return status.st_size > READ_ANYHOW_BYTES and status.st_size > status.st_blocks * _BLOCK_BYTES * _MOST_COMPRESSED


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Write every byte; a single write stops at 2 GiB, at a signal, or where the disk is full."""
    written = os.write(fd, content)
    while written < len(content):
        written += os.write(fd, memoryview(content)[written:])


def read_all(fd: int, size_bytes: int) -> bytes:
    """Returns up to ``size_bytes``; less only at the end of the file. A single read stops at 2 GiB."""
    parts = [os.read(fd, size_bytes)]
    missing = size_bytes - len(parts[0])
    while missing and parts[-1]:
        parts.append(os.read(fd, missing))
        missing -= len(parts[-1])
    return b"".join(parts)


def append_below(layout: Layout, path: str, content: bytes, *, fsync: bool) -> int:
    """Append to a file, and return its previous length."""
    file = layout.reach.open(path, _CHANGE | os.O_APPEND)
    with file as fd:
        length = os.fstat(fd).st_size
        write_all(fd, content)
        if fsync:
            os.fsync(fd)
        file.end_writing()
    return length


def truncate_below(layout: Layout, path: str, length: int) -> None:
    """Cut a file off."""
    with layout.reach.open(path, _CHANGE) as fd:
        os.ftruncate(fd, length)


def fsync_folder_of(layout: Layout, path: str) -> None:
    """Make the name of a file survive a power cut, and the names of the folders on its way: they may be new."""
    top = layout.root.rstrip("/") or "/"
    while path != top:
        path = os.path.dirname(path)
        with layout.reach.opened(path) as folder:
            os.fsync(folder.number)


def age_seconds_of(folder_fd: int, file: str) -> float:
    """Returns the seconds since the file was last changed; 0 for one that is gone.

    For a change in the future, returns the seconds until then: a clock was stepped since, and the file must not count
    as young for so long.
    """
    try:
        status = os.stat(file, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return 0.0
    now = time.time()
    age_seconds, since_change_seconds = abs(now - status.st_mtime), abs(now - status.st_ctime)
    # An NFS server that makes a file exclusively (mkstemp does) keeps a number of the client in the place of its mtime,
    # any time from 1970 to 2038, until the client sets it, in its next request. The file is empty as long as that.
    is_doubtful = not status.st_size and age_seconds - since_change_seconds > YOUNG_SECONDS
    return since_change_seconds if is_doubtful and is_network(f"/proc/self/fd/{folder_fd}") else age_seconds


def leave_tag(layout: Layout, names: Iterable[str]) -> None:
    """Tag a new directory as a cache, or warn where its root, which holds these names, holds anything else.

    A mistyped path makes a cache among other files, which should not happen silently.
    """
    ours, found = {path.removeprefix(f"{layout.root}/") for path in layout.directories()}, {*names}
    found.discard("lost+found")  # of the file system whose root this is
    if not found <= {*ours, TAG_NAME}:
        _log.warning("%s holds other files; a cache is made among them, in entries, tmp and lockcache", layout.root)
    elif found and found <= ours:
        with contextlib.suppress(OSError):  # a full disk: backups take longer, and nothing else is lost
            replace_file(layout, f"{layout.root}/{TAG_NAME}", _TAG, fsync=False)
