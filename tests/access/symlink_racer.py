# SPDX-License-Identifier: Apache-2.0
"""A member of a group who swaps files and folders of a shared directory for symlinks, while others work."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import random
import signal
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.access.group_members import BOB, become

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_IN_ALL_EVENTS: Final = 0xFFF
_IN_DONT_FOLLOW: Final = 0x02000000
_EVENT: Final = struct.Struct("iIII")
_EVENTS_BYTES: Final = 1 << 20
_libc: Final = ctypes.CDLL(None, use_errno=True)

# The longest time of a swap, in turns of an empty loop: swaps last from less than one to several system calls.
_LONGEST_STAY: Final = 2000


def picture(root: Path) -> dict[str, tuple[Any, ...]]:
    """Returns the content of a folder: names, kinds, modes, owners and contents."""
    seen: dict[str, tuple[Any, ...]] = {}
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        owners = (status.st_uid, status.st_gid)
        seen[str(path)] = (oct(status.st_mode), *owners, status.st_nlink, status.st_mtime_ns, content)
    return seen


@contextlib.contextmanager
def untouched(root: Path) -> Iterator[None]:
    """Assert that nothing below ``root`` is opened, read, made, changed or removed in the block, by any process.

    The kernel reports each access (inotify), also those that leave no trace, such as opening a FIFO or a device.
    """
    before = picture(root)
    fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        paths = [root, *root.rglob("*")]  # listed before the watches, which would report the listing
        watched = {_watch(fd, path): path for path in paths}
        yield
        touched = _events(fd, watched)
    finally:
        os.close(fd)
    assert touched == set()
    assert picture(root) == before


def _watch(fd: int, path: Path) -> int:
    watch = _libc.inotify_add_watch(fd, os.fsencode(path), _IN_ALL_EVENTS | _IN_DONT_FOLLOW)
    assert watch >= 0, os.strerror(ctypes.get_errno())
    return int(watch)


def _events(fd: int, watched: dict[int, Path]) -> set[tuple[str, str]]:
    """Returns the events: the bits of each in hex, and its path."""
    seen: set[tuple[str, str]] = set()
    with contextlib.suppress(BlockingIOError):
        while True:
            events, at = os.read(fd, _EVENTS_BYTES), 0
            while at < len(events):
                watch, mask, _, name_bytes = _EVENT.unpack_from(events, at)
                at += _EVENT.size
                name = os.fsdecode(events[at : at + name_bytes].rstrip(b"\0"))
                at += name_bytes
                seen.add((hex(mask), str(watched.get(watch, Path("too many events")) / name)))
    return seen


@contextlib.contextmanager
def exchanging(root: Path, folder: str, target: Path, uid: int = BOB) -> Iterator[Callable[[], None]]:
    """Swap ``folder`` of ``root`` and a symlink to ``target`` at random moments, from a call of the result on."""
    trap, place = root / "trap", root / folder
    trap.symlink_to(target)

    def swap() -> None:
        _exchange(place, trap)
        for _ in range(random.randrange(_LONGEST_STAY)):
            pass

    try:
        with _again_and_again(swap, uid) as begin:
            yield begin
    finally:
        if place.is_symlink():
            _exchange(place, trap)
        with contextlib.suppress(FileNotFoundError):
            trap.unlink()


@contextlib.contextmanager
def leading_out(place: Path, traps: Path, target: Path | None, uid: int = BOB) -> Iterator[Callable[[], None]]:
    """Swap ``place`` and a symlink to ``target`` (``None``: a FIFO), also when ``place`` is removed and made again.

    ``traps`` is a folder of that user's on the same file system, which holds the original meanwhile.
    """
    trap = traps / "trap"
    numbers = itertools.count()

    def swap() -> None:
        with contextlib.suppress(FileNotFoundError):
            if _is_trap(trap):
                os.unlink(trap)
            else:
                os.rename(trap, traps / str(next(numbers)))
        if target is None:
            os.mkfifo(trap)
        else:
            os.symlink(target, trap)
        if _exchange(place, trap):
            for _ in range(random.randrange(_LONGEST_STAY)):
                pass
            _exchange(place, trap)
        if not _is_trap(trap):
            with contextlib.suppress(OSError):  # the symlink was removed, and the original returns to its place
                os.rename(trap, place)

    with _again_and_again(swap, uid) as begin:
        yield begin


def _is_trap(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISLNK(mode) or stat.S_ISFIFO(mode)


def _exchange(one: Path, other: Path) -> bool:
    failed = _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return not failed


@contextlib.contextmanager
def _again_and_again(do: Callable[[], None], uid: int) -> Iterator[Callable[[], None]]:
    """Repeat ``do`` in a process of another user, from the call of the yielded function until the end of the block."""
    wanted, want = os.pipe()
    seen, see = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become(uid)
            os.read(wanted, 1)
            do()
            os.write(see, b"x")
            while True:
                do()
        finally:
            os._exit(1)

    def begin() -> None:
        os.write(want, b"x")
        os.read(seen, 1)

    try:
        yield begin
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it gave up"
    finally:
        os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        for fd in (wanted, want, seen, see):
            os.close(fd)
