"""Seeding: copies a bundle below a directory, once for all of its processes, and takes it away.

Decides when: the first process that opens the directory with a seed copies the file, from wherever it is, while the
others wait for it; from then on all read that copy, and nobody asks the file's own file system for anything. Once a
minute one process that opens the directory looks whether the file was replaced, and copies it again if so. The seed of
an operator counts over a program's, and of programs the last one's counts. In a directory that a group shares nobody
follows a path that another member may have written: the copy is made by those who name the file themselves.

Keeps invariant 3 (hard cap): the copy takes its bytes from what the cap leaves for entries (:class:`.policy.Seed`)
before it is made; it is refused where that would be more than half of the cap, and where what is evicted is not enough.
Keeps invariant 2 (last write wins): a copy appears and goes with the locks of all shards held. What the older one did
not serve any more the newer one does not serve, and the older one serves nothing from then on. Attaching a seed stores
what the directory does not have. Keeps invariant 5 (death is free): the policy states which file was copied after it
was; a death before leaves a copy to be made again, in the place of what was left. Keeps invariant 7 (never take the job
down): for a program a seed that cannot be had is a line in the log, and is not tried again before it is another file.

Only on local file systems: on others the copy would be as far away as the bundle itself, and marks in it would reach
other hosts late.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from lockcache.errors import ArchiveError, LockTimeoutError, in_words
from lockcache.filestream.bundle import refuse_unsafe
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    READ,
    SHARDS,
    UPDATE,
    Descriptor,
    Layout,
    ProcessLock,
    ShardLocks,
    create_below,
    naming,
    open_below,
    opened,
    rename_below,
    unlink_below,
    write_all,
)
from lockcache.filestream.eviction import Evicted
from lockcache.filestream.policy import Seed, most_seed_bytes
from lockcache.filestream.room import evict_to_policy
from lockcache.filestream.seed import has_seed, hidden_in, hide_in, is_in_order, opened_seed, stands, withdraw

_log = logging.getLogger("lockcache")

# Between two looks whether the file was replaced.
_LOOKED_SECONDS: Final = 60.0

# For how long a program waits for another one's copy, and then goes on without a seed.
_LONGEST_WAIT_SECONDS: Final = 15.0
# The same where one stands, which can be read meanwhile.
_WAIT_FOR_NEWER_SECONDS: Final = 1.0
_WAIT_FOR_SHARDS_SECONDS: Final = 2.0

# For a lock of a shard, with those before it held.
_SHARD_SECONDS: Final = 0.05

# What a parallel file system reads ahead.
_AT_ONCE_BYTES: Final = 4 << 20


def seed_if_possible(directory: CacheDirectory, path: str, cap: int | None, *, is_signed: bool) -> Evicted:
    """Have the bundle at ``path`` (empty: the one that the policy names) below the directory. Raises nothing.

    ``cap``: the one that the program states. ``is_signed``: whether only signed entries are served, so that it may be
    anybody's. Returns what was evicted for it.
    """
    root, policy = directory.layout.root, directory.policy.current()
    seed = policy.seed
    if (not path and seed is None) or directory.is_read_only:
        return Evicted()
    if cap is None or policy.by_operator:
        cap = policy.max_size_bytes
    if seed is not None and path != seed.path and (seed.by_operator or not path):
        if path:
            _log.warning("%s: seed=%s is not applied, an operator set it to %s", root, path, seed.path)
        if directory.is_shared:
            return Evicted()
        path = seed.path
    try:
        return attach_seed(directory, path, cap, is_signed=is_signed)
    except LockTimeoutError as error:
        level = logging.DEBUG if stands(directory.layout) else logging.WARNING
        _log.log(level, "%s: a seed is not waited for: %s", root, in_words(error))
    except FileNotFoundError as error:
        _log.info("%s: there is no seed yet: %s", root, in_words(error))
    except (OSError, ArchiveError) as error:
        _log.warning("%s: no seed is read: %s", root, in_words(error))
    return Evicted()


def attach_seed(
    directory: CacheDirectory, path: str, cap: int | None, *, is_signed: bool, by_operator: bool = False
) -> Evicted:
    """Have the bundle at ``path`` below the directory, copied if it is not there yet. Returns what was evicted for it.

    ``by_operator``: it counts over what programs ask for, and is attached again where ``clear`` took it away.

    Raises :class:`OSError` (:class:`UnsafeCacheDirError` for a file that others could have changed) and
    :class:`ArchiveError`; then the seed is what it was.
    """
    layout = directory.layout
    if layout.is_network:
        what = "a seed is copied to a directory on a local disk, and this one is on a network file system"
        raise OSError(errno.EXDEV, what, layout.root)
    if not by_operator and _was_looked_at(directory, path):
        return Evicted()
    is_urgent = by_operator or not stands(layout)
    with _seed_lock(directory, _LONGEST_WAIT_SECONDS if is_urgent else _WAIT_FOR_NEWER_SECONDS):
        if not by_operator and _was_looked_at(directory, path):
            return Evicted()  # another process copied it while we waited
        try:
            _settle_locked(directory)  # also where the file is gone by now
            with opened(path, READ & ~os.O_NOFOLLOW) as fd:
                return _attach_locked(directory, fd, path, cap, is_signed=is_signed, by_operator=by_operator)
        finally:
            with open_below(layout, layout.seed_lock, READ) as lock_fd:
                os.utime(lock_fd)


def detach_before_cap(directory: CacheDirectory, cap: int | None) -> None:
    """Take the seed away where the cap that a program states is too small for it. Raises nothing.

    For an operator's cap, or none that is stated, the one that the directory has.
    """
    policy = directory.policy.current()
    if not directory.is_read_only:
        detach_if_too_large(directory, policy.max_size_bytes if cap is None or policy.by_operator else cap)


def detach_if_too_large(directory: CacheDirectory, cap: int | None) -> None:
    """Take the seed away where a new cap is too small for it: no eviction could. Raises nothing."""
    seed = directory.policy.current().seed
    if seed is None or not _is_too_large(seed, cap):
        return
    root = directory.layout.root
    try:
        # While it is being replaced two are counted, and who replaces it looks at the cap.
        with _seed_lock(directory, directory.room_lock.timeout_seconds if seed.version else 0.0):
            _settle_locked(directory)
            seed = directory.policy.current().seed
            if seed is None or not _is_too_large(seed, cap):
                return
            _detach_locked(directory)
        _log.warning("%s: its seed of %s bytes is taken away: it is more than half of the cap", root, seed.bytes)
    except LockTimeoutError as error:
        _log.debug("%s: its seed is being replaced: %s", root, error)
    except OSError as error:
        _log.warning("%s: its seed is more than half of the cap, and cannot be taken away: %s", root, in_words(error))


def detach_seed(directory: CacheDirectory) -> None:
    """Take the seed away, of which no process reads anything from then on.

    It is not attached again until the file is another, or an operator says so. Raises :class:`OSError`.
    """
    if directory.policy.current().seed is None and not has_seed(directory.layout):
        return
    with _seed_lock(directory, directory.room_lock.timeout_seconds):
        _detach_locked(directory)


def _detach_locked(directory: CacheDirectory) -> None:
    """Requires: the seed's lock."""
    layout, seed = directory.layout, directory.policy.current().seed
    seconds = directory.room_lock.timeout_seconds
    with _all_shards(directory, seconds, needs_all=False), opened_seed(layout, UPDATE) as fd:
        if fd is not None:
            withdraw(fd)
    # Before it goes: of one that is gone, and not known to be detached, the next opener would make another copy, with
    # nothing of it hidden.
    if seed is not None and not seed.is_detached:
        directory.policy.replace_seed(replace(seed, is_detached=True, by_operator=False))
    for path in (layout.seed, _staged(layout)):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            unlink_below(layout, path)


@contextlib.contextmanager
def _seed_lock(directory: CacheDirectory, seconds: float) -> Iterator[None]:
    lock = ProcessLock(directory.layout.seed_lock, seconds, layout=directory.layout)
    hold = lock.hold(seconds)
    try:
        yield
    finally:
        hold.release()
        lock.close()


@contextlib.contextmanager
def _all_shards(directory: CacheDirectory, seconds: float, *, needs_all: bool = True) -> Iterator[None]:
    """No removal comes in between: it would mark a copy that is not the one that is read from then on.

    A lock that somebody else has is waited for some milliseconds, and then all are given back for a while: who is
    stopped with one of them must not stop the writers of other shards. ``needs_all=False``: where so many files cannot
    be opened it is done without. Raises :class:`OSError`.
    """
    until = time.monotonic() + seconds
    locks = ShardLocks(directory.layout, seconds, is_shared=directory.is_shared)
    try:
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    for shard in range(SHARDS):
                        stack.callback(locks[shard].hold(_SHARD_SECONDS).release)
                    break
                except OSError as error:
                    stack.close()
                    if error.errno in (errno.EMFILE, errno.ENFILE) and not needs_all:
                        break
                    if not isinstance(error, LockTimeoutError) or time.monotonic() > until:
                        raise
                time.sleep(_SHARD_SECONDS)
            yield
    finally:
        for lock in locks.values():
            lock.close()


def _staged(layout: Layout) -> str:
    """Where the copy is made. One name, so that the next one takes the place of what a death left."""
    return f"{layout.seed}.new"


def _is_too_large(seed: Seed, cap: int | None) -> bool:
    return cap is not None and seed.held_bytes > most_seed_bytes(cap)


def _was_looked_at(directory: CacheDirectory, path: str) -> bool:
    """Whether some process of this host compared the seed with its file within the last minute."""
    seed, layout = directory.policy.current().seed, directory.layout
    if seed is None or seed.path != path or not seed.version:
        return False
    try:
        looked = os.stat(layout.seed_lock, follow_symlinks=False).st_mtime
    except OSError:
        return False
    # Nor in the future, by a clock that was set back.
    return 0 <= time.time() - looked < _LOOKED_SECONDS and (seed.is_detached or has_seed(layout))


def _settle_locked(directory: CacheDirectory) -> None:
    """Take away what a death left: a copy half made, and one that was detached. Requires: the seed's lock."""
    layout, seed = directory.layout, directory.policy.current().seed
    paths = [_staged(layout)]
    if seed is not None and seed.is_detached:
        paths.append(layout.seed)
    for path in paths:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            unlink_below(layout, path)
    if seed is not None and not seed.version:
        with opened_seed(layout) as fd:
            left = None if fd is None else directory.space.of_bytes(os.fstat(fd).st_size)
        # Of the older one, whose file is not known any more.
        directory.policy.replace_seed(None if left is None else replace(seed, bytes=left, version="unknown"))


def _attach_locked(
    directory: CacheDirectory, source_fd: int, path: str, cap: int | None, *, is_signed: bool, by_operator: bool
) -> Evicted:
    """Requires: the seed's lock, and that it is settled what a death left."""
    layout, before = directory.layout, directory.policy.current().seed
    status = os.fstat(source_fd)
    refuse_unsafe(path, status, is_signed=is_signed)
    stays_operators = before is not None and before.path == path and before.by_operator
    version = f"{status.st_size}.{status.st_mtime_ns}"
    wanted = Seed(path, directory.space.of_bytes(status.st_size), version, by_operator or stays_operators)
    if before is not None and (before.path, before.version) == (path, version):
        if before.is_detached and not by_operator:
            return Evicted()
        if not before.is_detached and stands(layout):
            if before != wanted:
                directory.policy.replace_seed(wanted)
            return Evicted()
    if _is_too_large(wanted, cap):
        what = f"{path} takes {wanted.bytes} bytes, more than half of the cap of {layout.root} ({cap})"
        raise ArchiveError(f"{what}; for a smaller one run: lockcache bundle merge --max-size")
    # Before anything is evicted for it, or shown to a group.
    if not is_in_order(source_fd):
        if before is None or before.is_detached:  # it is not tried again while it is the same
            directory.policy.replace_seed(replace(wanted, is_detached=True))
        what = f"{path} is not a bundle, is damaged, or is being written"
        raise ArchiveError(f"{what}; for more run: lockcache bundle verify {shlex.quote(path)}")
    return _replace_locked(directory, source_fd, status.st_size, wanted)


def _replace_locked(directory: CacheDirectory, source_fd: int, size_bytes: int, wanted: Seed) -> Evicted:
    layout, before = directory.layout, directory.policy.current().seed
    with opened_seed(layout) as older_fd:
        older_bytes = 0 if older_fd is None else directory.space.of_bytes(os.fstat(older_fd).st_size)
    # With the older one, which stands until then. Without a version: who comes after our death copies again.
    directory.policy.replace_seed(replace(wanted, bytes=wanted.bytes + older_bytes, version=""))
    try:
        evicted = _make_room(directory)
        _copy(directory, source_fd, size_bytes, wanted)
    except BaseException:
        # First, for it may fill the disk: to state anything takes a block.
        with contextlib.suppress(OSError):
            unlink_below(layout, _staged(layout))
        # If it is withdrawn already, it is to be copied again.
        directory.policy.replace_seed(before)
        raise
    directory.policy.replace_seed(wanted)
    return evicted


def _make_room(directory: CacheDirectory) -> Evicted:
    evicted = evict_to_policy(directory, directory.policy.current())
    limit_bytes = directory.limit_bytes()
    if limit_bytes is not None and directory.usage().total_bytes() > limit_bytes:
        what = "there is no room for a seed: too much of the directory is in use"
        raise OSError(errno.ENOSPC, what, directory.layout.root)
    return evicted


def _copy(directory: CacheDirectory, source_fd: int, size_bytes: int, wanted: Seed) -> None:
    layout, made = directory.layout, Descriptor()
    create_below(layout, _staged(layout), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, made)
    with made as fd:
        left = size_bytes  # however it grows meanwhile
        with naming(layout.seed):
            while left and (part := os.read(source_fd, min(left, _AT_ONCE_BYTES))):
                write_all(fd, part)
                left -= len(part)
        if not is_in_order(fd):
            raise ArchiveError(f"{wanted.path} was changed while it was copied: replace a bundle by rename")
        with opened_seed(layout, UPDATE) as older_fd:
            # Most of what is hidden is hidden before the locks are taken.
            known = set() if older_fd is None else hidden_in(older_fd)
            hide_in(fd, known)
            with _all_shards(directory, _WAIT_FOR_SHARDS_SECONDS):
                if older_fd is not None:
                    hide_in(fd, withdraw(older_fd) - known)
                rename_below(layout, _staged(layout), layout.seed)
