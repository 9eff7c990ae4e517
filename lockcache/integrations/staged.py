# SPDX-License-Identifier: Apache-2.0
"""Staged files in other programs' directories: their names, and when they are a dead writer's.

Keeps invariant 5 (death is free): a name says who stages, so what a killed writer left goes as soon as somebody looks.
pyptx's are in ``lockcache/staged/``. There lie too, under the names that :mod:`lockcache.filestream.disk.layout` gives
them, small files that are being replaced, and what :mod:`.pyptx_directory.backup` puts aside, which is nobody's stage.
Those of Warp, of Triton and of kept folders lie next to what they become.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from typing import Final

from lockcache.filestream.disk import (
    FOREIGN_GRACE_SECONDS,
    YOUNG_SECONDS,
    Owner,
    age_seconds_of,
    forget_given_up,
    is_abandoned,
    myself,
    next_serial,
    parse_staged_name,
)
from lockcache.lowlevel import Layout

__all__ = [
    "COMPILING_SECONDS",
    "is_staged",
    "reap_folder",
    "reap_staged",
    "reap_staged_in",
    "staged_bytes",
    "staged_name",
    "was_left_by",
    "write_whole",
]

_log = logging.getLogger("lockcache")

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

#: For folders of other hosts, in which a program compiles.
COMPILING_SECONDS: Final = 3600.0

_STAGED: Final = re.compile(r"[0-9a-f]{32}\.[a-z]+\.([0-9a-f]{16})\.([0-9]{1,10})\.([0-9]{1,12})\.[0-9a-f]+", re.ASCII)


def staged_name(suffix: str, name: str = "0" * 32) -> str:
    """A file name that says by whom something is staged, and that nobody else has.

    ``name``: 32 hex digits that say what it is.
    """
    owner = myself()
    return f"{name}.{suffix}.{owner.host}.{owner.pid}.{owner.start_ticks}.{next_serial():x}"


def is_staged(file: str) -> bool:
    """Returns whether a name is one of :func:`staged_name`."""
    return _STAGED.fullmatch(file) is not None


def reap_staged(layout: Layout) -> list[str]:
    """Remove what dead writers left staged; returns all that lay there. Raises nothing: the next write tries again."""
    with contextlib.suppress(OSError), layout.reach.open(layout.tmp, _OPEN_FOLDER) as fd:
        return reap_staged_in(fd)
    return []


def reap_staged_in(folder_fd: int) -> list[str]:
    """As :func:`reap_staged`, for a caller that has that folder open."""
    files: list[str] = []
    with contextlib.suppress(OSError):
        files = os.listdir(folder_fd)
        for file in files:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                if _is_abandoned(folder_fd, file):
                    os.unlink(file, dir_fd=folder_fd)
                    forget_given_up(file)
    return files


def reap_folder(path: str) -> None:
    """Remove what dead writers staged in a program's own folder: files, links and folders. Raises nothing."""
    with contextlib.suppress(OSError):
        fd = os.open(path, _OPEN_FOLDER)
        try:
            for name in reap_staged_in(fd):
                with contextlib.suppress(FileNotFoundError):
                    if _is_abandoned(fd, name, COMPILING_SECONDS):
                        shutil.rmtree(f"{path}/{name}", ignore_errors=True)
        finally:
            os.close(fd)


def write_whole(path: str, content: bytes, suffix: str, mode: int = 0o755, mtime_ns: int | None = None) -> bool:
    """Have a file in a program's own folder, by one rename; ``mtime_ns``: when it was changed last, as far as it says.

    Returns whether it is there. Raises nothing: where it cannot be written, the program makes it.
    """
    folder = os.path.dirname(path)
    staged = f"{folder}/{staged_name(suffix)}"
    try:
        os.makedirs(folder, exist_ok=True)
        reap_folder(folder)
        fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            with open(fd, "wb") as file:
                file.write(content)
                file.flush()
                if mtime_ns is not None:
                    os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
            os.replace(staged, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(staged)
            raise
    except OSError as error:
        _log.info("%s could not be written: %s", path, error)
        return False
    return True


def staged_bytes(layout: Layout) -> int:
    """Bytes of all that is staged. Raises :class:`OSError`."""
    total = 0
    try:
        with layout.reach.open(layout.tmp, _OPEN_FOLDER) as fd:
            for file in os.listdir(fd):
                with contextlib.suppress(FileNotFoundError):
                    total += os.stat(file, dir_fd=fd, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0
    return total


def _owner(file: str) -> Owner | None:
    match = _STAGED.fullmatch(file)
    if match is not None:
        return Owner(match[1], int(match[2]), int(match[3]))
    other = parse_staged_name(file)
    return None if other is None else Owner(other.host, other.pid, other.start_ticks)


def _is_abandoned(folder_fd: int, file: str, grace_seconds: float = FOREIGN_GRACE_SECONDS) -> bool:
    owner = _owner(file)
    return owner is not None and was_left_by(owner, folder_fd, file, grace_seconds)


def was_left_by(owner: Owner, folder_fd: int, file: str, grace_seconds: float = FOREIGN_GRACE_SECONDS) -> bool:
    """Returns whether the owner of a file or folder is dead, and the file is not of this moment."""
    age_seconds = age_seconds_of(folder_fd, file)
    return age_seconds >= YOUNG_SECONDS and is_abandoned(file, owner, age_seconds, grace_seconds)
