"""Opening a directory for a command.

Keeps looking from changing anything: what only shows or recounts opens no :class:`FileStreamProgramCache`, which evicts
from a directory over its cap, and refuses a directory that is not a cache, which opening would make one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Final

from lockcache.arguments import resolve_path
from lockcache.filestream.accounting import total_of
from lockcache.lowlevel import (
    CacheDirectory,
    Layout,
    Slot,
    check_directory,
    is_cache,
    measured,
    recount_all,
)

__all__ = [
    "LOCK_TIMEOUT_SECONDS",
    "held",
    "look",
    "no_cache",
    "open_directory",
    "recounted_when_interrupted",
    "refuse_other_things",
]

#: A command waits as long as a cache does by default.
LOCK_TIMEOUT_SECONDS: Final = 5.0


def look(directory: str | None) -> Layout:
    """The layout of a cache that is there and safe, for commands that only read: makes no file and takes no lock."""
    layout = Layout(resolve_path(directory))
    if not is_cache(layout):
        raise no_cache(layout)
    check_directory(layout)
    return layout


def open_directory(directory: str | None) -> CacheDirectory:
    """A cache that is there, open: a mistyped path is an error, and makes none."""
    return CacheDirectory(look(directory).root, LOCK_TIMEOUT_SECONDS)


def refuse_other_things(layout: Layout) -> None:
    """Refuse a directory of other things: it is not made a cache by a mistyped path. An empty one, or none, may be."""
    try:
        names = os.listdir(layout.root)
    except FileNotFoundError:
        return
    if any(name != "lost+found" and not name.startswith(".") for name in names) and not is_cache(layout):
        raise NotADirectoryError(
            errno.ENOTDIR, "holds other things than a cache; name a directory of its own", layout.root
        )


@contextlib.contextmanager
def recounted_when_interrupted(opened: Sequence[CacheDirectory]) -> Iterator[None]:
    """Ctrl-C can come between a change and its accounting. Only a killed process leaves it to others.

    ``opened`` is looked at when it has come.
    """
    try:
        yield
    except KeyboardInterrupt:
        for directory in opened:
            recount_all(directory)
        raise


def no_cache(layout: Layout) -> OSError:
    """The error for a path without a cache."""
    if not os.path.lexists(layout.root):
        return FileNotFoundError(
            errno.ENOENT, "no such directory; a program makes its cache at the first use", layout.root
        )
    if not os.path.isdir(layout.root):
        return NotADirectoryError(errno.ENOTDIR, "a cache directory is wanted here", layout.root)
    kind = (
        "contains other files than a cache of lockcache or cuda.core"
        if os.listdir(layout.root)
        else "nothing cached yet"
    )
    return FileNotFoundError(errno.ENOENT, kind, layout.root)


def held(opened: CacheDirectory) -> Slot:
    """What the directory holds: as accounted, or measured where a read-only one has no accounting."""
    usage = opened.usage_if_writable()
    if usage is not None:
        return usage.total()
    return total_of(measured(opened.layout))
