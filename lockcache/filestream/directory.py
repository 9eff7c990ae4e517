"""Opening a cache directory: make it, check it (:mod:`.disk.permissions`), and attach to its accounting.

Keeps the other half of invariant 7 (never take the job down), that what is misconfigured is a clear error at opening,
and carries on when the directory is deleted underneath a live cache: what is attached is replaced as a whole, and
threads in the middle of an operation keep the old page until they are done with it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Final

from lockcache.errors import LockTimeoutError
from lockcache.filestream.accounting import (
    NfsPage,
    ReopenedPage,
    Slot,
    UsagePage,
    encode_page,
    measure_shard,
    names_in,
    total_of,
)
from lockcache.filestream.disk import (
    FRESH_SECONDS,
    SHARDS,
    UPDATE,
    Descriptor,
    Layout,
    ProcessLock,
    Recency,
    ShardLocks,
    Sharing,
    Space,
    StagedName,
    UnstatedRecency,
    check_folders,
    check_format,
    check_root,
    close_inherited,
    encode_format,
    leave_tag,
    make_folder,
    make_root,
    myself,
    next_serial,
    open_below,
    probe_space,
    rename_below,
    replace_file,
    resolve_sharing,
    revalidate,
    space_of,
    stated_space,
    unlink_below,
)
from lockcache.filestream.policy import PolicyFile
from lockcache.fork import after_fork_in_child

_READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
# Invariant 7 (never take the job down): on a full disk, existing entries can be read.
_NOT_WRITABLE: Final = (*_READ_ONLY, errno.ENOSPC, errno.EDQUOT)
_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)
# Errors of a mount that does not support O_DIRECT, or only for whole blocks.
_NOT_DIRECT: Final = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_SHARD: Final = re.compile(r"[0-9a-f]{2}", re.ASCII)


class CacheDirectory:
    """One cache directory, open: its paths, policy, accounting page, locks, and how it states recency."""

    #: Whether this stands for a directory that a cache does without; see :mod:`.modes`.
    is_nowhere = False

    def __init__(
        self,
        root: str,
        lock_timeout_seconds: float,
        between_shards: Callable[[], object] = lambda: None,
        *,
        group: bool | str | None = None,
        first_cap_bytes: int | None = None,
        is_read_only: bool = False,
    ) -> None:
        """Open ``root``, making it (mode 0700; 2770 for a ``group``) if it is missing.

        ``is_read_only``: it has to be there, and nothing in it is made or changed.

        ``first_cap_bytes`` is the cap of a directory that is made or empty, where nobody states one.

        ``between_shards`` is called again and again, also within a shard, while a directory without accounting is
        counted (3 s for a million entries), and may raise to give up; nothing is half done then.

        Raises :class:`UnsafeCacheDirError`, :class:`FormatError`, :class:`PolicyError`, or the plain :class:`OSError`
        of a path that cannot be made or is not a directory. A directory that can be read and not written opens.
        """
        #: Whether nothing may be made or changed: asked for, or decided by :meth:`only_read`.
        self.is_read_only, self.why_read_only = is_read_only, ""
        self._sharing = resolve_sharing(group)
        self.layout = Layout(root, is_shared=self._sharing.is_shared)
        #: Whether a group shares it, so that files must be made for all of its members.
        self.is_shared = self._sharing.is_shared
        self.policy = PolicyFile(self.layout, is_shared=self.is_shared)
        #: The shard locks, by shard number.
        self.locks = ShardLocks(self.layout, lock_timeout_seconds, is_shared=self.is_shared)
        #: Of the head of the queue for room.
        self.room_lock = ProcessLock(self.layout.room_lock, lock_timeout_seconds, layout=self.layout)
        self._init_lock = ProcessLock(self.layout.init_lock, lock_timeout_seconds, layout=self.layout)
        self._between_shards = between_shards
        self._first_cap_bytes = first_cap_bytes
        self._attaching = threading.RLock()  # a signal handler may ask during it
        self._usage: UsagePage | None = None
        # What the format file says, as it was read at opening, until the page is attached.
        self._stated: Space | None = None
        after_fork_in_child(self)
        self._prepare()
        self.recency = Recency(root, self.layout.is_network)  # a root that was just made
        if is_read_only:
            self.only_read()
        self.policy.load()
        self.usage_if_writable()

    def only_read(self, why: str = "it was asked for") -> None:
        """Make and change nothing from now on: :meth:`usage` raises, and uses of entries are not stated."""
        self.is_read_only, self.why_read_only = True, why
        self.recency = UnstatedRecency(self.layout.root)

    def refuse_if_read_only(self) -> None:
        """Raise :class:`PermissionError` where nothing may be changed, before anything is."""
        if self.is_read_only:
            what = f"this cache only reads the directory, and changes nothing ({self.why_read_only})"
            raise PermissionError(errno.EROFS, what, self.layout.root)

    def usage(self) -> UsagePage:
        """Returns the accounting page; attaches it again if the directory was deleted or replaced.

        Raises :class:`OSError` where it cannot be: on a read-only directory, EROFS or EACCES.
        """
        if self.is_read_only:
            self.refuse_if_read_only()
        usage = self._usage
        if usage is None or not usage.is_at(self.layout.usage):
            usage = self._attach(usage)
        return usage

    def usage_if_writable(self) -> UsagePage | None:
        """Returns :meth:`usage`, but ``None`` for a directory that may not be written, or has no page and a full disk.

        Returns ``None`` also while another process counts it for longer than the lock timeout: its entries can be read.
        """
        try:
            return self.usage()
        except LockTimeoutError:
            return None
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
            return None

    def held(self) -> Slot:
        """Returns what the directory holds: as accounted, or as measured where there is no accounting.

        Raises :class:`OSError` where the disk gives no answer.
        """
        with contextlib.suppress(OSError):
            usage = self.usage_if_writable()
            if usage is not None:
                return usage.total()
        from lockcache.filestream.accounting import measured  # spread and medians, which programs have no need of

        return total_of(measured(self.layout))

    @property
    def space(self) -> Space:
        """The sizes that files and folders count for in this directory. Raises :class:`OSError`."""
        return space_of(self.layout)

    def limit_bytes(self) -> int | None:
        """Returns what entries and reservations may add up to now; ``None`` for no limit. Raises :class:`OSError`."""
        return self.policy.current().entries_limit_bytes(self.space)

    def attached(self) -> UsagePage:
        """Returns :meth:`usage`, but does not check a page that is attached: a writer does so under a lock."""
        usage = self._usage
        return self.usage() if usage is None else usage

    def check(self) -> None:
        """Refuse the directory as opening it now would, and make nothing: it may have been opened to others since."""
        check_root(self.layout.root, self._sharing)
        check_folders(self.layout, self._sharing)
        check_format(self.layout)

    def remake(self) -> None:
        """Make what was deleted, so that a write which failed on it can be tried once more.

        The page and the locks check by themselves whether they are still at their paths. They are not closed here:
        another thread may have opened them again already.
        """
        self._make()
        self.usage()

    def close(self) -> None:
        """Close every descriptor. The next use opens them again."""
        with self._attaching:
            self._usage = None
        self._close_locks()

    def _close_locks(self) -> None:
        for lock in [*self.locks.values(), self.room_lock, self._init_lock]:
            lock.close()

    def _after_fork_in_child(self) -> None:
        self._attaching = threading.RLock()
        close_inherited(self.layout)

    def _prepare(self) -> None:
        root = self.layout.root
        if self.is_read_only:
            os.stat(root)
        else:
            make_root(root, self._sharing)
        check_root(root, self._sharing)  # before anything is made in it
        if self.is_shared:  # made again later, it is for the same group
            self._sharing = Sharing(True, os.stat(root).st_gid)
        missing = check_folders(self.layout, self._sharing)
        try:
            for path in missing if not self.is_read_only else ():
                make_folder(self.layout, path)
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
        self._stated = check_format(self.layout)

    def _make(self) -> None:
        root, *below = self.layout.directories()
        make_root(root, self._sharing)
        for path in below:
            make_folder(self.layout, path)

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
        for is_last in (False, False, True):
            try:
                space, self._stated = self._stated or stated_space(self.layout), None
                if space is None:
                    return None  # of format 1, which counted otherwise
                self.layout.space = space
                page = self._opened_page()
                return page if page.is_at(self.layout.usage) and page.is_ours_alone() else None
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno != errno.ESTALE or is_last:
                    raise
            revalidate(self.layout, self.layout.own)  # another host replaced it while we opened it
        return None

    def _opened_page(self) -> UsagePage:
        layout = self.layout
        if layout.is_fuse:
            return ReopenedPage(open_below(layout, layout.usage, UPDATE))
        if layout.is_network:
            # The client of such a file system caches reads and writes of an open file, even if another file is locked.
            try:
                page = self._page_of(open_below(layout, layout.usage, UPDATE | _DIRECT))
                if not layout.is_nfs:
                    page.slot(1)  # refused where only whole blocks can be read so
                return page
            except OSError as error:
                # After any other error (a stale handle), this process would not see others change the page.
                if error.errno not in _NOT_DIRECT:
                    raise
        return self._page_of(open_below(layout, layout.usage, UPDATE))

    def _page_of(self, file: Descriptor) -> UsagePage:
        return NfsPage(file, self.layout) if self.layout.is_nfs else UsagePage(file)

    def _is_new(self) -> bool:
        """Returns whether no shard was ever locked and none has anything that counts, so that none has to be measured.

        Measuring all 256 takes 4,000 system calls. Locks are listed first: a writer that takes one later waits for the
        page that is being made.
        """
        layout = self.layout
        if any(_SHARD.fullmatch(name) for name in names_in(layout, layout.locks)):
            return False
        folders = (layout.entries, layout.records, layout.tmp, layout.quarantine)
        return not any(names_in(layout, folder) for folder in folders)

    def _measure(self, shard: int) -> Slot:
        """Measure a shard while no process is between a change of its files and their accounting."""
        self._between_shards()
        if not os.path.exists(self.layout.lock(shard)):
            # The shard was not accounted for yet, and a writer that comes now waits for us.
            return measure_shard(self.layout, shard, between=self._between_shards)
        try:
            lock = self.locks[shard]
            lock.acquire(lock.timeout_seconds)
        except OSError:  # a hanging holder, or a symlink for a folder: measured without the lock
            return measure_shard(self.layout, shard, between=self._between_shards)
        try:
            return measure_shard(self.layout, shard, between=self._between_shards)
        finally:
            lock.release()

    def _create_page(self) -> UsagePage:
        """Make the page at the first use of this directory by any lockcache: count what cuda.core, say, has stored.

        Also where the page was lost or is of an older format. There may be writers that have an older page attached:
        from its removal on they find out, each under a shard's lock, before they account for anything, and wait for the
        new one. So the new page has every reservation that stands.

        Other threads of this process wait in :meth:`_attach` meanwhile, a second for some 300,000 entries and one on
        NFS, whatever their deadline: there is nothing that they could account on. Readers do not come here.
        """
        self._make()
        with self._init_lock:
            # The process before us may be on another host, and this host may remember its files as missing.
            revalidate(self.layout, self.layout.own)
            page = self._open_page()
            if page is not None:
                return page
            check_format(self.layout)  # a newer version may have been there since we opened
            self._replace_page_locked()
            page = self._open_page()
        if page is None:
            raise FileNotFoundError(errno.ENOENT, "the directory is being deleted underneath", self.layout.usage)
        return page

    def _replace_page_locked(self) -> None:
        """Replace the page, and the format of an older version. Requires: init lock.

        The older page is renamed first, which its writers notice, and renamed back if the disk is too full for the new
        format: it has what they accounted for, and a directory of format 1 stays one. Only then is it removed, last, so
        that the new page finds its block on a full disk. On NFS its writers notice within a second.
        """
        layout = self.layout
        aside = layout.staged(StagedName(0, 0, *myself(), next_serial()))
        with contextlib.suppress(FileNotFoundError):
            rename_below(layout, layout.usage, aside)
        try:
            space = stated_space(layout)
            if space is None:
                space = probe_space(layout.root)
                replace_file(layout, layout.format, encode_format(space))
            layout.space = space
        except BaseException:
            with contextlib.suppress(OSError):  # what brought us here says more
                rename_below(layout, aside, layout.usage)
            raise
        try:
            is_new = self._is_new()
            if layout.is_nfs and not is_new:
                time.sleep(FRESH_SECONDS)  # until no writer relies on a look at the older page, see NfsPage.was_at
            slots = [Slot(0, 0)] * SHARDS if is_new else [self._measure(shard) for shard in range(SHARDS)]
        finally:
            with contextlib.suppress(FileNotFoundError):
                unlink_below(layout, aside)
        if is_new:
            leave_tag(layout, names_in(layout, layout.root))
        if self._first_cap_bytes is not None and not any(slot.bytes for slot in slots):
            self.policy.begin_with(self._first_cap_bytes)
        replace_file(layout, layout.usage, encode_page(slots))
