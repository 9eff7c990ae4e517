"""The copy of a bundle below a directory: how it is made, replaces an older one, and is removed.

Keeps invariant 3 (hard cap): the copy takes its bytes from what the cap leaves for entries (:class:`.policy.Seed`)
before it is made, and with them what noting its marks may take once it goes. Keeps invariant 2 (last write wins): a
copy appears and goes with the locks of all shards held. Entries that the older copy no longer served, or over which the
directory has stored, are not served by the newer one; those that the newer one lacks get
tombstones before the older one is removed, so that no later copy serves them. Keeps invariant 5 (death is free): the
policy states which file was copied after it was; a death before leaves a copy to be made again, in the place of what
was left.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import replace
from typing import Final

from lockcache.errors import ArchiveError
from lockcache.filestream.accounting import names_in
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    SHARDS,
    UPDATE,
    Descriptor,
    Layout,
    create_below,
    is_entry_file,
    naming,
    rename_below,
    unlink_below,
    write_all,
)
from lockcache.filestream.eviction import Evicted
from lockcache.filestream.policy import Seed
from lockcache.filestream.room import evict_to_policy
from lockcache.filestream.seed_marks import entries_of, hidden_in, hide_in, is_in_order, known_in, opened_seed, withdraw
from lockcache.filestream.seeding.locking import all_shards
from lockcache.filestream.seeding.tombstones import Tombstones, read_tombstones, taken_by_tombstones, write_tombstones

__all__ = ["detached", "replace_copy", "settle", "take_away", "taken_bytes"]

_WAIT_FOR_SHARDS_SECONDS: Final = 2.0

# The read-ahead of a parallel file system.
_AT_ONCE_BYTES: Final = 4 << 20


def taken_bytes(directory: CacheDirectory, size_bytes: int, entries: int) -> int:
    """Returns what a copy takes of the cap: the file, and the names that it may leave when it goes."""
    space = directory.space
    return space.of_bytes(size_bytes) + space.of_bytes(taken_by_tombstones(directory.layout, entries))


def detached(directory: CacheDirectory, seed: Seed) -> Seed:
    """Returns a seed as one that is not there, and takes no more than the tombstones of those before."""
    bytes_ = directory.space.of_bytes(taken_by_tombstones(directory.layout))
    return replace(seed, bytes=bytes_, is_detached=True, by_operator=False)


def settle(directory: CacheDirectory) -> None:
    """Remove what a death left: a half made copy, and one that was detached. Requires: the seed's lock."""
    layout, seed = directory.layout, directory.policy.current().seed
    _unlink(layout, _staged(layout))
    if seed is not None and seed.is_detached:
        _unlink(layout, layout.seed)
        if seed != detached(directory, seed):  # lockcache 0.2.0 left what the copy had taken
            directory.policy.replace_seed(detached(directory, seed))
    if seed is not None and not seed.version:
        with opened_seed(layout) as fd:
            left = None if fd is None else taken_bytes(directory, os.fstat(fd).st_size, entries_of(fd))
        # The names of the older copy, whose file is no longer known.
        directory.policy.replace_seed(None if left is None else replace(seed, bytes=left, version="unknown"))


def replace_copy(
    directory: CacheDirectory, source_fd: int, size_bytes: int, wanted: Seed, tombstones: Tombstones
) -> tuple[Evicted, Tombstones]:
    """Copy a bundle, and have it read from then on. Returns what was evicted for it, and the tombstones by then.

    ``tombstones``: those of earlier copies. Raises :class:`OSError` and :class:`ArchiveError`; then the seed is what
    it was. Requires: the seed's lock, and that it is settled what a death left.
    """
    layout, before = directory.layout, directory.policy.current().seed
    entries = entries_of(source_fd)
    with opened_seed(layout) as older_fd:
        older_bytes = 0 if older_fd is None else directory.space.of_bytes(os.fstat(older_fd).st_size)
        older_entries = 0 if older_fd is None else entries_of(older_fd)
    most_bytes = taken_bytes(directory, size_bytes, entries + older_entries) + older_bytes
    # Counted with the older copy, which stays until then. Without a version: if this process dies, the next one copies
    # again.
    directory.policy.replace_seed(replace(wanted, bytes=most_bytes, version=""))
    try:
        evicted = _make_room(directory)
        tombstones = _copy(directory, source_fd, size_bytes, wanted, tombstones)
    except BaseException:
        # First, because the copy may fill the disk, and every statement takes a block.
        with contextlib.suppress(OSError):
            _unlink(layout, _staged(layout))
        # If it is withdrawn already, it is to be copied again.
        directory.policy.replace_seed(before)
        raise
    directory.policy.replace_seed(replace(wanted, bytes=taken_bytes(directory, size_bytes, entries)))
    return evicted, tombstones


def take_away(directory: CacheDirectory, *, is_cleared: bool) -> None:
    """Take the copy away, and a half made one, and state that. Raises :class:`OSError`; then it is withdrawn at most.

    ``is_cleared``: it is not to come back while its file is the same. Requires: the seed's lock.
    """
    layout, seed = directory.layout, directory.policy.current().seed
    _unlink(layout, _staged(layout))  # first: there may be no block for anything else
    seconds = directory.room_lock.timeout_seconds
    with all_shards(directory, seconds, needs_all=False), opened_seed(layout, UPDATE) as fd:
        leaves = set() if fd is None else withdraw(fd) | _stored_over(layout, fd)
        # One that cannot be read stays: no seed is attached then.
        with contextlib.suppress(ArchiveError):
            tombstones = read_tombstones(layout)
            newer = tombstones.with_names(leaves)
            if is_cleared and seed is not None:
                newer = newer.with_cleared(seed)
            if newer != tombstones:
                write_tombstones(layout, newer)
        _unlink(layout, layout.seed)
    if seed is not None and seed != detached(directory, seed):
        directory.policy.replace_seed(detached(directory, seed))


def _staged(layout: Layout) -> str:
    """Returns the path of the staged copy. It is fixed, so that the next copy replaces what a death left."""
    return f"{layout.seed}.new"


def _unlink(layout: Layout, path: str) -> None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        unlink_below(layout, path)


def _make_room(directory: CacheDirectory) -> Evicted:
    evicted = evict_to_policy(directory, directory.policy.current())
    limit_bytes = directory.limit_bytes()
    if limit_bytes is not None and directory.usage().total_bytes() > limit_bytes:
        what = "there is no room for a seed: too much of the directory is in use"
        raise OSError(errno.ENOSPC, what, directory.layout.root)
    return evicted


def _copy(
    directory: CacheDirectory, source_fd: int, size_bytes: int, wanted: Seed, tombstones: Tombstones
) -> Tombstones:
    layout, made = directory.layout, Descriptor()
    create_below(layout, _staged(layout), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, made)
    with made as fd:
        done = 0  # of its size, however it grows meanwhile
        with naming(layout.seed):
            while part := os.pread(source_fd, min(size_bytes - done, _AT_ONCE_BYTES), done):
                write_all(fd, part)
                done += len(part)
        if not is_in_order(fd):
            raise ArchiveError(f"{wanted.path} was changed while it was copied: replace a bundle by rename")
        with opened_seed(layout, UPDATE) as older_fd:
            # Most of what is hidden is hidden before the locks are taken.
            known = tombstones.names.union(() if older_fd is None else hidden_in(older_fd))
            hide_in(fd, known)
            with all_shards(directory, _WAIT_FOR_SHARDS_SECONDS):
                if older_fd is not None:
                    tombstones = _hand_over(layout, older_fd, fd, known, tombstones)
                rename_below(layout, _staged(layout), layout.seed)
    return tombstones


def _hand_over(layout: Layout, older_fd: int, fd: int, known: frozenset[str], tombstones: Tombstones) -> Tombstones:
    """Withdraw a copy for a newer one, and note what that lacks. Returns the tombstones by then.

    ``known``: what the newer one hides already. Requires: the locks of all shards.
    """
    hidden = withdraw(older_fd)
    hide_in(fd, hidden - known)
    leaves = hidden | _stored_over(layout, older_fd)
    newer = tombstones.with_names(leaves - known_in(fd, leaves))
    if newer != tombstones:
        write_tombstones(layout, newer)
    return newer


def _stored_over(layout: Layout, fd: int) -> set[str]:
    """Returns the names of a copy that are in the directory too: of these nobody would mark it later."""
    names = set()
    for shard in range(SHARDS):
        files = [file for file in names_in(layout, layout.entry_shard(shard)) if is_entry_file(file)]
        names |= known_in(fd, (f"{shard:02x}{file}" for file in files))
    return names
