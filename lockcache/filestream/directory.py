# SPDX-License-Identifier: Apache-2.0
"""Opening a cache directory: make it, check it (:mod:`.disk.permissions`), and attach to its accounting.

Keeps the other half of invariant 7 (never take the job down), that what is misconfigured is a clear error at opening,
and carries on when the directory is deleted underneath a live cache: what is attached is replaced as a whole, and
threads in the middle of an operation keep the old page until they are done with it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Final

from lockcache.asked_once import AskedOnce
from lockcache.errors import LockTimeoutError, in_words
from lockcache.filestream.accounting import (
    FirstCount,
    HeldCounters,
    Slot,
    StatePage,
    bytes_beside,
    measure_shard,
    measure_shard_in_full,
    open_page,
    part_from_original,
    space_of,
    total_of,
)
from lockcache.filestream.directory_policy import DirectoryPolicy
from lockcache.filestream.disk import (
    PRIVATE,
    SHARDS,
    Hold,
    Layout,
    ProcessLock,
    Recency,
    ShardLocks,
    Sharing,
    Space,
    UnstatedRecency,
    check_folders,
    check_format,
    close_inherited,
    make_root,
    refuse_symlink,
    resolve_sharing,
)
from lockcache.filestream.policy import Policy
from lockcache.fork import after_fork_in_child

_log = logging.getLogger("lockcache")

_READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
# Invariant 7 (never take the job down): on a full disk, existing entries can be read.
_NOT_WRITABLE: Final = (*_READ_ONLY, errno.ENOSPC, errno.EDQUOT)
# Pages, each of which is replaced before it can be changed.
_MOST_PAGES: Final = 3
_EMPTY_SLOT: Final = bytes(16)


class CacheDirectory:
    """One cache directory, open: its paths, policy, accounting page, locks, and how it states recency."""

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

        Raises :class:`UnsafeCacheDirError`, :class:`FormatError`, or the plain :class:`OSError` of a path that
        cannot be made or is not a directory. A directory that can be read and not written opens.
        """
        #: Whether nothing may be made or changed: asked for, or decided by :meth:`only_read`.
        self.is_read_only, self.why_read_only = is_read_only, ""
        self._sharing = PRIVATE if group is False else resolve_sharing(group)
        self.layout = Layout(root, is_shared=self._sharing.is_shared)
        #: Whether a group shares it, so that files must be made for all of its members.
        self.is_shared = self._sharing.is_shared
        self.policy = DirectoryPolicy(self.layout)
        self.policy.directory = weakref.ref(self)
        #: The shard locks, by shard number.
        self.locks = ShardLocks(self.layout, lock_timeout_seconds)
        self.lock_timeout_seconds = lock_timeout_seconds
        #: Whether this object has counted what the directory holds, which may be over its cap: a copied one, say.
        self.was_counted = False
        self._between_shards = between_shards
        self._first_cap_bytes = first_cap_bytes
        self._attaching = threading.RLock()  # a signal handler may ask during it
        #: The number and the text of the error for which there is no page, if there is none after the opening.
        self.why_no_page: tuple[int | None, str] = (None, "")
        #: The accounting page, as it was attached last; not checked, as a writer does under a lock.
        self.page: StatePage | None = None
        # Of the page that was attached last.
        self._identity: tuple[int, int, int, int] | None = None
        #: States uses of entries.
        self.recency: Recency
        after_fork_in_child(self)
        self._prepare()
        if self.usage_if_writable() is None:
            self.policy.load()

    @AskedOnce
    def room_lock(self) -> ProcessLock:
        """The lock of the head of the queue for room."""
        return ProcessLock(self.layout.room_lock, self.lock_timeout_seconds, layout=self.layout)

    @AskedOnce
    def lock(self) -> ProcessLock:
        """The lock of what the directory states of itself, and of its counters."""
        return ProcessLock(self.layout.directory_lock, self.lock_timeout_seconds, layout=self.layout)

    def only_read(self, why: str = "it was asked for") -> None:
        """Make and change nothing from now on: :meth:`usage` raises, and uses of entries are not stated."""
        self.is_read_only, self.why_read_only = True, why
        self.recency = UnstatedRecency(self.layout.root)

    def refuse_if_read_only(self) -> None:
        """Raise :class:`PermissionError` where nothing may be changed, before anything is."""
        if self.is_read_only:
            what = f"this cache only reads the directory, and changes nothing ({self.why_read_only})"
            raise PermissionError(errno.EROFS, what, self.layout.root)

    def usage(self) -> StatePage:
        """Returns the accounting page; attaches it again if the directory was deleted or replaced.

        Raises :class:`OSError` where it cannot be: on a read-only directory, EROFS or EACCES.
        """
        usage = self.page
        if usage is None or not usage.is_at(self.layout.state) or not usage.is_own():
            usage = self._attach(usage)
        return usage

    def usage_if_writable(self) -> StatePage | None:
        """Returns :meth:`usage`, but ``None`` for a directory that may not be written, or has no page and a full disk.

        Returns ``None`` also while another process counts it for longer than the lock timeout: its entries can be read.
        """
        try:
            return self.usage()
        except OSError as error:
            if error.errno not in _NOT_WRITABLE and not isinstance(error, LockTimeoutError):
                raise
            # Not the error, which would keep its frames, and what is open in them.
            self.why_no_page = error.errno, in_words(error)
            return None

    @contextlib.contextmanager
    def locked(self) -> Iterator[StatePage]:
        """Yields the page, to change what stands in its head. Raises :class:`OSError`.

        Where the lock cannot be had (no locks here, a holder that hangs) it is changed without.
        """
        for _ in range(_MOST_PAGES):
            usage, hold = self.usage(), None
            with contextlib.suppress(OSError):
                hold = self.lock.hold(self.lock_timeout_seconds)
            try:
                if usage.is_at(self.layout.state):
                    yield usage
                    return
            finally:
                if hold is not None:
                    hold.release()
        raise LockTimeoutError(f"{self.layout.state}: replaced again and again", self.layout.state)

    @contextlib.contextmanager
    def counting(self, patience_seconds: float) -> Iterator[HeldCounters]:
        """Yields the counters of all programs, which no other thread or process changes meanwhile.

        Makes no page: where the directory was deleted, nothing is counted. Raises :class:`OSError`, and
        :class:`LockTimeoutError` where others held them for longer than that.
        """
        hold = self.lock.hold(patience_seconds)
        try:
            page = self.page
            if page is None or not page.was_at(self.layout.state):
                stated = self.policy.stated
                page = open_page(self.layout, self.policy)
                self.policy.stated = stated  # with which the next attachment compares: a cap may have been lost
            if page is None:
                raise FileNotFoundError(errno.ENOENT, "there is no page to count on", self.layout.state)
            yield HeldCounters(page)
        finally:
            hold.release()

    def held(self) -> Slot:
        """Returns what the directory holds: as accounted, or as measured where there is no accounting.

        Raises :class:`OSError` where the disk gives no answer.
        """
        with contextlib.suppress(OSError):
            usage = self.usage_if_writable()
            if usage is not None:
                return usage.total()
        other_bytes = bytes_beside(self.layout)
        shards = range(SHARDS)
        return total_of(measure_shard_in_full(self.layout, shard, other_bytes[shard])[0] for shard in shards)

    @property
    def space(self) -> Space:
        """The sizes that files and folders count for in this directory. Raises :class:`OSError`."""
        return space_of(self.layout)

    def limit_bytes(self) -> int | None:
        """Returns what entries and reservations may add up to now; ``None`` for no limit. Raises :class:`OSError`."""
        return self.policy.current().entries_limit_bytes(self.space)

    def attached(self) -> StatePage:
        """Returns :attr:`page`, or :meth:`usage` where there is none yet."""
        return self.page or self.usage()

    def check(self) -> None:
        """Refuse the directory as opening it now would, and make nothing: it may have been opened to others since."""
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
        for shard, lock in [*self.locks.items()]:
            if lock.is_in_doubt():
                with contextlib.suppress(OSError):  # a recount finds it
                    self.hold_shard(shard)[0].release()
        with self._attaching:
            if self.page is not None:
                self.page.will_be_dropped()
            self.page = None
        self._close_locks()

    def hold_shard(
        self, shard: int, until: float | None = None, page: StatePage | None = None
    ) -> tuple[Hold, StatePage, bytes]:
        """Take a shard's lock, and the page that is in force under it, with what it states. Raises :class:`OSError`.

        A page that is made again counts each shard under its lock: so what was changed before is counted, and what is
        changed from here on has to be accounted for on the new page; but see :meth:`.NfsPage.was_at`.

        ``until``: the end of the wait, in monotonic seconds; by default after the lock's own timeout. ``page``: the one
        that has been in force so far, by default the directory's.
        """
        lock, page, pages = self.locks[shard], page or self.page or self.usage(), 0
        while True:
            # Nearly always at once, and 1 us less than to begin with a deadline.
            hold = lock.try_hold() or lock.hold(
                lock.timeout_seconds if until is None else max(0.0, until - time.monotonic())
            )
            try:
                image = page.read_if_at(self.layout.state, shard)
                if image is not None:
                    if lock.was_made:  # the first lock of a shard with nothing in it, or one in the place of another
                        lock.was_made, lock.was_removed = False, lock.was_removed or not image.endswith(_EMPTY_SLOT)
                    if lock.was_removed:
                        self.count_again_locked(shard, page)
                        image = page.image()
                    return hold, page, image
            except BaseException:
                hold.release()
                raise
            hold.release()
            pages += 1
            if pages >= _MOST_PAGES and (until is None or time.monotonic() > until):
                raise LockTimeoutError(f"{self.layout.state}: replaced again and again", self.layout.state)
            page = self.usage()

    def count_again_locked(self, shard: int, page: StatePage) -> None:
        """Make a shard's slot say what its disk holds, once its lock's file was removed. Requires: shard lock.

        A purge of old files takes the file, and then another process may have changed the slot at the same time.
        """
        self.refuse_planted(shard)
        found = measure_shard(self.layout, shard)
        if found != page.slot(shard):  # which refuses a descriptor that is the program's by now
            page.set_locked(shard, found)
        self.locks[shard].note_counted()

    def refuse_planted(self, shard: int) -> None:
        """Raise :class:`.PlantedFolderError` where a symlink stands for a folder that a count of the shard lists.

        It would count as an empty one, and the directory would outgrow its cap once the folder is back.
        """
        layout = self.layout
        above = layout.own, layout.tmp, layout.entries, layout.records, layout.views, layout.quarantine
        for folder in (*above, *layout.shard_folders(shard)):
            refuse_symlink(folder)

    def count_again_all_locked(self, policy: Policy | None = None) -> None:
        """Put a page into place that is counted from the disk, with another policy if one is given.

        Requires: the directory's lock. Raises :class:`OSError`.
        """
        count = FirstCount(self.layout, self.policy, self.locks, self._between_shards, self._first_cap_bytes)
        count.replace_page_locked(policy)

    def _close_locks(self) -> None:
        for lock in [*self.locks.values(), *(vars(self)[name] for name in ("room_lock", "lock") if name in vars(self))]:
            lock.close()

    def _after_fork_in_child(self) -> None:
        self._attaching = threading.RLock()
        close_inherited(self.layout)

    def _prepare(self) -> None:
        root = self.layout.root
        if self.is_read_only:
            os.stat(root)
            check_folders(self.layout, self._sharing)
            self.only_read()
            return
        make_root(root, self._sharing)
        missing = check_folders(self.layout, self._sharing)  # before anything is made in it
        if self.is_shared:  # made again later, it is for the same group
            self._sharing = Sharing(True, os.stat(root).st_gid)
        try:
            for path in missing:
                self.layout.reach.make_folder(path)
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
        self.recency = Recency(root, self.layout.is_network)

    def _make(self) -> None:
        root, *below = self.layout.directories()
        make_root(root, self._sharing)
        for path in below:
            self.layout.reach.make_folder(path)

    def _attach(self, seen: StatePage | None) -> StatePage:
        self.refuse_if_read_only()
        with self._attaching:
            if self.page is not None and self.page is not seen:
                return self.page  # another thread was faster
            if seen is not None:
                seen.will_be_dropped()
                self._close_locks()  # they may be those of a directory that was moved away
            before, older = self.policy.stated.policy, self._identity
            usage = open_page(self.layout, self.policy) or self._create_page()
            self.page, self._identity = usage, usage.identity
            if older not in (None, usage.identity) and self.policy.latest == Policy() != before:
                # Deleted underneath, and made again by a process that did not know the policy.
                self.policy.want(before)
            if self.policy.wanted is not None:
                with contextlib.suppress(OSError):  # then this process alone keeps to it for now
                    self.policy.publish_wanted()
            return usage

    def _create_page(self) -> StatePage:
        """Make the page at the first use of this directory by any lockcache: count what cuda.core, say, has stored.

        Also where the page was lost, damaged, or copied with the directory. There may be writers that have an older
        page attached: once it is replaced they find out, each under a shard's lock, before they account for anything,
        and wait for the new one. So the new page has every reservation that stands.

        Other threads of this process wait in :meth:`_attach` meanwhile, a second for some 300,000 entries and one on
        NFS, whatever their deadline: there is nothing that they could account on. Readers do not come here.
        """
        self._make()
        part_from_original(self.layout, self.lock_timeout_seconds)
        with self.lock:
            # The process before us may be on another host, and this host may remember its files as missing.
            self.layout.hosts.look(self.layout.own)
            page = open_page(self.layout, self.policy)
            if page is not None:
                return page
            self.count_again_all_locked()
            self.was_counted = True
            page = open_page(self.layout, self.policy)
        if page is None:
            raise FileNotFoundError(errno.ENOENT, "the directory is being deleted underneath", self.layout.state)
        return page
