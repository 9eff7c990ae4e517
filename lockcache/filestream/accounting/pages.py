# SPDX-License-Identifier: Apache-2.0
"""The page of a directory, opened; and made, where there is none that counts.

Keeps invariant 3 (hard cap) across the change from one page to the next: while a new one is made no writer accounts on
the older one, and the policy is in both.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from filelock import lock_descriptor

from lockcache.filestream.accounting.head import NOT_COUNTED, Head, decode_head
from lockcache.filestream.accounting.network_pages import DirectPage, NfsPage, ReopenedPage
from lockcache.filestream.accounting.scan import measure_shard, names_in
from lockcache.filestream.accounting.state import (
    Slot,
    StatePage,
    bytes_in,
    encode_page,
    folder_of,
    is_of,
    read_state,
    replace_state,
    write_state,
)
from lockcache.filestream.accounting.stated_policy import StatedPolicy
from lockcache.filestream.disk import (
    DISK_FULL,
    SHARDS,
    FuseHosts,
    Hosts,
    KeptDescriptor,
    Layout,
    Nfs3Hosts,
    NfsHosts,
    ShardLocks,
    leave_tag,
    probe_space,
    refuse_newer,
)
from lockcache.filestream.policy import Policy

_log = logging.getLogger("lockcache")

# Errors of a mount that does not support O_DIRECT, or only for whole blocks.
_NOT_DIRECT: Final = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
# Of the file systems whose pages are not those of any server.
_KINDS: Final[dict[type[Hosts], type[StatePage]]] = {
    Hosts: StatePage,
    NfsHosts: NfsPage,
    Nfs3Hosts: NfsPage,
    FuseHosts: ReopenedPage,
}
# While another process removes the lock files of a copy, some 300.
_PAUSE_SECONDS: Final = 0.001
_SHARD: Final = re.compile(r"[0-9a-f]{2}", re.ASCII)


def open_page(layout: Layout, policy: StatedPolicy) -> StatePage | None:
    """Returns the page, and notes the policy that it states; ``None`` if it has to be made.

    That is where it is missing, damaged, or a copy of another directory's. Raises :class:`OSError`.
    """
    for is_last in (False, False, True):
        try:
            page = _opened(layout)
            image = page.image()
            head = decode_head(image)
            if head is None:
                refuse_newer(layout, image)
            if head is None or not (is_of(layout, head.folder) and page.is_ours_alone and page.is_at(layout.state)):
                return None
            layout.space = head.space
            most = policy.note(image, head).limit_bytes
            policy.was_exceeded = most is not None and bytes_in(image) > most
            page.begin_use(image)
            return page
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ESTALE or is_last:
                raise
        layout.hosts.look(layout.own)  # another host replaced it while we opened it
    return None


def _opened(layout: Layout) -> StatePage:
    kind = _KINDS.get(type(layout.hosts), DirectPage)
    for flags in kind.ways:
        file = KeptDescriptor()
        try:
            layout.reach.open(layout.state, flags, file)
            return kind(file, layout.hosts)
        except OSError as error:
            # After any other error (a stale handle), this process would not see others change the page.
            if flags == kind.ways[-1] or error.errno not in _NOT_DIRECT:
                raise
    raise AssertionError("unreachable")


def part_from_original(layout: Layout, seconds: float) -> None:
    """Remove the lock files of a copy by hard links, which are those of the directory that it was copied from.

    Only their names here: the other directory keeps them, and no process waits for one of the other directory. Not
    where a page is missing or damaged: nothing tells the two then, and a writer of the other directory would go on
    under a lock that only it has. To be called before any lock of the directory is opened, by each process that may be
    the first one here; they exclude each other by a lock on a folder, of which there are no hard links, for so many
    seconds at most. Raises nothing: what stays is waited for.
    """
    with contextlib.suppress(OSError):
        if not _is_copy(layout):
            return
        with layout.reach.opened(layout.locks) as folder:
            until = time.monotonic() + seconds
            while not lock_descriptor(folder.number, blocking=False) and time.monotonic() < until:
                time.sleep(_PAUSE_SECONDS)
            if not _is_copy(layout):
                return  # another process has done it, and made the page
            for path in _lock_files(layout):
                with contextlib.suppress(OSError):
                    if os.lstat(path).st_nlink > 1:
                        layout.reach.unlink(path)


def _is_copy(layout: Layout) -> bool:
    """Returns whether the page, also one that is being counted, was made in another folder."""
    head = decode_head(read_state(layout))
    return layout.hosts.has_lasting_inodes and head is not None and not _was_made_in(layout, head)


def _was_made_in(layout: Layout, head: Head) -> bool:
    return is_of(layout, head.folder % NOT_COUNTED)


def _lock_files(layout: Layout) -> Iterator[str]:
    yield layout.daemon_lock
    servers = (f"{layout.remote}/{name}" for name in names_in(layout, layout.remote))
    for folder in (layout.locks, layout.leases, *servers):
        yield from (f"{folder}/{name}" for name in names_in(layout, folder))


class FirstCount(NamedTuple):
    """Makes the page of a directory that has none that counts, with what the directory holds."""

    layout: Layout
    policy: StatedPolicy
    locks: ShardLocks
    #: Those of :class:`.CacheDirectory`.
    between_shards: Callable[[], object]
    first_cap_bytes: int | None

    def replace_page_locked(self, policy: Policy | None = None) -> None:
        """Replace the page. Requires: the directory's lock. Raises :class:`OSError`.

        ``policy``: one that is in force from then on, instead of that of the older page.

        First by one that says that it is not counted, which its writers notice, and which has the policy: a death while
        this counts must not lose the cap. On NFS its writers notice within a second.
        """
        layout = self.layout
        older = read_state(layout)
        head = self._next_head(older)
        if policy is not None:
            head = head._replace(policy=policy)
        uncounted = encode_page(head._replace(folder=head.folder + NOT_COUNTED), older=older)
        try:
            replace_state(layout, uncounted)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            # It may well be this cache that fills the disk, and nothing can be evicted without a page.
            with contextlib.suppress(FileNotFoundError):
                layout.reach.unlink(layout.state)
            replace_state(layout, uncounted)
        layout.space = head.space
        is_new = self._is_new()
        if not is_new:
            layout.hosts.wait_out_looks()  # at the older page, see NfsPage.was_at
        slots = [Slot(0, 0)] * SHARDS if is_new else [self._measure(shard) for shard in range(SHARDS)]
        if is_new:
            leave_tag(layout, names_in(layout, layout.root))
        policy, is_capped = head.policy, head.policy.by_operator or head.policy.max_size_bytes is not None
        if self.first_cap_bytes is not None and not is_capped and not any(slot.bytes for slot in slots):
            head = head._replace(policy=replace(policy, max_size_bytes=self.first_cap_bytes, is_default=True))
        # In place: on a full disk there may be no room for a second one.
        write_state(layout, encode_page(head, slots, older))

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
        self.between_shards()
        hold = None
        # A shard without a lock file was not accounted for yet, and a writer that comes now waits for us.
        if os.path.exists(self.layout.lock(shard)):
            with contextlib.suppress(OSError):  # a hanging holder, or a symlink for a folder: without the lock
                hold = self.locks[shard].hold(self.locks[shard].timeout_seconds)
        try:
            return measure_shard(self.layout, shard, between=self.between_shards)
        finally:
            if hold is not None:
                hold.release()

    def _next_head(self, older: bytes) -> Head:
        """Returns the head of the next page: what the older one stated, or else this process knows.

        The sizes that count are those of the file system, unless it is the same directory.
        """
        layout = self.layout
        stated, folder = decode_head(older), folder_of(layout)
        if stated is None:
            if older:
                _log.warning("%s is damaged: what the directory holds is counted again", layout.state)
            return Head(folder, probe_space(layout.root), replace(self.policy.latest, seed=None))
        if _was_made_in(layout, stated):
            return stated._replace(folder=folder)
        return Head(folder, probe_space(layout.root), stated.policy)
