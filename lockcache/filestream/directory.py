"""Opening a cache directory: make it, check that it is safe and ours to read, and attach to its accounting.

Decides which directories are refused. A cache directory is code that will run on a GPU, so one that somebody else owns
or may write to is an error that says how to mend it. Keeps invariant 7's other half (what is misconfigured is a clear
error at opening) and carries on when the directory is deleted underneath a live cache: what is attached is replaced as
a whole, and threads in the middle of an operation keep the old page until they are done with it.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import threading
from collections.abc import Callable, Iterable
from typing import Final

from lockcache.errors import FormatError, UnsafeCacheDirError
from lockcache.filestream.inherited import close_inherited
from lockcache.filestream.layout import FORMAT_VERSION, SHARDS, Layout, make_private
from lockcache.filestream.locks import ProcessLock, ShardLocks
from lockcache.filestream.policy import PolicyFile
from lockcache.filestream.recency import Recency
from lockcache.filestream.replace import replace_file
from lockcache.filestream.scan import measure_shard
from lockcache.filestream.usage import Slot, UsagePage, encode_page
from lockcache.fork import after_fork_in_child

__all__ = ["CacheDirectory", "check_directory"]

_READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
# A full disk does not take the job down (invariant 7): what is there can be read.
_NOT_WRITABLE: Final = (*_READ_ONLY, errno.ENOSPC, errno.EDQUOT)
_OPEN_PAGE: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class CacheDirectory:
    """One cache directory, open: its paths, policy, accounting page, locks, and how it states recency."""

    def __init__(
        self, root: str, lock_timeout_seconds: float, between_shards: Callable[[], object] = lambda: None
    ) -> None:
        """Open ``root``, making it (mode 0700) if it is missing.

        ``between_shards`` is called again and again while a directory without accounting is counted (3 s for a million
        entries), and may raise to give up; nothing is half done then.

        Raises :class:`UnsafeCacheDirError`, :class:`FormatError`, :class:`PolicyError`, or the plain :class:`OSError`
        of a path that cannot be made or is no directory. A directory that can be read and not written opens.
        """
        self.layout = Layout(root)
        self.policy = PolicyFile(self.layout)
        self.recency = Recency(root)
        #: The shard locks, by shard number.
        self.locks = ShardLocks(self.layout, lock_timeout_seconds)
        self._init_lock = ProcessLock(self.layout.init_lock, lock_timeout_seconds)
        self._between_shards = between_shards
        self._attaching = threading.Lock()
        self._usage: UsagePage | None = None
        after_fork_in_child(self)
        self._prepare()
        self.policy.load()
        self.usage_if_writable()

    def usage(self) -> UsagePage:
        """The accounting page, attached anew if the directory was deleted or replaced underneath.

        Raises :class:`OSError` where it cannot be: on a read-only directory, EROFS or EACCES.
        """
        usage = self._usage
        if usage is None or not usage.is_at(self.layout.usage):
            usage = self._attach(usage)
        return usage

    def usage_if_writable(self) -> UsagePage | None:
        """As :meth:`usage`, but ``None`` on a directory that may not be written, or has no page and a full disk."""
        try:
            return self.usage()
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
            return None

    def remake(self) -> None:
        """Open everything anew, making what was deleted, so that a write which failed on it can be tried once more."""
        self.close()
        self._make()

    def close(self) -> None:
        """Close every descriptor. The next use opens them again."""
        with self._attaching:
            self._usage = None
        self._close_locks()

    def _close_locks(self) -> None:
        for lock in [*self.locks.values(), self._init_lock]:
            lock.close()

    def _after_fork_in_child(self) -> None:
        self._attaching = threading.Lock()
        close_inherited(self.layout)

    def _prepare(self) -> None:
        root, *below = self.layout.directories()
        _make_root(root)
        _check_safe([root], os.stat)  # before anything is made in it
        try:
            for path in below:
                make_private(path)
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
        _check_safe([*below, *_shards(self.layout)], os.lstat)
        _check_format(self.layout)

    def _make(self) -> None:
        root, *below = self.layout.directories()
        _make_root(root)
        for path in below:
            make_private(path)

    def _attach(self, seen: UsagePage | None) -> UsagePage:
        with self._attaching:
            if self._usage is not None and self._usage is not seen:
                return self._usage  # another thread was faster
            if seen is not None:
                self._close_locks()  # they may be those of a directory that was moved away
            self._usage = self._open_page() or self._create_page()
            self.policy.restore()
            return self._usage

    def _open_page(self) -> UsagePage | None:
        try:
            page = UsagePage(os.open(self.layout.usage, _OPEN_PAGE))
        except FileNotFoundError:
            return None
        return page if page.is_at(self.layout.usage) else None

    def _measure(self, shard: int) -> Slot:
        self._between_shards()
        return measure_shard(self.layout, shard)

    def _create_page(self) -> UsagePage:
        """First use of this directory by any lockcache: count what is there (cuda.core may have filled it)."""
        self._make()
        with self._init_lock:
            page = self._open_page()
            if page is not None:
                return page
            replace_file(self.layout, self.layout.format, b"%d\n" % FORMAT_VERSION)
            slots = [self._measure(shard) for shard in range(SHARDS)]
            replace_file(self.layout, self.layout.usage, encode_page(slots))
            page = self._open_page()
        if page is None:
            raise FileNotFoundError(errno.ENOENT, "the directory is being deleted underneath", self.layout.usage)
        return page


def check_directory(layout: Layout) -> None:
    """Refuse what opening would refuse, and make nothing.

    Raises :class:`UnsafeCacheDirError`, :class:`FormatError`, or :class:`NotADirectoryError`.
    """
    root, *below = layout.directories()
    if os.path.lexists(root) and not os.path.isdir(root):
        raise NotADirectoryError(errno.ENOTDIR, "a cache directory is wanted here", root)
    _check_safe([root], os.stat)
    _check_safe([*below, *_shards(layout)], os.lstat)
    _check_format(layout)


def _make_root(path: str) -> None:
    # The root itself may be reached through a symlink: that is its owner's choice.
    if os.path.isdir(path):
        return
    _make_directory(path, 0o700)


def _make_directory(path: str, mode: int) -> None:
    # Parents may be read by all, as mkdir -p has it, but whatever the umask not be written: who may write to a parent
    # may put another directory in the root's place.
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        _make_directory(parent, 0o755)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, "a cache directory is wanted here", path) from None


def _shards(layout: Layout) -> list[str]:
    """The directories of shards, as far as others can get at them: cuda.core makes them and the root as umask says."""
    found: list[str] = []
    try:
        if not os.stat(layout.root).st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            return found  # as we make it: what lies below is out of reach, and need not be looked at each time
        for parent in (layout.entries, layout.records):
            found += [f"{parent}/{name}" for name in _listdir(parent)]
    except FileNotFoundError:
        return found
    return found


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _check_safe(paths: Iterable[str], look: Callable[[str], os.stat_result]) -> None:
    me = os.geteuid()
    for path in paths:
        try:
            status = look(path)
        except FileNotFoundError:
            continue  # a read-only directory of cuda.core's has no lockcache/
        # root may put anything anywhere already; trusting its directories adds nobody, and read-only caches are its.
        if status.st_uid not in (me, 0):
            raise UnsafeCacheDirError(
                f"{path} belongs to uid {status.st_uid}, not to you (uid {me}): its owner could plant programs in it. "
                f"Use a directory of your own, or, if you trust what is in it, run: chown -R {me} {shlex.quote(path)}",
                path,
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnsafeCacheDirError(
                f"{path} (mode {stat.S_IMODE(status.st_mode):04o}) may be written by other users, who could plant "
                f"programs in it. Run: chmod -R go-w {shlex.quote(path)}",
                path,
            )


def _check_format(layout: Layout) -> None:
    try:
        fd = os.open(layout.format, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        text = os.read(fd, 64)
    finally:
        os.close(fd)
    if not text:
        return  # what a power cut may leave of a file that was not synced; no version ever wrote an empty one
    if not text.strip().isdigit():
        raise FormatError(f"{layout.format} holds {text!r}, not a format version; remove the directory", layout.format)
    if int(text) > FORMAT_VERSION:
        raise FormatError(
            f"{layout.root} has format {int(text)}, this lockcache knows up to {FORMAT_VERSION}: upgrade lockcache, "
            "or use another directory",
            layout.format,
        )
