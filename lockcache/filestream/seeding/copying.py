# SPDX-License-Identifier: Apache-2.0
"""The copy of a bundle below a directory: how it is made, replaces an older one, and is removed.

Keeps invariant 3 (hard cap): the copy takes its bytes from what the cap leaves for entries (:class:`.policy.Seed`)
before it is made. Keeps invariant 5 (death is free): the policy states which file was copied after it was; a death
before leaves a copy to be made again, in the place of what was left.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import replace

from lockcache.errors import ArchiveError
from lockcache.filestream.accounting import space_of
from lockcache.filestream.admission import evict_to_policy
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import UPDATE, Layout, Space
from lockcache.filestream.eviction import Evicted
from lockcache.filestream.policy import Seed, most_seed_bytes
from lockcache.filestream.seed_marks import (
    is_in_order,
    opened_seed,
    staged_copy,
    staged_seed,
    wait_for_readers,
    withdraw,
)

__all__ = ["detached", "largest_bundle_bytes", "replace_copy", "settle", "take_away"]


def largest_bundle_bytes(layout: Layout, cap: int) -> int:
    """Returns how long a bundle may be at most for a directory with this cap to be seeded with."""
    return space_of(layout).largest_file_bytes(most_seed_bytes(cap))


def detached(seed: Seed) -> Seed:
    """Returns a seed as one that is not there."""
    return replace(seed, bytes=0, is_detached=True, by_operator=False)


def settle(directory: CacheDirectory) -> None:
    """Remove what a death left: a half made copy, and one that was detached. Requires: the seed's lock."""
    layout, seed = directory.layout, directory.policy.current().seed
    _unlink(layout, staged_seed(layout))
    if seed is not None and seed.is_detached:
        _take_file(layout)
    if seed is not None and not seed.version:
        left_bytes = _copy_bytes(layout, directory.space)
        # Which file it is the copy of is no longer known.
        directory.policy.replace_seed(replace(seed, bytes=left_bytes, version="unknown") if left_bytes else None)


def replace_copy(directory: CacheDirectory, source_fd: int, size_bytes: int, wanted: Seed) -> Evicted:
    """Copy a bundle, and have it read from then on. Returns what was evicted for it.

    Raises :class:`OSError` and :class:`ArchiveError`; then the seed is what it was. Requires: the seed's lock, and that
    it is settled what a death left.
    """
    layout, before = directory.layout, directory.policy.current().seed
    # Counted with the older copy, which stays until then. Without a version: if this process dies, the next one copies
    # again.
    most_bytes = wanted.bytes + _copy_bytes(layout, directory.space)
    directory.policy.replace_seed(replace(wanted, bytes=most_bytes, version=""))
    try:
        evicted = _make_room(directory)
        _copy(layout, source_fd, size_bytes, wanted)
    except BaseException:
        # First, because the copy may fill the disk, and every statement takes a block.
        with contextlib.suppress(OSError):
            _unlink(layout, staged_seed(layout))
        directory.policy.replace_seed(before)
        raise
    directory.policy.replace_seed(wanted)
    return evicted


def take_away(directory: CacheDirectory) -> None:
    """Take the copy away, and a half made one, and state that. Raises :class:`OSError`. Requires: the seed's lock."""
    layout, seed = directory.layout, directory.policy.current().seed
    _unlink(layout, staged_seed(layout))  # first: there may be no block for anything else
    _take_file(layout)
    if seed is not None and seed != detached(seed):
        directory.policy.replace_seed(detached(seed))


def _take_file(layout: Layout) -> None:
    with opened_seed(layout, UPDATE) as fd:
        do_readers_know = fd is None or withdraw(fd)
        _unlink(layout, layout.seed)
    if not do_readers_know:
        wait_for_readers()


def _copy_bytes(layout: Layout, space: Space) -> int:
    """Returns what the copy that stands takes; 0 for none."""
    with opened_seed(layout) as fd:
        return 0 if fd is None else space.of_bytes(os.fstat(fd).st_size)


def _unlink(layout: Layout, path: str) -> None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        layout.reach.unlink(path)


def _make_room(directory: CacheDirectory) -> Evicted:
    evicted = evict_to_policy(directory, directory.policy.current())
    limit_bytes = directory.limit_bytes()
    if limit_bytes is not None and directory.usage().total_bytes() > limit_bytes:
        what = "there is no room for a seed: too much of the directory is in use"
        raise OSError(errno.ENOSPC, what, directory.layout.root)
    return evicted


def _copy(layout: Layout, source_fd: int, size_bytes: int, wanted: Seed) -> None:
    with staged_copy(layout, source_fd, size_bytes) as fd:  # of its size, however it grows meanwhile
        if not is_in_order(fd):
            raise ArchiveError(f"{wanted.path} was changed while it was copied: replace a bundle by rename")
        with opened_seed(layout, UPDATE) as older_fd:
            # First: after a death in between it is copied again, and nobody reads the older one for ever.
            do_readers_know = older_fd is None or withdraw(older_fd)
            layout.reach.rename(staged_seed(layout), layout.seed)
    if not do_readers_know:
        wait_for_readers()
