"""A member of a group who swaps what is in a shared directory for symlinks, again and again, while others work."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.access.members import BOB, become

__all__ = ["exchanging", "picture", "swapping_new_folders"]

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_libc: Final = ctypes.CDLL(None, use_errno=True)

# How long a swap stays, in turns of an empty loop: from less than a system call to some of them.
_LONGEST_STAY: Final = 2000


def picture(root: Path) -> dict[str, tuple[Any, ...]]:
    """All there is in a folder: names, kinds, modes, owners and contents."""
    seen: dict[str, tuple[Any, ...]] = {}
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        seen[str(path)] = (oct(status.st_mode), status.st_uid, status.st_gid, status.st_nlink, content)
    return seen


@contextlib.contextmanager
def exchanging(root: Path, folder: str, target: Path, uid: int = BOB) -> Iterator[Callable[[], None]]:
    """``folder`` of ``root`` and a symlink to ``target`` swap places, at random moments, once ``begin()`` is called."""
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
def swapping_new_folders(parent: Path, target: Path, uid: int = BOB) -> Iterator[Callable[[], None]]:
    """Each new folder that is made in ``parent`` beside its place is moved away, and a symlink left in its place."""

    def swap() -> None:
        for name in os.listdir(parent):
            if ".new-" in name and not name.endswith(".away"):
                with contextlib.suppress(OSError):
                    os.rename(parent / name, parent / f"{name}.away")
                    os.symlink(target, parent / name)

    with _again_and_again(swap, uid) as begin:
        yield begin


def _exchange(one: Path, other: Path) -> None:
    _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)


@contextlib.contextmanager
def _again_and_again(do: Callable[[], None], uid: int) -> Iterator[Callable[[], None]]:
    """A process of another user that does it, from when the function that this gives is called until the end."""
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
