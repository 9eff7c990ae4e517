# SPDX-License-Identifier: Apache-2.0
"""Opening a directory for a command.

Keeps inspection from changing anything: commands that only show or recount open no :class:`FileStreamProgramCache`,
which evicts from a directory over its cap. They also refuse a directory that is not a cache, which opening would turn
into one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lockcache.arguments import resolve_path
from lockcache.errors import NoDefaultDirError
from lockcache.filestream.disk import TAG_NAME
from lockcache.layouts import GUESTS, WrongLayoutError, guests_in, kept_as
from lockcache.lowlevel import (
    CacheDirectory,
    Layout,
    check_directory,
    is_cache,
    recount_all,
)

#: A command waits as long as a cache does by default.
LOCK_TIMEOUT_SECONDS: Final = 5.0


def look(directory: str | None) -> Layout:
    """Returns the layout of an existing, safe cache, for commands that only read. Makes no file and takes no lock."""
    layout = Layout(resolve_path(directory))
    if not is_cache(layout):
        guest = guest_of(directory)
        if guest is not None:
            raise ValueError(
                f"{layout.root} is a directory of layout {guest.program}: stats, ls, top, policy, evict, clear and "
                "verify know it, this command does not"
            )
        raise no_cache(directory, layout)
    check_directory(layout)
    return layout


def default_cache() -> Layout | None:
    """Returns the layout of the default directory, if it is a cache."""
    try:
        layout = Layout(resolve_path(None))
    except NoDefaultDirError:
        return None
    return layout if is_cache(layout) else None


class GuestRoot(NamedTuple):
    """A directory of another program's."""

    root: str
    program: str


def guest_of(directory: str | None) -> GuestRoot | None:
    """Returns the directory if it is another program's that a daemon can keep; ``None`` for any other path."""
    layout = Layout(resolve_path(directory))
    if is_cache(layout) or not os.path.isdir(layout.root):
        return None
    try:
        program = kept_as(layout.root)
    except WrongLayoutError:
        return None
    return GuestRoot(layout.root, program) if program in GUESTS else None


def open_directory(directory: str | None) -> CacheDirectory:
    """Open an existing cache; a mistyped path is an error, and makes none."""
    return CacheDirectory(look(directory).root, LOCK_TIMEOUT_SECONDS)


def other_things(root: str) -> list[str]:
    """Returns the names of other files, for which a directory may not become a cache; none if it is missing."""
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name not in ("lost+found", TAG_NAME) and not name.startswith("."))


def are_swapped(other: str, directory: str | None) -> bool:
    """Returns whether DIR and another argument are swapped."""
    if directory is None or os.path.isdir(os.path.expanduser(directory)):
        return False
    return os.path.isdir(os.path.expanduser(other))


def refuse_other_things(layout: Layout) -> None:
    """Refuse a directory with other files, so that a mistyped path makes no cache of it. Accept an empty one."""
    if other_things(layout.root) and not is_cache(layout):
        raise NotADirectoryError(
            errno.ENOTDIR, "holds other things than a cache; name a directory of its own", layout.root
        )


@contextlib.contextmanager
def recounted_when_interrupted(opened: Sequence[CacheDirectory]) -> Iterator[None]:
    """Recount the directories if Ctrl-C ends the block: it can come between a change and its accounting.

    Only a killed process leaves that to others. ``opened`` is read after Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        for directory in opened:
            recount_all(directory)
        raise


def no_cache(directory: str | None, layout: Layout) -> OSError:
    """Returns the error for a path without a cache: it is missing, holds other files, or is empty."""
    root, is_default = layout.root, directory is None and not os.environ.get("LOCKCACHE_DIR")
    origin = " (from $LOCKCACHE_DIR)" if directory is None and not is_default else ""
    if not os.path.isdir(root) and os.path.lexists(root):
        return NotADirectoryError(errno.ENOTDIR, f"this is not a cache directory{origin}", root)
    if not os.path.isdir(root) and not is_default:
        return FileNotFoundError(errno.ENOENT, f"no such directory{origin}", root)
    parent = os.path.dirname(root)
    if is_cache(Layout(parent)):
        words = f"is a part of the cache in {parent}: name that{origin}"
        return NotADirectoryError(errno.ENOTDIR, words, root)
    guests, others = guests_in(root), other_things(root)
    if len(guests) > 1:
        words = f"holds files of {' and of '.join(guests)}: name a directory of one of them{origin}"
        return NotADirectoryError(errno.ENOTDIR, words, root)
    if others:
        words = f"holds other files ({others[0]}{', ...' if len(others) > 1 else ''}) and is not a cache{origin}"
        return NotADirectoryError(errno.ENOTDIR, words, root)
    words = f"empty: the first program that uses it creates the cache{origin}"
    return FileNotFoundError(errno.ENOENT, words, root)
